"""Everything that a run left, on one time line: what nodes logged and traced, faults, and what clients did.

`nodes` reads logs and traces, `clock` puts wall clocks on the time line of the history, `violations` numbers what the
checkers found and says when it happened, `lines` merges all of it around a moment. `partitions` tells who led each
partition when, and `story` what happened to one of them, in order. `chaos logs` and the report use them.

Times are monotonic nanoseconds, as in the history, until they are shown: then seconds since the first operation.
"""
