"""Fuzzing of everything that reads bytes which others wrote: peers, clients, and a disk after a crash.

    make fuzz                                   every target in turn, 20 minutes together
    make fuzz FUZZ_SECONDS=60 ARGS=requests     one target, a minute
    python -m tests.fuzz --input FILE TARGET    one input again

Where Atheris is installed it drives the targets: coverage of `cluster_image` guides what is tried next, and what was
worth keeping is kept in `.fuzz/` for the next time. Elsewhere the seeds are damaged at random (mutation.py). Each
target runs in a child process with little memory to spare, so that what would end a node ends the child, and its input
is kept.

An input that was a finding once is in `inputs/<target>/` and is tried again by tests/fuzz/test_fuzz.py.
"""
