"""Checks from traces and the metadata log that the replicas that may be elected (ISR and ELR) hold everything
committed.

| property                    | what is decided, from which rows                                                      |
| --------------------------- | ------------------------------------------------------------------------------------- |
| LeaderCandidateCompleteness | a follower in ISR or ELR has, as its role begins, everything that leaders of earlier  |
|                             | epochs ever took for committed: the `end` of its `role` line, against the highest of  |
|                             | their `high watermark` lines, since the last unclean election                         |
| ReplicationQuorumSuperset   | within a leader epoch the ISR grows only by members that the leader has counted on    |
|                             | before: each addition in the metadata log has an `isr proposed` line of the leader at |
|                             | the partition epoch before it                                                         |
| StrongIsr                   | a member of the ISR has what its leader commits: in the term in which it follows it   |
|                             | does not `truncate` below a `high watermark` that the leader told while counting it   |
| UncleanExclusion            | a broker that came back from an unclean shutdown is in no ISR or ELR, and leads       |
|                             | nothing, until it has been added to the ISR again (002, 5.1.1): by faults that ended  |
|                             | its process or its power, its next registration, and the states after it              |

Why these are sound. The `role` line's end is exact, not held back. Whoever is a candidate in epoch e was in the maximal
ISR of every earlier leader whose commits matter, and stops to follow it with this very line: what that one commits
later needs others. A line counts only if its state is later than the broker's registration in this life, for before
that the controller cannot know what it lost. That a proposal is missing means something only if the leader told of
something later in the same life, since lines are written in order. A cut or kill makes the next registration an
unclean one only if the process before had been unfenced, so that it was not registering itself. Times of different
nodes, and of faults, are compared only where they are further apart than their clocks may be wrong (TraceRows.apart).

What cannot be decided: between two lines nobody knows where a follower's log ends, so a candidate that lacks something
only in between goes unseen, and so does a proposal that adds an incomplete follower that catches up later. Nor can the
maximal ISR be seen while a proposal is in flight, only what came of it. The simulation's oracles see all of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.history import MetadataHistory
from checkers.inside.metadata.memberships import CommitTimes
from checkers.inside.metadata.replay import NO_LEADER, PartitionState, Place
from checkers.inside.trace_rows import CODE, TraceRows
from spark_history.files import Ints

#: SIGKILL, as a container's and as a process' exit status.
_KILLED: Final = (137, -9)
_POWER: Final = ("cut_ns", "unsynced_bytes")

Fault = Mapping[str, Any]  # a FAULTS row, evidence parsed


@dataclass(frozen=True)
class Role:
    """A term that began with a role: what it told first, and the rows of it."""

    place: Place
    node: str
    node_id: int
    rows: Ints
    leader: int
    leader_epoch: int
    partition_epoch: int
    end: int

    @property
    def leads(self) -> bool:
        return self.leader == self.node_id


class Candidates:
    def __init__(
        self, trace: TraceRows, ids: Mapping[str, int], history: MetadataHistory, found: Findings, elr_enabled: bool
    ) -> None:
        self._trace = trace
        self._ids = ids
        self._history = history
        self._found = found
        self._elr_enabled = elr_enabled
        self._times = CommitTimes(trace)
        self._offset, self._end = trace.number("offset"), trace.number("end")
        starts = np.flatnonzero(trace.is_event("start"))
        self._began = {int(trace.life[row]): int(trace.time[row]) for row in starts}
        self._starts: dict[str, list[int]] = defaultdict(list)
        for row in starts:
            self._starts[trace.nodes[trace.node[row]]].append(int(trace.time[row]))

    # -- LeaderCandidateCompleteness ----------------------------------------------------------------------------

    def check_complete(
        self, place: Place, roles: Iterable[Role], watermarks: Sequence[tuple[int, int, str]], unclean: Sequence[int]
    ) -> None:
        """watermarks: (leader epoch, highest high watermark, node) of each term as leader."""
        states = self._history.states.get(place, {})
        known_from = min((s.leader_epoch for s in states.values()), default=0) if self._history.trimmed else 0
        for role in roles:
            state = states.get(role.partition_epoch)
            if role.leads or state is None or state.leader_epoch != role.leader_epoch:
                continue
            candidate = role.node_id in (*state.isr, *state.elr)
            if not candidate or not self._has_registered(role, state):
                continue
            if state.leader == NO_LEADER and not self._elr_enabled:
                continue  # the last member stays in the ISR without a choice (000, 2.8)
            era = max([known_from, *(epoch for epoch in unclean if epoch <= role.leader_epoch)])
            earlier = [reported for reported in watermarks if era <= reported[0] < role.leader_epoch]
            epoch, watermark, node = max(earlier, key=lambda reported: reported[1], default=(0, 0, ""))
            if role.end < watermark:
                self._found.add(
                    "LeaderCandidateCompleteness", "incomplete candidate",
                    f"{role.node} may be elected leader of {place[0]}-{place[1]} as of partition epoch "
                    f"{role.partition_epoch} (ISR {list(state.isr)}, ELR {list(state.elr)}), its log ended at "
                    f"{role.end} as it began to follow in leader epoch {role.leader_epoch}, and {node}, leader of "
                    f"epoch {epoch}, had committed everything below {watermark}",
                    place=place, offset=role.end, count=watermark - role.end,
                    once=("candidate", place, role.node, role.leader_epoch),
                )  # fmt: skip

    def _has_registered(self, role: Role, state: PartitionState) -> bool:
        """In this life, before that state."""
        began = self._began.get(int(self._trace.life[role.rows[0]]))
        offsets = [o for o, broker, _ in self._history.registrations if broker == role.node_id and o < state.offset]
        time = self._times.of(offsets[-1]) if offsets else None
        return began is not None and time is not None and time > began + self._trace.apart

    # -- StrongIsr ----------------------------------------------------------------------------------------------

    def check_truncations(self, place: Place, roles: Sequence[Role]) -> None:
        trace = self._trace
        leaders = {role.leader_epoch: role for role in roles if role.leads}
        for role in roles:
            leader = leaders.get(role.leader_epoch)
            if role.leads or leader is None or leader.node_id != role.leader:
                continue
            began = self._began.get(int(trace.life[role.rows[0]]), 0)
            member = False
            for row in role.rows.tolist():
                if trace.event[row] in (CODE["role"], CODE["isr"]):
                    member = role.node_id in (trace.members("isr", row) or ())
                elif trace.event[row] == CODE["truncate"] and member:
                    committed = self._committed(leader, role.node_id, began, int(trace.time[row]))
                    if committed > self._end[row]:
                        self._found.add(
                            "StrongIsr", "member of the ISR cuts off what is committed",
                            f"{role.node} is in the ISR of {place[0]}-{place[1]} in epoch {role.leader_epoch} "
                            f"and cut its log to {self._end[row]}, and its leader {leader.node}, which counted on it, "
                            f"had committed everything below {committed}",
                            place=place, offset=int(self._end[row]), count=committed - int(self._end[row]),
                            once=("cut", place, role.node, role.leader_epoch),
                        )  # fmt: skip

    def _committed(self, leader: Role, member: int, since: int, until: int) -> int:
        """Up to where a leader told, between these times, that all is committed, with `member` in its ISR."""
        trace, highest, counted = self._trace, 0, False
        earliest, latest = since + trace.apart, until - trace.apart
        for row in leader.rows.tolist():
            if trace.event[row] in (CODE["role"], CODE["isr"]):
                counted = member in (trace.members("isr", row) or ())
            elif trace.event[row] == CODE["high watermark"] and counted and earliest < trace.time[row] < latest:
                highest = max(highest, int(self._offset[row]))
        return highest

    # -- ReplicationQuorumSuperset ------------------------------------------------------------------------------

    def check_additions(self, place: Place, roles: Sequence[Role]) -> None:
        trace = self._trace
        states = self._history.states.get(place, {})
        for epoch, state in states.items():
            before = states.get(epoch - 1)
            if before is None or state.leader == NO_LEADER or state.offset >= self._history.committed:
                continue
            added = set(state.isr) - set(before.isr)
            if not added or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch):
                continue
            time = self._times.of(state.offset)
            of_leader = [
                r for r in roles if r.leads and r.leader_epoch == state.leader_epoch and r.node_id == state.leader
            ]
            if time is None or len(of_leader) != 1 or not self._tells_later(of_leader[0], time):
                continue
            rows = of_leader[0].rows
            proposed = rows[trace.event[rows] == CODE["isr proposed"]]
            proposed = proposed[trace.number("partition_epoch")[proposed] == epoch - 1]
            if not any(added <= set(trace.members("isr", row) or ()) for row in proposed.tolist()):
                self._found.add(
                    "ReplicationQuorumSuperset", "member of the ISR that the leader does not count",
                    f"as of partition epoch {epoch} {sorted(added)} may be elected leader of {place[0]}-{place[1]}, "
                    f"and {of_leader[0].node}, which leads in leader epoch {state.leader_epoch}, never proposed to add "
                    f"them to the ISR {list(before.isr)}: what it commits they need not have",
                    place=place, once=("added", place, epoch),
                )  # fmt: skip

    def _tells_later(self, role: Role, time: int) -> bool:
        trace, first = self._trace, int(role.rows[0])
        same = (trace.life == trace.life[first]) & (trace.time > time + trace.apart)
        return bool(same[first:].any())

    # -- UncleanExclusion ---------------------------------------------------------------------------------------

    def check_unclean(self, faults: Iterable[Fault]) -> None:
        if not self._elr_enabled:
            return
        for fault in faults:
            nodes = fault["evidence"].get("nodes")
            for name, own in nodes.items() if isinstance(nodes, Mapping) else ():
                if isinstance(own, Mapping) and name in self._ids and _ended(own):
                    self._check_return(fault, name, self._ids[name])

    def _check_return(self, fault: Fault, name: str, broker: int) -> None:
        history, struck = self._history, int(fault["start"])
        own = [(offset, end, self._times.of(offset)) for offset, who, end in history.registrations if who == broker]
        apart = self._trace.apart
        before = [offset for offset, _, time in own if time is not None and time <= struck - apart]
        after = [(offset, end, time) for offset, end, time in own if time is not None and time > struck + apart]
        timed = sum(time is not None for _, _, time in own)
        if not before or not after or timed > len(before) + len(after):  # of some nobody knows which
            return
        unfenced = [self._times.of(o) for o, who in history.unfenced if who == broker and before[-1] < o < after[0][0]]
        _offset, end, registered = after[0]
        restarted = any(struck + apart < start < registered - apart for start in self._starts[name])
        if not restarted or not any(time is not None and time <= struck - apart for time in unfenced):
            return
        states: dict[Place, PartitionState] = {}
        for place, at, state, _ in history.steps:
            if at <= end:
                states[place] = state
        for place, state in states.items():
            self._excluded(fault, name, broker, place, state)
        pending = set(states)
        for place, at, state, _ in history.steps:
            if at > end and place in pending:
                if broker in state.isr and state.leader != NO_LEADER:
                    pending.discard(place)  # added again; who may be, check_additions tells
                else:
                    self._excluded(fault, name, broker, place, state)

    def _excluded(self, fault: Fault, name: str, broker: int, place: Place, state: PartitionState) -> None:
        if place[0] not in self._history.removed and broker in (*state.isr, *state.elr, state.leader):
            self._found.add(
                "UncleanExclusion", "unclean broker is eligible",
                f"{name} came back from an unclean shutdown (fault {fault['fault']} {fault['nemesis']}) and has not "
                f"been added to the ISR of {place[0]}-{place[1]} since, but may be elected as of metadata offset "
                f"{state.offset}: {state}",
                place=place, offset=state.offset, once=("unclean", place, broker, fault["fault"]),
            )  # fmt: skip


def _ended(evidence: Mapping[str, Any]) -> bool:
    """Its process, without a word to anybody."""
    return evidence.get("exit_status") in _KILLED or any(key in evidence for key in _POWER)
