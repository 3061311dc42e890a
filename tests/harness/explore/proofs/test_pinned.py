"""The smallest run of each bug: with the bug it breaks what it broke when it was found, and without it it passes."""

from __future__ import annotations

import pytest

from harness.explore.proofs.pinned import Pinned, load, repeat
from harness.explore.proofs.proving import SOUND

PINNED = load()


def test_there_is_one_of_most_bugs() -> None:
    assert len({each.id for each in PINNED}) == len(PINNED) >= 20


@pytest.mark.parametrize("pinned", PINNED, ids=lambda each: each.id)
def test_it_is_found_again_and_gone_without_the_bug(pinned: Pinned) -> None:
    repeated = repeat(pinned)
    assert repeated.broke == pinned.broken
    assert repeated.without in SOUND, repeated.reason
