"""Settings of a node, under Kafka's own names, validated.

A node reads one properties file (`name=value` lines, `#` comments), as Kafka does. Defaults that differ from
Kafka's are shorter time-outs: this cluster lives for minutes and exists to be broken, so that a failover should
take seconds. The help text of each such setting names Kafka's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ..network import Address

if TYPE_CHECKING:
    from ..network.sasl import Credentials

NO_LIMIT: Final = 2**63 - 1

#: The listener of the quorum, where a node has two.
CONTROLLER_LISTENER: Final = "CONTROLLER"


class ConfigError(ValueError):
    """A setting is unknown, malformed or out of range. The message is one sentence that names it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: how its text is read, and what it is when it is not given."""

    name: str
    type: str
    default: str | None  # None: must be given
    valid: str  # for people
    help: str
    read: Callable[[str], Any]

    def value_of(self, text: str, name: str = "") -> Any:
        """Raises ConfigError naming the setting, as it was written if that is another name, and what is valid."""
        try:
            return self.read(text.strip())
        except (ValueError, KeyError):
            raise ConfigError(f"{name or self.name}={text} is not valid: {self.valid} expected") from None


def integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high or "_" in text:  # which Python allows
            raise ValueError(text)
        return value

    return read


def boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return read


def some_of(*choices: str) -> Callable[[str], str]:
    """A list: some of these, in the order given."""

    def read(text: str) -> str:
        if not set(items_of(text)) <= set(choices):
            raise ValueError(text)
        return ",".join(items_of(text))

    return read


def items_of(text: str) -> list[str]:
    """Of a setting that is a list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def read_address(text: str) -> Address:
    """`host:port`, with or without a listener name in front (`PLAINTEXT://host:port`)."""
    host, _, port = text.rpartition("://")[2].rpartition(":")
    if not host or not 0 < int(port) < 65536:
        raise ValueError(text)
    return Address(host, int(port))


def _listeners(text: str) -> Mapping[str, Address]:
    """By listener name, "" for one without."""
    listeners: dict[str, Address] = {}
    for item in text.split(","):
        name, separator, _ = item.strip().partition("://")
        address = read_address(item.strip())
        if not separator:
            name = ""
        if name in listeners:
            raise ValueError(text)
        listeners[name] = address
    if len(listeners) > 1 and (len(listeners) > 2 or "" in listeners or CONTROLLER_LISTENER not in listeners):
        raise ValueError(text)
    return listeners


def _roles(text: str) -> tuple[str, ...]:
    roles = {role.strip() for role in text.split(",")}
    if not roles <= {"broker", "controller"}:
        raise ValueError(text)
    return tuple(sorted(roles))


def _bug(text: str) -> str:
    from ..kraft import bugs  # here, as the rules that bugs replace lie in modules that import this one

    return bugs.find(text).id if text else ""


def _jaas(text: str) -> Credentials | None:
    if not text:
        return None
    from ..network.sasl import Credentials  # which takes time, and most who read settings have none

    return Credentials.of_jaas(text)


def _voters(text: str) -> Mapping[int, Address]:
    voters = {}
    for item in text.split(","):
        node, _, address = item.strip().partition("@")
        voters[int(node)] = read_address(address)
    return dict(sorted(voters.items()))


def _int(name: str, default: int | None, low: int, high: int, help: str) -> Setting:
    upper = "" if high == NO_LIMIT else f" to {high}"
    valid = f"an integer from {low}{upper}" + (" on" if not upper else "")
    return Setting(name, "int", None if default is None else str(default), valid, help, integer(low, high))


_MS: Final = 24 * 3600 * 1000

