"""Where replicas are: how new topics are placed, and how an assignment that is there becomes balanced again (003).

Pure code, usable alone: it knows broker ids, racks and replica lists, and neither network nor metadata.

- `racks`: how many replicas of a partition a rack gets;
- `initial`: new partitions, spread so that all others take over from a broker that dies;
- `spread`: who leads, who holds, and who takes over how much: to look at, and to judge by;
- `rebalance`: the least movement of data after which replicas and leaders are balanced; `exchange` and `leaders` are
  its parts.
"""
