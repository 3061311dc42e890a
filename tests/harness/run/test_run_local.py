"""A whole run, with real brokers over loopback, a real workload and a real journal, and only the checkers left out."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich.console import Console

import harness.run.run
from cluster_image.network.tcp import TcpNetwork
from harness.cluster import Cluster, Evidence
from harness.plan.plan import Plan
from harness.record.history import load_journal
from harness.report.console import Progress
from harness.run.components import Components
from harness.targets.kafka_api.observer import KafkaObserver
from harness.targets.kraft.target import Kraft
from tests.clusters.local_cluster import LocalCluster
from workloads.append import AppendWorkload


class _Node:
    def __init__(self, number: int, port: int) -> None:
        self.id, self.address = number, ("127.0.0.1", port)
        self.role = "broker" if number < 100 else "controller"
        self.controller_address = None
        self.member = True
        self.name = f"{self.role}-{number % 100}"
        self.rack = f"rack-{number % 100}"

    async def is_running(self) -> bool:
        return True


class _LoopbackCluster(Cluster):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cluster = LocalCluster(directory)
        self.machines = [_Node(*node) for node in self._cluster.ports.items()]

    @property
    def brokers(self) -> list[_Node]:  # type: ignore[override]
        return self.machines[:3]

    @property
    def controllers(self) -> list[_Node]:  # type: ignore[override]
        return self.machines[3:]

    async def block(self, key: str, links: Any) -> None:
        raise NotImplementedError

    async def unblock(self, key: str) -> Evidence:
        raise NotImplementedError

    async def start(self) -> None:
        await self._cluster.start()

    async def heal(self) -> None:
        """Nothing is ever blocked."""

    async def collect(self, directory: Path) -> None:
        for node in self.brokers:
            shutil.copytree(self._directory / str(node.id), directory / "disks" / node.name)

    async def stop(self) -> None:
        await self._cluster.stop()


class _LoopbackComponents(Components):
    def __init__(self, directory: Path) -> None:
        super().__init__(Kraft())
        self._directory = directory

    @property
    def runtime(self) -> Any:  # type: ignore[override]
        return self

    async def start(self, *_: Any, **needs: Any) -> Any:
        cluster = _LoopbackCluster(self._directory)
        await cluster.start()
        return cluster

    def make_observer(self, cluster: Any, plan: Plan) -> KafkaObserver:
        return KafkaObserver(cluster, TcpNetwork(), plan.topic)

    def make_workload(self, plan: Plan, cluster: Any, recorder: Any) -> Any:
        return AppendWorkload(plan, cluster, recorder)

    def start_analysis(self, directory: Path, spark_ui_port: int | None) -> Any:
        return self

    def judge(self) -> dict[str, Any]:
        return {"verdict": "pass", "reason": "not looked at", "exit_code": 0}

    def build_report(self, directory: Path) -> None:
        pass


def test_every_acknowledged_record_is_read_and_lies_on_every_replica(tmp_path: Path) -> None:
    plan = Plan(run="r", nemesis=(), time_limit=2.0, rate=500.0, partitions=2)
    directory = tmp_path / "run"
    directory.mkdir()
    output = io.StringIO()
    components = _LoopbackComponents(tmp_path / "nodes")
    asyncio.run(harness.run.run.run(plan, {}, directory, components, Progress(Console(file=output))))

    problems = json.loads((directory / "run.json").read_text())["problems"]
    assert all(problem.startswith(("no trace of", "no metadata log of controller")) for problem in problems), problems
    tables = load_journal(directory / "journal")
    operations = tables["operations"]
    appends = operations.filter(pc.equal(operations["kind"], "append"))
    assert set(appends["outcome"].to_pylist()) == {"ok"} and 50 <= len(appends) <= 1100
    assert set(pc.unique(operations["kind"]).to_pylist()) >= {"read", "list_offsets", "final_read"}
    final = operations.filter(pc.equal(operations["kind"], "final_read"))["op"]
    reads = tables["reads"]
    finally_read = reads.filter(pc.is_in(reads["op"], final.combine_chunks()))["value"].to_pylist()
    written = Counter(appends["value"].to_pylist())
    assert Counter(finally_read) == written
    logs = tables["replica_logs"]
    for node in ("broker-1", "broker-2", "broker-3"):
        assert Counter(logs.filter(pc.equal(logs["node"], node))["value"].to_pylist()) == written
