"""Lies about idempotent producers, planted one at a time: each is found by the name of what it breaks."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cluster_image.storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from cluster_image.storage.log import Log
from cluster_image.storage.producer_state import Duplicate, ProducerState
from tests.checkers.inside.invariants.lies import Lies, check_found, check_not_blamed


def any_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader takes whatever number comes, but for what it knows."""

    def lie(self: ProducerState, header: Any) -> Duplicate | None:
        try:
            return check(self, header)
        except OutOfOrderSequence:
            return None

    check = ProducerState.check
    monkeypatch.setattr(ProducerState, "check", lie)


def any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is fenced."""

    def lie(self: ProducerState, header: Any) -> Duplicate | None:
        try:
            return check(self, header)
        except InvalidProducerEpoch:
            return None

    check = ProducerState.check
    monkeypatch.setattr(ProducerState, "check", lie)


def same_numbers_are_the_same_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever epoch."""

    def lie(self: ProducerState, header: Any) -> Duplicate | None:
        for known in self.remembered().get(header.producer_id, ()):
            if (known.first_sequence, known.last_sequence) == (header.base_sequence, header.last_sequence):
                return Duplicate(known.base_offset, known.last_offset)
        return check(self, header)

    check = ProducerState.check
    monkeypatch.setattr(ProducerState, "check", lie)


def truncated_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a follower cuts off its log stays known."""
    monkeypatch.setattr(ProducerState, "truncate", lambda self, end_offset: True)


def followers_do_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leads next knows nothing of what it has fetched."""

    def lie(self: Log, batches: bytes) -> None:
        update, self.producers.update = self.producers.update, lambda header: None  # type: ignore[method-assign]
        try:
            append(self, batches)
        finally:
            self.producers.update = update  # type: ignore[method-assign]

    append = Log.append_as_follower
    monkeypatch.setattr(Log, "append_as_follower", lie)


def fenced_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that goes on is taken for one that has a successor."""

    def lie(self: ProducerState, header: Any) -> Duplicate | None:
        if header.producer_id in self.known:
            raise InvalidProducerEpoch
        return check(self, header)

    check = ProducerState.check
    monkeypatch.setattr(ProducerState, "check", lie)


def next_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader counts from one."""

    def lie(self: ProducerState, header: Any) -> Duplicate | None:
        last = self.remembered().get(header.producer_id, ())[-1:]
        if last and header.base_sequence == last[0].last_sequence + 1:
            raise OutOfOrderSequence
        return check(self, header)

    check = ProducerState.check
    monkeypatch.setattr(ProducerState, "check", lie)


LIES: Final[Lies] = {
    "any sequence": (any_sequence, "ProducerSequence", 0),
    "any epoch": (any_epoch, "ProducerEpoch", 0),
    "same numbers": (same_numbers_are_the_same_batch, "NoFalseDuplicate", 0),
    "truncated": (truncated_and_remembered, "ProducerState", 1),
    "followers": (followers_do_not_listen, "ProducerState", 0),
    "fenced by itself": (fenced_by_itself, "ProducerEpoch", 0),
    "the next is refused": (next_is_refused, "ProducerSequence", 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_what_it_breaks(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    check_found(LIES, lie, monkeypatch)


@pytest.mark.parametrize("seed", sorted({seed for _, _, seed in LIES.values()}))
def test_who_tells_the_truth_is_not_blamed(seed: int) -> None:
    check_not_blamed(seed)