SETTINGS: Final[dict[str, Setting]] = {
    s.name: s
    for s in (
        _int("node.id", None, 0, 2**31 - 1, "Id of this node, unique in the cluster."),
        Setting("process.roles", "list", None, "broker, controller or broker,controller", "What this process is.",
                _roles),
        Setting("cluster.id", "string", None, "any text", "Nodes of another cluster id are refused.", str),
        Setting("controller.quorum.voters", "list", None, "id@host:port,…", "The controllers.", _voters),
        Setting("listeners", "list", None, "host:port, or PLAINTEXT://host:port,CONTROLLER://host:port",
                "Where this node serves requests; as broker and controller, those of clients and of the quorum.",
                _listeners),
        Setting("broker.rack", "string", "", "any text", "Failure domain: replicas are spread over racks.", str),
        Setting("log.dirs", "path", None, "a directory", "Where this node keeps its logs.", str),
        _int("broker.heartbeat.interval.ms", 500, 10, _MS, "Between heartbeats to the controller (Kafka: 2000)."),
        _int("broker.session.timeout.ms", 3000, 100, _MS,
             "A broker unheard of for this long is fenced (Kafka: 9000)."),
        _int("controller.quorum.election.timeout.ms", 1000, 50, _MS, "A candidate tries again after this."),
        _int("controller.quorum.fetch.timeout.ms", 2000, 50, _MS,
             "A voter without a leader's answer for this long stands for election; a leader unheard of by a "
             "majority for this long resigns."),
        _int("controller.quorum.election.backoff.max.ms", 1000, 10, _MS, "Longest random wait before an election."),
        _int("controller.quorum.request.timeout.ms", 2000, 50, _MS, "For requests between quorum members."),
        _int("metadata.log.max.record.bytes.between.snapshots", 20 << 20, 1, NO_LIMIT,
             "A node writes a snapshot of the metadata after so many bytes of its log, and trims the log."),
        _int("metadata.log.max.snapshot.interval.ms", 3600_000, 1, NO_LIMIT,
             "A node writes a snapshot of the metadata when its oldest record that is in none is so old."),
        _int("metadata.log.segment.bytes", 64 << 20, 1024, 2**31 - 1,
             "A segment of the metadata log rolls at this size (Kafka: 1 GiB)."),
        _int("replica.lag.time.max.ms", 4000, 100, _MS,
             "A follower that has not caught up for this long leaves the ISR (Kafka: 30000)."),
        _int("replica.fetch.wait.max.ms", 500, 1, _MS, "Longest wait of a follower's fetch."),
        _int("replica.fetch.min.bytes", 1, 0, 2**31 - 1, "A follower's fetch waits for this much."),
        _int("replica.fetch.max.bytes", 1 << 20, 1, 2**31 - 1, "Most that a follower fetches of one partition."),
        _int("replica.fetch.response.max.bytes", 10 << 20, 1, 2**31 - 1, "Most that a follower fetches at once."),
        _int("num.replica.fetchers", 1, 1, 1000, "Fetchers from one broker to another, each with some partitions."),
        _int("max.incremental.fetch.session.cache.slots", 1000, 0, 2**31 - 1, "Fetch sessions that a broker keeps."),
        _int("replica.fetch.backoff.ms", 200, 1, _MS, "Wait of a fetcher after an error (Kafka: 1000)."),
        _int("replica.socket.timeout.ms", 3000, 100, _MS, "For a follower's fetch (Kafka: 30000)."),
        _int("socket.connection.setup.timeout.ms", 3000, 100, _MS,
             "For a connection to another node, after which it is tried anew (Kafka: 10000)."),
        _int("replica.high.watermark.checkpoint.interval.ms", 5000, 10, _MS,
             "Between checkpoints of the high watermarks."),
        _int("request.timeout.ms", 3000, 100, _MS, "For a broker's requests to the controller (Kafka: 30000)."),
        _int("min.insync.replicas", 1, 1, 32767, "acks=all is refused while the ISR is smaller."),
        Setting("eligible.leader.replicas.version", "int", "1", "0 or 1",
                "1: replicas that leave an ISR below its minimum stay eligible (KIP-966); 0: as before it.",
                integer(0, 1)),
        Setting("unclean.recovery.strategy", "string", "balanced", "proactive, balanced or manual",
                "When a leader is elected of which nobody knows whether it is complete (002, 5.3): as soon as no other "
                "is available; when no other can come any more, the best of all that once were; or by an operator.",
                one_of("proactive", "balanced", "manual")),
        _int("unclean.recovery.timeout.ms", 2000, 0, _MS,
             "A proactive recovery takes the best log that it has heard of by then (KIP-966: 300000)."),
        _int("default.replication.factor", 1, 1, 32767, "Of topics created without one."),
        _int("num.partitions", 1, 1, 10000, "Of topics created without a number."),
        Setting("auto.create.topics.enable", "boolean", "false", "true or false",
                "Is a topic made that a client asks for, with the defaults above (Kafka: true)?", boolean),
        Setting("delete.topic.enable", "boolean", "true", "true or false", "May topics be deleted?", boolean),
        Setting("auto.leader.rebalance.enable", "boolean", "true", "true or false",
                "Give leaderships back to the preferred leaders now and then.", boolean),
        _int("leader.imbalance.check.interval.seconds", 300, 1, 24 * 3600, "How often they are given back."),
        _int("log.segment.bytes", 64 << 20, 1024, 2**31 - 1, "A segment rolls at this size (Kafka: 1 GiB)."),
        Setting("log.cleanup.policy", "list", "delete", "delete, compact or both",
                "With compact alone nothing is deleted for its age or size, or by DeleteRecords; no log is compacted.",
                some_of("delete", "compact")),
        _int("log.retention.ms", 7 * _MS, -1, NO_LIMIT,
             "A segment whose records are all older is deleted; -1: records may grow as old as they will."),
        _int("log.retention.bytes", -1, -1, NO_LIMIT,
             "The oldest segments of a log are deleted while the others have so many bytes; -1: no limit."),
        _int("log.retention.check.interval.ms", 2000, 1, _MS,
             "A leader looks so often for segments to delete, or, if records are kept for longer, after as long as "
             "that, up to five minutes (Kafka: 300000)."),
        _int("log.flush.interval.messages", NO_LIMIT, 1, NO_LIMIT,
             "fsync a log after this many records; 1: before they count as replicated."),
        _int("log.flush.interval.ms", NO_LIMIT, 1, NO_LIMIT, "fsync every log at least this often."),
        _int("message.max.bytes", 1048588, 1, 2**31 - 1, "Largest record batch taken."),
        _int("socket.request.max.bytes", 100 << 20, 1024, 2**31 - 1,
             "A longer request closes its connection, as does one of more than half of queued.max.request.bytes."),
        _int("queued.max.request.bytes", 32 << 20, 1 << 20, NO_LIMIT,
             "Requests of all clients that are begun, waiting or being answered (Kafka: no limit)."),
        _int("max.connections", 1000, 1, 2**31 - 1, "Connections of all to one listener (Kafka: no limit)."),
        _int("max.connections.per.ip", 256, 1, 2**31 - 1,
             "Connections from one address to one listener (Kafka: no limit)."),
        _int("max.request.partition.size.limit", 2000, 1, 50_000,
             "Partitions that a client's request may name; with their topics, replicas and so on four times as much."),
        _int("fetch.max.bytes", 16 << 20, 1024, 2**31 - 1, "Most that one answer to a Fetch carries (Kafka: 55 MiB)."),
        _int("controlled.shutdown.timeout.ms", 10000, 0, _MS,
             "A broker asked to stop waits this long for the controller's leave."),
        Setting("sasl.jaas.config", "password", "",
                'nothing, or `org.apache.kafka.common.security.scram.ScramLoginModule required username="…" '
                'password="…";`',
                "What nodes prove to each other by, with SCRAM-SHA-256; nothing: whoever asks is taken for a node.",
                _jaas),
        Setting("controlled.shutdown.enable", "boolean", "true", "true or false",
                "Hand leadership over before stopping.", boolean),
        Setting("chaos.bug", "string", "", "nothing, or an id that `chaos list bugs` shows",
                "A historical bug that this node has.", _bug),
        Setting("chaos.trace", "path", "", "nothing, or a file",
                "Where this node appends its trace (cluster_image/telemetry/trace.py), outside of log.dirs.", str),
        _int("metrics.port", 0, 0, 65535, "Prometheus metrics are served here, at the listener's host; 0: nowhere."),
        Setting("log.level", "string", "INFO", "DEBUG, INFO, WARNING or ERROR", "Of the node's own log.",
                one_of("DEBUG", "INFO", "WARNING", "ERROR")),
    )
}  # fmt: skip

