"""A cluster, a workload and checkers that do nothing but keep account: for tests of the harness itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from cluster_image.kraft.node import METADATA_DIRECTORY
from harness.cluster import Cluster, Evidence, Link, Shape
from harness.report.console import Counts
from harness.run.components import Components
from harness.targets.kafka_api.observer import why_out_of_sync
from harness.targets.kraft.target import Kraft
from harness.targets.view import ClusterView, PartitionState


class FakeNode:
    """Counts what is done to it, and objects to what no nemesis may do: striking a node that is struck already."""

    def __init__(self, cluster: FakeCluster, role: str, number: int) -> None:
        self.cluster = cluster
        self.role = role
        self.id = self.own_id = number if role == "broker" else 100 + number
        self.name = f"{role}-{number}"
        self.rack = f"rack-{(number - 1) % 3 + 1}"
        self.address = ("127.0.0.1", 9092)
        self.state = "running"
        self.member = True

    async def last_words(self) -> str:
        return "the log\nout of memory\n"

    def __repr__(self) -> str:
        return self.name

    def _enter(self, state: str) -> None:
        assert self.state == "running", f"{self.name} is {self.state} and would become {state}"
        self.state = state
        self.cluster.log.append((self.name, state))

    def _leave(self, state: str) -> None:
        assert self.state in (state, "running")
        self.state = "running"
        self.cluster.log.append((self.name, "running"))

    async def kill(self) -> Evidence:
        self._enter("killed")
        return {"exit_status": 137, "pid": 1}

    async def terminate(self) -> Evidence:
        return {**await self.kill(), "exit_status": 0}

    async def start(self) -> None:
        self._leave("exited" if self.state == "exited" else "killed")

    async def pause(self, how: str = "freezer") -> Evidence:
        self._enter("paused")
        return {"frozen_state": "frozen"}

    async def resume(self) -> Evidence:
        self._leave("paused")
        return {"frozen_ns": 5}

    async def cut_power(self, *, in_write: int = 0, late_s: float = 0.0) -> Evidence:
        if self.cluster.fail_cuts:
            raise OSError("the agent is gone")
        self._enter("dark")
        self.cluster.torn.append(in_write)
        self.cluster.lossy_cuts.append(set(self.cluster.missing) | {self.name})
        if self.role == "broker":
            self.cluster.missing.add(self.name)
        return {"unsynced_bytes": 100, "unsynced_records": 3, "unsynced_files": 1, "exit_status": 137}

    async def lose_page_cache(self) -> Evidence:
        self._enter("killed")
        return {"unsynced_bytes": 100, "unsynced_records": 3, "unsynced_files": 1, "exit_status": 137}

    async def restore_power(self) -> None:
        self._leave("dark")
        if self.role == "broker":
            asyncio.get_running_loop().call_later(self.cluster.recovery_s, self.cluster.missing.discard, self.name)

    async def set_clock(self, offset_s: float, drift: float = 0.0) -> Evidence:
        if offset_s or drift:
            self._enter("at another time")
        else:
            self._leave("at another time")
        return {"clock_offset_ms": round(offset_s * 1000)}

    async def fill_disk(self) -> Evidence:
        self._enter("full")
        return {}

    async def free_disk(self) -> Evidence:
        return {"refused_writes": self._mend("full")}

    async def fail_disk(self) -> Evidence:
        self._enter("failing")
        return {}

    async def repair_disk(self) -> Evidence:
        return {"failed_operations": self._mend("failing")}

    def _mend(self, state: str) -> int:
        """Operations that the disk refused; the first ended the process."""
        refused = self.cluster.operations if self.state == state else 0
        self._leave(state)
        if refused:
            self.state = "exited"
        return refused

    async def is_running(self) -> bool:
        return self.state == "running"


class FakeCluster(Cluster):
    """Brokers cut off from power are out of the ISR until `recovery_s` after they were restored."""

    def __init__(self, recovery_s: float = 0.05) -> None:
        self.recovery_s = recovery_s
        self.missing: set[str] = set()  # brokers out of the ISR
        self.log: list[tuple[str, str]] = []
        self.lossy_cuts: list[set[str]] = []  # at each cut, the nodes lost and not yet back in sync
        self.torn: list[int] = []  # in_write of each cut
        self.operations = 1  # that a node asks of its disk while it is broken
        self.blocked: dict[str, list[Link]] = {}  # by key
        self.shaped: dict[str, tuple[list[Link], Shape]] = {}
        self.fail_cuts = False
        self.wrong: list[str | None] = []  # what is, at one look at it after the other; then what was last
        self.looked = 0
        self.stopped = 0
        self.machines = [FakeNode(self, "broker", n) for n in (1, 2, 3)] + [
            FakeNode(self, "controller", n) for n in (1, 2, 3)
        ]

    @property
    def brokers(self) -> Sequence[FakeNode]:
        return self.machines[:3]

    @property
    def controllers(self) -> Sequence[FakeNode]:
        return self.machines[3:]

    async def block(self, key: str, links: Sequence[Link]) -> None:
        self.blocked[key] = list(links)
        self.log.append((key, "blocked"))

    async def unblock(self, key: str) -> Evidence:
        dropped = {" > ".join(link): 3 for link in self.blocked.pop(key, ())}
        return {"packets_dropped": sum(dropped.values()), "packets_dropped_by_link": dropped}

    async def shape(self, key: str, links: Sequence[Link], shape: Shape) -> Evidence:
        self.shaped[key] = list(links), shape
        self.log.append((key, "shaped"))
        return {"round_trip_ms": {"before": 1.0, "while": 1.0 + shape.delay_ms}}

    async def unshape(self, key: str) -> Evidence:
        counted = ("packets_dropped", "packets_delayed", "packets_duplicated", "packets_reordered", "throttled")
        return dict.fromkeys(counted, 3) if self.shaped.pop(key, None) else {"packets_dropped": 0}

    async def heal(self) -> None:
        self.blocked.clear()
        self.shaped.clear()

    async def collect(self, directory: Path) -> None:
        (directory / "logs").mkdir(exist_ok=True)
        for node in self.nodes:
            (directory / "disks" / node.name / METADATA_DIRECTORY).mkdir(parents=True, exist_ok=True)

    async def stop(self) -> None:
        self.stopped += 1


class FakeObserver:
    """Sees the truth about a FakeCluster. Broker `top` leads everything."""

    def __init__(self, cluster: FakeCluster, top: int = 2, active_controller: int = 102, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.cluster = cluster
        self.top = top
        self.active_controller = active_controller

    async def view(self) -> ClusterView:
        await asyncio.sleep(self.takes_s)
        ids = frozenset(node.id for node in self.cluster.brokers)
        missing = frozenset(node.id for node in self.cluster.brokers if node.name in self.cluster.missing)
        state = PartitionState(self.top, 1, ids, ids - missing)
        partitions = {node.id: {0: state} for node in self.cluster.brokers}
        return ClusterView(partitions, self.active_controller, why_out_of_sync(self.cluster.brokers, partitions))

    async def unhealthy(self) -> str | None:
        self.cluster.looked += 1
        wrong = self.cluster.wrong
        return (wrong.pop(0) if len(wrong) > 1 else wrong[0]) if wrong else None


class FaultLog:
    """Keeps the last row of each fault, as history.Recorder does."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.versions: dict[int, int] = {}

    def record_fault(
        self,
        fault: int,
        nemesis: str,
        targets: Sequence[str],
        start: int,
        end: int | None,
        *,
        effective: bool,
        evidence: str,
    ) -> None:
        self.versions[fault] = self.versions.get(fault, 0) + 1
        self.rows[fault] = {
            "nemesis": nemesis, "targets": list(targets), "start": start, "end": end,
            "effective": effective, "evidence": json.loads(evidence),
        }  # fmt: skip


