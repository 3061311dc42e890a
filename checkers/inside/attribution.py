"""Which fault took each lost record, and which replica had it last: told from what the faults measured.

A power cut compares each node's disk before and after. Its evidence says which offsets of which leader epochs the node
held and did not get back (`lost_offsets`), and damage to a segment from which offset on (`damaged_from`). A record
stands at one offset in one leader epoch. So a fault took a node's copy of a lost record if it took that offset, after
the record was sent, in a leader epoch in which it may have been appended: no older one than was known to be in force
then, and of these the first that any node lost; nor one that began after the record was acknowledged.

What decides that the record is lost is the election of a leader that lacks it: the first later leader epoch whose
records begin at or below its offset, on any replica's disk. Then:

| what is known | the fault | had it last |
| --- | --- | --- |
| every replica that is known to have had it lost it before that election | the last of these cuts | its node |
| that leader lost it, or one before that wrote nothing; others dropped it to follow | its cut | one of those |
| others lost it, but no such leader, nor all that had it | the last of these cuts | one of the others |
| nothing took it: only a leader was elected that lacked it | not known, and why | who led before |
| the same with acks=1, and leadership moved on purpose | none: see metadata/planned.py | who led before |

The replicas that are known to have had a record are those of which a fault took it, and, where acks=all was promised,
the ISR when it was acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checkers.anomalies import ATTRIBUTED, stretches
from checkers.inside.metadata.memberships import Memberships, Step
from checkers.inside.metadata.planned import DOCUMENTED, clean_stops, planned
from spark_history.files import Bools, Ints, integers, read_parquet
from spark_history.ingest import History
from spark_history.log import NEVER, NOWHERE
from spark_history.schema import REPLICA_LOGS

Fault = Mapping[str, Any]  # a FAULTS row, evidence parsed

_COLUMNS: Final = pa.schema([REPLICA_LOGS.field(name) for name in ("node", "offset", "leader_epoch")])
#: The committed metadata is known a little later than its leader knows it: by so much an epoch may begin earlier.
_LATE_NS: Final = 1_000_000_000
_END: Final = 1 << 62
_ANY: Final = -1  # a leader epoch that is not known
_MOST_RANGES: Final = 20  # of offsets of a partition, in the verdict
#: When a node's copy was gone, the best that the evidence of its cut says.
_TIMES: Final = ("shut_down_at", "killed_at", "cut_at")


class _Taken(NamedTuple):
    """From one node's copy of one partition."""

    time: int
    fault: int
    node: str
    first: int
    end: int
    epoch: int


class _Election(NamedTuple):
    """The first leader whose log is known to have lacked what stands at `start` or above."""

    epoch: int
    start: int
    leader: str
    time: int


class _Kind(NamedTuple):
    """What is known of a lost record: what took copies of it, the election that decided, the partition's metadata from
    when it was acknowledged until that must have been known; is it not known where it stood? And the leader epochs of
    when it was sent and of when its acknowledgement must have been known, at the earliest and the latest."""

    taken: tuple[_Taken, ...]
    election: _Election | None
    steps: tuple[Step, ...]
    nowhere: bool
    epochs: tuple[int, int]


#: fault, node, takers and cause, as in ATTRIBUTED.
_Known = tuple[int | None, str | None, tuple[int, ...], str]


@dataclass
class _Group:
    """Lost records of which the same is known."""

    records: int = 0
    acknowledged: int = 0
    first: int = NEVER
    last: int = NOWHERE
    partitions: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


