"""A broker's line to the active controller, wherever that is now.

Each user has a channel of its own: a connection's requests are answered in turn, and a heartbeat must not wait behind
an AlterPartition that the quorum is slow to commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from ..network import Address, Connection, Entity, Network


class LeaderFinder(Protocol):
    @property
    def leader_id(self) -> int | None: ...


class ControllerChannel:
    def __init__(
        self, network: Network, quorum: LeaderFinder, voters: Mapping[int, Address], client_id: str, timeout: float
    ) -> None:
        self._network = network
        self._quorum = quorum
        self._voters = voters
        self._client_id = client_id
        self._timeout = timeout
        self._connection: Connection | None = None
        self._connected_to: int | None = None

    async def request(self, entity: Entity) -> Any:
        """The active controller's answer. Raises ConnectionError when none is known or it does not answer as one, and
        TimeoutError; either way the request may have been carried out."""
        leader = self._quorum.leader_id
        if leader is None or leader not in self._voters:
            raise ConnectionError("no active controller is known")
        if self._connection is None or self._connection.closed or self._connected_to != leader:
            self.close()
            self._connection = await self._network.connect(
                self._voters[leader], client_id=self._client_id, timeout=self._timeout
            )
            self._connected_to = leader
        answer = await self._connection.request(entity, timeout=self._timeout)
        if getattr(answer, "error_code", None) in (ErrorCode.not_controller, ErrorCode.request_timed_out):
            raise ConnectionError(f"controller {leader} answered {answer.error_code.name}")
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
