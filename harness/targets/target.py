"""Target: what is tested, wherever its nodes run.

A target says which nodes a plan's cluster has, what goes into their containers, how they are configured and asked,
where their logs and traces lie and how these are read, and what it promises. A runtime (harness/runtimes/) starts,
breaks and mends the nodes, and knows nothing else of them; nemeses, workloads and checkers do not know which target it
is. Targets are found by name through the entry points `chaos.targets`, as nemeses are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from harness.cluster import Cluster, Node, Role
from harness.targets.admin import Admin
from harness.targets.security import Security, given
from harness.targets.timing import Timing
from harness.targets.view import Observer

if TYPE_CHECKING:
    from harness.record.collected import Collected

#: Where a node's volume is, its configuration, and the file outside of the volume that it may write a trace to: as its
#: process sees them in a container.
DATA: Final = "/data"
CONFIGURATION: Final = "/config/node.properties"
#: Where a node's secrets are, of a run that has some: Issued.folders.
SECRETS: Final = "/secrets"
TRACE: Final = "/trace.jsonl"
#: Of a node's trace in a run's directory, trace/<node>.jsonl.
TRACE_SUFFIX: Final = ".jsonl"


class ClusterPlan(Protocol):
    """What of a plan a target is made from."""

    @property
    def nemesis(self) -> tuple[str, ...]: ...

    @property
    def brokers(self) -> int: ...

    @property
    def spare_brokers(self) -> int: ...

    @property
    def racks(self) -> int | None: ...

    @property
    def controllers(self) -> int: ...

    @property
    def combined(self) -> bool: ...

    @property
    def replication_factor(self) -> int: ...

    @property
    def min_insync_replicas(self) -> int: ...

    @property
    def acks(self) -> str: ...

    @property
    def clients(self) -> Mapping[str, str]: ...

    @property
    def topic(self) -> str: ...

    @property
    def log(self) -> dict[str, Any]: ...

    @property
    def bug(self) -> str | None: ...

    @property
    def settings(self) -> Mapping[str, str]: ...

    @property
    def timeouts(self) -> str: ...

    @property
    def features(self) -> Mapping[str, str]: ...

    @property
    def kafka_home(self) -> str | None: ...

    @property
    def upgrade_to(self) -> str | None: ...

    @property
    def service(self) -> bool: ...


class ImageStore(Protocol):
    """Of container images, as whoever builds those of nodes has them. Both block."""

    def has(self, tag: str) -> bool: ...

    def pull(self, repository: str, version: str) -> bool:
        """False: no registry answers, or none has it."""
        ...


@dataclass(frozen=True)
class NodeSpec:
    """One node of a cluster that is to be. port: where clients, or for a controller its peers, reach it.
    controller_port: where a broker that is a controller as well serves the quorum."""

    name: str
    id: int
    role: Role
    rack: str
    port: int
    controller_port: int | None = None
    spare: bool = False  # no member of the cluster at first


@dataclass(frozen=True)
class Package:
    """What the image of a node is built from, and what its containers need; on a host, what is put there.

    parts: folders and files, by where each lies in the context; a folder at "" is the context itself. dockerfile: gets
    the base image as the argument BASE. name: of the image, after `chaos-`. base: the tag of the base image; "": the
    project's own, which has Python, and what faults of clocks need. memory, tmp: of a container and of its /tmp, as
    Docker writes sizes. traces: do its nodes write one?
    tested: which build that is, in words, if the target's name does not say it. resident: bytes that a node takes,
    about, if that is so much that it may be too much. places: where the image has each of the parts, by the names of
    these. command: what becomes the node's process; "python3" is the host's own. needs_python: of what Python packages
    of the project's base image a node makes use. Without places it can only be run in containers."""

    dockerfile: Path
    parts: Mapping[str, Path]
    name: str = "node"
    base: str = ""
    memory: str = "1g"
    tmp: str = "64m"
    traces: bool = True
    tested: str = ""
    resident: int = 0
    places: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    needs_python: bool = False


