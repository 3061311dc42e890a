"""Where logs start in the end: as traces tell it, and as it is held against the leader's."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from checkers.anomalies import Anomalies
from checkers.inside.kraft.start_trace import SETTLED_S, log_starts
from checkers.inside.log_matching import COLUMNS, InSync, compare, judge
from checkers.inside.of_nodes import LogStarts
from checkers.inside.trace_rows import read_rows
from spark_history.files import compact
from spark_history.schema import TRACE

Line = tuple[str, float, str, dict[str, Any]]  # node, second, event, fields

STARTED: list[Line] = [(f"broker-{i}", 0.0, "start", {"node_id": i}) for i in (1, 2)]
ROLE = {"leader": 1, "leader_epoch": 1, "partition_epoch": 1, "isr": [1, 2], "end": 0, "high_watermark": 0}
LED: list[Line] = [
    *STARTED,
    *((f"broker-{i}", 0.1, "replica", {"end": 0}) for i in (1, 2)),
    *((f"broker-{i}", 0.2, "role", ROLE) for i in (1, 2)),
]


def starts(*lines: Line, last: float = 60.0) -> LogStarts | None:
    """last: when any node told something for the last time, s."""
    told = [*lines, ("broker-1", last, "high watermark", {"offset": 99})]
    rows = [
        {
            "run": "r", "node": node, "number": number, "time": round(second * 1e9), "event": event,
            "topic": None if event == "start" else "t", "partition": None if event == "start" else 0,
            "fields": json.dumps(fields),
        }
        for number, (node, second, event, fields) in enumerate(told)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, schema=TRACE).cast(compact(TRACE))
    return log_starts(read_rows(table), {}).get(("t", 0))


def test_the_last_start_of_each_replica_counts() -> None:
    moved: list[Line] = [
        ("broker-1", 5.0, "log start", {"offset": 10}),
        ("broker-2", 5.1, "log start", {"offset": 10}),
        ("broker-1", 9.0, "log start", {"offset": 20}),
    ]
    assert starts(*LED, *moved) == LogStarts("broker-1", 20, {"broker-1": 20, "broker-2": 10})


def test_what_the_leader_deleted_last_need_not_have_been_taken_over() -> None:
    moved: list[Line] = [
        ("broker-1", 5.0, "log start", {"offset": 10}),
        ("broker-1", 60.0 - SETTLED_S + 1, "log start", {"offset": 20}),
    ]
    assert starts(*LED, *moved) == LogStarts("broker-1", 10, {"broker-1": 20, "broker-2": 0})


def test_a_process_that_began_anew_tells_anew() -> None:
    again: list[Line] = [
        ("broker-2", 5.0, "log start", {"offset": 10}),
        ("broker-2", 6.0, "start", {"node_id": 2}),
        ("broker-2", 6.1, "replica", {"end": 4}),
    ]
    found = starts(*LED, *again)
    assert found is not None and found.by_node["broker-2"] == 0


def test_a_leader_that_has_just_begun_is_not_held_against_anybody() -> None:
    assert starts(*LED, ("broker-2", 58.0, "role", {**ROLE, "leader": 2, "leader_epoch": 2})) is None


def found(in_sync: InSync, **replicas: list[int]) -> list[tuple[str, int | None, int]]:
    """(anomaly, offset, count) of replicas (b1, b2) with these offsets; the final reads returned 3 to 5."""
    rows = [
        {"node": node, "offset": offset, "leader_epoch": 1, "value": offset}
        for node, offsets in replicas.items()
        for offset in offsets
    ]
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    table = table.set_column(0, "node", table["node"].dictionary_encode())
    final = pa.array([3, 4, 5]).to_numpy()
    anomalies = Anomalies("run", "t", 0)
    judge([compare(table, (final, final))], anomalies, in_sync)
    return [(row["anomaly"], row["offset"], row["count"]) for row in anomalies.rows]


def moving(settled: int, b1: int, b2: int, watermark: int = 6) -> InSync:
    return InSync(
        {"t-0": {"b1": True, "b2": True}}, {"t-0": (watermark, "b1", 1)}, False,
        {"t-0": LogStarts("b1", settled, {"b1": b1, "b2": b2})}, True,
    )  # fmt: skip


ELSEWHERE = "starts elsewhere than its leader's log"


def test_equal_starts_are_fine_however_much_of_a_segment_is_left() -> None:
    assert found(moving(3, 3, 3), b1=[0, 1, 2, 3, 4, 5], b2=[2, 3, 4, 5]) == []


@pytest.mark.parametrize(("start", "count"), [(1, 2), (5, 2)])
def test_a_replica_that_starts_elsewhere_is_told(start: int, count: int) -> None:
    assert (ELSEWHERE, start, count) in found(moving(3, 3, start), b1=[3, 4, 5], b2=[3, 4, 5])


def test_a_follower_may_be_as_far_as_its_leader_was_a_while_before() -> None:
    assert found(moving(3, 5, 4), b1=[5], b2=[4, 5]) == []


def test_what_lies_above_a_replicas_start_must_be_there() -> None:
    assert found(moving(4, 4, 4), b1=[4, 5], b2=[5]) == [("missing on a replica", 4, 1)]


def test_a_log_without_a_record_ends_where_it_starts() -> None:
    assert found(moving(6, 6, 6), b1=[], b2=[]) == []
    lacks = [("missing on a replica", 3, 3), ("ends below the high watermark", 3, 3)]
    assert found(moving(3, 3, 3), b1=[3, 4, 5], b2=[]) == lacks


def test_where_it_is_not_known_how_a_log_starts_nothing_is_asked() -> None:
    in_sync = InSync({"t-0": {"b1": True, "b2": True}}, {"t-0": (6, "b1", 1)}, False, {}, True)
    assert found(in_sync, b1=[3, 4, 5], b2=[5]) == []
