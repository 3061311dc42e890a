"""What the brokers' traces show of the generation on ZooKeeper: who took itself for a leader when, who wrote the ISR
after whom, and at whose word replicas were closed.

| property             | what is looked at                                                                             |
| -------------------- | --------------------------------------------------------------------------------------------- |
| OneLeader            | a replica leads from the line that says so to its next role, or to the last line of its       |
|                      | process                                                                                       |
| IsrOfLatestLeader    | versions of the ISR's node, which ZooKeeper counts, with the epoch of the leader that wrote   |
|                      | each; and whose ISR there is where a leader's was refused                                     |
| ClosedByLatestLeader | the epoch of the leader that asked for a replica to be closed, and the ISRs that had been     |
|                      | written READ_S before its broker received that                                                |

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
from checkers.properties import CLOSED_BY_LEADER, ISR_OF_LEADER, ONE_LEADER, V2_PROPERTIES
from spark_history.files import NO_CODE, compact
from spark_history.schema import TRACE

_S: Final = 1e9
#: Seconds. What ZooKeeper shows a client may be so far behind what others have written: as long as it waits for a
#: server that follows.
READ_S: Final = 2.0


class Led(NamedTuple):
    """start, end: monotonic ns."""

    node: str
    epoch: int
    start: int
    end: int


class Written(NamedTuple):
    """time: monotonic ns."""

    version: int
    epoch: int
    node: str
    isr: tuple[int, ...]
    time: int


class Closed(NamedTuple):
    """epoch: of the leader that asked for it; received: by the broker, monotonic ns."""

    node: str
    epoch: int
    received: int


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
    led, written, closed = leaderships(rows), isrs_written(rows), replicas_closed(rows)
    for place, of_place in led.items():
        _judge_leaders(place, of_place, rows.apart, found)
    for place, isrs in written.items():
        for by_version in isrs:
            _judge_isrs(place, by_version, found)
    _judge_refusals(rows, found)
    for place, asked in closed.items():
        _judge_closed(place, asked, written.get(place, ()), rows.apart, found)
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
            CLOSED_BY_LEADER: f"{sum(map(len, closed.values())):,} replicas closed",
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
            isr, time = rows.members("isr", row) or (), int(rows.time[row])
            written = Written(int(version[row]), int(epoch[row]), node, isr, time)
            of_node = found[place]
            known = of_node[-1].get(written.version)
            if known is not None and known._replace(time=time) == written and max(of_node[-1]) == written.version:
                continue  # told twice
            if written.version == 0 and of_node[-1]:
                of_node.append({})  # a node is written for the first time once
            of_node[-1][written.version] = written
    return found


def replicas_closed(rows: TraceRows) -> dict[Place, list[Closed]]:
    """By partition, those that leaders have asked for of a broker that is to have a replica. A broker does what it is
    asked for one after the other."""
    epoch, done, assigned = (rows.number(name) for name in ("epoch", "done", "assigned"))
    kind = rows.fields["kind"]
    found: dict[Place, list[Closed]] = defaultdict(list)
    received: dict[int, int] = {}  # by process, when it received what it does
    for row in np.flatnonzero(rows.is_event("state change received", "state change completed")).tolist():
        life, time = int(rows.life[row]), int(rows.time[row])
        if rows.event[row] == CODE["state change received"]:
            received[life] = time
        elif done[row] == 1 and assigned[row] != 0 and epoch[row] >= 0 and life in received and _closes(kind[row]):
            place = rows.topics[rows.topic[row]], int(rows.partition[row])
            found[place].append(Closed(rows.nodes[rows.node[row]], int(epoch[row]), received[life]))
    return found


def _closes(kind: Any) -> bool:
    return bool(kind.as_py() == "close-replica")


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


def _judge_refusals(rows: TraceRows, found: Findings) -> None:
    own, latest = rows.number("leader_epoch"), rows.number("epoch")
    for row in np.flatnonzero(rows.is_event("isr refused") & (rows.topic != NO_CODE)).tolist():
        if own[row] == latest[row]:
            place = rows.topics[rows.topic[row]], int(rows.partition[row])
            found.add(
                ISR_OF_LEADER,
                "refused to its leader",
                f"{rows.nodes[rows.node[row]]}, which leads {_name(place)} in epoch {own[row]}, was refused to write "
                f"the ISR, and {list(rows.members('isr', row) or ())}, which there was, is its own",
                place=place,
            )


def _judge_closed(
    place: Place, closed: Sequence[Closed], written: Sequence[Mapping[int, Written]], apart: int, found: Findings
) -> None:
    """written: by each node of the ISR that there was, in order of time. apart: as of TraceRows."""
    for one in closed:
        before = one.received - apart - READ_S * _S
        asking = [
            of for of in written if any(each.epoch == one.epoch and each.time < one.received for each in of.values())
        ]
        later = [each for of in asking[-1:] for each in of.values() if each.epoch > one.epoch and each.time < before]
        if later:
            latest = max(later, key=lambda each: each.epoch)
            found.add(
                CLOSED_BY_LEADER,
                "closed by an earlier leader",
                f"{one.node} closed its replica of {_name(place)} at the word of who led it in epoch {one.epoch}, "
                f"{(one.received - latest.time) / _S:.3f} s after {latest.node} had written its ISR in epoch "
                f"{latest.epoch}",
                place=place,
            )
