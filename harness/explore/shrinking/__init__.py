"""Makes a run that fails as small as it can be, while it goes on to break the same property.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over the faults, a
ladder of smaller values for nodes, partitions, producers and what they do, rate, durations and time, and the defaults
for settings, latency and whatever else was given or drawn. Each kind in turn, again and again, until a whole round
changes nothing. Then taking any single fault away makes the run pass. What is left may be a few faults within a moment:
if the run also fails when they come one by one, that is what is kept.

A fault strikes whom the live cluster has at a fraction of its free nodes, so with one fault less the next might strike
another node. Before anything goes, every fault is given the names of the nodes that it struck (nemesis.pinned).

`candidates` makes smaller runs, `witness` tells whether one breaks the same, `shrink` goes from one to the next.

Why not hypothesis, which shrinks too: it shrinks what its own strategies drew, and a run comes from elsewhere.
"""
