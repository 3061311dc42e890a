"""What traces of the generation on ZooKeeper show: two leaders at a time, and an ISR written over a later leader's."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from checkers.inside.nodes import Options, judge
from spark_history.schema import TRACE

S = 1_000_000_000


class Traces:
    """Of brokers 1 to 3 and partition t-0. at: seconds."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        for broker in (1, 2, 3):
            self.tell(0.0, broker, "start", where=False, node_id=broker, voters=[])

    def tell(self, at: float, broker: int, event: str, *, where: bool = True, **fields: object) -> None:
        self.rows.append({
            "run": "r", "node": f"broker-{broker}", "number": len(self.rows), "time": round(at * S), "event": event,
            "topic": "t" if where else None, "partition": 0 if where else None, "fields": json.dumps(fields),
        })  # fmt: skip

    def role(self, at: float, broker: int, leader: int, epoch: int, version: int = -1, *isr: int) -> None:
        self.tell(at, broker, "role", leader=leader, leader_epoch=epoch, partition_epoch=version, isr=isr, end=0,
                  high_watermark=0)  # fmt: skip

    def isr(self, at: float, broker: int, epoch: int, version: int, *isr: int) -> None:
        self.tell(at, broker, "isr written", isr=isr, leader_epoch=epoch, partition_epoch=version)

    def closes(self, at: float, broker: int, epoch: int, *, done: bool = True) -> None:
        """Its own replica, a tenth of a second after it was asked to."""
        told = {"kind": "close-replica", "leader": 1, "epoch": epoch}
        self.tell(at - 0.1, broker, "state change received", **told)
        self.tell(at, broker, "state change completed", **told, done=int(done))

    def found(self, uncertainty_s: float = 0.0) -> set[tuple[str, str]]:
        table = pa.Table.from_pylist(self.rows, schema=TRACE)
        options = Options(1, True, inside="v2", clock_uncertainty_ns=round(uncertainty_s * S))
        found = judge("r", {"trace": table}, options)
        assert found.checked == ["OneLeader", "IsrOfLatestLeader", "ClosedByLatestLeader"]
        return {(property_, anomaly) for property_, anomaly, _, _ in found.tally}


def test_one_leader_after_the_other_is_right() -> None:
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1)
    told.isr(1.5, 1, 0, 1, 1, 2, 3)
    told.role(2.0, 1, -1, 0, 1)
    told.role(2.5, 2, 2, 1, 2, 2, 3)
    told.role(2.6, 1, 2, 1)
    told.isr(3.0, 2, 1, 3, 1, 2, 3)
    assert told.found() == set()


def test_a_leader_that_does_not_know_of_its_successor() -> None:
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1, 2, 3)
    told.role(2.0, 2, 2, 1, 1, 2, 3)
    told.role(2.5, 1, 2, 1)
    assert told.found() == {("OneLeader", "two leaders")}


def test_clocks_that_may_be_wrong_by_so_much_say_nothing_of_two_leaders() -> None:
    """Each of the two by as much, in opposite directions."""
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1, 2, 3)
    told.role(2.0, 2, 2, 1, 1, 2, 3)
    told.role(2.5, 1, 2, 1)
    assert told.found(0.24) == {("OneLeader", "two leaders")}
    assert told.found(0.25) == set()


def test_a_leader_whose_process_is_over_has_led_up_to_its_last_line() -> None:
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1, 2, 3)
    told.tell(3.0, 1, "start", where=False, node_id=1, voters=[])
    told.role(2.0, 2, 2, 1, 1, 2, 3)
    told.role(4.0, 1, 2, 1)
    assert told.found() == set()


def test_an_isr_that_was_written_over_a_later_leaders() -> None:
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1, 2, 3)
    told.role(1.9, 1, -1, 0, 0)
    told.role(2.0, 2, 2, 1, 1, 2, 3)
    told.isr(2.5, 1, 0, 2, 1)
    assert told.found() == {("IsrOfLatestLeader", "ISR overwritten")}


def test_a_topic_that_was_made_again_has_an_isr_of_its_own() -> None:
    """Its node's versions begin anew, and so do epochs."""
    told = Traces()
    told.role(1.0, 2, 2, 0, 0, 1, 2, 3)
    told.isr(1.5, 2, 0, 1, 1, 2, 3)
    told.role(2.0, 2, -1, 0, 1)
    told.role(3.0, 1, 1, 0, 0, 1, 2, 3)
    told.isr(3.5, 1, 0, 1, 1, 3)
    told.isr(4.0, 1, 0, 2, 1, 2, 3)
    assert told.found() == set()
    told.isr(4.5, 3, 0, 3, 3)
    assert told.found() == {("IsrOfLatestLeader", "ISR overwritten")}, "and is judged by itself"


def test_an_isr_that_was_told_twice_is_written_once() -> None:
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1, 2, 3)
    told.isr(1.1, 1, 0, 0, 1, 2, 3)
    told.role(2.0, 1, -1, 0, 0)
    told.role(2.0, 2, 2, 1, 1, 2, 3)
    told.isr(2.5, 1, 0, 2, 1)
    assert told.found() == {("IsrOfLatestLeader", "ISR overwritten")}


@pytest.mark.parametrize(("latest", "is_wrong"), [(1, False), (0, True)])
def test_who_is_refused_to_write_the_isr_leads_no_longer(latest: int, is_wrong: bool) -> None:
    """Else what stands in its way is its own, of which it has not heard."""
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1, 2, 3)
    told.tell(2.0, 1, "isr refused", isr=[1, 2], leader_epoch=0, epoch=latest)
    assert told.found() == ({("IsrOfLatestLeader", "refused to its leader")} if is_wrong else set())


@pytest.mark.parametrize(
    ("at", "epoch", "done", "is_wrong"),
    [
        (6.0, 0, True, True),
        (6.0, 0, False, False),
        (6.0, 1, True, False),
        (6.0, -1, True, False),  # an administrator's
        (4.0, 0, True, False),  # what its broker has read may be so old
    ],
)
def test_a_replica_that_is_closed_at_the_word_of_an_earlier_leader(
    at: float, epoch: int, done: bool, is_wrong: bool
) -> None:
    told = Traces()
    told.role(1.0, 1, 1, 0, 0, 1, 2, 3)
    told.role(2.0, 1, -1, 0, 0)
    told.role(2.5, 2, 2, 1, 1, 2, 3)
    told.closes(at, 3, epoch, done=done)
    assert told.found() == ({("ClosedByLatestLeader", "closed by an earlier leader")} if is_wrong else set())


def test_a_replica_that_is_closed_of_a_topic_that_was_made_again() -> None:
    """Leaders of the topic before had later epochs."""
    told = Traces()
    for epoch, broker in enumerate((1, 2, 1)):
        told.role(1.0 + epoch, broker, broker, epoch, epoch, 1, 2, 3)
        told.role(1.9 + epoch, broker, -1, epoch, epoch)
    told.role(5.0, 1, 1, 0, 0, 1, 2, 3)
    told.closes(9.0, 3, 0)
    assert told.found() == set()
