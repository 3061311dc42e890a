"""Operators' commands, run as processes against a cluster of processes: topics, plans, brokers that come and go."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cluster_image.network import Address
from cluster_image.network.tcp import TcpNetwork
from cluster_image.placement.spread import Spread, apart
from cluster_image.storage.records import build_batch
from cluster_image.tools.cluster import Cluster, Moving, Place, State
from cluster_image.wire.messages import milliseconds
from tests import ROOT
from tests.clusters.process_cluster import ProcessCluster, process_cluster, run_node

PARTITIONS = 12
BYTES = 400_000  # of each partition


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three brokers with a topic `t` on them, of which each partition has some records; broker 4 is a spare."""
    with process_cluster(tmp_path_factory.mktemp("cluster"), 3, spares=1) as started:
        told = tool(started, "create-topic", "t", "--partitions", PARTITIONS, "--replication-factor", 3, "--json")
        assert json.loads(told.stdout)["partitions"] == PARTITIONS
        asyncio.run(_fill(started))
        yield started


async def _fill(cluster: ProcessCluster) -> None:
    network = TcpNetwork()
    leaders = (await _state(cluster)).leaders
    batch = build_batch([b"x" * (BYTES // 4)] * 4, timestamp_ms=1000)
    for (topic, index), leader in leaders.items():
        broker = await network.connect(Address("127.0.0.1", cluster.ports[leader]), client_id="test", timeout=5)
        partition = PartitionProduceData(index=index, records=batch)
        await broker.request(
            ProduceRequest(
                transactional_id=None, acks=-1, timeout=milliseconds(5000),
                topic_data=(TopicProduceData(name=topic, partition_data=(partition,)),),
            ),
            timeout=10,
        )  # fmt: skip
    await network.close()


async def _state(cluster: ProcessCluster) -> State:
    addresses = [Address("127.0.0.1", port) for node_id, port in cluster.ports.items() if node_id < 100]
    return await Cluster(addresses, 5.0).state()


def state(cluster: ProcessCluster) -> State:
    return asyncio.run(_state(cluster))


def tool(cluster: ProcessCluster, name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_node(name, "--bootstrap", cluster.bootstrap, *arguments)


def assert_balanced(cluster: ProcessCluster, *brokers: int) -> None:
    found = state(cluster)
    assert not found.moving
    spread = Spread(found.replicas.values())
    assert {b for b in spread.replicas if spread.replicas[b]} == set(brokers)
    assert apart(spread.replicas, brokers) <= 1
    assert apart(spread.leaders, brokers) <= 1
    assert all(found.leaders[place] == replicas[0] for place, replicas in found.replicas.items())


def test_a_broker_comes_and_gets_its_share_and_goes_again(cluster: ProcessCluster) -> None:
    early = tool(cluster, "add-brokers", 4, "--wait", 0.5)
    assert (early.returncode, early.stdout) == (2, "")
    assert "broker 4 has not joined the cluster in 0.5 s" in early.stderr
    cluster.start(4)
    only_waited = tool(cluster, "add-brokers", 4, "--no-rebalance", "--json")
    assert json.loads(only_waited.stdout) == {"brokers": [1, 2, 3, 4]}
    planned = json.loads(tool(cluster, "rebalance", "--dry-run", "--json").stdout)
    assert (planned["replicas_moved"], planned["least"], planned["carried_out"]) == (9, True, False)
    assert planned["bytes_moved"] == pytest.approx(9 * BYTES, rel=0.01)
    added = tool(cluster, "add-brokers", 4)
    assert added.returncode == 0, added.stderr
    assert "9 replicas to move" in added.stdout and "balanced: 9 replicas moved" in added.stdout
    assert "9 of 9 replicas moved" in added.stderr
    assert_balanced(cluster, 1, 2, 3, 4)
    carried_out = state(cluster).replicas
    for each in planned["partitions"]:
        assert carried_out[each["topic"], each["partition"]] == tuple(each["replicas"]), "the plan that was shown"
    again = tool(cluster, "rebalance", "--dry-run")
    assert again.stdout == "the cluster is balanced\n"

    told, summary = stopped_when_it_may(cluster, "remove-broker", 4, "--json", "--wait", 60)
    assert json.loads(summary)["unregistered"] is True, told
    assert_balanced(cluster, 1, 2, 3)


def stopped_when_it_may(cluster: ProcessCluster, name: str, broker: int, *arguments: object) -> tuple[str, str]:
    """What the command told and printed: the broker is shut down once it says that it may be."""
    told = ""
    with subprocess.Popen(
        [sys.executable, "-m", "cluster_image", name, "--bootstrap", cluster.bootstrap, str(broker),
         *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        assert command.stderr is not None
        for line in command.stderr:
            told += line
            if f"broker {broker} holds nothing any more: stop it now" in line:
                cluster.shut_down(broker)
        summary, _ = command.communicate(timeout=60)
    assert command.returncode == 0, told
    assert "holds nothing any more" in told, told
    return told, summary


def test_too_few_brokers_would_be_left(cluster: ProcessCluster) -> None:
    told = tool(cluster, "remove-broker", 3, "--wait", 0.5)
    assert told.returncode == 2
    assert told.stderr == "remove-broker: 3 replicas need as many brokers, and 2 would be left\n"
    assert_balanced(cluster, 1, 2, 3)


def test_a_broker_that_there_is_not(cluster: ProcessCluster) -> None:
    told = tool(cluster, "remove-broker", 77)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "remove-broker: broker 77: there is no such broker\n"


HOSTILE: dict[str, tuple[Any, str]] = {
    "unknown broker": ([("t", 0, [1, 9])], "t-0 would be on broker 9, and there is no such broker alive"),
    "duplicate replicas": ([("t", 0, [1, 1, 2])], "t-0 would be on broker 1 twice"),
    "no replicas": ([("t", 0, [])], "t-0 would have no replica"),
    "empty list": ([], "names no partition"),
    "a partition twice": ([("t", 0, [1, 2, 3]), ("t", 0, [3, 2, 1])], "names partition t-0 twice"),
    "unknown partition": ([("t", 1, [2, 1, 3]), ("t", 99, [1])], "there is no partition t-99"),
    "a replica of another kind": ([("t", 0, ["1"])], "needs topic, partition and a list of replicas"),
    "no plan": ("x", "is no plan"),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_of_a_plan_that_cannot_be_carried_out_nothing_is_begun(
    cluster: ProcessCluster, tmp_path: Path, hostile: str
) -> None:
    before = state(cluster)
    told = reassign(cluster, tmp_path, HOSTILE[hostile][0])
    assert (told.returncode, told.stdout) == (2, "")
    assert HOSTILE[hostile][1] in told.stderr and told.stderr.count("\n") == 1
    assert state(cluster) == before


def reassign(cluster: ProcessCluster, tmp_path: Path, partitions: Any) -> subprocess.CompletedProcess[str]:
    plan = tmp_path / "plan.json"
    of_tuples = isinstance(partitions, list)
    items = [{"topic": t, "partition": p, "replicas": r} for t, p, r in partitions] if of_tuples else partitions
    plan.write_text(json.dumps({"version": 1, "partitions": items}))
    return tool(cluster, "reassign", "--plan", plan)


def test_files_that_are_no_plans(cluster: ProcessCluster, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    assert "is not JSON" in tool(cluster, "reassign", "--plan", tmp_path / "broken.json").stderr
    assert "No such file" in tool(cluster, "reassign", "--plan", tmp_path / "none.json").stderr
    (tmp_path / "deep.json").write_text("[" * 200_000)
    assert "is nested too deeply" in tool(cluster, "reassign", "--plan", tmp_path / "deep.json").stderr
    assert "--plan FILE or --cancel is missing" in tool(cluster, "reassign").stderr
    (tmp_path / "unknown.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "none", "partition": 0, "replicas": [1]}]})
    )
    told = tool(cluster, "reassign", "--cancel", "--plan", tmp_path / "unknown.json")
    assert (told.returncode, told.stderr) == (2, "reassign: there is no partition none-0\n")


def test_one_that_does_not_stop_stays_registered_and_empty(four: ProcessCluster) -> None:
    told = tool(four, "remove-broker", 4, "--wait", 0.5)
    assert told.returncode == 1
    assert "holds nothing, and is registered (broker 4 is running): run this again once it has stopped" in told.stdout
    assert_balanced(four, 1, 2, 3)


@pytest.fixture(scope="module")
def four(cluster: ProcessCluster) -> ProcessCluster:
    cluster.start(4)
    return cluster


def test_a_plan_over_a_plan(four: ProcessCluster, tmp_path: Path) -> None:
    """Broker 4 takes next to nothing, so the first is still under way; it can be cancelled, and its throttle goes."""
    assert tool(four, "rebalance", "--brokers", "1,2,3").returncode == 0
    begun_and_killed(four, 1000)
    moving = settled(four)
    place = list(moving)[-1]
    told = reassign(four, tmp_path, [(*place, [1, 2, 3])])
    assert f"{place[0]}-{place[1]} is being reassigned to" in told.stderr and told.returncode == 2
    assert state(four).moving == moving
    cancelled = tool(four, "reassign", "--cancel", "--json")
    assert json.loads(cancelled.stdout) == {"cancelled": len(moving)}
    after = state(four)
    assert not after.moving
    assert all(set(after.replicas[cancelled_one]) == {1, 2, 3} for cancelled_one in moving)
    assert not asyncio.run(throttled(four))
    assert tool(four, "rebalance").returncode == 0, "it is not throttled any more"
    assert_balanced(four, 1, 2, 3, 4)


def begun_and_killed(cluster: ProcessCluster, throttle: int) -> None:
    """`rebalance`, which is ended as soon as data moves."""
    arguments = ["--bootstrap", cluster.bootstrap, "--throttle", str(throttle)]
    with subprocess.Popen(
        [sys.executable, "-m", "cluster_image", "rebalance", *arguments],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as command:  # fmt: skip
        while not state(cluster).moving:
            time.sleep(0.05)
        command.kill()


def settled(cluster: ProcessCluster) -> Mapping[Place, Moving]:
    """What is under way once the first portions, which are not held back, have come."""
    before, moving = None, state(cluster).moving
    while moving != before:
        time.sleep(1)
        before, moving = moving, state(cluster).moving
    return moving


async def throttled(cluster: ProcessCluster) -> list[str]:
    addresses = [Address("127.0.0.1", port) for node_id, port in cluster.ports.items() if node_id < 100]
    return await Cluster(addresses, 5.0).throttled(["t"])


def test_a_throttle_whose_reassignment_ended_while_nobody_watched_goes_when_all_is_cancelled(
    four: ProcessCluster,
) -> None:
    assert tool(four, "rebalance", "--brokers", "1,2,3").returncode == 0
    begun_and_killed(four, 2000000)
    while state(four).moving:
        time.sleep(0.1)
    assert asyncio.run(throttled(four)) == ["t"]
    assert json.loads(tool(four, "reassign", "--cancel", "--json").stdout) == {"cancelled": 0}
    assert not asyncio.run(throttled(four))


#: More of them at night.
CUTS = int(os.environ.get("CHAOS_CUTS", "2"))


@pytest.mark.parametrize(
    ("signal_", "seconds"),
    [(signal.SIGKILL if number % 2 else signal.SIGINT, 2.0 + 5 * number / CUTS) for number in range(CUTS)],
)
def test_cut_short_it_ends_balanced_when_run_again(
    four: ProcessCluster, signal_: signal.Signals, seconds: float
) -> None:
    cut_short(four, signal_, seconds)


def cut_short(four: ProcessCluster, signal_: signal.Signals, seconds: float) -> None:
    """`rebalance` to three brokers and back to four, ended by the signal after so many seconds, and run again."""
    assert tool(four, "rebalance", "--brokers", "1,2,3").returncode == 0
    arguments = ["--bootstrap", four.bootstrap, "--throttle", "2000000"]
    with subprocess.Popen(
        [sys.executable, "-m", "cluster_image", "rebalance", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        time.sleep(seconds)
        first.send_signal(signal_)
        _, told = first.communicate(timeout=30)
    if signal_ is signal.SIGINT and first.returncode == 130 and told:
        assert "run the same again" in told or "nothing was begun" in told
        assert "Traceback" not in told
    again = tool(four, "rebalance", *arguments[2:])
    assert again.returncode == 0, again.stderr
    assert_balanced(four, 1, 2, 3, 4)


def test_topics_are_changed_and_deleted(cluster: ProcessCluster) -> None:
    created = tool(cluster, "create-topic", "u", "--partitions", 2, "--config", "min.insync.replicas=2")
    assert (created.returncode, created.stdout) == (0, "topic u is created with 2 partitions\n")
    assert "exists already" in tool(cluster, "create-topic", "u").stderr
    altered = tool(cluster, "alter-topic", "u", "--partitions", 3, "--delete-config", "min.insync.replicas")
    assert altered.returncode == 0, altered.stderr
    assert len([place for place in state(cluster).replicas if place[0] == "u"]) == 3
    assert "unknown topic setting" in tool(cluster, "alter-topic", "u", "--config", "retention=1").stderr
    wrong = tool(cluster, "alter-topic", "u", "--config", "retention.ms=abc").stderr
    assert "retention.ms=abc is not valid" in wrong and "log.retention" not in wrong, "the name that was written"
    assert "nothing to change" in tool(cluster, "alter-topic", "u").stderr
    both = tool(cluster, "alter-topic", "u", "--config", "retention.ms=1", "--partitions", 2)
    assert both.returncode == 2 and "are valid" in both.stderr
    kept = tool(cluster, "alter-topic", "u", "--config", "retention.ms=x", "--partitions", 4)
    assert kept.returncode == 2
    assert len([place for place in state(cluster).replicas if place[0] == "u"]) == 3, "nothing was changed"
    deleted = tool(cluster, "delete-topic", "u", "nothing", "--json")
    assert json.loads(deleted.stdout) == {"deleted": ["u"], "refused": {"nothing": "unknown_topic_or_partition"}}
    assert deleted.returncode == 2
    assert all(topic != "u" for topic, _ in state(cluster).replicas)


@pytest.mark.parametrize(("arguments", "message"), [
    (("create-topic", "t", "--partitions", "0"), "'0' is not a number from 1 on"),
    (("create-topic", "t", "--config", "a"), "'a' is not NAME=VALUE"),
    (("remove-broker", "x"), "'x' is not a broker's id"),
    (("rebalance", "--brokers", "1,,2"), "'' is not a broker's id"),
    (("rebalance", "--throttle", "-5"), "--throttle"),
    (("rebalance", "--throttle", str(2**63)), "is not a number of bytes from 1 to 2^63 - 1"),
    (("create-topic", "t", "--replication-factor", "40000"), "'40000' is not a number from 1 to 32767"),
    (("create-topic", "\udcff"), "is not UTF-8"),
    (("alter-topic", "t", "--config", "a=\udcff"), "is not UTF-8"),
])  # fmt: skip
def test_arguments_that_make_no_sense(arguments: tuple[str, ...], message: str) -> None:
    name, *others = arguments
    told = run_node(name, "--bootstrap", "127.0.0.1:1", *others)
    assert (told.returncode, told.stdout) == (2, "")
    assert message in told.stderr and told.stderr.count("\n") == 1
