"""Bugs of KRaft's generation, most of them historical ones of Kafka's replication: see cluster_image.node.bugs."""

from __future__ import annotations

from typing import Final

from cluster_image.node.bugs import Bug, Bugs, UnknownBug

BUGS: Final = Bugs(__name__, __path__)
all_bugs = BUGS.all
find = BUGS.find
original = BUGS.original
switched_on = BUGS.switched_on

__all__ = ["BUGS", "Bug", "UnknownBug", "all_bugs", "find", "original", "switched_on"]
