"""The target `v2`: the generation of Kafka's replication before KRaft, on ZooKeeper (001), as it was designed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cluster_image.config import ConfigError, read_setting
from cluster_image.config.v2 import IDENTITY, SETTINGS
from cluster_image.v2 import bugs
from harness.cluster import Cluster, Node
from harness.targets.admin import Admin
from harness.targets.kafka_api import timeouts
from harness.targets.kafka_api.own_settings import OwnSettings
from harness.targets.kafka_api.properties import BROKER_PORT, as_file, changed
from harness.targets.target import (
    DATA,
    ClusterPlan,
    Draws,
    ImageStore,
    NodeSpec,
    Package,
    Promise,
    ReadableDisk,
    Recorder,
    Simulated,
    Target,
)
from harness.targets.timing import Timing
from harness.targets.v2 import properties
from harness.targets.v2.draws import DRAWS
from harness.targets.v2.zookeeper import distribution
from harness.targets.view import Observer

if TYPE_CHECKING:
    from harness.record.collected import Collected
    from harness.targets.kafka_api.trace_files import Traces

_IMAGE: Final = Path(__file__).with_name("image")
_SETTINGS: Final = OwnSettings(SETTINGS.values(), partial(read_setting, settings=SETTINGS), IDENTITY, {
    "default.replication.factor": "--replication-factor", "num.partitions": "--partitions",
})  # fmt: skip
_SOURCE: Final = "003, Failure scenarios"
#: Of a virtual machine on a small computer: until ZooKeeper serves.
_START_S: Final = 6.0


class V2(Target):
    """Implements harness.targets.target.Target."""

    name = "v2"
    summary = "the generation before KRaft: brokers that agree by way of ZooKeeper, as designed in 2011"
    runtimes: ClassVar = frozenset({"docker", "simulation", "ssh"})
    mends: ClassVar = frozenset(bugs.MENDED)
    unsupported: ClassVar[Mapping[str, str]] = {
        "membership:upgrade": "there is one release of it",
        "membership:controlled-shutdown": "it knows none: a broker that stops is gone, and others are elected then",
        "membership:controller": "the servers of ZooKeeper are those of zookeeper.connect",
        "workload compacted": "its log has no cleaner",
        "workload consumer-group": "it has no group coordinator; kafka:VERSION has one",
        "workload transactions": "it has no transaction coordinator; kafka:VERSION has one",
        "workload idempotent": "it knows no producer ids",
        "--clients": "its brokers have neither TLS nor SASL for clients; those of kafka:VERSION have",
        "--delete-records": "it deletes whole topics, and nothing of one",
        "--min-insync-replicas": "a record is acknowledged once the whole ISR has it, however small that is",
        "settings of topics": "its topics have none of their own",
        "controllers that are brokers as well": "ZooKeeper's servers are processes of their own",
    }
    options: ClassVar = frozenset({"timeouts"})
    inside: ClassVar = "v2"

    def promise(self, plan: ClusterPlan) -> Promise:
        most = plan.replication_factor - 1
        sentence = (
            f"With acks=all acknowledged records survive {most} broker crashes at a time (replicas − 1) that keep what "
            "was written, and no loss of power"
        )
        exceptions = []
        if plan.acks not in ("all", "-1"):
            exceptions.append(f"with acks={plan.acks} an acknowledged record may be lost with its leader alone")
        return Promise(sentence, 0, _SOURCE, exceptions=exceptions)

    def timing(self, plan: ClusterPlan) -> Timing:
        values = _in_force(plan)

        def seconds(name: str) -> float:
            return int(values[name]) / 1000

        return Timing(seconds("zookeeper.session.timeout.ms"), seconds("replica.lag.time.max.ms"), _START_S)

    def ready_isr(self, plan: ClusterPlan) -> int:
        """By 001 an ISR grows only while something is produced."""
        return plan.replication_factor if _idle_checks(plan) else 1

    def problems(self, plan: ClusterPlan) -> Iterable[str]:
        if plan.combined:
            yield "--combined: ZooKeeper's servers are processes of their own"
        if plan.min_insync_replicas != min(2, plan.replication_factor):  # what a plan has that says nothing of it
            why = self.unsupported["--min-insync-replicas"]
            yield f"--min-insync-replicas is not possible with target v2: {why}"
        moving = next((name for name in plan.nemesis if name.startswith("membership") or "reassign" in name), None)
        if not _idle_checks(plan) and moving is not None:
            name = moving.partition(":text=")[0]
            yield (
                f"--nemesis {name} on target v2 needs --set v2.idle.checks=true: without it partitions on which "
                "nothing is produced are never moved to the end, and not back"
            )
        if plan.bug is not None:
            try:
                bugs.find(plan.bug)
            except bugs.UnknownBug as error:
                yield f"--bug: {error}"
        readable = True
        for name, value in plan.settings.items():
            try:
                read = read_setting(name, value, SETTINGS)
            except ConfigError as error:
                yield f"--set: {error}"
                readable = False
                continue
            if (name, read) == ("metrics.port", BROKER_PORT):
                yield f"--set: metrics.port={read} is where brokers listen; all others are valid"
        if not readable:
            return
        wait, lag = (_in_force(plan)[name] for name in ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"))
        if _idle_checks(plan) and int(wait) >= int(lag):
            yield (
                f"--set: replica.fetch.wait.max.ms={wait} must be less than replica.lag.time.max.ms={lag} with "
                "v2.idle.checks=true: while nothing is produced followers would seem to have stopped"
            )

    def check_setting(self, name: str, value: str) -> None:
        _SETTINGS.check(name, value)

    def settings(self) -> Sequence[tuple[str, str, str, str]]:
        return _SETTINGS.listed()

    def bugs(self) -> Sequence[tuple[str, str, str]]:
        return bugs.BUGS.listed(lambda bug: f"--target {self.name} {bugs.mended(bug)}")

    def draws(self) -> Draws:
        return DRAWS

    def nodes(self, plan: ClusterPlan) -> Sequence[NodeSpec]:
        return properties.node_specs(plan)

    def package(self, plan: ClusterPlan, images: ImageStore, tell: Callable[[str], object] = lambda _: None) -> Package:
        return self.packages()[0]

    def packages(self) -> Sequence[Package]:
        import cluster_image

        parts = {
            "cluster_image": Path(cluster_image.__path__[0]),
            "zookeeper/java": distribution.java_home(),
            **{f"zookeeper/{name}": _IMAGE / name for name in ("entry.sh", "log4j2.properties")},
            **{f"zookeeper/jars/{path.name}": path for path in distribution.jars()},
        }
        places = {part: f"/opt/chaos/{part}".replace("/opt/chaos/zookeeper", "/opt/chaos-zookeeper") for part in parts}
        return [
            Package(
                _IMAGE / "Dockerfile", parts, "node-v2", places=places,
                command=("/bin/sh", "/opt/chaos-zookeeper/entry.sh"), needs_python=True,
            )
        ]  # fmt: skip

    def configurations(
        self, plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool = False
    ) -> Mapping[str, str]:
        found = properties.configurations(plan, nodes, cluster_id, trusted=trusted)
        return {name: as_file(each) for name, each in found.items()}

    def renumbered(self, configuration: str, node_id: int, folder: str) -> str:
        return changed(configuration, {"node.id": str(node_id), "log.dirs": str(Path(DATA, folder))})

    def observer(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Observer:
        from harness.targets.v2.observer import V2Observer

        return V2Observer(cluster, network, plan.topic, idle_checks=_idle_checks(plan))

    def admin(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Admin:
        from harness.targets.kafka_api.admin import KafkaAdmin

        return KafkaAdmin(lambda: cluster.brokers, network)

    def read_traces(self, source: Path | Mapping[str, str]) -> Traces:
        from harness.targets.kafka_api.trace_files import read_traces

        return read_traces(source)

    def collect(
        self, disks: Path | Mapping[str, ReadableDisk], plan: ClusterPlan, recorder: Recorder, traces: Traces | None
    ) -> list[Collected]:
        from harness.targets.kafka_api.replica_logs import record_replica_logs
        from harness.targets.kafka_api.trace_files import record_traces

        pieces = record_replica_logs(disks, plan.topic, recorder)
        if traces is not None:
            pieces += record_traces(traces, recorder)
        return pieces

    def missing(self, nodes: Sequence[Node | NodeSpec], pieces: Sequence[Collected]) -> list[Collected]:
        from harness.record.collected import missing

        brokers = [node.name for node in nodes if node.role == "broker"]
        return [*missing("disk", brokers, pieces), *missing("trace", brokers, pieces)]

    def simulated(self, plan: ClusterPlan) -> Simulated:
        from harness.targets.v2.simulated import SimulatedV2

        return SimulatedV2(plan)


def _in_force(plan: ClusterPlan) -> Mapping[str, str]:
    """Settings of brokers, as texts."""
    given = {"zookeeper.session.timeout.ms": "9000", **timeouts.KAFKA} if plan.timeouts == "kafka" else {}
    defaults = {name: setting.default for name, setting in SETTINGS.items() if setting.default is not None}
    return defaults | given | dict(plan.settings)


def _idle_checks(plan: ClusterPlan) -> bool:
    return plan.settings.get("v2.idle.checks", "false").strip().lower() == "true"