class Attribution:
    """Adds to tables of LOST what took each record, and sums that up."""

    def __init__(self, history: History, faults: Iterable[Fault], held: Memberships | None, *, acks: str) -> None:
        """acks: of the producers, as in plan.json."""
        faults = list(faults)
        self._history = history
        self._held = held
        self._acks_all = acks in ("all", "-1")
        self._acks_1 = acks == "1"
        self._stops = [] if held is None else clean_stops(faults, held.ids)
        self._taken: dict[str, list[_Taken]] = defaultdict(list)
        for fault in faults:
            for log, taken in _taken(fault):
                self._taken[log].append(taken)
        for of in self._taken.values():
            of.sort()
        self._names = {} if held is None else {id_: name for name, id_ in held.ids.items()}
        self._groups: dict[_Known, _Group] = defaultdict(_Group)

    def of(self, lost: pa.Table) -> pa.Table:
        """lost: LOST, of one log. Returns ATTRIBUTED. Raises HistoryError."""
        if not lost.num_rows:
            return ATTRIBUTED.empty_table()
        log = f"{lost['topic'][0].as_py()}-{lost['partition'][0].as_py()}"
        kinds, of_row = self._kinds(log, lost)
        known = [self._explain(log, kind) for kind in kinds]
        table = lost
        for field_, values in zip(list(ATTRIBUTED)[-4:], zip(*known, strict=True), strict=True):
            table = table.append_column(field_, pa.array(values, field_.type).take(pa.array(of_row)))
        self._count(log, lost, known, of_row)
        return table

    def summary(self) -> list[dict[str, Any]]:
        """`attribution` of verdict.json: an object for all lost records of which the same is known, the most first.

        fault, node, takers, cause: as in ATTRIBUTED; records, acknowledged: how many; first_s, last_s: when they were
        acknowledged, or first read; partitions: by name, ranges of offsets, the first few."""
        origin = self._history.origin
        found = [
            {
                "fault": fault, "node": node, "takers": list(takers), "cause": cause,
                "records": group.records, "acknowledged": group.acknowledged,
                "first_s": round((group.first - origin) / 1e9, 3), "last_s": round((group.last - origin) / 1e9, 3),
                "partitions": {log: [list(each) for each in ranges] for log, ranges in group.partitions.items()},
            }
            for (fault, node, takers, cause), group in self._groups.items()
        ]  # fmt: skip
        return sorted(found, key=lambda entry: (-entry["records"], entry["cause"]))

    # -- which records share their fate --------------------------------------------------------------------------------

    def _kinds(self, log: str, lost: pa.Table) -> tuple[list[_Kind], Ints]:
        """What is known of the records, each different thing once, and which of them each record is of."""
        offset, invoke = integers(lost, "offset", NOWHERE), integers(lost, "invoke", NOWHERE)
        complete = integers(lost, "complete", NEVER)
        complete = np.where(complete == NEVER, integers(lost, "observed", NEVER), complete)
        steps, taken = self._steps(log), self._taken.get(log, [])
        times = np.array([step.time for step in steps], np.int64)
        late = np.where(complete > _END, complete, complete + _LATE_NS)
        before, at, after = (np.searchsorted(times, each, "right") - 1 for each in (invoke, complete, late))
        epochs = np.array([step.leader_epoch for step in steps] or [_ANY], np.int64)
        least = np.where(before >= 0, epochs[before], _ANY)
        most = np.where(after >= 0, epochs[after], _END if not steps else epochs[0])
        masks = _masks(taken, offset, invoke, least, most)
        epoch = np.where(at >= 0, epochs[at], _ANY)
        for each, mask in zip(taken, masks, strict=True):
            epoch[mask] = each.epoch if each.epoch != _ANY else epoch[mask]
        elections = self._elections(log, steps)
        election = np.full(len(offset), NOWHERE)
        for number, each_ in reversed(list(enumerate(elections))):
            election[(each_.epoch > epoch) & (each_.start <= offset)] = number
        sent = np.searchsorted(times, invoke - _LATE_NS, "right") - 1
        since = np.where(sent >= 0, epochs[sent], _ANY) if self._acks_1 else np.full(len(offset), _ANY)
        until = np.where(most == _END, _ANY, most) if self._acks_1 else since
        columns = np.column_stack([election, at, after, offset == NOWHERE, since, until, *masks]).astype(np.int64)
        rows, of_row = np.unique(columns, axis=0, return_inverse=True)
        return [
            _Kind(
                tuple(each for each, is_it in zip(taken, row[6:], strict=True) if is_it),
                None if row[0] == NOWHERE else elections[row[0]],
                tuple(steps[max(row[1], 0) : row[2] + 1]),
                bool(row[3]),
                (row[4], row[5]),
            )
            for row in rows.tolist()
        ], of_row.reshape(-1)  # fmt: skip

    def _steps(self, log: str) -> Sequence[Step]:
        if self._held is None:
            return ()
        topic, _, partition = log.rpartition("-")
        return self._held.steps.get((topic, int(partition)), ())

    def _elections(self, log: str, steps: Sequence[Step]) -> list[_Election]:
        """By leader epoch, where its records begin on whichever disk."""
        starts: dict[int, int] = {}
        for each in self._history.logs:
            if each.name != log:
                continue
            for segment in each.segments:
                if "replica_logs" not in segment.paths:
                    continue
                rows = read_parquet(self._history.path / segment.paths["replica_logs"], _COLUMNS)
                offset, epoch = integers(rows, "offset", NOWHERE), integers(rows, "leader_epoch", _ANY)
                for own in np.unique(epoch).tolist():
                    starts[own] = min(starts.get(own, _END), int(offset[epoch == own].min()))
        led = {step.leader_epoch: step for step in reversed(steps) if step.leader >= 0}
        return [
            _Election(epoch, start, self._name(led[epoch].leader), led[epoch].time) if epoch in led
            else _Election(epoch, start, "", NEVER)
            for epoch, start in sorted(starts.items())
        ]  # fmt: skip

    def _name(self, id_: int) -> str:
        return self._names.get(id_, f"broker {id_}")

    # -- what that means -----------------------------------------------------------------------------------------------

    def _explain(self, log: str, kind: _Kind) -> _Known:
        taken, election, steps, nowhere, epochs = kind
        if nowhere:
            return None, None, (), "not known: it was acknowledged without an offset, so nobody can say where it stood"
        if election is not None and election.time != NEVER:
            taken = tuple(each for each in taken if each.time <= election.time)
        takers = tuple(dict.fromkeys(each.fault for each in taken))
        if not taken:
            if self._acks_1 and (found := self._moved(log, election, epochs)) is not None:
                return found
            return None, self._led(steps), (), self._not_taken(log, election)
        last = taken[-1]
        had = {each.node for each in taken}
        isr = set.intersection(*(set(step.isr) for step in steps)) if steps and self._acks_all else set()
        others = sorted({self._name(id_) for id_ in isr} - had)
        if not others:
            alone = len(had) == 1
            how = f"took the only copy, of {last.node}" if alone else f"took the last copy, of {last.node}"
            return last.fault, last.node, takers, how
        of_leader = next((each for each in reversed(taken) if self._led_since(log, each, election)), None)
        those = " and ".join(others)
        if of_leader is not None:
            how = f"took it from {of_leader.node}, which was elected leader without it; {those} dropped it to follow"
            return of_leader.fault, others[0], takers, how
        how = f"took it from {' and '.join(sorted(had))}; {those} should have had it, and no fault took it there"
        return last.fault, others[0], takers, how

    def _moved(self, log: str, election: _Election | None, epochs: tuple[int, int]) -> _Known | None:
        """None: leadership did not move since the record was sent, or one of its moves was not on purpose."""
        since, until = epochs
        move = planned(self._steps(log), since, until if election is None else election.epoch, self._stops)
        if move is None:
            return None
        before, at = self._name(move.leader), (move.step.time - self._history.origin) / 1e9
        cause = (
            f"no fault took it: leadership moved on purpose by {at:.1f} s, by {move.how}, from {before} to "
            f"{self._name(move.step.leader)}, which had not fetched it yet; {DOCUMENTED}"
        )
        return None, before, (), cause

    def _led_since(self, log: str, taken: _Taken, election: _Election | None) -> bool:
        """Whether its node was elected after its copy was gone, at the latest as the first leader that is known to have
        lacked the record: one that was elected before may have written nothing."""
        if election is not None and election.leader == taken.node:
            return True
        until = NEVER if election is None else election.time
        since = [step for step in self._steps(log) if taken.time <= step.time <= until]
        return any(step.leader_epoch > taken.epoch and self._name(step.leader) == taken.node for step in since)

    def _led(self, steps: Sequence[Step]) -> str | None:
        return self._name(steps[0].leader) if steps and steps[0].leader >= 0 else None

    def _not_taken(self, log: str, election: _Election | None) -> str:
        if election is None:
            return "not known: no fault measured that it took it, and no later leader wrote at or below its offset"
        if not election.leader:
            return f"not known: no fault measured that it took it; the leader of epoch {election.epoch} lacked it"
        at = (election.time - self._history.origin) / 1e9
        return (
            f"not known: no fault measured that it took it; {election.leader}, elected leader of {log} in epoch "
            f"{election.epoch} by {at:.1f} s, did not have it"
        )

    def _count(self, log: str, lost: pa.Table, known: Sequence[_Known], of_row: Ints) -> None:
        complete = integers(lost, "complete", NEVER)
        seen = np.where(complete == NEVER, integers(lost, "observed", NEVER), complete)
        offset = integers(lost, "offset", NOWHERE)
        for key in dict.fromkeys(known):
            mine = np.isin(of_row, [number for number, each in enumerate(known) if each == key])
            group = self._groups[key]
            group.records += int(mine.sum())
            group.acknowledged += int((complete[mine] != NEVER).sum())
            group.first = min(group.first, int(seen[mine].min()))
            group.last = max(group.last, int(seen[mine].max()))
            ranges = group.partitions.setdefault(log, [])
            ranges += stretches(np.unique(offset[mine]))[: _MOST_RANGES - len(ranges)]


