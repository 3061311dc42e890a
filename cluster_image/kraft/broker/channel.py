"""A broker's line to the active controller, wherever that is now.

Each user has a channel of its own: a connection's requests are answered in turn, and a heartbeat must not wait behind
an AlterPartition that the quorum is slow to commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from cluster_image.network import Address, Connection, Entity, Network


class NoController(ConnectionError):
    """The request reached no active controller, and was certainly not carried out."""


class LeaderFinder(Protocol):
    @property
    def leader_id(self) -> int | None: ...


class ControllerChannel:
    def __init__(
        self, network: Network, quorum: LeaderFinder, voters: Mapping[int, Address], client_id: str, *,
        timeout: float, setup_timeout: float,
    ) -> None:  # fmt: skip
        """timeout, setup_timeout: seconds, of a request and of a connection."""
        self._network = network
        self._quorum = quorum
        self._voters = voters
        self._client_id = client_id
        self._timeout = timeout
        self._setup_timeout = setup_timeout
        self._connection: Connection | None = None
        self._connected_to: int | None = None

    async def request(self, entity: Entity, timeout: float | None = None) -> Any:
        """The active controller's answer. timeout: seconds, if not the channel's own. Raises NoController when none is
        known or it answers as none; ConnectionError and TimeoutError: the request may have been carried out."""
        leader = self._quorum.leader_id
        if leader is None or leader not in self._voters:
            raise NoController("no active controller is known")
        timeout = self._timeout if timeout is None else timeout
        if self._connection is None or self._connection.closed or self._connected_to != leader:
            self.close()
            try:
                self._connection = await self._network.connect(
                    self._voters[leader], client_id=self._client_id, timeout=min(timeout, self._setup_timeout)
                )
            except (ConnectionError, TimeoutError) as error:
                raise NoController(f"controller {leader} cannot be reached") from error
            self._connected_to = leader
        answer = await self._connection.request(entity, timeout=timeout)
        refused = getattr(answer, "error_code", None)
        if refused is ErrorCode.not_controller:
            raise NoController(f"controller {leader} is not active")
        if refused is ErrorCode.request_timed_out:
            raise ConnectionError(f"controller {leader} had no answer in time")
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