@dataclass(frozen=True)
class Issued:
    """By what nodes and clients of one run know each other. clients: as these use it. folders: by node, what is mounted
    at SECRETS in its container. blank: called with the folder of each copy of a node's disk that is kept, takes out of
    it what would be a secret; blocks."""

    clients: Security
    folders: Mapping[str, Path] = field(default_factory=dict)
    blank: Callable[[Path], object] = lambda _: None


@dataclass(frozen=True)
class Promise:
    """What a target promises under a plan. lossy_shutdowns: how many brokers of a partition may at a time have lost
    what they had not written to their disks, without an acknowledged record being lost. sentence: the same in words.
    source: where that is promised. bound: what lossy_shutdowns is called in its terms. exceptions: why nothing is
    promised under this plan after all, a clause each."""

    sentence: str
    lossy_shutdowns: int
    source: str
    bound: str = ""
    exceptions: Sequence[str] = ()


#: Of settings that are drawn together, the first the default.
Choices = Sequence[Sequence[Mapping[str, str]]]


class Draws(NamedTuple):
    """What explorations draw settings from. together: by one stream, in order. apart: each by a stream of its own,
    named by its first setting: whatever is added belongs there, so that the draws of all others stay what they were."""

    together: Choices = ()
    apart: Choices = ()


class Recorder(Protocol):
    """The part of record.history.Recorder that a target writes what it has read to."""

    def add_replica_log(
        self, node: str, topic: str, partition: int, offsets: Any, leader_epochs: Any, values: Any
    ) -> None: ...

    def add_rows(self, table: str, rows: Any) -> None: ...


class Told(NamedTuple):
    """Something that a node has told of itself when it was asked: a line of its trace."""

    node: str
    event: str
    where: str  # "chaos-0"; "": of no partition
    fields: Mapping[str, Any]


class Watch(Protocol):
    """Asks nodes while they run, where they leave no trace of their own."""

    async def ask(self) -> Sequence[Told]:
        """Once, all of them; of those that do not answer there is nothing."""
        ...


class ReadableDisk(Protocol):
    """A node's disk: the copy in a run's directory, or a simulated one."""

    def list(self, directory: str) -> Sequence[str]:
        """Names, sorted. Raises OSError."""
        ...

    def read(self, path: str) -> bytes:
        """Raises OSError."""
        ...


class SimulatedProcess(Protocol):
    """A node's code in a simulated process."""

    @property
    def loaded(self) -> bool:
        """Has it read what its disk holds, and repaired it?"""
        ...

    async def run(self, stop: Any) -> None:
        """Until the event `stop` is set. Raises whatever keeps it from starting."""


class Invariants(Protocol):
    """The target's own properties, checked after every step of a simulation with full knowledge of its nodes. Each
    method may raise checkers.inside.violation.Violated."""

    @property
    def losses(self) -> Sequence[str]:
        """Acknowledged records that were lost beyond what is promised, a sentence each."""
        ...

    def changed(self, node: str, event: str, where: str, fields: Mapping[str, object]) -> None:
        """A node has told this of itself."""

    def asks(self, node: str, request: Any, now: float) -> None:
        """A node begins with this request, whoever has sent it. now: virtual seconds."""

    def answers(self, node: str, request: Any, response: Any, since: float, now: float) -> None:
        """A node is about to send this; messages of whatever protocol it serves. Nothing may be changed by looking.
        response: None: it sends none. since: when it began with the request, virtual seconds."""

    def node_started(self, name: str, process: Any, disk: Any) -> None:
        """disk: what it works on, as checkers.inside.kraft.simulated.durability.Disk has it."""

    def node_gone(self, name: str, lossy: Any) -> None:
        """lossy: False; True: everything that was not synced is lost; or the directories in which something is."""

    def check(self) -> None:
        """What may have changed in the last step."""

    def check_liveness(self, now: float) -> None: ...

    def check_all(self) -> None:
        """Trusting nothing that was told."""

    def count_states(self, faults: Callable[[], tuple[int, ...]]) -> tuple[Set[int], Set[int]]:
        """From now on: the abstract states that the cluster has been in, and pairs of a coarser one and the faults in
        force then; hashes that no hash seed changes, in sets that grow, or are for ever empty if the target has no such
        thing. faults: what is in force now, as numbers."""
        ...

    def unsettled(self, processes: Mapping[str, Any]) -> str | None:
        """What must come true once all faults are healed and has not, as a clause. processes: by node, None if it does
        not run."""

    def not_recovered(self, processes: Mapping[str, Any]) -> str:
        """The property that a cluster breaks which has had all the time that it may need to be whole again. processes:
        as of unsettled()."""
        ...


