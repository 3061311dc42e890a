"""A target that is no Kafka at all: one register behind a port (server/), and clients that use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from harness.cluster import Cluster, Node, NotOffered
from harness.errors import BadArguments
from harness.record.collected import Collected
from harness.report.console import Counts
from harness.run.components import Components
from harness.targets.target import (
    DATA,
    ClusterPlan,
    ImageStore,
    NodeSpec,
    Package,
    Promise,
    ReadableDisk,
    Recorder,
    Target,
)
from harness.targets.view import ClusterView, Observer, PartitionState
from spark_history.schema import REGISTERS
from tests import ROOT

FOLDER = ROOT / "tests" / "clusters" / "register" / "server"
PATIENCE_S = 0.5


class RegisterTarget(Target):
    name = "register"
    summary = "one register behind a port"
    runtimes: ClassVar = frozenset({"docker"})
    unsupported: ClassVar[Mapping[str, str]] = {"membership": "it has one node"}

    def promise(self, plan: ClusterPlan) -> Promise:
        return Promise("What was written is there", 1, "register/server/server.py, which syncs before it answers")

    def problems(self, plan: ClusterPlan) -> Iterable[str]:
        if plan.brokers != 1:
            yield f"--brokers {plan.brokers}: there is one register"

    def check_setting(self, name: str, value: str) -> None:
        if name != "synced" or value not in ("true", "false"):
            raise BadArguments(f"--set {name}={value} is no setting of a register")

    def settings(self) -> Sequence[tuple[str, str, str, str]]:
        return [("synced", "true", "true or false", "Sync before a write is answered.")]

    def nodes(self, plan: ClusterPlan) -> Sequence[NodeSpec]:
        return [NodeSpec("broker-1", 1, "broker", "rack-1", 7000)]

    def package(self, plan: ClusterPlan, images: ImageStore, tell: Callable[[str], object] = lambda _: None) -> Package:
        return self.packages()[0]

    def packages(self) -> Sequence[Package]:
        return [Package(FOLDER / "Dockerfile", {"": FOLDER})]

    def configurations(
        self, plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool = False
    ) -> Mapping[str, str]:
        synced = plan.settings.get("synced", "true")
        return {node.name: f"port={node.address[1]}\nsynced={synced}\nfolder={DATA}/own\n" for node in nodes}

    def renumbered(self, configuration: str, node_id: int, folder: str) -> str:
        return configuration

    def observer(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Observer:
        return _RegisterObserver(cluster)

    def admin(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Any:
        raise NotOffered("admin")

    def read_traces(self, source: Path | Mapping[str, str]) -> None:
        """There are none."""

    def collect(
        self, disks: Path | Mapping[str, ReadableDisk], plan: ClusterPlan, recorder: Recorder, traces: Any | None
    ) -> list[Collected]:
        assert isinstance(disks, Path)
        return [Collected(path.parts[-3], "disk", 1) for path in disks.glob("*/own/register")]

    def missing(self, nodes: Sequence[Node | NodeSpec], pieces: Sequence[Collected]) -> list[Collected]:
        there = {piece.node for piece in pieces}
        return [Collected(each.name, "disk", problem="no register") for each in nodes if each.name not in there]

    def simulated(self, plan: ClusterPlan) -> Any:
        raise NotOffered("simulated")


class _RegisterObserver:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def view(self) -> ClusterView:
        (node,) = self._cluster.brokers
        try:
            await ask(node, "read")
        except (OSError, TimeoutError):
            return ClusterView({}, None, f"{node.name} does not answer")
        return ClusterView({node.id: {0: PartitionState(node.id, 0, frozenset({1}), frozenset({1}))}}, None, None)


async def ask(node: Node, line: str) -> str:
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*node.address)
        try:
            writer.write(f"{line}\n".encode())
            answer = await reader.readline()
        finally:
            writer.close()
    if not answer:
        raise ConnectionResetError("closed")
    return answer.decode().strip()


class RegisterClients:
    """A workload: one client writes 1, 2, …, another reads. What they do goes into `rows` (REGISTERS)."""

    def __init__(self, cluster: Cluster) -> None:
        (self._node,) = cluster.brokers
        self._processes = 0
        self._answers = asyncio.Event()
        self.rows: list[dict[str, Any]] = []

    async def set_up(self) -> None:
        """The node is waited for by who observes it."""

    async def run(self, stop: asyncio.Event) -> None:
        await asyncio.gather(self._client(stop, writes=True), self._client(stop, writes=False))

    async def final_read(self) -> None:
        await self._do(self._new_process(), "read", None)

    async def close(self) -> None: ...

    def counts(self) -> Counts:
        done = sum(row["outcome"] == "ok" for row in self.rows)
        return Counts(len(self.rows), done, indeterminate=len(self.rows) - done)

    async def _client(self, stop: asyncio.Event, *, writes: bool) -> None:
        process, value = self._new_process(), 0
        while not stop.is_set():
            value += 1
            if await self._do(process, "write" if writes else "read", value if writes else None):
                self._answers.set()
            else:
                process = self._new_process()  # it may take effect later: who invoked it does nothing more
                self._answers.clear()
                while writes and not (self._answers.is_set() or stop.is_set()):
                    await asyncio.sleep(0.02)  # what the register has forgotten is read before it is written again
            await asyncio.sleep(0.02)

    def _new_process(self) -> int:
        self._processes += 1
        return self._processes

    async def _do(self, process: int, kind: str, value: int | None) -> bool:
        row = dict.fromkeys(REGISTERS.names) | {
            "run": "r", "process": process, "op": len(self.rows), "kind": kind, "key": 0, "value": value,
            "outcome": "info", "invoke": time.monotonic_ns(),
        }  # fmt: skip
        self.rows.append(row)
        try:
            answer = await ask(self._node, kind if value is None else f"{kind} {value}")
        except (OSError, TimeoutError):
            return False
        read = int(answer) if answer else None
        row |= {"outcome": "ok", "complete": time.monotonic_ns(), "value": read if kind == "read" else value}
        return True


class RegisterComponents(Components):
    """Of a run whose history is that of a register."""

    def make_workload(self, plan: Any, cluster: Cluster, recorder: Any) -> Any:
        self.clients = RegisterClients(cluster)
        return self.clients

    def start_analysis(self, directory: Path, spark_ui_port: int | None) -> Any:
        return self

    def judge(self) -> Mapping[str, Any]:
        from checkers import registers
        from checkers.verdict.judged import verdict

        plan = {"run": "r"}
        return verdict(
            registers.check_tables(plan, {"registers": pa.Table.from_pylist(self.clients.rows, REGISTERS)}), plan
        )

    def build_report(self, directory: Path) -> None: ...
