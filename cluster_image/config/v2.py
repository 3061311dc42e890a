"""Settings of a broker with ZooKeeper (cluster_image/v2): Kafka's names where Kafka has or had such.

What 001 got wrong has a setting each that mends it; by default it is as 001 says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cluster_image.network import Address

from . import SETTINGS as OF_KRAFT
from . import Config, ConfigError, Setting, boolean, integer, lines_of, one_of, read_address, read_all

_DAY_MS: Final = 24 * 3600 * 1000
#: That a node with KRaft has and this has no use for.
_NOT_HERE: Final = (
    "process.roles", "controller.", "metadata.", "broker.heartbeat.", "broker.session.", "min.insync.replicas",
    "eligible.", "unclean.", "auto.", "delete.topic.enable", "leader.imbalance.", "log.cleanup.", "log.retention.",
    "request.timeout.ms", "controlled.",
)  # fmt: skip


def _bug(text: str) -> str:
    from ..v2 import bugs  # here, as the rules that bugs replace lie in modules that import this one

    return bugs.find(text).id if text else ""


def _servers(text: str) -> tuple[Address, ...]:
    return tuple(map(read_address, text.split(",")))


def _int(name: str, default: int, low: int, high: int, help: str) -> Setting:
    return Setting(name, "int", str(default), f"an integer from {low} to {high}", help, integer(low, high))


def _mends(name: str, help: str) -> Setting:
    return Setting(name, "boolean", "false", "true or false", help, boolean)


OWN: Final[Mapping[str, Setting]] = {
    s.name: s
    for s in (
        Setting("zookeeper.connect", "list", None, "host:port,…", "The servers of ZooKeeper.", _servers),
        _int("zookeeper.session.timeout.ms", 2000, 100, _DAY_MS,
             "A broker that ZooKeeper has not heard of for this long leads no longer (Kafka: 18000)."),
        _int("v2.preferred.replica.time.ms", 300, 0, _DAY_MS,
             "The preferred replica's head start in an election (001, PreferredReplicaTime)."),
        _int("v2.state.queue.limit", 10_000, 2, 1_000_000,
             "State changes that wait for one broker, before they are shrunk to what must be kept."),
        _mends("v2.leader.epochs",
               "A follower's log is cut where it parts from the leader's, which leader epochs tell (004), and not at "
               "its own high watermark."),
        _mends("v2.isr.versioned", "A leader writes the ISR only over what it wrote itself: not if another leads."),
        _mends("v2.close.epochs", "A request to close a replica is ignored once a later leader was elected."),
        _mends("v2.close.isr",
               "A replica that is to go leaves the ISR before it is asked to close, and a move that is given up ends "
               "its leader's term."),
        _mends("v2.idle.checks",
               "ISR, reassignment and preferred leader are looked at also where nothing is produced."),
        replace(OF_KRAFT["chaos.bug"], read=_bug),
        Setting("v2.election.watermark", "string", "end", "end or checkpoint",
                "A new leader's high watermark: the end of its log, or what it was.", one_of("end", "checkpoint")),
    )
}  # fmt: skip

SETTINGS: Final[Mapping[str, Setting]] = {
    **{name: each for name, each in OF_KRAFT.items() if not name.startswith(_NOT_HERE)},
    **OWN,
}
#: Set for each node by whoever starts it.
IDENTITY: Final = frozenset(
    {
        *("node.id", "cluster.id", "zookeeper.connect", "listeners", "broker.rack", "log.dirs"),
        *("chaos.bug", "chaos.trace", "sasl.jaas.config"),
    }
)


def is_of(given: Mapping[str, str]) -> bool:
    """Are these the settings of a broker with ZooKeeper? As Kafka took them."""
    return "zookeeper.connect" in given


def parse(properties: str) -> Config:
    """Raises ConfigError on an unknown, missing, malformed or repeated setting."""
    values = read_all(lines_of(properties), SETTINGS)
    if len(values["listeners"]) > 1:
        raise ConfigError("a broker with ZooKeeper has one listener")
    if values["metrics.port"] in {address.port for address in values["listeners"].values()}:
        raise ConfigError(f"metrics.port={values['metrics.port']} is a port of listeners")
    return Config(values)
