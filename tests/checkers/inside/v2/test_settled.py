"""What must become true of a healed cluster with ZooKeeper whose leaders look at idle partitions, too, and what holds
of one at every step: lies that are planted in brokers' code, each found by its own name."""

from __future__ import annotations

from typing import Final

import pytest

from checkers.properties import (
    ELECTED_ISR,
    FOLLOWERS_AWAITED,
    ISR_EXPANDS,
    ISR_OF_REPLICAS,
    LEADER_STAYS,
    LIVENESS,
    REASSIGNMENT_COMPLETES,
    RECORDS_DELETED,
)
from cluster_image.replication.log_manager import LogManager
from cluster_image.v2 import rules
from cluster_image.v2.bugs import MENDED
from cluster_image.v2.metadata.paths import Isr
from cluster_image.v2.partition.commit import Committing
from cluster_image.v2.partition.election import Replicating
from cluster_image.v2.zookeeper import Stat
from harness.plan.plan import Plan
from tests.checkers.inside.invariants.lies import WITHIN, Lies, explored

_write_first_isr: Final = Replicating._write_first_isr

MOVED: Final = Plan(
    run="explore", on="simulation", target="v2", settings=dict.fromkeys(MENDED, "true"),
    nemesis=("membership:reassign", "kill"), brokers=4, rate=20.0, partitions=4, concurrency=2, time_limit=30.0,
)  # fmt: skip


async def _nothing(*given: object) -> None: ...


async def _at_once(*given: object) -> bool:
    return True


async def _another_version(replicating: Replicating, isr: Isr, latest: tuple[bytes, Stat] | None) -> int:
    return await _write_first_isr(replicating, isr, latest) + 1


LIES: Final[Lies] = {
    "nobody is asked to close a replica": (
        lambda patch: patch.setattr(Committing, "_close", _nothing), RECORDS_DELETED, 7,
    ),
    "a move does not end": (
        lambda patch: patch.setattr(rules, "may_complete_reassignment", lambda *_: False), REASSIGNMENT_COMPLETES, 1,
    ),
    "who closes a replica keeps its log": (
        lambda patch: patch.setattr(LogManager, "delete", lambda *_: None), RECORDS_DELETED, 0,
    ),
    "a leader does not give way": (
        lambda patch: patch.setattr(rules, "gives_way_to_preferred", lambda *_: False), LIVENESS, 1,
    ),
    "an ISR does not grow": (lambda patch: patch.setattr(rules, "may_join_isr", lambda *_: False), ISR_EXPANDS, 0),
    "who leads gives up for who cannot": (
        lambda patch: patch.setattr(rules, "gives_way_to_preferred", lambda leader, first, isr: leader != first),
        LEADER_STAYS, 1,
    ),
    "a leader waits for nobody": (
        lambda patch: patch.setattr(Replicating, "_wait_for_followers", _at_once), FOLLOWERS_AWAITED, 0,
    ),
    "an ISR is taken for a later version": (
        lambda patch: patch.setattr(Replicating, "_write_first_isr", _another_version), ELECTED_ISR, 0,
    ),
    "who was removed is counted on": (
        lambda patch: patch.setattr(rules, "isr_of_new_leader", lambda found, assigned, caught_up: found),
        ISR_OF_REPLICAS, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, property_, seed = LIES[lie]
    assert seed < WITHIN
    plant(monkeypatch)
    done = explored(seed, MOVED)
    assert done.violation is not None and not done.crash, done.crash or done.problems
    assert done.violation.property == property_, done.violation
