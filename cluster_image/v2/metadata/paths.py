"""What this generation keeps in ZooKeeper (001, "Paths stored in Zookeeper"), and how its nodes are written.

| node                                          | holds          | made by        |
| --------------------------------------------- | -------------- | -------------- |
| /brokers/ids/[broker]                         | host:port;rack | broker, ephemeral |
| /brokers/topics/[topic]/[partition]/replicas  | 1,2,3          | administrator  |
| /brokers/topics/[topic]/[partition]/leader    | broker;epoch   | leader, ephemeral |
| /brokers/topics/[topic]/[partition]/ISR       | 1,2;epoch      | leader         |
| /brokers/partitions_reassigned/[topic]/[part.] | 1,2,3; nothing: to be deleted | administrator |
| /brokers/state/[broker]/request-[number]      | a state change (state_queue.py) | leader, administrator |
| /brokers/commands/[topic]                     | which command on it is under way | broker, ephemeral |
| /brokers/commands/[command]                   | nothing: that command is under way | broker, ephemeral |

001 gives the leader's epoch in two of these under "becomeLeader" and in none under "Paths"; both have it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cluster_image.network import Address

BROKERS: Final = "/brokers"
IDS: Final = f"{BROKERS}/ids"
TOPICS: Final = f"{BROKERS}/topics"
REASSIGNED: Final = f"{BROKERS}/partitions_reassigned"
STATE: Final = f"{BROKERS}/state"
COMMANDS: Final = f"{BROKERS}/commands"
#: That have to be there, parents first.
PARENTS: Final = (BROKERS, IDS, TOPICS, REASSIGNED, STATE, COMMANDS)


def commanded(topic_name: str) -> str:
    """The lock."""
    return f"{COMMANDS}/{topic_name}"


def command(topic_name: str, broker_id: int, session: int, number: int) -> str:
    """A node of this command alone, in which it differs from the lock: no topic's name has a colon."""
    return f"{COMMANDS}/{topic_name}:{broker_id}:{session}:{number}"


def broker(broker_id: int) -> str:
    return f"{IDS}/{broker_id}"


def state(broker_id: int) -> str:
    return f"{STATE}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partition(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/{index}"


def replicas(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/{index}/replicas"


def leader(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/{index}/leader"


def isr(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/{index}/ISR"


def reassigned_topic(name: str) -> str:
    return f"{REASSIGNED}/{name}"


def reassigned(name: str, index: int) -> str:
    return f"{REASSIGNED}/{name}/{index}"


# -- what nodes hold -----------------------------------------------------------------------------------------------


class Leader(NamedTuple):
    broker: int
    epoch: int

    def encode(self) -> bytes:
        return f"{self.broker};{self.epoch}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Leader:
        return cls(*map(int, data.decode().split(";")))


class Isr(NamedTuple):
    """brokers: sorted."""

    brokers: tuple[int, ...]
    epoch: int

    def encode(self) -> bytes:
        return encode_ids(self.brokers) + f";{self.epoch}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Isr:
        brokers, _, epoch = data.partition(b";")
        return cls(decode_ids(brokers), int(epoch))


class Registered(NamedTuple):
    """A live broker. rack: "" for none."""

    address: Address
    rack: str

    def encode(self) -> bytes:
        return f"{self.address};{self.rack}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Registered:
        address, _, rack = data.decode().partition(";")
        host, _, port = address.rpartition(":")
        return cls(Address(host, int(port)), rack)


def encode_ids(brokers: Iterable[int]) -> bytes:
    return ",".join(map(str, brokers)).encode()


def decode_ids(data: bytes) -> tuple[int, ...]:
    return tuple(map(int, data.decode().split(","))) if data else ()


def numbers(names: Sequence[str]) -> list[int]:
    """Of brokers, or partitions, sorted: nodes of other names are no business of ours."""
    return sorted(int(name) for name in names if name.isdecimal())
