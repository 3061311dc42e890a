"""What the brokers' traces show of the generation on ZooKeeper: who took itself for a leader when, and who wrote the
ISR after whom.

| property          | what is looked at                                                                                |
| ----------------- | ------------------------------------------------------------------------------------------------ |
| OneLeader         | a replica leads from the line that says so to its next role, or to the last line of its process  |
| IsrOfLatestLeader | versions of the ISR's node, which ZooKeeper counts, with the epoch of the leader that wrote each |

A process that is killed says no last word, so a checker sees less of its leading, not more. Log matching and the
history are judged as for any target.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.quorum_trace import life_ids, node_ids
from checkers.inside.metadata.replay import Place
from checkers.inside.of_nodes import OfNodes, Options
from checkers.inside.trace_rows import CODE, NONE, TraceRows, read_rows, rows_by_node
from checkers.properties import ISR_OF_LEADER, ONE_LEADER, V2_PROPERTIES
from spark_history.files import NO_CODE, compact
from spark_history.schema import TRACE

_S: Final = 1e9


class Led(NamedTuple):
    """start, end: monotonic ns."""

    node: str
    epoch: int
    start: int
    end: int


class Written(NamedTuple):
    version: int
    epoch: int
    node: str
    isr: tuple[int, ...]


def judge(
    run: str, tables: Mapping[str, pa.Table], options: Options, faults: Sequence[Mapping[str, Any]] = ()
) -> OfNodes:
    """See checkers.inside.nodes.judge()."""
    trace, pieces = tables["trace"], tables["collected"].to_pylist()
    if not trace.num_rows:
        return OfNodes([], [], 0, 0, [], ["the nodes left no trace"], [], collected=pieces)
    trace = trace.cast(compact(TRACE))
    rows = read_rows(trace, options.clock_uncertainty_ns)
    found = Findings(run)
    led, written = leaderships(rows), isrs_written(rows)
    for place, of_place in led.items():
        _judge_leaders(place, of_place, rows.apart, found)
    for place, isrs in written.items():
        for by_version in isrs:
            _judge_isrs(place, by_version, found)
    anomalies = list(found.anomalies())
    return OfNodes(
        rows=[row for of in anomalies for row in of.rows],
        tally=[entry for of in anomalies for entry in of.tally],
        trace_rows=trace.num_rows,
        metadata_records=0,
        checked=list(V2_PROPERTIES),
        not_checked=[],
        unclean_recoveries=[],
        collected=pieces,
        trace_of=rows_by_node(trace),
        looked_at={
            ONE_LEADER: f"{sum(map(len, led.values())):,} leaderships",
            ISR_OF_LEADER: f"{sum(len(each) for of_place in written.values() for each in of_place):,} ISRs",
        },
    )


def leaderships(rows: TraceRows) -> dict[Place, list[Led]]:
    """By partition, in order of time."""
    leader, epoch = rows.number("leader"), rows.number("leader_epoch")
    of_life, ids = life_ids(rows), node_ids(rows)
    last = {int(life): int(rows.time[rows.life == life].max()) for life in np.unique(rows.life)}
    open_: dict[tuple[Place, int], Led] = {}
    found: dict[Place, list[Led]] = defaultdict(list)
    for row in np.flatnonzero(rows.is_event("role") & (rows.topic != NO_CODE)).tolist():
        place = rows.topics[rows.topic[row]], int(rows.partition[row])
        node, life, time = rows.nodes[rows.node[row]], int(rows.life[row]), int(rows.time[row])
        before = open_.pop((place, life), None)
        if before is not None:
            found[place].append(before._replace(end=time))
        if leader[row] == of_life.get(life, ids.get(node, NONE)):
            open_[place, life] = Led(node, int(epoch[row]), time, last[life])
    for (place, _), led in open_.items():
        found[place].append(led)
    return {place: sorted(of_place, key=lambda led: led.start) for place, of_place in found.items()}


def isrs_written(rows: TraceRows) -> dict[Place, list[dict[int, Written]]]:
    """By partition and version, as leaders told what they had written: in `isr written`, and in `role` of who leads. A
    topic that was made again has another node, whose versions begin anew: one dictionary for each of them."""
    leader, epoch, version = (rows.number(name) for name in ("leader", "leader_epoch", "partition_epoch"))
    of_life, ids = life_ids(rows), node_ids(rows)
    found: dict[Place, list[dict[int, Written]]] = defaultdict(lambda: [{}])
    told = np.flatnonzero(rows.is_event("role", "isr written") & (rows.topic != NO_CODE))
    for row in told[np.argsort(rows.time[told], kind="stable")].tolist():
        node = rows.nodes[rows.node[row]]
        leads = leader[row] == of_life.get(int(rows.life[row]), ids.get(node, NONE))
        if rows.event[row] == CODE["isr written"] or leads:
            place = rows.topics[rows.topic[row]], int(rows.partition[row])
            written = Written(int(version[row]), int(epoch[row]), node, rows.members("isr", row) or ())
            of_node = found[place]
            if written.version == 0 and of_node[-1] and of_node[-1] != {0: written}:
                of_node.append({})  # a node is written for the first time once
            of_node[-1][written.version] = written
    return found


def _name(place: Place) -> str:
    topic, partition = place
    return f"{topic}-{partition}"


def _judge_leaders(place: Place, led: Sequence[Led], apart: int, found: Findings) -> None:
    """apart: as of TraceRows."""
    for number, second in enumerate(led):
        for first in led[:number]:
            if first.end > second.start + apart and first.node != second.node:
                seconds = (min(first.end, second.end) - second.start) / _S
                found.add(
                    ONE_LEADER,
                    "two leaders",
                    f"{first.node} led {_name(place)} in epoch {first.epoch} for another {seconds:.3f} s after "
                    f"{second.node} had begun to lead it in epoch {second.epoch}",
                    place=place,
                )


def _judge_isrs(place: Place, by_version: Mapping[int, Written], found: Findings) -> None:
    latest: Written | None = None
    for _, written in sorted(by_version.items()):
        if latest is not None and written.node != latest.node and written.epoch <= latest.epoch:
            found.add(
                ISR_OF_LEADER,
                "ISR overwritten",
                f"{written.node}, which led {_name(place)} in epoch {written.epoch}, wrote the ISR "
                f"{list(written.isr)} over {list(latest.isr)} of {latest.node}, which leads it in epoch {latest.epoch}",
                place=place,
            )
        else:
            latest = written
