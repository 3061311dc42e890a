"""describe-quorum: who leads the metadata quorum, and how far each voter and observer has replicated its log.

Any node may be asked: a broker passes the question on, a controller that does not lead says who does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.describe_quorum.v2 import request as module
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from ..network import Address
from ..telemetry.printable import say
from ..wire.integers import i32
from .client import Client
from .output import ToolError, print_json, table

_REQUEST: Final = module.DescribeQuorumRequest(
    topics=(
        module.TopicData(
            topic_name=TopicName("__cluster_metadata"),
            partitions=(module.PartitionData(partition_index=i32(0)),),
        ),
    )
)
_PAUSE_SECONDS: Final = 0.2


async def run(bootstrap: Sequence[Address], timeout: float, *, as_json: bool) -> int:
    quorum = await describe(bootstrap, timeout)
    if as_json:
        print_json(quorum)
        return 0
    say(
        f"leader {quorum['leader_id']}, epoch {quorum['leader_epoch']}, high watermark {quorum['high_watermark']}\n"
        + table(
            ("NODE", "ROLE", "LOG END", "LAG", "FETCHED MS AGO", "CAUGHT UP MS AGO", "ADDRESS"),
            [
                (r["id"], r["role"], r["log_end_offset"], r["lag"], r["fetched_ms_ago"], r["caught_up_ms_ago"],
                 r["address"])
                for r in quorum["replicas"]
            ],
        )
    )  # fmt: skip
    return 0


async def describe(bootstrap: Sequence[Address], timeout: float) -> dict[str, Any]:
    """`replicas`: the leader, the other voters, the observers. Times in milliseconds, by the leader's clock; None where
    the leader has not heard of the replica. Raises ToolError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    addresses = bootstrap
    while True:
        client = await Client.connect(addresses, deadline)
        try:
            answer = await client.ask(_REQUEST)
        finally:
            await client.close()
        error, data = answer.error_code, None
        if error is ErrorCode.none and answer.topics:
            data = answer.topics[0].partitions[0]
            error = data.error_code
        listeners = {int(n.node_id): Address(n.listeners[0].host, int(n.listeners[0].port)) for n in answer.nodes}
        if data is not None and error is ErrorCode.none:
            return _described(data, listeners)
        if loop.time() + _PAUSE_SECONDS >= deadline:
            raise ToolError(f"the quorum has no leader that answers: {client.address} says {error.name}")
        known = data is not None and data.leader_id in listeners
        addresses = [listeners[int(data.leader_id)], *bootstrap] if data is not None and known else bootstrap
        await asyncio.sleep(_PAUSE_SECONDS)


def _described(data: Any, listeners: dict[int, Address]) -> dict[str, Any]:
    leader = next(voter for voter in data.current_voters if voter.replica_id == data.leader_id)
    now, end = int(leader.last_caught_up_timestamp), int(leader.log_end_offset)

    def ago(timestamp: int) -> int | None:
        return max(now - timestamp, 0) if timestamp >= 0 else None

    def replica(state: Any, role: str) -> dict[str, Any]:
        offset = int(state.log_end_offset)
        return {
            "id": int(state.replica_id),
            "role": "leader" if state is leader else role,
            "log_end_offset": offset if offset >= 0 else None,
            "lag": end - offset if offset >= 0 else None,
            "fetched_ms_ago": None if state is leader else ago(int(state.last_fetch_timestamp)),
            "caught_up_ms_ago": ago(int(state.last_caught_up_timestamp)),
            "address": str(listeners[int(state.replica_id)]) if int(state.replica_id) in listeners else None,
        }

    voters = [leader, *(voter for voter in data.current_voters if voter is not leader)]
    return {
        "leader_id": int(data.leader_id),
        "leader_epoch": int(data.leader_epoch),
        "high_watermark": int(data.high_watermark),
        "replicas": [
            *(replica(voter, "voter") for voter in voters),
            *(replica(observer, "observer") for observer in data.observers),
        ],
    }