def _masks(taken: Sequence[_Taken], offset: Ints, invoke: Ints, least: Ints, most: Ints) -> list[Bools]:
    """For each taking, which of the records it took. least, most: leader epochs in which each may have been sent."""
    masks: list[Bools] = []
    first_epoch = np.full(len(offset), _END)
    for each in taken:
        mask = (offset >= each.first) & (offset < each.end) & (invoke <= each.time)
        if each.epoch != _ANY:
            mask &= (each.epoch >= least) & (each.epoch <= most)
            first_epoch[mask] = np.minimum(first_epoch[mask], each.epoch)
        masks.append(mask)
    return [
        mask if each.epoch == _ANY else mask & (first_epoch == each.epoch)
        for each, mask in zip(taken, masks, strict=True)
    ]  # fmt: skip


def _taken(fault: Fault) -> Iterator[tuple[str, _Taken]]:
    """By partition, what a fault took of which node."""
    evidence = fault["evidence"]
    nodes = evidence.get("nodes")
    if not isinstance(nodes, Mapping):
        nodes = dict.fromkeys(fault["targets"] or (), evidence)
    for node, seen in nodes.items():
        if not isinstance(seen, Mapping):
            continue
        for own in filter(None, (seen.get("first_cut"), seen)):
            time = next((int(own[name]) for name in _TIMES if own.get(name)), None) or int(fault["start"])
            for log, ranges in (own.get("lost_offsets") or {}).items():
                for first, end, epoch in ranges:
                    yield log, _Taken(time, fault["fault"], node, first, end, epoch)
            for log, first in (own.get("damaged_from") or {}).items():
                yield log, _Taken(time, fault["fault"], node, first, _END, _ANY)
