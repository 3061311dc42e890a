"""Where the logs of each partition started in the end, as the brokers' traces tell.

All replicas are to start alike (PROTOCOL.md, retention): a follower takes over its leader's log start with one of the
next fetches. A leader's log start may move to the end of a run, so followers are held against where it was SETTLED_S
before the last that any node has told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from checkers.inside.metadata.quorum_trace import life_ids
from checkers.inside.metadata.replay import Place
from checkers.inside.of_nodes import LogStarts
from checkers.inside.trace_rows import CODE, NONE, TraceRows
from spark_history.files import NO_CODE

#: Several times as long as a follower's fetch waits.
SETTLED_S: Final = 3.0


class _Lead(NamedTuple):
    epoch: int
    time: int  # since when, monotonic ns
    node: str


def log_starts(trace: TraceRows, ids: Mapping[str, int]) -> dict[Place, LogStarts]:
    """Of partitions of which a leader is known. ids: of nodes that do not tell theirs."""
    events = trace.is_event("replica", "role", "log start") & (trace.topic != NO_CODE)
    offset, leader, epoch = (trace.number(name) for name in ("offset", "leader", "leader_epoch"))
    of_life = life_ids(trace)
    last_life = {trace.nodes[node]: int(trace.life[trace.node == node].max()) for node in np.unique(trace.node)}
    settled = int(trace.time.max(initial=0)) - round(SETTLED_S * 1e9) - trace.apart
    starts: dict[Place, dict[str, list[tuple[int, int]]]] = {}
    leads: dict[Place, _Lead] = {}
    for row in np.flatnonzero(events).tolist():
        node, life = trace.nodes[trace.node[row]], int(trace.life[row])
        place = trace.topics[trace.topic[row]], int(trace.partition[row])
        time = int(trace.time[row])
        if trace.event[row] != CODE["role"]:
            if life == last_life[node]:
                start = int(offset[row]) if trace.event[row] == CODE["log start"] else 0
                starts.setdefault(place, {}).setdefault(node, []).append((time, start))
        elif leader[row] == of_life.get(life, ids.get(node, NONE)):
            lead = _Lead(int(epoch[row]), time, node)
            leads[place] = max(leads.get(place, lead), lead)
    found = {}
    for place, lead in leads.items():
        of_leader = starts.get(place, {}).get(lead.node, [])
        before = [start for time, start in of_leader if time <= settled]
        if lead.time <= settled and before:
            found[place] = LogStarts(
                lead.node, before[-1], {node: told[-1][1] for node, told in starts[place].items()}
            )  # fmt: skip
    return found
