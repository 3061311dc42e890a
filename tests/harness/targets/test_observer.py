"""What the observer sees of a real cluster over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cluster_image.network.tcp import TcpNetwork
from harness.plan.plan import Plan
from harness.record.history import Recorder
from harness.targets.kafka_api.observer import KafkaObserver, _wrong, why_out_of_sync
from harness.targets.view import ClusterView, PartitionState
from tests.clusters.local_cluster import LocalCluster, local_cluster
from workloads.append import AppendWorkload

PLAN = Plan(run="r", partitions=4, rate=200.0)


def as_harness_cluster(cluster: LocalCluster) -> Any:
    nodes = [
        SimpleNamespace(id=number, name=f"{'broker' if number < 100 else 'controller'}-{number % 100}",
                        address=("127.0.0.1", port), controller_address=None)
        for number, port in cluster.ports.items()
    ]  # fmt: skip
    return SimpleNamespace(nodes=nodes, brokers=nodes[:3], controllers=nodes[3:])


class _Counted(TcpNetwork):
    connections = 0

    async def connect(self, *arguments: Any, **named: Any) -> Any:
        self.connections += 1
        return await super().connect(*arguments, **named)


async def _becomes(observer: KafkaObserver, expected: str | None) -> ClusterView:
    async with asyncio.timeout(15):
        while True:
            view = await observer.view()
            if (view.out_of_sync or "") == (expected or "") or (expected and expected in (view.out_of_sync or "")):
                return view
            await asyncio.sleep(0.1)


def test_isrs_leaders_and_the_active_controller(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path / "nodes") as cluster:
            harness_cluster = as_harness_cluster(cluster)
            network = _Counted()
            observer = KafkaObserver(harness_cluster, network, PLAN.topic)
            assert "broker-1 does not answer or does not know the topic" in (await observer.view()).out_of_sync  # type: ignore[operator]
            recorder = Recorder(tmp_path, PLAN.run)
            workload = AppendWorkload(PLAN, harness_cluster, recorder)
            await workload.set_up()

            view = await _becomes(observer, None)
            assert sum(view.leaders.values()) == 4 and set(view.leaders) == {1, 2, 3}
            assert view.active_controller in (101, 102, 103)

            asked = network.connections
            assert await observer.unhealthy() is None
            assert network.connections - asked == 6, "each broker and each controller is asked once in a healthy run"

            await cluster.stop(3)
            view = await _becomes(observer, "broker-3 does not answer")
            wrong = await observer.unhealthy()
            while "have a replica out of the ISR" not in str(wrong):
                wrong = await observer.unhealthy()
            # Of a topic that is another's, too.
            others = await KafkaObserver(harness_cluster, TcpNetwork(), "another").unhealthy()
            assert wrong == others
            assert str(wrong).startswith("broker-3 does not answer; 4 of 4 partitions have a replica out of the ISR")
            assert "(chaos-0, chaos-1, chaos-2 …)" in str(wrong)
            assert set(view.partitions) == {1, 2}
            while 3 in (await observer.view()).leaders:
                await asyncio.sleep(0.1)

            await cluster.start(3)
            await _becomes(observer, None)
            await workload.close()
            recorder.close()

    asyncio.run(scenario())


def _metadata(brokers: Sequence[int], **partitions: tuple[int, Sequence[int], Sequence[int]]) -> Any:
    """partitions: leader, replicas and ISR, by topic_partition."""
    topics = []
    for name, (leader, replicas, isr) in partitions.items():
        topic, index = name.split("_")
        state = SimpleNamespace(
            partition_index=int(index), leader_id=leader, leader_epoch=1, replica_nodes=replicas, isr_nodes=isr
        )
        topics.append(SimpleNamespace(name=topic, partitions=(state,)))
    return SimpleNamespace(brokers=[SimpleNamespace(node_id=broker) for broker in brokers], topics=topics)


def test_what_is_wrong_with_a_cluster_is_named() -> None:
    brokers: Any = [SimpleNamespace(id=n, name=f"broker-{n}") for n in (1, 2, 3)]
    whole = _metadata((1, 2, 3), a_0=(1, (1, 2), (1, 2)), b_0=(2, (2, 3), (2, 3)))

    def wrong(*answers: Any, isrs: bool = True, quorum: bool | None = True) -> list[str]:
        return list(_wrong(brokers, answers, isrs=isrs, quorum=quorum))

    assert wrong(whole, whole, whole) == [] and wrong(whole, whole, whole, quorum=None) == []
    assert wrong(whole, whole, whole, quorum=False) == ["there is no active controller"]
    assert wrong(None, None, None) == ["broker-1, broker-2, broker-3 do not answer"]
    shrunk = _metadata((1, 2), a_0=(1, (1, 2), (1, 2)), b_0=(-1, (2, 3), (2,)))
    assert wrong(shrunk, whole, whole) == [
        "broker-3 is missing from the metadata of the others", "1 of 2 partitions has no leader (b-0)",
        "1 of 2 partitions has a replica out of the ISR (b-0)",
    ]  # fmt: skip
    assert wrong(whole, shrunk, None, isrs=False) == [
        "broker-3 does not answer", "1 of 2 partitions has no leader (b-0)",
    ]  # fmt: skip


def test_in_sync_means_that_every_broker_says_so() -> None:
    brokers: Any = [SimpleNamespace(id=n, name=f"broker-{n}") for n in (1, 2)]
    both, one, none = frozenset({1, 2}), frozenset({1}), -1
    full = PartitionState(1, 5, both, both)
    assert why_out_of_sync(brokers, {1: {0: full}, 2: {0: full}}) is None
    assert why_out_of_sync(brokers, {1: {0: full}}) == "broker-2 does not answer or does not know the topic"
    behind = {0: PartitionState(1, 5, both, one)}
    assert (
        why_out_of_sync(brokers, {1: {0: full}, 2: behind})
        == "broker 2 is not in the ISR of partition 0, says broker-2"
    )
    headless = {0: PartitionState(none, 5, both, both)}
    assert why_out_of_sync(brokers, {1: headless, 2: {0: full}}) == "partition 0 has no leader, says broker-1"


def test_the_newest_leader_epoch_says_who_leads() -> None:
    replicas = frozenset({1, 2})
    old, new = PartitionState(1, 5, replicas, replicas), PartitionState(2, 6, replicas, replicas)
    assert ClusterView({1: {0: old, 1: old}, 2: {0: new, 1: old}}, None, None).leaders == {1: 1, 2: 1}
