"""Transactions of a run, against what can be seen of a small world as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from checkers.properties import ALLOWED_TRANSACTIONS
from checkers.transactions import runs
from tests.checkers.transactions.worlds import FAULTS, HEALED, PLAN, SETTLE_S, World

SEEDS = range(40)


def found(tables: Mapping[str, pa.Table], healed: int | None = None) -> tuple[set[str], runs.OfTransactions]:
    judged = runs.check("r", PLAN, tables, {} if healed is None else {"healed_ns": healed})
    return {anomaly for property_, anomaly, *_ in judged.tally if property_ != ALLOWED_TRANSACTIONS}, judged


def ops_of(row: Mapping[str, Any]) -> list[int]:
    assert row["ops"] == [], "which are those of operations"
    return [step["op"] for step in json.loads(row["witness"])["operations"]]


def test_a_world_that_does_all_right_passes() -> None:
    for seed in SEEDS:
        world = World(seed)
        anomalies, judged = found(world.run(12))
        assert not anomalies and not judged.undecided, (seed, judged.rows, judged.undecided)
        assert world.expected() == set(), seed
        assert judged.counts["of these committed"] > 0
        assert judged.counts["transactions"] == len(world.outcomes) + 1, "and the last read"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_world_does_wrong_is_found_and_nothing_else(fault: str) -> None:
    struck = 0
    for seed in SEEDS:
        world = World(seed, fault)
        anomalies, judged = found(world.run(12))
        expected = world.expected()
        assert anomalies & {*FAULTS.values()} == expected, (seed, anomalies, judged.rows)
        if not expected:
            assert not anomalies, (seed, anomalies)
        named = {op for row in judged.rows for op in ops_of(row)}
        assert named <= {*world.outcomes, max(world.outcomes) + 1}, "of those that are on record"
        struck += FAULTS[fault] in expected
    assert struck > len(SEEDS) / 3


def test_a_run_that_was_cut_off_accuses_nobody() -> None:
    """Of a harness that was killed, what was recorded up to any moment."""
    for seed in range(15):
        tables = World(seed).run(12)
        for cut in range(1, tables["transactions"].num_rows, 7):
            txns = tables["transactions"].slice(0, cut)
            begun = set(txns["op"].to_pylist())
            done = {row["op"] for row in txns.to_pylist() if row["complete"] is not None}
            micro = [
                row for row in tables["micro_operations"].to_pylist()
                if row["op"] in begun and (row["op"] in done or (row["kind"] == "send" and row["offset"] is None))
            ]  # fmt: skip
            part = {
                "transactions": txns,
                "micro_operations": pa.Table.from_pylist(micro, tables["micro_operations"].schema),
                "stable_offsets": tables["stable_offsets"].slice(0, 0),
            }
            anomalies, judged = found(part, HEALED)
            assert not anomalies, (seed, cut, judged.rows)


def looks(tables: Mapping[str, pa.Table], *rows: tuple[int, int, float]) -> dict[str, Any]:
    """rows: last stable offset, high watermark and seconds after the healing, of partition 0."""
    stable = [
        {
            "run": "r", "topic": "chaos", "partition": 0, "last_stable": last_stable, "end": end,
            "invoke": HEALED + int(at * 1e9), "complete": HEALED + int(at * 1e9),
        }
        for last_stable, end, at in rows
    ]  # fmt: skip
    return {**tables, "stable_offsets": pa.Table.from_pylist(stable, schema=tables["stable_offsets"].schema)}


def test_a_last_stable_offset_that_stays_behind_is_stuck() -> None:
    tables = World(1).run(5)
    assert found(looks(tables, (3, 5, 1.0), (3, 5, SETTLE_S)), HEALED)[0] == {"stuck last stable offset"}
    assert not found(looks(tables, (3, 5, SETTLE_S - 1)), HEALED)[0]  # there was no time
    assert not found(looks(tables, (3, 5, SETTLE_S), (5, 5, SETTLE_S + 1)), HEALED)[0]
    assert not found(looks(tables, (3, 5, SETTLE_S)), None)[0]


def test_a_loop_that_never_comes_to_the_end_is_named() -> None:
    world = World(2)
    tables = world.run(5)
    closing = max(record.value for record in world.logs[0] if record is not None and record.visible)
    micro = tables["micro_operations"].to_pylist()
    copies = {row["value"] for row in micro if row["value"] % (1 << 32) == closing and row["value"] != closing}
    kept = [row for row in micro if row["value"] not in copies]
    without = {**tables, "micro_operations": pa.Table.from_pylist(kept, schema=tables["micro_operations"].schema)}
    txns = tables["transactions"].to_pandas()
    txns.loc[txns["op"] == txns["op"].max(), "complete"] += int(SETTLE_S * 1e9) + HEALED
    late = pa.Table.from_pandas(txns, schema=tables["transactions"].schema, preserve_index=False)
    assert "loop not settled" in found({**without, "transactions": late}, HEALED)[0]
    assert "loop not settled" not in found(without, HEALED)[0]  # it had no time


def test_a_torn_transaction_names_the_request_that_was_late() -> None:
    world = World(0, "torn", 1.0)
    tables = world.run(12)
    torn = next(row for row in found(tables)[1].rows if row["anomaly"] == "torn transaction")
    (op,) = ops_of(torn)
    txn = next(row for row in tables["transactions"].to_pylist() if row["op"] == op and row["complete"] is not None)
    late = {"api": "EndTxn", "at": txn["complete"], "held_ms": 4200, "transactional_id": "x", "committed": False}
    ids = {"transactional_ids": {str(txn["process"]): "x"}}
    for request, says in (
        (late, "a broker got an EndTxn (abort) of the same transactional.id, 4.2 s late and meant for an earlier"),
        ({**late, "transactional_id": "y"}, None),
        ({**late, "at": txn["invoke"] + 1, "held_ms": 0}, None),  # it was its own
        ({**late, "at": txn["complete"] + 1}, None),
    ):
        judged = runs.check("r", PLAN, tables, {**ids, "late_requests": [request]})
        message = next(row["message"] for row in judged.rows if ops_of(row) == [op] and "torn" in row["anomaly"])
        assert (says in message) if says else ("late" not in message), message
