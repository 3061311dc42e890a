"""Lies about what is late, from before a restart, or not answered: each is found by the name of what it breaks."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cluster_image.kraft.broker import rules as broker_rules
from cluster_image.kraft.broker.channel import ControllerChannel
from cluster_image.kraft.broker.isr_manager import IsrManager
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata import rules
from tests.checkers.inside.invariants.lies import Lies, check_found, check_not_blamed


def lost_answers_are_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that hears nothing of its AlterPartition goes on as if it had been accepted."""

    def asked(self: IsrManager, pending: Any) -> Any:
        latest[id(self._channel)] = pending
        return ask(self, pending)

    async def sent(self: ControllerChannel, entity: Any, timeout: float | None = None) -> Any:
        try:
            return await send(self, entity, timeout)
        except (ConnectionError, TimeoutError):
            for partition, proposal in latest.get(id(self), {}).values():
                isr = tuple(replica for replica, _ in proposal.isr)
                partition.proposal_accepted(proposal, isr, proposal.leader_epoch, proposal.partition_epoch + 1)
            raise

    latest: dict[int, Any] = {}  # by channel, what was asked there last
    ask, send = IsrManager._request, ControllerChannel.request
    monkeypatch.setattr(IsrManager, "_request", asked)
    monkeypatch.setattr(ControllerChannel, "request", sent)


def sessions_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader and the controller ask for no broker epoch."""
    monkeypatch.setattr(rules, "is_earlier_session", lambda broker_epoch, known: False)


def answers_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AlterPartition's answer counts whatever has been heard since."""

    def lie(self: Partition, proposal: Any, isr: Any, leader_epoch: int, partition_epoch: int) -> None:
        if self.is_leader:
            self._commit_isr(isr, self.partition_epoch)

    monkeypatch.setattr(Partition, "proposal_accepted", lie)


def proposes_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader looks for followers that lag among those that are not in the ISR, too."""

    def lie(self: Partition, now: float, eligible: Any) -> None:
        shrink(self, now, eligible)
        if self.leadership is not None and self.leadership.proposal is None and len(self.isr) < len(self.replicas):
            self._propose(self.leadership, self._isr_in_order())

    shrink = Partition.consider_shrinking
    monkeypatch.setattr(Partition, "consider_shrinking", lie)


def lets_anybody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below MinISR, too, where the high watermark that a follower has reached stands still."""
    monkeypatch.setattr(broker_rules, "may_join_lagging", lambda lags, commits: True)


LIES: Final[Lies] = {
    "lost answers": (lost_answers_are_good_ones, "DecidedIsr", 0),
    "any order": (answers_in_any_order, "DecidedIsr", 0),
    "nothing new": (proposes_what_there_is, "ProposedIsr", 0),
    "who lags": (lets_anybody_in, "ProposedIsr", 10),
    "sessions": (sessions_are_one, "FollowerSession", 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_what_it_breaks(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    check_found(LIES, lie, monkeypatch)


@pytest.mark.parametrize("seed", sorted({seed for _, _, seed in LIES.values()}))
def test_who_tells_the_truth_is_not_blamed(seed: int) -> None:
    check_not_blamed(seed)
