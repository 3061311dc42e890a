"""How good explorations are at finding bugs, measured: `chaos prove`.

`search` explores for many bugs at once, `proving` makes of what was found the smallest run that shows it, and sees that
the same run without the bug passes; `table` tells of it all. `mutation` does the first for mutants of the code, drawn
as mutants.toml says. `pinned` keeps the smallest runs, to be repeated in a minute.
"""