class Simulated(Protocol):
    """A target's code in simulation: asyncio on virtual time, with a simulated network and disk behind the seams."""

    #: Of the loggers of its code: what they say is the nodes' logs.
    logger: str
    #: Is what nodes trace to be judged after a run? Not if the invariants have seen all of it already.
    judged_by_traces: bool

    def process(
        self,
        configuration: str,
        disk: Any,
        network: Any,
        random: Any,
        failed: Callable[[BaseException], None],
        trace: Callable[..., None],
        wall_clock: Callable[[], float],
    ) -> SimulatedProcess:
        """A node's process, not yet running. failed: called when it cannot go on."""  # fmt: skip
        ...

    def invariants(self) -> Invariants: ...

    def switched_on(self) -> AbstractContextManager[None]:
        """The plan's bug is in the code for so long."""
        ...

    def log_formatter(self, clock_ns: Callable[[], int]) -> Any:
        """A logging.Formatter: log lines as the nodes write them in containers."""
        ...

    def trace_lines(self, node_id: int, write: Callable[[str], object], clock_ns: Callable[[], int]) -> Any:
        """Takes (event, where, **fields), and writes lines as nodes do in containers; has flush()."""
        ...


class Target(Protocol):
    """What is tested. Made without arguments, or, of --target NAME:ARGUMENT, with the argument."""

    name: str  # as --target has it, with the argument
    #: What its argument is, in a word, and one that is valid; "": it takes none.
    takes: ClassVar[str] = ""
    example: ClassVar[str] = ""
    summary: str  # one line, for `chaos list targets`
    #: Where it can run: "docker", "simulation", "ssh".
    runtimes: ClassVar[frozenset[str]]
    #: Of the fields of a plan that not every target has a use for, those that this one has: "timeouts", "features",
    #: "kafka_home", "upgrade_to"; and "service": can one be tested that was not started by the harness?
    options: ClassVar[frozenset[str]] = frozenset()
    #: By the name of a nemesis, "workload NAME", or of what else a plan may ask for, why this target cannot have it, as
    #: a clause.
    unsupported: ClassVar[Mapping[str, str]]
    #: Settings that mend flaws of its design: without them a run breaks what it promises for other reasons.
    mends: ClassVar[frozenset[str]] = frozenset()
    #: The folder of checkers/inside/ whose checks of traces and metadata apply to it; "": none do.
    inside: ClassVar[str] = ""
    #: Of a node's disk, the folder that has the logs; "": its root.
    logs_folder: str = ""
    #: Does collect() read what lay on disks right after power cuts, from the folder disks-at-cuts beside them?
    looks_at_cut_disks: ClassVar[bool] = False

    def named(self, kafka_home: str | None) -> str:
        """As --target has it where that says all: with the version that a distribution turns out to be. Blocks. Raises
        BadArguments, RuntimeUnavailable."""
        return self.name

    def promise(self, plan: ClusterPlan) -> Promise: ...

    def timing(self, plan: ClusterPlan) -> Timing:
        return Timing()

    def ready_isr(self, plan: ClusterPlan) -> int:
        """How many replicas the ISR of a new partition has in the end, if nothing happens to it."""
        return plan.replication_factor

    def problems(self, plan: ClusterPlan) -> Iterable[str]:
        """Why there can be no such cluster, a sentence each."""

    def check_setting(self, name: str, value: str) -> None:
        """Of --set NAME=VALUE. Raises BadArguments."""

    def settings(self) -> Sequence[tuple[str, str, str, str]]:
        """For `chaos list settings`: name, default, valid values, what it does."""
        ...

    def bugs(self) -> Sequence[tuple[str, str, str]]:
        """That --bug can give its nodes, for `chaos list bugs`: id, faults that reveal it, what it is."""
        return ()

    def draws(self) -> Draws:
        """The settings that each seed of an exploration draws for itself."""
        return Draws()

    def nodes(self, plan: ClusterPlan) -> Sequence[NodeSpec]:
        """Brokers first, each role in the order of its numbers."""
        ...

    def package(self, plan: ClusterPlan, images: ImageStore, tell: Callable[[str], object] = lambda _: None) -> Package:
        """Of the image of its nodes, with all that it is built from on this machine. tell: what is waited for, a line
        each. Blocks. Raises BadArguments, RuntimeUnavailable."""
        ...

    def fetch(self, tell: Callable[[str], object]) -> str:
        """Gets from elsewhere what package() would have to get. Returns what there is now, as a sentence. Blocks.
        Raises BadArguments, RuntimeUnavailable."""
        return f"target {self.name} needs nothing from elsewhere"

    def packages(self) -> Sequence[Package]:
        """Those that an image may be of without anything being fetched: images of others are out of date."""
        ...

    def configurations(
        self, plan: ClusterPlan, nodes: Sequence[Node], cluster_id: str, *, trusted: bool = False
    ) -> Mapping[str, str]:
        """The text of each node's configuration file, by name. trusted: nobody else is on their network, and
        no trace goes to a file, as in simulation."""
        ...

    def issue(self, plan: ClusterPlan, nodes: Sequence[Node], folder: Path) -> Issued:
        """Of a plan that asks for TLS or SASL. folder: of this run alone, outside of what is kept of it, and nobody
        else's to enter. Blocks. Raises BadArguments."""
        return Issued(given.resolve(plan.clients))

    def renumbered(self, configuration: str, node_id: int, folder: str) -> str:
        """The configuration of another node in this one's place, whose data is in that folder of the volume."""
        ...

    def of_release(self, configuration: str, release: str) -> str:
        """The configuration of the same node with one of two releases, "first" or "next", if the plan has two."""
        return configuration

    async def ignored(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Sequence[str]:
        """Settings of the plan that the nodes, now that they are ready, do not know, and so ignore."""
        return ()

    def observer(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Observer: ...

    def watch(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Watch | None:
        """None: its nodes leave traces of their own."""
        return None

    def admin(self, cluster: Cluster, network: Any, plan: ClusterPlan) -> Admin:
        """Raises harness.cluster.NotOffered."""
        ...

    def read_traces(self, source: Path | Mapping[str, str]) -> Any:
        """What nodes told of themselves, for collect(). source: the folder of their files, which need not be there, or
        the text of each node's. Blocks."""
        ...

    def collect(
        self, disks: Path | Mapping[str, ReadableDisk], plan: ClusterPlan, recorder: Recorder, traces: Any | None
    ) -> list[Collected]:
        """What lies on the nodes' disks, into the history: a piece for each thing found. disks: the folder of a run's
        disks, or a disk a node. traces: of read_traces(), from before the disks were read; None: they are not asked
        for, nor is what else only tells of the inside. Blocks."""
        ...

    def why_ended(self, log: str) -> str:
        """What the log of a node that ended by itself says of the reason, as a clause; "": nothing."""
        return log.strip().rpartition("\n")[2]

    def missing(self, nodes: Sequence[Node | NodeSpec], pieces: Sequence[Collected]) -> list[Collected]:
        """Of what each of the nodes should have left, what is not among the pieces."""
        ...

    def simulated(self, plan: ClusterPlan) -> Simulated:
        """Raises harness.cluster.NotOffered."""
        ...
