"""What an idempotent producer is promised (KIP-98, KIP-360), of one partition, whatever its replicas go through.

| property          | statement                                                                  | checked when
| ----------------- | -------------------------------------------------------------------------- | --------------------
| ProducerSequence  | the batches of a producer id and epoch are in a log in the order of their  | each append
|                   | sequence numbers, the first with 0, without holes and repeats [1]          |
| ProducerEpoch     | nothing of an older epoch is in a log after a batch of a newer one [1]     | each append
| NoFalseDuplicate  | what a leader answers as a duplicate is in its log, where it says          | it answers so
| ProducerState     | what a replica remembers of producers is what its log says: of each the    | the log changes; a
|                   | last five batches [2]                                                      | process begins; now
|                   |                                                                            | and then

[1] A leader must know the batch before: it may have forgotten what its log has deleted, and nobody knows what was lost
    outside the contract. A producer of whom nothing is known may begin with any number (KIP-360).
[2] It may have forgotten those below the start of its log, the oldest first.

Batches before and after an append need not be looked for in every log: a batch has the same predecessors wherever it
is (LogMatching), so each is checked once, in the first log in which it is seen. Of what is refused, see
answering/producing.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from checkers.inside.violation import Violated
from cluster_image.replication.replica import Replica as Served
from cluster_image.storage.producer_state import Produced
from cluster_image.storage.rules import REMEMBERED_BATCHES

from .logs import Batch, Replica

_LAST_SEQUENCE = 0x7FFFFFFF


class ProducerOracle:
    """Methods raise Violated. where: the partition, as traces name it."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._seen: dict[tuple[int, int], None] = {}  # leader epoch and base offset of what was checked
        self._answered: list[tuple[str, Mapping[str, object]]] = []  # nodes, and duplicates still to be looked up

    def answered_duplicate(self, node: str, fields: Mapping[str, object]) -> None:
        """Its trace has told so."""
        self._answered.append((node, fields))

    def replica_gone(self, node: str) -> None:
        """Its process is over, or it has deleted its replica: what it has answered can be looked up no more."""
        self._answered = [each for each in self._answered if each[0] != node]

    def look(self, replica: Replica, served: Served, new: int, *, thoroughly: bool, lost: bool) -> None:
        """new: how many batches have come to its end. thoroughly: at all that it remembers, and not just of these.
        lost: may anything of this partition be lost, outside the contract?"""
        if not replica.known:
            return
        batches = replica.batches
        for index in range(len(batches) - new, len(batches)):
            if batches[index].produced is not None:
                self._check_place(replica, index, served.log.start_offset, lost)
        remembered = served.log.producers.remembered()
        if thoroughly:
            self._check_state(replica, served, remembered, None)
        elif new:
            last = {b.produced.producer_id: None for b in batches[len(batches) - new :] if b.produced is not None}
            self._check_state(replica, served, remembered, last)
        for node, fields in [each for each in self._answered if each[0] == replica.node]:
            self._answered.remove((node, fields))
            self._check_duplicate(replica, served, fields)

    # -- properties -------------------------------------------------------------------------------------------

    def _check_place(self, replica: Replica, index: int, start: int, lost: bool) -> None:
        batch = replica.batches[index]
        key = (batch.epoch, batch.base)
        if key in self._seen or batch.produced is None:
            return
        self._seen[key] = None
        now, before = batch.produced, _before(replica, batch)
        if before is None or before.end <= start:
            if now.first_sequence != 0 and not (lost or start > 0):
                self._fail("ProducerSequence", f"is the first of its producer, and begins with {now.first_sequence}",
                           replica, batch)  # fmt: skip
            return
        assert before.produced is not None
        if now.epoch < before.produced.epoch:
            self._fail("ProducerEpoch", f"stands after {_named(before)}", replica, batch)
        same = now.epoch == before.produced.epoch
        expected = (before.produced.last_sequence + 1) & _LAST_SEQUENCE if same else 0
        if now.first_sequence != expected:
            self._fail("ProducerSequence", f"stands after {_named(before)}, where {expected} is next", replica, batch)

    def _check_state(
        self, replica: Replica, served: Served, remembered: Mapping[int, Sequence[Produced]],
        producers: Mapping[int, None] | None,
    ) -> None:  # fmt: skip
        """producers: which; None: all."""
        in_log = replica.of_producer
        for producer in dict.fromkeys((*in_log, *remembered)) if producers is None else producers:
            known = list(remembered.get(producer, ()))
            there = in_log.get(producer, [])[-REMEMBERED_BATCHES:]
            needed = sum(batch.end > served.log.start_offset for batch in there)
            says = [batch.produced for batch in there][len(there) - len(known) :] if known else []
            if needed <= len(known) <= len(there) and says == known:
                continue
            raise Violated(
                "ProducerState",
                f"{replica.node} remembers of producer {producer} {_listed(known)}; the last of it in its log, which "
                f"starts at {served.log.start_offset}, are {_listed([b.produced for b in there if b.produced])}",
                self._where,
                (replica.node,),
            )

    def _check_duplicate(self, replica: Replica, served: Served, fields: Mapping[str, object]) -> None:
        names = ("producer_id", "producer_epoch", "sequence", "offset", "end")
        producer, epoch, sequence, offset, end = (int(str(fields[name])) for name in names)
        if offset < served.log.start_offset:
            return  # it was deleted
        found = next((batch for batch in replica.batches[replica.count_below(offset) :][:1]), None)
        produced = None if found is None else found.produced
        is_there = found is not None and produced is not None and (found.base, found.end) == (offset, end)
        if not is_there or produced is None or produced[:3] != (producer, epoch, sequence):
            at = "nothing" if found is None else _named(found)
            raise Violated(
                "NoFalseDuplicate",
                f"{replica.node} has answered that the batch of producer {producer}, epoch {epoch}, from sequence "
                f"number {sequence} on is at offset {offset} already; there it has {at}",
                self._where,
                (replica.node,),
            )

    def _fail(self, property_: str, what: str, replica: Replica, batch: Batch) -> None:
        raise Violated(property_, f"in the log of {replica.node} {_named(batch)} {what}", self._where, (replica.node,))


def _before(replica: Replica, batch: Batch) -> Batch | None:
    """The one of the same producer before it."""
    assert batch.produced is not None
    batches = replica.of_producer[batch.produced.producer_id]
    place = bisect_left(batches, batch)
    return batches[place - 1] if place else None


def _named(batch: Batch) -> str:
    produced = batch.produced
    if produced is None:
        return f"{batch}"
    return (
        f"the batch at offset {batch.base} of producer {produced.producer_id}, epoch {produced.epoch}, sequence "
        f"numbers {produced.first_sequence} to {produced.last_sequence}"
    )


def _listed(entries: Sequence[Produced]) -> str:
    if not entries:
        return "nothing"
    return ", ".join(f"{e.first_sequence} to {e.last_sequence} of epoch {e.epoch} at {e.base_offset}" for e in entries)
