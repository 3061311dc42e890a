"""A broker's requests to the active controller: how long it waits for a connection to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cluster_image.kraft.broker.channel import ControllerChannel, NoController


@pytest.mark.parametrize(("request_timeout", "waits"), [(30.0, 3.0), (0.5, 0.5)])
def test_a_connection_that_nobody_answers_is_given_up_long_before_a_request_would_be(
    request_timeout: float, waits: float
) -> None:
    """Another controller may be active by then, or the same one reached again."""
    patience = []

    class Network:
        async def connect(self, *_: Any, timeout: float, **of: Any) -> Any:
            patience.append(timeout)
            raise TimeoutError

    network: Any = Network()
    channel = ControllerChannel(
        network, SimpleNamespace(leader_id=101), {101: ("c", 1)}, "b", timeout=request_timeout, setup_timeout=3.0
    )  # type: ignore[arg-type, dict-item]  # fmt: skip
    with pytest.raises(NoController):
        asyncio.run(channel.request(SimpleNamespace()))  # type: ignore[arg-type]
    assert patience == [waits]
