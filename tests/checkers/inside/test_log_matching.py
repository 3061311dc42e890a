from __future__ import annotations

import pyarrow as pa
import pytest

from checkers.anomalies import Anomalies
from checkers.inside.log_matching import COLUMNS, compare, judge

Record = tuple[int, int, int]  # offset, leader epoch, value


def found(*segments: dict[str, list[Record]]) -> list[tuple[str, int, int]]:
    """(anomaly, offset, count) for the replicas' logs, by node, cut into segments."""
    anomalies = Anomalies("run", "chaos", 0)
    tables = []
    for replicas in segments:
        rows = [
            {"node": node, "offset": offset, "leader_epoch": epoch, "value": value}
            for node, log in replicas.items()
            for offset, epoch, value in log
        ]
        table = pa.Table.from_pylist(rows, schema=COLUMNS)
        tables.append(table.set_column(0, "node", table["node"].dictionary_encode()))
    judge([compare(table) for table in tables], anomalies)
    return [(row["anomaly"], row["offset"], row["count"]) for row in anomalies.rows]


SAME = [(0, 1, 10), (1, 1, 11), (2, 2, 12), (3, 2, 13)]


def test_equal_and_lagging_replicas_match() -> None:
    assert found({"broker-1": SAME, "broker-2": SAME[:2], "broker-3": []}) == []


def test_an_uncommitted_tail_of_another_epoch_is_no_divergence() -> None:
    assert found({"broker-1": SAME, "broker-2": [*SAME[:2], (2, 1, 98), (3, 1, 99)]}) == []


def test_one_epoch_with_two_values_diverges() -> None:
    assert found({"broker-1": SAME, "broker-2": [*SAME[:3], (3, 2, 99)]}) == [("replica divergence", 3, 1)]


def test_logs_that_meet_again_after_differing_diverge() -> None:
    other = [(0, 1, 10), (1, 1, 11), (2, 1, 99), (3, 2, 13)]
    assert found({"broker-1": SAME, "broker-2": other}) == [("replica divergence", 2, 1)]


def test_a_divergence_is_seen_across_segments() -> None:
    first = {"broker-1": [(0, 1, 10), (1, 1, 11)], "broker-2": [(0, 1, 10), (1, 2, 99)]}
    later = {"broker-1": [(2, 3, 12)], "broker-2": [(2, 3, 12)]}
    assert found(first) == []
    assert found(first, later) == [("replica divergence", 1, 1)]


def test_neighbouring_differences_are_one_witness() -> None:
    other = [(0, 1, 90), (1, 1, 91), (2, 2, 92), (3, 2, 13)]
    assert found({"broker-1": SAME, "broker-2": other}) == [("replica divergence", 0, 3)]


@pytest.mark.parametrize("cut", [None, 1, 2, 3])
def test_a_replica_has_no_holes(cut: int | None) -> None:
    log = [SAME[0], SAME[1], SAME[3]]
    parts = [log] if cut is None else [log[:cut], log[cut:]]
    assert found(*({"broker-1": part} for part in parts)) == [("replica hole", 2, 1)]


@pytest.mark.parametrize("cut", [None, 1])
def test_epochs_do_not_decrease(cut: int | None) -> None:
    log = [(0, 2, 10), (1, 1, 11)]
    parts = [log] if cut is None else [log[:cut], log[cut:]]
    assert found(*({"broker-1": part} for part in parts)) == [("decreasing epoch", 1, 1)]


def test_a_damaged_log_with_an_offset_twice_is_compared_too() -> None:
    twice = [*SAME[:2], (1, 1, 11), (1, 1, 11), *SAME[2:]]
    assert [anomaly for anomaly, _, _ in found({"broker-1": SAME, "broker-2": twice})] != []
