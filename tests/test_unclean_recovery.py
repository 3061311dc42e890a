"""What replicas tell of their logs when a partition has nobody known to be complete (002, 5.3)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from cluster_image.controller.unclean_recovery import best_log, inspect_logs
from cluster_image.network import Address
from cluster_image.records import build_batch
from cluster_image.tcp import TcpNetwork
from tests.local_cluster import LocalCluster, local_cluster
from tests.test_hostile_clients import leader_of_t, produce_request, topic_request
from tests.test_partition import registration


def test_any_replica_tells_how_far_its_log_goes_and_an_empty_one_never_looks_best(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            network = TcpNetwork()
            somebody = await network.connect(address(cluster, 1), client_id="test", timeout=5)
            await somebody.request(topic_request(), timeout=5)
            leader = await network.connect(await leader_of_t(cluster, network), client_id="test", timeout=5)
            partition = replace(registration(-1, isr=()), last_known_elr=(1, 2, 3))
            addresses = {broker: address(cluster, broker) for broker in (1, 2, 3)}

            async def ends() -> dict[int, tuple[int, int]]:
                (told,) = (await inspect_logs(network, addresses, [partition])).values()
                return told

            while len(await ends()) < 3:  # each broker learns of the topic in its own time
                await asyncio.sleep(0.05)
            assert await ends() == {1: (-1, 0), 2: (-1, 0), 3: (-1, 0)}
            batch = build_batch([b"a", b"b"], timestamp_ms=0)
            await leader.request(produce_request(batch), timeout=5)
            assert await ends() == {1: (0, 2), 2: (0, 2), 3: (0, 2)}
            assert best_log(partition, {1: (-1, 0), 2: (0, 2), 3: (0, 1)}) == 2
            await network.close()

    asyncio.run(scenario())


def address(cluster: LocalCluster, broker: int) -> Address:
    return Address("127.0.0.1", cluster.ports[broker])
