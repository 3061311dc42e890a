"""Plan: everything that defines a run, validated, and saved with it so that it can be repeated."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field, model_validator

from checkers.verdict import own
from checkers.verdict.thresholds import parse
from harness.errors import BadArguments
from harness.plan import abort, registry
from harness.plan.schedule import Pace
from harness.targets.security import given
from harness.targets.target import Target
from harness.targets.timing import Timing
from nemesis import Targets
from spark_history.regular import open_regular
from workloads.pacing import MAX_BATCH, turn_s

MAX_TIME_LIMIT_S = 7 * 24 * 3600  # the whole schedule is drawn before the run
MIN_EVERY_S = 0.1  # from one deletion of a partition, or short-lived topic, to the next
MAX_RATE = 10_000_000  # far more than a harness can send; the pacer would be busy with nothing else

MAX_LATENCY_MS = 1000  # beyond it no request is answered in time
MAX_NODES = 90  # of a role: what a run's subnet of 254 addresses has room for, and more than a simulation is quick with
MAX_CONCURRENCY = 10_000  # producers, each a task and a connection to every broker
MAX_PARTITIONS = 10_000  # of a topic, as the controller has it (kraft/controller/topics.py)

#: Kafka's rule for topic names, less the two that would name a directory.
_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_PLAN_FILE = "plan.json"

#: The simplest first.
Producers = Literal["plain", "idempotent", "fenced"]
#: See harness.runtimes.simulation.task_order.
TaskOrder = Literal["fifo", "random", "pct"]


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    run: str  # run id, e.g. 20260131T120102-power-outage-s1; also names containers and results/<run>
    nemesis: tuple[str, ...] = ("power-outage",)  # () is none
    schedule: str | None = None  # the file that the faults were read from, if one was given
    interval: float | None = None  # seconds from fault to fault of a nemesis; None: as it draws them
    recovery: float | None = None  # seconds of calm after each, at least
    #: Which faults must have taken effect for a verdict other than `unknown`: `each` of the nemeses, `any` of them (a
    #: seed of an exploration, which asks for each over all its seeds), or `none` (--allow-vacuous).
    must_take_effect: Literal["each", "any", "none"] = "each"
    strike: Targets = "random"  # whom faults of one node strike
    target: str = "kraft"  # what is tested
    workload: str = "append"
    workload_settings: dict[str, str] = {}  # --workload-set NAME=VALUE
    client: str = "kio"  # what the workload appends and reads by
    client_settings: dict[str, str] = {}  # --client-set NAME=VALUE, the client's own names
    #: What kind of producers workload append has: plain ones, which send nothing twice; idempotent ones with up to five
    #: batches in flight, which send again what was not acknowledged; or such as are fenced, now and then, by another
    #: incarnation with a higher epoch. See workloads.clients.kio.pipelined and fenced.
    producers: Producers = "plain"
    clients: dict[str, str] = {}  # --clients NAME=VALUE, TLS and SASL of every client: see harness.targets.security
    on: Literal["docker", "simulation", "ssh"] = "docker"
    hosts: str | None = None  # the file that names the hosts, on ssh
    service: bool = False  # on ssh: what is tested is there already, as [service] of that file says
    seed: int = 0
    time_limit: float = 60.0  # seconds of workload
    rate: float = 2000.0  # records a second, all producers together
    records_per_batch: int | None = None  # of one request; None: by the rate, see workloads.pacing.batch_size
    delete_records: float | None = None  # seconds from one deletion of a partition's begin to the next; None: none
    short_lived_topics: float | None = None  # seconds from the end of one to the begin of the next; None: none
    concurrency: int = 4  # producers
    acks: Literal["all", "1", "0"] = "all"
    topic: str = "chaos"
    partitions: int = 8
    replication_factor: int = 3
    min_insync_replicas: int = 2
    controllers: int = 3
    brokers: int = 3
    spare_brokers: int = 0  # that the cluster has none of until a fault has them join
    racks: int | None = None  # that brokers and controllers are dealt out to; by default each broker has its own
    combined: bool = False  # the first brokers are the controllers as well
    file_system: Literal["ext4", "xfs"] = "ext4"
    bug: str | None = None  # of the target (Target.bugs): every node has it
    mutant: str | None = None  # in simulation: a change of the cluster's code, see harness.runtimes.simulation.mutants
    latency_ms: float = 0.5  # in simulation: from one host to another, on average
    task_order: TaskOrder = "fifo"  # in simulation: of tasks of one process that are ready at once
    encode_messages: bool = False  # in simulation: pass every message through the wire format
    settings: dict[str, str] = {}  # --set NAME=VALUE, Kafka's names, given to every node
    timeouts: Literal["short", "kafka"] = "short"  # Kafka's defaults, or such that a minute shows something
    features: dict[str, str] = {}  # --feature NAME=LEVEL, at format
    kafka_home: str | None = None  # a distribution of Kafka, or its archive
    upgrade_to: str | None = None  # a release of the target, or a distribution, that membership:upgrade leads to
    expect: tuple[str, ...] = ()  # thresholds, e.g. "p99 < 500ms": see checkers/verdict/thresholds.py
    abort_if: tuple[str, ...] = ()  # what ends the run early, e.g. "unavailable > 60s": see harness/plan/abort.py

    @model_validator(mode="before")
    @classmethod
    def _of_a_file(cls, fields: Any) -> Any:
        """plan.json says what the target promises, how it is checked and what its logs are like, which follows from the
        rest; before there were targets, `strike` was called `targets`."""
        if not isinstance(fields, Mapping):
            return fields
        fields = {name: value for name, value in fields.items() if name not in _FOLLOWING}
        if "targets" in fields:
            fields["strike"] = fields.pop("targets")
        return fields

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterable[str]:
        for name, unit, most in _AMOUNTS:
            value = getattr(self, name)
            if not 0 < value <= most:  # nor is it nan
                yield f"{flag(name)} is {value:g}; it must be a number of {unit} above 0 and at most {most:,}"
        for name in ("delete_records", "short_lived_topics"):
            every = getattr(self, name)
            if every is not None and not MIN_EVERY_S <= every <= MAX_TIME_LIMIT_S:
                yield (
                    f"{flag(name)} is {every:g}; it must be a number of seconds from {MIN_EVERY_S:g} to "
                    f"{MAX_TIME_LIMIT_S:,}"
                )
        if not 0 <= self.seed < 2**63:
            yield f"--seed is {self.seed}; valid is 0 to {2**63 - 1:,}"
        for name, most in _COUNTS.items():
            if not 1 <= (count := getattr(self, name)) <= most:
                yield f"{flag(name)} is {count}; it must be at least 1 and at most {most:,}"
        if not 0 <= self.spare_brokers <= MAX_NODES:
            yield f"--spare-brokers is {self.spare_brokers}; it must be at most {MAX_NODES}, and not below 0"
        if self.racks is not None and not 1 <= self.racks <= self.brokers:
            yield f"--racks is {self.racks}; valid is 1 to {self.brokers}, the number of brokers"
        if self.records_per_batch is not None and not 1 <= self.records_per_batch <= MAX_BATCH:
            yield f"--records-per-batch is {self.records_per_batch}; valid is 1 to {MAX_BATCH:,}"
        if self.replication_factor > self.brokers:
            yield (
                f"--replication-factor {self.replication_factor} needs as many brokers, "
                f"and there are {self.brokers}; valid is 1 to {self.brokers}"
            )
        if self.combined and self.controllers > self.brokers:
            yield (
                f"--combined makes brokers the controllers, and --controllers {self.controllers} is above "
                f"--brokers {self.brokers}; valid is 1 to {self.brokers}"
            )
        if self.min_insync_replicas > self.replication_factor:
            yield (
                f"--min-insync-replicas {self.min_insync_replicas} is above --replication-factor "
                f"{self.replication_factor}; valid is 1 to {self.replication_factor}"
            )
        if not _TOPIC_NAME.fullmatch(self.topic):
            yield f"topic {self.topic!r} is not a name Kafka allows: letters, digits, '.', '_' and '-', at most 249"
        yield from given.problems(self.clients)
        for text in self.expect:
            try:
                parse(text)
            except ValueError as error:
                yield f"--expect {error}"
        for text in self.abort_if:
            try:
                condition = abort.parse(text)
            except ValueError as error:
                yield f"--abort-if {error}"
                continue
            turn = turn_s(self.rate, self.partitions, self.records_per_batch)
            if condition.metric == abort.UNAVAILABLE and condition.bound < 2 * turn:
                yield (
                    f"--abort-if '{condition.text}': at --rate {self.rate:g} each of {self.partitions:,} partitions is "
                    f"appended to once in {turn:.3g} s; give a time of at least twice that"
                )
        try:
            target = registry.make_target(self.target)
        except BadArguments as error:
            yield f"--target: {error}"
            return
        if self.on not in target.runtimes:
            yield f"--target {self.target} works only in {' and '.join(sorted(target.runtimes))}, and not in {self.on}"
        if self.bug is not None and not target.bugs():
            yield f"--bug {self.bug}: target {self.target} has no bugs to switch on"
        elif self.bug is not None and not _is_of(self.bug, target):
            for other in registry.targets():
                if _is_of(self.bug, other):
                    yield f"--bug {self.bug} is of target {other.name}, not {self.target}; give --target {other.name}"
        if self.mutant is not None and self.on != "simulation":
            yield f"--mutant {self.mutant} changes the code of simulated nodes, and these run in {self.on}"
        for name in _OPTIONS:
            default = type(self).model_fields[name].default
            if name not in target.options and getattr(self, name) != default:
                yield f"{_OPTIONS[name]}: target {self.target} has no use for it"
        if (why := target.unsupported.get(f"workload {self.workload}")) is not None:
            yield f"--workload {self.workload} is not possible with target {self.target}: {why}"
        yield from self._problems_of_administration(target)
        settings = getattr(registry.load(registry.WORKLOADS, self.workload), "settings", {})
        for name in self.workload_settings.keys() - settings.keys():
            there_are = f"there are {', '.join(settings)}" if settings else "it has none"
            yield f"--workload-set {name}: workload {self.workload} has no such setting; {there_are}"
            return
        if self.producers != "plain" and (why := self._no_choice_of_producers(target)) is not None:
            yield f"--producers {self.producers} is not possible: {why}"
        impossible = getattr(registry.load(registry.WORKLOADS, self.workload), "impossible", None)
        if impossible is not None and (why := impossible(self)) is not None:
            yield f"--workload {self.workload} is not possible: {why}"
        try:
            client = self.client_kind
        except BadArguments as error:
            yield f"--client: {error}"
            return
        if self.on not in client.runtimes:
            where = " and ".join(sorted(client.runtimes))
            yield f"--client {self.client} works only in {where}, and not in {self.on}"
        if self.is_secured:
            if (why := target.unsupported.get("--clients")) is not None:
                yield f"--clients is not possible with target {self.target}: {why}"
            if self.on == "simulation":
                yield "--clients is not possible in simulation, whose network has neither TLS nor SASL"
            if not getattr(client, "secures", False):  # a user's own may be older
                yield f"--clients is not possible with client {self.client}, which has neither TLS nor SASL"
        yield from client.problems(self)
        yield from target.problems(self)
        yield from self.pace.problems()
        if len(set(self.nemesis)) < len(self.nemesis):
            yield f"--nemesis {','.join(self.nemesis)} names a nemesis twice; name each once"

    def _problems_of_administration(self, target: Target) -> Iterable[str]:
        workload = registry.load(registry.WORKLOADS, self.workload)
        for name, able, what in (
            ("delete_records", "can_delete_records", "deletes no records"),
            ("short_lived_topics", "can_have_short_lived_topics", "has no topics but its own"),
        ):
            if getattr(self, name) is None:
                continue
            if (why := target.unsupported.get(flag(name))) is not None:
                yield f"{flag(name)} is not possible with target {self.target}: {why}"
            if not getattr(workload, able, False):
                yield f"{flag(name)}: workload {self.workload} {what}; append does"
        if self.records_per_batch is not None and not self.has_choice_of_batches():
            yield f"--records-per-batch: workload {self.workload} has batches of its own; append has not"
        if self.short_lived_topics is not None and self.acks != "all":
            yield (
                "--short-lived-topics: whether a topic was read to its end before it is deleted, an append tells that "
                f"the whole ISR has, and --acks is {self.acks}"
            )

    def _no_choice_of_producers(self, target: Target) -> str | None:
        """As a clause."""
        if (why := target.unsupported.get("workload idempotent")) is not None:
            return f"of target {self.target}, {why}"
        if not getattr(registry.load(registry.WORKLOADS, self.workload), "takes_producers", False):
            return f"workload {self.workload} has producers of its own; append has not"
        if self.client != "kio":
            return f"client {self.client} has producers of its own, which --client-set changes; kio has not"
        return None if self.acks == "all" else f"an idempotent producer needs acks=all, and --acks is {self.acks}"

    def has_choice_of_producers(self) -> bool:
        """May `producers` be another than plain?"""
        return self._no_choice_of_producers(registry.make_target(self.target)) is None

    def has_choice_of_batches(self) -> bool:
        """May `records_per_batch` be any?"""
        return bool(getattr(registry.load(registry.WORKLOADS, self.workload), "takes_records_per_batch", False))

    @property
    def topics_have_settings(self) -> bool:
        """Of their own, which can be changed."""
        return "settings of topics" not in registry.make_target(self.target).unsupported

    @property
    def min_isr(self) -> int | None:
        """None: the target knows no min.insync.replicas, whatever this plan says."""
        unsupported = registry.make_target(self.target).unsupported
        return None if "--min-insync-replicas" in unsupported else self.min_insync_replicas

    @computed_field
    def promise(self) -> dict[str, Any]:
        """What the target promises under this plan: see harness.targets.target.Promise."""
        return asdict(registry.make_target(self.target).promise(self))

    @computed_field
    def inside(self) -> str:
        """Which checks of the inside of the cluster apply: see harness.targets.target.Target."""
        return registry.make_target(self.target).inside

    @computed_field  # type: ignore[prop-decorator]
    @property
    def log(self) -> dict[str, Any]:
        """What the logs of the workload's topic are like: cleanup.policy; keys: see checkers.log.scope.Options."""
        return dict(getattr(registry.load(registry.WORKLOADS, self.workload), "log", {}))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def log_start(self) -> int | str:
        """See checkers.log.scope.Options: "moves" where records are deleted, by retention or by clients."""
        limits = (self.settings.get(name, "-1").strip() for name in _RETENTION)
        return "moves" if self.delete_records is not None or any(limit != "-1" for limit in limits) else 0

    @computed_field
    def groups(self) -> dict[str, Any]:
        """The workload's consumer groups: see checkers.groups."""
        groups = getattr(registry.load(registry.WORKLOADS, self.workload), "groups", None)
        return {} if groups is None else dict(groups(self))

    @computed_field
    def transactions(self) -> dict[str, Any]:
        """The workload's transactions: see checkers.transactions.runs."""
        transactions = getattr(registry.load(registry.WORKLOADS, self.workload), "transactions", None)
        return {} if transactions is None else dict(transactions(self))

    @computed_field
    def checkers(self) -> list[str]:
        """Those of the user's own that apply: see checkers.verdict.own."""
        return own.applicable(self.model_dump(mode="json", exclude={"checkers"})) if own.installed() else []

    @computed_field
    def idempotence(self) -> bool:
        """Is a record in the log once, whatever the client, and the network, send twice? See
        checkers.log.scope.Options."""
        if self.producers != "plain" or getattr(registry.load(registry.WORKLOADS, self.workload), "idempotent", False):
            return True
        kind = self.client_kind
        if any(name.startswith("requests:repeat") for name in self.nemesis):
            return bool(kind.promises_idempotence(self.acks, self.client_settings))
        return bool(kind.is_idempotent(self.acks, self.client_settings))

    @property
    def is_secured(self) -> bool:
        return given.is_secured(self.clients)

    @property
    def client_kind(self) -> Any:
        """A workloads.clients.client.Client."""
        return registry.make_client(self.client)

    @computed_field
    def members(self) -> list[str]:
        """The names of the nodes that the cluster has at first."""
        return [node.name for node in registry.make_target(self.target).nodes(self) if not node.spare]

    @property
    def timing(self) -> Timing:
        return registry.make_target(self.target).timing(self)

    @property
    def ready_isr(self) -> int:
        """How many replicas every ISR has before the workload begins."""
        return registry.make_target(self.target).ready_isr(self)

    @property
    def pace(self) -> Pace:
        return Pace(self.interval, self.recovery, self.timing.start * len(self.nemesis))

    @property
    def node_names(self) -> list[str]:
        """In a cluster of this plan."""
        return [node.name for node in registry.make_target(self.target).nodes(self)]

    def save(self, directory: Path) -> None:
        (directory / _PLAN_FILE).write_text(self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The plan of a saved run. Raises BadArguments if the directory holds none."""
        path = directory / _PLAN_FILE
        try:
            with open_regular(path) as file:
                return cls.model_validate_json(file.read())
        except FileNotFoundError:
            raise BadArguments(f"{directory} is not a run: it has no {_PLAN_FILE}") from None
        except (OSError, ValueError) as error:
            raise BadArguments(f"{path} cannot be read as a plan: {_first_sentence(error)}") from None

    def command(self) -> str:
        """The command line that repeats this run."""
        words = ["chaos", "run"]
        for name in _FLAGS:
            value = getattr(self, name)
            if name == "nemesis" and self.schedule is not None:
                words += ["--schedule", self.schedule]
            elif name == "nemesis":
                words += ["--nemesis", ",".join(value) or "none"]
            elif value is True:
                words.append(flag(name))
            elif name in _ALWAYS_SHOWN or value != type(self).model_fields[name].default:
                words += [flag(name), f"{value:g}" if isinstance(value, float) else str(value)]
        words += ["--allow-vacuous"] * (self.must_take_effect == "none")
        for name, value in sorted(self.settings.items()):
            words += ["--set", f"{name}={value}"]
        for name, value in sorted(self.workload_settings.items()):
            words += ["--workload-set", f"{name}={value}"]
        for name, value in sorted(self.client_settings.items()):
            words += ["--client-set", f"{name}={value}"]
        for name, value in sorted(self.clients.items()):
            words += ["--clients", f"{name}={value}"]
        for name, value in sorted(self.features.items()):
            words += ["--feature", f"{name}={value}"]
        for text in self.expect:
            words += ["--expect", text]
        for text in self.abort_if:
            words += ["--abort-if", text]
        return shlex.join(words)


_FOLLOWING = (
    "promise", "inside", "log", "log_start", "groups", "transactions", "idempotence", "members", "checkers",
)  # fmt: skip
#: Settings of nodes that delete records within the time of a run. By default they are kept for a week.
_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.retention.bytes")
_AMOUNTS = (
    ("time_limit", "seconds", MAX_TIME_LIMIT_S),
    ("rate", "records a second", MAX_RATE),
    ("latency_ms", "milliseconds", MAX_LATENCY_MS),
)
_COUNTS = {
    "concurrency": MAX_CONCURRENCY, "partitions": MAX_PARTITIONS, "replication_factor": MAX_NODES,
    "min_insync_replicas": MAX_NODES, "controllers": MAX_NODES, "brokers": MAX_NODES,
}  # fmt: skip
_FLAGS = (
    "target", "kafka_home", "upgrade_to", "timeouts", "on", "hosts", "nemesis", "interval", "recovery", "strike",
    "workload", "client", "producers", "time_limit", "seed", "rate", "records_per_batch", "delete_records",
    "short_lived_topics", "concurrency", "acks", "partitions", "replication_factor", "min_insync_replicas",
    "file_system", "brokers", "spare_brokers", "racks", "controllers", "combined", "bug", "mutant", "latency_ms",
    "task_order", "encode_messages",
)  # fmt: skip
#: That not every target has (Target.options), by the field.
_OPTIONS = {
    "timeouts": "--timeouts", "features": "--feature", "kafka_home": "--kafka-home", "upgrade_to": "--upgrade-to",
}  # fmt: skip
_ALWAYS_SHOWN = {"on", "strike", "time_limit", "seed"}


def flag(field: str) -> str:
    """The command-line flag of a field of Plan."""
    return "--" + field.replace("_", "-")


def _is_of(bug: str, target: Target) -> bool:
    return any(id_ == bug for id_, _, _ in target.bugs())


def make_plan(**fields: Any) -> Plan:
    """Plan(**fields), with its first problem as BadArguments in one sentence."""
    try:
        return Plan(**fields)
    except ValidationError as error:
        raise BadArguments(_first_sentence(error)) from None


def parse_settings(assignments: Iterable[str], target: Target) -> dict[str, str]:
    """`--set` arguments, NAME=VALUE each, checked against the settings that the target's nodes know. Raises
    BadArguments."""
    settings = _assigned("--set", assignments, "replica.lag.time.max.ms=5000")
    for name, value in settings.items():
        target.check_setting(name, value)
    return settings


def parse_client_settings(assignments: Iterable[str], client: Any) -> dict[str, str]:
    """`--client-set` arguments, NAME=VALUE each, checked against the settings that the client knows. Raises
    BadArguments."""
    settings = _assigned("--client-set", assignments, "linger.ms=5")
    for name, value in settings.items():
        client.check_setting(name, value)
    return settings


def parse_workload_settings(assignments: Iterable[str]) -> dict[str, str]:
    """`--workload-set` arguments, NAME=VALUE each. Raises BadArguments."""
    return _assigned("--workload-set", assignments, "protocol=consumer")


def parse_features(assignments: Iterable[str]) -> dict[str, str]:
    """`--feature` arguments, NAME=LEVEL each. Raises BadArguments."""
    return _assigned("--feature", assignments, "eligible.leader.replicas.version=0")


def _assigned(flag: str, assignments: Iterable[str], example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not name or "\n" in assignment or "\r" in assignment:
            raise BadArguments(f"{flag} {assignment!r} must have the form NAME=VALUE, e.g. {example}")
        if name in found:
            raise BadArguments(f"{flag} {name} is given twice; give it once")
        found[name] = value
    return found


def _first_sentence(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    if "error" in first.get("ctx", {}):
        return str(first["ctx"]["error"])
    field = flag(str(first["loc"][0])) if first["loc"] else "plan"
    return f"{field} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
