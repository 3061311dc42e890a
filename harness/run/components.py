"""What a run is made of, in one place: target, runtime, workload, recorder, checkers and report.

Everything heavy (Docker, Arrow, Spark) is imported only when it is used, so that bad arguments are answered at once.
Tests replace some of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from harness.cluster import Cluster, Runtime
from harness.errors import HarnessFailure
from harness.plan import registry
from harness.plan.plan import Plan
from harness.record import room
from harness.report.console import Counts
from harness.run.injector import FaultRecorder
from harness.run.threads import in_thread
from harness.targets.target import Recorder as TargetRecorder
from harness.targets.target import Target, Watch
from harness.targets.view import Observer


class Workload(Protocol):
    """What clients do to the cluster. Made with (plan, cluster, recorder); all that clients do and see is recorded."""

    async def set_up(self) -> None:
        """Make the topic and wait until every partition has a leader. Retries until cancelled."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then let what is in flight come to an end (bounded)."""

    async def final_read(self) -> None:
        """After healing: read every partition from its start to its end. A workload that does more before that has
        `final_read_s`, what this may take, in seconds."""

    async def close(self) -> None: ...

    def counts(self) -> Counts: ...

    def facts(self) -> Mapping[str, Any]:
        """What became of its clients, for run.json."""
        return {}


class Recorder(FaultRecorder, TargetRecorder, Protocol):
    """The part of record.history.Recorder that the harness itself uses. written: bytes of its journal so far."""

    written: int

    def close(self) -> None: ...


class Analysis(Protocol):
    """Checkers of one run, whose engine, if it is slow to start, has been starting since this object was made."""

    def judge(self) -> Mapping[str, Any]:
        """Journal to history to verdict.json; the verdict. Blocks. Raises HarnessFailure."""


class LogAnalysis:
    """Checkers of logs: in this process, or on Spark, see spark_history.spark.tasks.IN_PROCESS. Where that is known
    from the start, Spark starts in the background as soon as this is made."""

    def __init__(self, directory: Path, ui_port: int | None) -> None:
        from spark_history.spark import master

        self._directory = directory
        self._ui_port = ui_port
        self._spark: Any = None
        if ui_port is not None or master.chosen().kind != "local" or self._will_be_long():
            self._spark = self._start()

    def judge(self) -> Mapping[str, Any]:
        from checkers import check
        from spark_history.errors import HistoryError
        from spark_history.ingest import count_operations
        from spark_history.spark.failures import SparkUnavailable
        from spark_history.spark.tasks import IN_PROCESS, Here

        try:
            if self._spark is None and count_operations(self._directory) > IN_PROCESS:
                self._spark = self._start()
            engine = Here() if self._spark is None else self._spark.result()
            return room.judged(self._directory, lambda directory: check(directory, engine))
        except (HistoryError, SparkUnavailable) as error:
            raise HarnessFailure(str(error)) from error

    def _start(self) -> Any:
        from spark_history.spark.session import start_in_background

        return start_in_background(ui_port=self._ui_port, log=room.log_file(self._directory, "spark.log"))

    def _will_be_long(self) -> bool:
        """A run that is still to be recorded, by its plan."""
        from harness.record import results
        from spark_history.spark.tasks import IN_PROCESS

        plan = results.read_json(self._directory / "plan.json")
        rate, seconds = plan.get("rate"), plan.get("time_limit")
        if not isinstance(rate, int | float) or not isinstance(seconds, int | float):
            return False
        return rate * seconds > IN_PROCESS


class Verification:
    """What becomes of a history once it is on disk."""

    def start_analysis(self, directory: Path, spark_ui_port: int | None) -> Analysis:
        return LogAnalysis(directory, spark_ui_port)

    def build_report(self, directory: Path) -> None:
        from harness.report.html.page import build

        build(directory)


class Components(Verification):
    """Of a run in containers, or on hosts."""

    #: Is it looked whether nodes end by themselves before the cluster is ready? (Where they do so otherwise unseen.)
    watches_start = True

    #: Is it looked, before the first fault, whether the cluster is whole, topics of others included?
    looks_first = True

    def __init__(self, target: Target, on: str = "docker") -> None:
        self.target = target
        self._on = on

    def clock_ns(self) -> int:
        """The time line of the history: monotonic nanoseconds."""
        return time.monotonic_ns()

    def facts(self) -> Mapping[str, Any]:
        """What the runtime has to say of the history that was made, for run.json."""
        tested = getattr(self.runtime, "tested", "")
        return {"tested": tested} if tested else {}

    def problems(self) -> Sequence[str]:
        """What went wrong in the runtime meanwhile and nobody was told of, a sentence each."""
        return ()

    def free_room(self, directory: Path) -> int | None:
        """Bytes where the results of the run are written; None: no matter."""
        return room.free(directory)

    def warm_up(self) -> None:
        """Import what is slow to import, while there is nothing to do but wait. Blocks for seconds."""
        # pyarrow imports pandas when first used.
        for module in ("pandas", "harness.record.history", "cluster_image.network.tcp"):
            import_module(module)

    @cached_property
    def runtime(self) -> Runtime:
        if self._on == "ssh":
            from harness.runtimes.ssh.runtime import SshRuntime

            return SshRuntime(self.target)
        from harness.runtimes.docker.runtime import DockerRuntime

        return DockerRuntime(self.target)

    def make_recorder(self, directory: Path, run: str) -> Recorder:
        from harness.record.history import Recorder as JournalRecorder

        return JournalRecorder(directory, run)

    def network(self, cluster: Cluster) -> Any:
        """How the harness reaches the nodes (cluster_image.network.Network)."""
        from harness.targets.security.network import network_to

        return network_to(cluster)

    def make_observer(self, cluster: Cluster, plan: Plan) -> Observer:
        return self.target.observer(cluster, self.network(cluster), plan)

    def make_watch(self, cluster: Cluster, plan: Plan) -> Watch | None:
        return self.target.watch(cluster, self.network(cluster), plan)

    async def ignored_settings(self, cluster: Cluster, plan: Plan) -> Sequence[str]:
        return await self.target.ignored(cluster, self.network(cluster), plan)

    def make_workload(self, plan: Plan, cluster: Cluster, recorder: Recorder) -> Workload:
        workload: Workload = registry.load(registry.WORKLOADS, plan.workload)(plan, cluster, recorder)
        return workload

    def served(self, workload: Workload) -> Callable[[], Mapping[str, tuple[float, float]]] | None:
        """As of harness.run.calm.Serving; None: the workload cannot tell."""
        return getattr(workload, "served", None)  # a user's own may not

    async def collect(self, cluster: Cluster, directory: Path, plan: Plan, recorder: Recorder) -> Sequence[str]:
        """Logs and disks into the run's directory, and what lies on the nodes' disks into the history. Returns what
        went wrong, a sentence each."""
        from harness.record.collected import collected_files, record_collected, with_problems

        target = self.target
        await cluster.gather(directory / "trace")
        # In this order: whatever a node has told is in what lies on the disks then, if it is committed.
        traces = await in_thread(target.read_traces, directory / "trace")
        not_whole = await cluster.collect(directory) or {}
        pieces = await in_thread(target.collect, directory / "disks", plan, recorder, traces)
        due = target.missing(cluster.nodes, pieces)
        # What tells of all topics, and of users, is not copied from a cluster that was there before the run.
        pieces += [piece for piece in due if not (plan.service and piece.what == "metadata log")]
        pieces = with_problems(pieces, not_whole)
        pieces += await in_thread(collected_files, directory)
        return record_collected(pieces, recorder)
