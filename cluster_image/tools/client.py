"""Asking a node of the cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode

from ..network import Address, Connection, Entity
from ..network.tcp import TcpNetwork
from .output import ToolError, Unanswered

#: Apache Kafka answers with INVALID_REQUEST, and no API at all, where name or version is empty (KIP-511).
_WHO: Final = ApiVersionsRequest(client_software_name="chaos", client_software_version="1")


class Client:
    """A connection to the first of `addresses` that answers. `deadline`: by the loop's clock, for everything."""

    def __init__(self, network: TcpNetwork, address: Address, connection: Connection, deadline: float) -> None:
        self.address = address
        self._network = network
        self._connection = connection
        self._deadline = deadline
        self._served: frozenset[int] = frozenset()

    @classmethod
    async def connect(cls, addresses: Sequence[Address], deadline: float) -> Client:
        """Raises ToolError."""
        network = TcpNetwork()
        left = deadline - asyncio.get_running_loop().time()
        reason = "no address"
        for address in addresses:
            try:
                connection = await network.connect(address, client_id="tools", timeout=max(left / len(addresses), 0.1))
                client = cls(network, address, connection, deadline)
                answer = await client._ask(_WHO)
            except (ConnectionError, TimeoutError) as error:
                reason = f"{address} does not answer ({_reason(error)})"
                continue
            if answer.error_code is not ErrorCode.none:
                reason = f"{address} does not say what it serves ({answer.error_code.name})"
                continue
            client._served = frozenset(int(key.api_key) for key in answer.api_keys)
            return client
        await network.close()
        raise ToolError(reason)

    def serves(self, api_key: int) -> bool:
        return api_key in self._served

    async def ask(self, request: Entity) -> Any:
        """Raises ToolError: it is not served; Unanswered."""
        if not self.serves(request.__api_key__):
            name = type(request).__name__.removesuffix("Request")
            raise ToolError(f"{self.address} does not serve {name}")
        try:
            return await self._ask(request)
        except (ConnectionError, TimeoutError) as error:
            raise Unanswered(f"{self.address} does not answer ({_reason(error)})") from None

    async def _ask(self, request: Entity) -> Any:
        left = self._deadline - asyncio.get_running_loop().time()
        return await self._connection.request(request, timeout=max(left, 0.1))

    async def close(self) -> None:
        await self._network.close()


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error) or "no connection in time"
