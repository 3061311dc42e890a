"""Which fault took which lost record: told by what the cuts measured, and by which leader lacked it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkers.anomalies import LOST
from checkers.inside.attribution import Attribution
from checkers.inside.metadata.memberships import Memberships, Step
from checkers.inside.metadata.planned import planned, weigh_planned
from harness.report.html.first import DROPPED
from spark_history.files import write_parquet
from spark_history.ingest import History, LogHistory, Segment
from spark_history.log import FinalReads
from spark_history.schema import REPLICA_LOGS

S = 1_000_000_000
IDS = {"broker-1": 1, "broker-2": 2, "broker-3": 3}


def cut(number: int, at_s: float, nodes: Mapping[str, Sequence[tuple[int, int, int]]], **more: Any) -> dict[str, Any]:
    """nodes: of t-0, ranges of (first, end, epoch) that each lost."""
    seen = {
        node: {"shut_down_at": int((at_s + 0.001 * turn) * S), "lost_offsets": {"t-0": [list(each) for each in ranges]}}
        for turn, (node, ranges) in enumerate(nodes.items())
    }
    return {"fault": number, "start": int(at_s * S), "targets": list(nodes), "evidence": {"nodes": seen, **more}}


def held(*steps: tuple[float, int, int, Sequence[int]]) -> Memberships:
    """steps: (second, leader, epoch, ISR) of t-0."""
    made = [
        Step(int(at * S), number, (1, 2, 3), tuple(isr), leader, 2, epoch)
        for number, (at, leader, epoch, isr) in enumerate(steps)
    ]
    return Memberships({("t", 0): made}, ids=IDS)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """On every disk: epoch 0 to offset 9, epoch 2 from 10 on."""
    rows = [
        {"run": "r", "node": node, "topic": "t", "partition": 0, "offset": offset, "value": offset,
         "leader_epoch": 0 if offset < 10 else 2}
        for node in IDS for offset in range(30)
    ]  # fmt: skip
    path = tmp_path / "history" / "replica_logs" / "t-0.parquet"
    write_parquet(path, pa.Table.from_pylist(rows, schema=REPLICA_LOGS))
    segment = Segment(0, None, {"replica_logs": "replica_logs/t-0.parquet"})
    return History("r", tmp_path, (LogHistory("t", 0, (segment,), FinalReads(), 30),), 0, 60 * S, 0)


def lost(*records: tuple[int, float]) -> pa.Table:
    """records: offset, second of the acknowledgement."""
    rows = [
        {"run": "r", "topic": "t", "partition": 0, "offset": offset, "value": number, "op": number,
         "invoke": int((at - 0.01) * S), "complete": int(at * S), "observed": None, "found": None}
        for number, (offset, at) in enumerate(records)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=LOST)


ELECTED = ((0.0, 1, 0, (1, 2, 3)), (5.2, -1, 1, ()), (8.0, 2, 2, (2,)))


def test_a_cut_of_all_replicas_took_the_last_copy(history: History) -> None:
    cuts = [cut(0, 2.0, {"broker-1": [(3, 5, 0)]}), cut(1, 5.0, {node: [(10, 20, 0)] for node in IDS})]
    attribution = Attribution(history, cuts, held(*ELECTED), acks="all")
    (first, second) = attribution.of(lost((12, 4.0), (19, 4.9))).to_pylist()
    assert first["fault"] == second["fault"] == 1 and first["node"] == "broker-3", "it was cut last"
    assert first["cause"] == "took the last copy, of broker-3" and first["takers"] == [1]
    (group,) = attribution.summary()
    assert (group["records"], group["partitions"]) == (2, {"t-0": [[12, 12], [19, 19]]})


def test_who_led_without_it_lost_it_and_those_who_had_it_dropped_it(history: History) -> None:
    cuts = [cut(4, 5.0, {"broker-2": [(10, 20, 0)]})]
    attribution = Attribution(history, cuts, held(*ELECTED), acks="all")
    (row,) = attribution.of(lost((12, 4.0))).to_pylist()
    assert (row["fault"], row["node"]) == (4, "broker-1")
    assert row["cause"].startswith("took it from broker-2, which was elected leader without it; broker-1 and broker-3")


def test_a_leader_who_wrote_nothing_made_the_others_drop_it_too(history: History) -> None:
    """The last of an ISR leads again, without it, while it is alone; another writes the next records."""
    cuts = [cut(4, 5.0, {"broker-1": [(10, 20, 0)]})]
    alone = ((0.0, 1, 0, (1, 2, 3)), (4.5, 1, 0, (1,)), (5.2, -1, 1, (1,)), (6.0, 1, 1, (1,)), (8.0, 2, 2, (1, 2)))
    attribution = Attribution(history, cuts, held(*alone), acks="all")
    (row,) = attribution.of(lost((12, 3.0))).to_pylist()
    assert (row["fault"], row["node"]) == (4, "broker-2")
    assert row["cause"].startswith("took it from broker-1, which was elected leader without it; broker-2 and broker-3")
    assert DROPPED.fullmatch(row["cause"]), "which the first screen of a report tells in its own words"


def test_what_no_fault_measured_is_not_known_and_the_election_is_named(history: History) -> None:
    attribution = Attribution(history, [], held(*ELECTED), acks="all")
    (row,) = attribution.of(lost((12, 4.0))).to_pylist()
    assert row["fault"] is None and row["node"] == "broker-1", "who led then"
    assert "broker-2, elected leader of t-0 in epoch 2 by 8.0 s, did not have it" in row["cause"]


def test_another_record_at_the_same_offset_is_another_record(history: History) -> None:
    """What a cut took before it was sent, of an older epoch, or of one that began only after it was acknowledged."""
    cuts = [
        cut(0, 3.0, {"broker-1": [(10, 20, 0)]}),
        cut(1, 5.0, {"broker-1": [(10, 20, 0)]}),
        cut(2, 20.0, {node: [(10, 20, 2)] for node in IDS}),
    ]
    attribution = Attribution(history, cuts, held(*ELECTED), acks="1")
    (row,) = attribution.of(lost((12, 4.0))).to_pylist()
    assert (row["fault"], row["takers"]) == (1, [1])


def test_damage_to_a_segment_takes_what_follows(history: History) -> None:
    damage = {"fault": 7, "start": 5 * S, "targets": ["broker-2"],
              "evidence": {"nodes": {"broker-2": {"killed_at": 5 * S, "damaged_from": {"t-0": 11}}}}}  # fmt: skip
    attribution = Attribution(history, [damage], held(*ELECTED), acks="all")
    before, after = attribution.of(lost((10, 4.0), (12, 4.0))).to_pylist()
    assert before["fault"] is None and after["fault"] == 7 and "broker-2, which was elected" in after["cause"]


def test_both_cuts_of_a_node_that_was_cut_twice_count(history: History) -> None:
    seen = cut(3, 6.0, {"broker-1": [(50, 60, 0)]})
    first = {"shut_down_at": 5 * S, "lost_offsets": {"t-0": [[10, 20, 0]]}}
    seen["evidence"]["nodes"]["broker-1"]["first_cut"] = first
    attribution = Attribution(history, [seen], None, acks="all")
    (row,) = attribution.of(lost((12, 4.0))).to_pylist()
    assert (row["fault"], row["node"], row["cause"]) == (3, "broker-1", "took the only copy, of broker-1")


PREFERRED = ((0.0, 1, 0, (1, 2, 3)), (5.0, 2, 2, (1, 2, 3)))


@pytest.mark.parametrize(("acks", "steps", "stops", "how"), [
    ("1", PREFERRED, (), "an election of another replica"),
    ("1", ((0.0, 2, 0, (1, 2, 3)), (5.0, 1, 2, (1, 2, 3))), (), "a preferred election"),
    ("1", ((0.0, 1, 0, (1, 2, 3)), (5.0, 2, 2, (2, 3))), ("broker-1",), "a controlled shutdown"),
    ("1", ((0.0, 1, 0, (1, 2, 3)), (5.0, 2, 2, (2, 3))), ("broker-3",), ""),
    ("1", ((0.0, 1, 0, (1, 2, 3)), (5.0, 2, 2, (2, 3))), (), ""),  # it died
    ("1", ((0.0, 1, 0, (1, 3)), (5.0, 2, 2, (1, 2, 3))), (), ""),  # who leads was in no ISR
    ("1", ((0.0, 1, 0, (1, 2, 3)), (4.5, -1, 1, (1,)), (5.0, 2, 2, (1, 2, 3))), (), ""),
    ("1", ((0.0, 1, 0, (1, 2, 3)), (4.5, 2, 1, (2, 3)), (5.0, 3, 2, (2, 3))), (), ""),  # the first was not on purpose
    ("all", PREFERRED, (), ""),
    ("0", PREFERRED, (), ""),
])  # fmt: skip
def test_with_acks_1_a_move_of_leadership_on_purpose_explains_a_loss_and_kafka_documents_it(
    history: History, acks: str, steps: Any, stops: Sequence[str], how: str
) -> None:
    ended = {name: {"exit_status": 0, "stopping_ns": S // 2} for name in stops}
    faults = [{"fault": 0, "start": int(4.8 * S), "targets": list(stops), "evidence": {"nodes": ended}}]
    attribution = Attribution(history, faults, held(*steps), acks=acks)
    (row,) = attribution.of(lost((12, 4.9))).to_pylist()
    told = row["cause"].endswith("Kafka documents such a loss of acks=1 (KAFKA-20554)")
    assert told is bool(how), row["cause"]
    if how:
        assert f"leadership moved on purpose by 5.0 s, by {how}, from {row['node']} to broker-" in row["cause"]
        assert row["fault"] is None and row["node"] == f"broker-{steps[0][1]}"
        assert weigh_planned(attribution.summary()).startswith("; they went when leadership moved on purpose")
    else:
        assert not weigh_planned(attribution.summary())


def test_a_reassignment_takes_the_leader_away_and_what_it_alone_had() -> None:
    before, moved = (Step(at * S, at, replicas, replicas, replicas[0], 2, epoch)
                     for at, replicas, epoch in ((0, (1, 2, 3), 0), (5, (2, 3, 4), 1)))  # fmt: skip
    found = planned([before, moved], 0, 1, ())
    assert found is not None and (found.leader, found.step, found.how) == (1, moved, "a reassignment")
    assert planned([before, moved], 1, 2, ()) is None, "that was before"


def test_what_a_fault_took_is_no_planned_loss(history: History) -> None:
    attribution = Attribution(history, [cut(4, 4.95, {"broker-1": [(10, 20, 0)]})], held(*PREFERRED), acks="1")
    (row,) = attribution.of(lost((12, 4.9))).to_pylist()
    assert row["fault"] == 4 and "KAFKA-20554" not in row["cause"]
    other = {"cause": row["cause"], "records": 3}
    told = {"cause": "… (KAFKA-20554)".replace("…", "Kafka documents such a loss of acks=1"), "records": 2}
    assert weigh_planned([other]) == "" and weigh_planned([other, told]).startswith("; 2 of them went when")
