"""The checker of consumer groups against its definitions, record by record, over scattered events."""

from __future__ import annotations

from collections import Counter
from random import Random

from checkers.groups import committed, delivery, order, ownership, positions, settling
from tests.checkers.groups import brute_force, scattered
from tests.checkers.groups.group_history import named
from tests.checkers.histories.random_histories import HISTORIES

EVERY = (
    delivery.UNPROCESSED, delivery.TWICE, delivery.AGAIN, committed.OFFSET_WENT_BACK, committed.LOST_COMMIT,
    committed.PHANTOM_COMMIT, committed.SKIPPED_AFTER_REBALANCE, committed.BEGAN_BELOW, committed.STALE_ANSWER,
    committed.BEGAN_ELSEWHERE, positions.SKIPPED, positions.WENT_BACK, positions.WITHOUT_OWNERSHIP,
    order.COMMITTED_FIRST, order.PROCESSED_FIRST, ownership.TWO_OWNERS, ownership.ZOMBIE_COMMIT, ownership.OVERLAPPING,
    ownership.BEFORE_REVOKED, settling.NOT_SETTLED,
)  # fmt: skip


def test_finds_what_brute_force_finds() -> None:
    met: Counter[str] = Counter()
    for number in range(HISTORIES):
        history = scattered.draw(Random(number))
        found = history.judge()
        truth, undecided = brute_force.judge(history)
        assert named(found) == truth, number
        assert {reason.removeprefix("group ")[0] for reason in found.undecided} == undecided, number
        met.update({name for _, name, _ in truth} or {"none"})
    assert min(met[name] for name in (*EVERY, "none")) >= max(1, HISTORIES // 1000), met
