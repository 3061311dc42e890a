"""The abstract states that a simulated run has been in: what an exploration counts to know if it sees anything new.

As model-guided fuzzing does (Gulcan et al., OOPSLA 2025; Mallory, CCS 2023), a concrete state is mapped to a small one
that keeps what the protocol decides by, and forgets names, offsets and time: of a partition, who leads by whose belief,
epochs relative to the committed one, ISR and ELR against MinISR, ends of logs relative to what is committed and to
each other; of the metadata quorum, roles, relative epochs and ends. Replicas are told in an order that does not
depend on which broker is which, so that symmetric states are one.

Beside these there is a coarser view, with the faults in force: who has which role and is in which set, whatever the
ends of logs. The finer one goes on growing for thousands of runs; of the coarser one something new is rare, and so it
is what an exploration goes by.

States are hashes of numbers alone, which no hash seed changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import NO_LEADER
from cluster_image.kraft.node import Node
from cluster_image.kraft.raft.quorum import Role

from .partitions import PartitionOracle

#: By what is in force: numbers, as SimulatedCluster.faults_in_force() has them.
Faults = tuple[int, ...]
#: Of what _replica() tells, what does not depend on the ends of logs: role, sets, relative epoch, who is waited for.
_ROLES_AND_SETS: Final = 4
_ROLES: Final[Mapping[Role, int]] = {role: number for number, role in enumerate(Role)}


class States:
    """faults: those in force now. seen: the states so far; under_faults: coarser ones, with the faults then."""

    def __init__(self, faults: Callable[[], Faults]) -> None:
        self.seen: set[int] = set()
        self.under_faults: set[int] = set()
        self._faults = faults
        self._quorum: tuple[Any, ...] = ()

    def look_at_quorum(self, nodes: Mapping[str, Node]) -> None:
        """It has changed."""
        quorums = [quorum for node in nodes.values() if (quorum := node.raft.quorum) is not None and quorum.is_voter]
        newest = max((quorum.epoch for quorum in quorums), default=0)
        end = max((quorum.replica.log.end_offset for quorum in quorums), default=0)
        committed = max((quorum.replica.high_watermark for quorum in quorums), default=0)
        self._quorum = tuple(sorted(
            (
                _ROLES[quorum.role], max(quorum.epoch - newest, -2), _sign(quorum.replica.log.end_offset - end),
                _sign(quorum.replica.high_watermark - committed), quorum.leader_id is None,
            )
            for quorum in quorums
        ))  # fmt: skip

    def look(self, partitions: Iterable[PartitionOracle]) -> None:
        """They have changed."""
        faults = self._faults()
        for partition in partitions:
            state, replicas = _partition(partition)
            self.seen.add(hash((state, *replicas)))
            self.under_faults.add(hash((state, tuple(each[:_ROLES_AND_SETS] for each in replicas), faults)))
        self.under_faults.add(hash((self._quorum, faults)))


def _partition(partition: PartitionOracle) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """What concerns all of it, and each replica."""
    told = partition.registration
    ends = {
        broker: replica.partition.log.end_offset
        for broker, replica in partition.replicas.items()
        if replica.partition is not None
    }
    longest = max(ends.values(), default=0)
    replicas = sorted(
        _replica(partition, broker, replica.partition, ends.get(broker, 0), longest)
        for broker, replica in partition.replicas.items()
        if replica.partition is not None or broker in told.replicas
    )
    state = (
        _sign(len(told.isr) - partition.min_isr), len(told.isr) == len(told.replicas), len(told.elr),
        len(told.last_known_elr), told.leader == NO_LEADER, told.leader_recovery_state, bool(told.adding),
        bool(told.removing),
    )  # fmt: skip
    return state, replicas


def _replica(
    partition: PartitionOracle, broker: int, here: Partition | None, end: int, longest: int
) -> tuple[int, ...]:
    """here: as its broker has it, if that runs. end, longest: of its log, and of all."""
    told, committed = partition.registration, partition.committed.end
    member = (broker in told.isr) + 2 * (broker in told.elr) + 4 * (broker == told.leader) + 8 * (
        broker in told.replicas
    )  # fmt: skip
    if here is None:
        return (-1, member)
    log, leadership = here.log, here.leadership
    role, joining = 0, 0
    if leadership is not None:
        role, joining = 2 + (leadership.proposal is not None), min(len(leadership.joining), 1)
    elif here.leader >= 0:
        role = 1
    return (
        role, member, min(max(here.leader_epoch - told.leader_epoch, -2), 1), joining,
        _sign(end - committed), _sign(end - longest), _sign(here.high_watermark - committed),
        max(log.last_epoch - told.leader_epoch, -3), _sign(log.start_offset),
    )  # fmt: skip


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
