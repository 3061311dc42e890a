"""Is cluster_image/PROTOCOL.md true? Each row names a rule and tests. Here each rule is dropped in turn, and its row's
tests must fail: `make protocol-table`.

- `rows.py` reads the table.
- `drops/` says, row by row, what dropping its rule is: a change of one source file. It must leave code that runs, and
  do away with what the row states, no more.
- `without.py` runs tests in a process of their own that imports the changed file; no file is touched.
- `verified.txt` notes what each row was verified with: a digest of its rule, its drop and its tests. What differs from
  it is verified anew in CI (`--changed`), with a seeded tenth of the others.

A row whose rule cannot be dropped says why: its statement ends with `*Not dropped:*` and a reason.
"""
