"""What a node says it serves: versions of requests, and levels of features (ApiVersions, KIP-35 and KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kio.schema.api_versions.v3.request import ApiVersionsRequest as Plain
from kio.schema.api_versions.v4.request import ApiVersionsRequest

from cluster_image.network import Connection

_API_VERSIONS: Final = 18
_SOFTWARE: Final = {"client_software_name": "chaos", "client_software_version": "1"}


async def versions(connection: Connection, timeout: float) -> Mapping[int, int]:
    """The highest version that is served of each request, by API key. Raises OSError, TimeoutError."""
    answer = await connection.request(Plain(**_SOFTWARE), timeout=timeout)
    return {int(each.api_key): int(each.max_version) for each in answer.api_keys}


async def features(connection: Connection, timeout: float) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """By name, up to which level the node supports them; and the levels in force in its cluster, where it knows.
    Raises OSError, TimeoutError."""
    served = await versions(connection, timeout)
    # Up to version 3 an answer leaves out features that may be off (KAFKA-17011).
    asked = ApiVersionsRequest(**_SOFTWARE) if served.get(_API_VERSIONS, 0) >= 4 else Plain(**_SOFTWARE)
    answer = await connection.request(asked, timeout=timeout)
    supported = {str(each.name): int(each.max_version) for each in answer.supported_features}
    finalized = {str(each.name): int(each.max_version_level) for each in answer.finalized_features}
    return supported, finalized
