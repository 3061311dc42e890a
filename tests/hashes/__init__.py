"""What this project did before a change, stored, to be compared with what it does after one that should change nothing:

    python -m tests.hashes              compares, and prints what differs
    python -m tests.hashes --write      stores anew

traces.txt has the trace hash of 50 seeds under each of five nemeses; commands/ what each command prints; saved/ runs of
an earlier state and what was found in them. What may differ from one machine or day to the next (times, dates, paths)
is replaced by a word in angle brackets before texts are compared.
"""
