"""The target `kraft`: this project's own implementation of Apache Kafka's replication, with KRaft controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from checkers.inside.promise import promise
from cluster_image.config import IDENTITY, SETTINGS, ConfigError, check_together, read_setting
from cluster_image.kraft import bugs
from harness.cluster import Cluster, Node
from harness.targets.admin import Admin
from harness.targets.kafka_api import timeouts
from harness.targets.kafka_api.own_settings import OwnSettings
from harness.targets.kafka_api.properties import BROKER_PORT, CONTROLLER_PORT, as_file, changed, node_specs
from harness.targets.kraft.draws import DRAWS
from harness.targets.kraft.properties import node_properties
from harness.targets.target import (
    CONFIGURATION,
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
from harness.targets.view import Observer

if TYPE_CHECKING:
    from harness.record.collected import Collected
    from harness.targets.kafka_api.trace_files import Traces

#: Settings that the plan gives the topic itself.
_SETTINGS: Final = OwnSettings(SETTINGS.values(), read_setting, IDENTITY, {
    "min.insync.replicas": "--min-insync-replicas",
    "default.replication.factor": "--replication-factor",
    "num.partitions": "--partitions",
})  # fmt: skip


class Kraft(Target):
    """Implements harness.targets.target.Target."""

    name = "kraft"
    summary = "this project's own cluster: Kafka's replication protocol in Python, with KRaft controllers"
    runtimes: ClassVar = frozenset({"docker", "simulation", "ssh"})
    unsupported: ClassVar[Mapping[str, str]] = {
        "membership:upgrade": "there is one release of it",
        "membership:controller": "the voters of its quorum are those of controller.quorum.voters",
        "workload compacted": "its log has no cleaner",
        "workload consumer-group": "it has no group coordinator; kafka:VERSION has one",
        "workload transactions": "it has no transaction coordinator; kafka:VERSION has one",
        "--clients": "its brokers have neither TLS nor SASL for clients; those of kafka:VERSION have",
    }
    options: ClassVar = frozenset({"timeouts"})
    inside: ClassVar = "kraft"

    def promise(self, plan: ClusterPlan) -> Promise:
        return Promise(**promise(
            {"min_insync_replicas": plan.min_insync_replicas, "acks": plan.acks, "settings": plan.settings}
        ))  # fmt: skip

    def timing(self, plan: ClusterPlan) -> Timing:
        return timeouts.timing(plan)

    def problems(self, plan: ClusterPlan) -> Iterable[str]:
        if plan.bug is not None:
            try:
                bugs.find(plan.bug)
            except bugs.UnknownBug as error:
                yield f"--bug: {error}"
        try:
            settings = {name: read_setting(name, value) for name, value in plan.settings.items()}
            check_together(settings)
        except ConfigError as error:
            yield f"--set: {error}"
            return
        if (port := settings.get("metrics.port")) in (BROKER_PORT, CONTROLLER_PORT):
            taken = f"{BROKER_PORT} and {CONTROLLER_PORT}"
            yield f"--set: metrics.port={port} is where nodes listen; all but {taken} are valid"

    def check_setting(self, name: str, value: str) -> None:
        _SETTINGS.check(name, value)

    def settings(self) -> Sequence[tuple[str, str, str, str]]:
        return _SETTINGS.listed()

    def bugs(self) -> Sequence[tuple[str, str, str]]:
        return bugs.BUGS.listed()

    def draws(self) -> Draws:
        return DRAWS

    def nodes(self, plan: ClusterPlan) -> Sequence[NodeSpec]:
        return node_specs(plan)

    def package(self, plan: ClusterPlan, images: ImageStore, tell: Callable[[str], object] = lambda _: None) -> Package:
        return self.packages()[0]

    def packages(self) -> Sequence[Package]:
        import cluster_image

        folder = Path(cluster_image.__path__[0])
        return [
            Package(
                folder / "container" / "Dockerfile", {"": folder}, places={"": "/opt/chaos/cluster_image"},
                command=("python3", "-m", "cluster_image", CONFIGURATION), needs_python=True,
            )
        ]  # fmt: skip

    def configurations(
        self, plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool = False
    ) -> Mapping[str, str]:
        found = node_properties(plan, nodes, cluster_id, trusted=trusted)
        return {name: as_file(properties) for name, properties in found.items()}

    def renumbered(self, configuration: str, node_id: int, folder: str) -> str:
        return changed(configuration, {"node.id": str(node_id), "log.dirs": str(Path(DATA, folder))})

    def observer(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Observer:
        from harness.targets.kafka_api.observer import KafkaObserver

        return KafkaObserver(cluster, network, plan.topic)

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
        from harness.targets.kraft.metadata_logs import record_metadata_logs

        pieces = record_replica_logs(disks, plan.topic, recorder)
        if traces is not None:
            pieces += record_traces(traces, recorder)
            pieces += record_metadata_logs(disks, recorder)
        return pieces

    def missing(self, nodes: Sequence[Node | NodeSpec], pieces: Sequence[Collected]) -> list[Collected]:
        from harness.record.collected import missing

        everybody, brokers = [node.name for node in nodes], [node.name for node in nodes if node.role == "broker"]
        return [
            *missing("disk", brokers, pieces),
            *missing("trace", everybody, pieces),
            *missing("metadata log", everybody, pieces),
        ]

    def simulated(self, plan: ClusterPlan) -> Simulated:
        from harness.targets.kraft.simulated import SimulatedKraft

        return SimulatedKraft(plan)