class FakeRecorder(FaultLog):
    closed = False
    written = 0

    def add_replica_log(self, node: str, topic: str, partition: int, *columns: Any) -> None:
        pass

    def add_rows(self, table: str, rows: Any) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class FakeWorkload:
    """crash: seconds after which run() raises."""

    def __init__(self, crash: float | None = None) -> None:
        self.crash = crash
        self.calls: list[str] = []

    async def set_up(self) -> None:
        self.calls.append("set_up")

    async def run(self, stop: asyncio.Event) -> None:
        self.calls.append("run")
        if self.crash is not None:
            await asyncio.sleep(self.crash)
            raise RuntimeError("client bug")
        await stop.wait()

    async def final_read(self) -> None:
        self.calls.append("final_read")

    async def close(self) -> None:
        self.calls.append("close")

    def counts(self) -> Counts:
        return Counts(operations=3, acknowledged=2, failed=1)


class FakeRuntime:
    def __init__(self, cluster: FakeCluster, start_error: Exception | None = None, start_s: float = 0.0) -> None:
        self.cluster = cluster
        self.start_error = start_error
        self.start_s = start_s
        self.cleaned: list[Any] = []

    def run(self, main: Any) -> Any:
        return asyncio.run(main)

    async def start(self, plan: Any, run_directory: Path, progress: Any, *, needs: Collection[str] = ()) -> FakeCluster:
        try:
            await asyncio.sleep(self.start_s)
            if self.start_error is not None:
                raise self.start_error
        except BaseException:
            await asyncio.sleep(0.1)
            await self.cluster.stop()
            raise
        (run_directory / "trace").mkdir(exist_ok=True)
        for node in self.cluster.nodes:
            (run_directory / "trace" / f"{node.name}.jsonl").touch()
        return self.cluster

    async def lacks(self, needs: Collection[str]) -> dict[str, str]:
        return {}

    def clean(self, wish: Any = None, tell: Any = None) -> list[str]:
        self.cleaned.append(wish)
        return []


class FakeComponents(Components):
    """Components of a run that take no time. `verdict`: what the checkers say, or what they raise."""

    runtime: Any = None

    def __init__(self, **changes: Any) -> None:
        super().__init__(Kraft())
        self.cluster = FakeCluster()
        self.runtime = FakeRuntime(self.cluster)
        self.recorder = FakeRecorder()
        self.workload = FakeWorkload()
        self.verdict: Any = {"verdict": "pass", "reason": "every property held", "exit_code": 0}
        self.report_error: Exception | None = None
        self.directory = Path()
        self.judged: list[Path] = []
        for name, value in changes.items():
            setattr(self, name, value)

    def warm_up(self) -> None:
        pass

    def make_recorder(self, directory: Path, run: str) -> FakeRecorder:
        return self.recorder

    def make_observer(self, cluster: FakeCluster, plan: Any) -> FakeObserver:
        return FakeObserver(cluster)

    def make_workload(self, plan: Any, cluster: FakeCluster, recorder: FakeRecorder) -> FakeWorkload:
        return self.workload

    def start_analysis(self, directory: Path, spark_ui_port: int | None) -> FakeComponents:
        self.directory = directory
        return self

    def judge(self) -> Any:
        self.judged.append(self.directory)
        assert self.recorder.closed, "judged before the history was on disk"
        assert not self.cluster.stopped, "torn down before the verdict"
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    def build_report(self, directory: Path) -> None:
        if self.report_error is not None:
            raise self.report_error
        (directory / "report.html").write_text("report")
