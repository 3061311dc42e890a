"""DescribeQuorum (KIP-595): of the controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.describe_quorum.v2 import response as quorum_module
from kio.schema.errors import ErrorCode

from cluster_image.network import Entity


async def describe_quorum(request: Any, forward: Callable[[Entity], Awaitable[Entity]]) -> Entity:
    """The active controller's answer: a broker only observes the quorum."""
    try:
        return await forward(request)
    except (ConnectionError, TimeoutError):
        return quorum_module.DescribeQuorumResponse(
            error_code=ErrorCode.request_timed_out,
            error_message="the active controller did not answer",
            topics=(),
            nodes=(),
        )