#: Set for each node by whoever starts it: not to be chosen with `--set`.
IDENTITY: Final = frozenset(
    {
        *("node.id", "process.roles", "cluster.id", "controller.quorum.voters", "listeners", "broker.rack"),
        *("log.dirs", "chaos.bug", "chaos.trace", "sasl.jaas.config"),
    }
)

#: Why the two are refused together.
NO_UNCLEAN_RECOVERY: Final = (
    "unclean.recovery.strategy needs eligible.leader.replicas.version=1: without ELR the last member of an ISR is "
    "waited for, and there is no unclean recovery"
)

#: Settings that a topic may override, under the topic's name for them. (For others see topic_settings.py.)
TOPIC_SETTINGS: Final[dict[str, str]] = {
    "min.insync.replicas": "min.insync.replicas",
    "unclean.recovery.strategy": "unclean.recovery.strategy",
    "segment.bytes": "log.segment.bytes",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.message.bytes": "message.max.bytes",
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
}


@dataclass(frozen=True, slots=True)
class Config:
    """A node's settings, read. Look values up by Kafka's names: `config["min.insync.replicas"]`."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def listener(self, role: Literal["broker", "controller"]) -> Address:
        """Where this node serves in that role."""
        listeners: Mapping[str, Address] = self.values["listeners"]
        of_controller = role == "controller"
        matching = [address for name, address in listeners.items() if (name == CONTROLLER_LISTENER) == of_controller]
        return matching[0] if matching else next(iter(listeners.values()))

    def seconds(self, name: str) -> float:
        """A setting in milliseconds, as seconds."""
        value: int = self.values[name]
        return value / 1000

    def for_topic(self, overrides: Mapping[str, str]) -> Config:
        """These settings with a topic's own on top, but for those of topics that change nothing (topic_settings.py).
        Raises ConfigError."""
        own = {TOPIC_SETTINGS[name]: text for name, text in overrides.items() if name in TOPIC_SETTINGS}
        return Config({**self.values, **{n: read_setting(n, text) for n, text in own.items()}}) if own else self


def read_setting(name: str, text: str, settings: Mapping[str, Setting] = SETTINGS) -> Any:
    """The value of one of these settings from its text. Raises ConfigError naming the setting and what is valid."""
    setting = settings.get(name)
    if setting is None:
        raise ConfigError(f"unknown setting {name!r}; `chaos list settings` shows the known ones")
    return setting.value_of(text)


def check_together(values: Mapping[str, Any]) -> None:
    """Raise ConfigError where settings that are valid one by one make no sense together. values: those that are given,
    read, by name; others have their defaults."""

    def value(name: str) -> Any:
        default = SETTINGS[name].default
        assert default is not None
        return values[name] if name in values else SETTINGS[name].read(default)

    interval, timeout = value("broker.heartbeat.interval.ms"), value("broker.session.timeout.ms")
    if interval >= timeout:
        raise ConfigError(
            f"broker.heartbeat.interval.ms={interval} must be less than broker.session.timeout.ms={timeout}, "
            "or every broker is fenced between two heartbeats"
        )
    if "unclean.recovery.strategy" in values and not value("eligible.leader.replicas.version"):
        raise ConfigError(NO_UNCLEAN_RECOVERY)


def parse(properties: str) -> Config:
    """Read the properties of a node with KRaft. Raises ConfigError on an unknown, missing, malformed or repeated
    setting."""
    given = lines_of(properties)
    check_together({name: read_setting(name, text) for name, text in given.items()})
    values = read_all(given, SETTINGS)
    _check_roles(values)
    return Config(values)


def lines_of(properties: str) -> Mapping[str, str]:
    """The settings that a properties file's text gives, by name. Raises ConfigError."""
    given: dict[str, str] = {}
    for number, line in enumerate(properties.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, separator, text = line.partition("=")
        name = name.strip()
        if not separator:
            raise ConfigError(f"line {number} is not name=value: {line!r}")
        if name in given:
            raise ConfigError(f"{name} is set twice")
        given[name] = text
    return given


def read_all(given: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The values of these settings: of those given, and the defaults of others. Raises ConfigError."""
    values = {name: read_setting(name, text, settings) for name, text in given.items()}
    for setting in settings.values():
        if setting.name not in values:
            if setting.default is None:
                raise ConfigError(f"{setting.name} is missing")
            values[setting.name] = setting.read(setting.default)
    return values


def _check_roles(values: Mapping[str, Any]) -> None:
    """Raises ConfigError for a node that cannot be what it is said to be."""
    roles, node_id, voters = values["process.roles"], values["node.id"], values["controller.quorum.voters"]
    if "controller" in roles and node_id not in voters:
        raise ConfigError(f"node.id={node_id} is to be a controller and is not among controller.quorum.voters")
    if values["metrics.port"] in {address.port for address in values["listeners"].values()}:
        raise ConfigError(f"metrics.port={values['metrics.port']} is a port of listeners")
    if len(roles) > 1 and len(values["listeners"]) < 2:
        raise ConfigError(f"process.roles={','.join(roles)} needs two listeners, one of them {CONTROLLER_LISTENER}://")
