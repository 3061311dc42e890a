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
#: Settings. Not v2.election.watermark=checkpoint, by which what consumers see goes back: a new leader's watermark is
#: behind that of the one before.
MENDED: Final = ("v2.leader.epochs", "v2.isr.versioned", "v2.close.epochs", "v2.close.isr", "v2.idle.checks")


def mended(bug: Bug) -> str:
    """As options of `chaos explore`, but for what the bug's own name."""
    return " ".join(f"--set {name}=true" for name in MENDED if f"--set {name}=" not in bug.options)


__all__ = ["BUGS", "MENDED", "Bug", "UnknownBug", "all_bugs", "find", "mended", "original", "switched_on"]
