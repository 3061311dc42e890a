"""The rules that leaders and the controller share, where a whole cluster of one release does not come."""

from __future__ import annotations

from uuid import UUID

import pytest

from cluster_image.kraft.metadata import rules
from cluster_image.kraft.metadata.image import BrokerRegistration
from cluster_image.network import Address


@pytest.mark.parametrize(("told", "is_earlier"), [(-1, False), (6, True), (7, False), (8, False)])
def test_who_names_no_broker_epoch_is_of_no_earlier_session(told: int, is_earlier: bool) -> None:
    """A follower of a release before KIP-903, whose fetches have no broker epoch."""
    assert rules.is_earlier_session(told, 7) is is_earlier
    broker = BrokerRegistration(
        id=3, epoch=7, incarnation_id=UUID(int=3), address=Address("host", 9092), rack=None, fenced=False,
        in_controlled_shutdown=False,
    )  # fmt: skip
    assert rules.may_be_in_isr(told, broker) is (told in (-1, 7))
