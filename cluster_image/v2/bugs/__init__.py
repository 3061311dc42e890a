"""Bugs of the generation on ZooKeeper: rules that 001 got right, dropped one at a time (see cluster_image.node.bugs).
What it got wrong stands in `v2/rules.py`, and each bug is looked for with that mended: MENDED."""

from __future__ import annotations

from typing import Final

from cluster_image.node.bugs import Bug, Bugs, UnknownBug

BUGS: Final = Bugs(__name__, __path__)
all_bugs = BUGS.all
find = BUGS.find
original = BUGS.original
switched_on = BUGS.switched_on
#: As options of `chaos explore`. Not v2.election.watermark=checkpoint, by which what consumers see goes back: a
#: new leader's watermark is behind that of the one before.
MENDED: Final = (
    "--set v2.leader.epochs=true --set v2.isr.versioned=true --set v2.close.epochs=true --set v2.idle.checks=true"
)

__all__ = ["BUGS", "MENDED", "Bug", "UnknownBug", "all_bugs", "find", "original", "switched_on"]
