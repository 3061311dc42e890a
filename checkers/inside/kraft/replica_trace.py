"""What the brokers' traces show of each partition, held against the metadata log.

A *term* is what one replica told from one `role` on, until its next, until it began anew or its process ended. Of
`append` and `high watermark` only some are told; each that is told is true, and none is missing where it falls.

| property                  | what is checked of a trace                                                              |
| ------------------------- | --------------------------------------------------------------------------------------- |
| RolesMatchMetadata        | the leader, the leader epoch and the ISR that a broker takes for a partition's at a     |
|                           | partition epoch are those that the metadata log gives; in a leader epoch all brokers    |
|                           | name one leader; only the leader proposes an ISR, of replicas                           |
| ProposedIsr               | what it proposes is another than the one that stands at its partition epoch, or that it |
|                           | has recovered from an unclean election                                                  |
| LeaderAppendOnly          | in its term a leader's log never shrinks                                                |
| HighWatermarkMonotonicity | in its term a leader's high watermark never falls; no replica's lies past its log's end |
| ValidLogStart             | no log starts above what its replica knows to be committed; in its term a leader's log  |
|                           | start never falls                                                                       |
| LeaderCompleteness        | a leader's log reaches, as its term begins, to the highest high watermark of any leader |
|                           | of an earlier epoch, unless an unclean election lies in between [1]                     |

[1] Whenever that watermark was told: who leads on without knowing that another was elected commits nothing that the
elected one lacks. Without ELR the last member of an ISR may come back with less than it had, and is elected all the
same (000, 2.8): that is taken for unclean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.inside.kraft.candidate_trace import Candidates, Fault, Role
from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.history import MetadataHistory
from checkers.inside.metadata.quorum_trace import life_ids
from checkers.inside.metadata.replay import NO_LEADER, Change, PartitionState, Place
from checkers.inside.of_nodes import Watermark
from checkers.inside.trace_rows import CODE, NONE, TraceRows
from checkers.properties import ROLES_MATCH_METADATA
from spark_history.files import NO_CODE, Ints

_OF_REPLICAS: Final = (
    "replica", "role", "isr", "isr proposed", "append", "truncate", "high watermark", "log start",
)  # fmt: skip
_BOUNDARIES: Final = (CODE["replica"], CODE["role"])
_ENDS: Final = (CODE["replica"], CODE["role"], CODE["append"], CODE["truncate"])


@dataclass(frozen=True)
class Term:
    """Rows of one replica from `first` on. first: its role; before any role, that it began."""

    place: Place
    node: str
    node_id: int  # NONE: not told
    rows: Ints
    is_role: bool


@dataclass(frozen=True)
class _Columns:
    event: Ints
    leader: Ints
    leader_epoch: Ints
    partition_epoch: Ints
    end: Ints  # of role, replica, append and truncate
    high_watermark: Ints  # of role
    offset: Ints  # of `high watermark` and `log start`


def judge_replicas(
    trace: TraceRows, ids: Mapping[str, int], history: MetadataHistory | None, found: Findings, *, elr_enabled: bool,
    faults: Sequence[Fault] = (),
) -> dict[Place, Watermark]:  # fmt: skip
    """history: None where no metadata log was collected; without it, some is not checked. Candidates for leadership
    are judged too: see candidate_trace.py. Returns the highest high watermark that leaders of each partition's last
    leader epoch have told: what is below it is in the log of every member of the ISR from then on."""
    columns = _Columns(
        trace.event,
        *(
            trace.number(name)
            for name in ("leader", "leader_epoch", "partition_epoch", "end", "high_watermark", "offset")
        ),
    )
    led: dict[Place, list[_Led]] = defaultdict(list)
    roles: dict[Place, list[Role]] = defaultdict(list)
    for term in _terms(trace, ids):
        if history is not None and term.place[0] in history.removed:
            continue  # epochs begin again where a topic's name does
        _check_watermarks(term, columns, found)
        _check_log_starts(term, columns, found)
        if term.is_role:
            if history is not None:
                _check_metadata(term, trace, columns, history, found)
            roles[term.place].append(_role(term, columns))
            if columns.leader[term.rows[0]] == term.node_id:
                led[term.place].append(_check_leadership(term, columns, found))
    _check_one_leader(trace, columns, history, found)
    if history is not None:
        unclean = _unclean_elections(history, elr_enabled)
        candidates = Candidates(trace, ids, history, found, elr_enabled)
        for place, terms in led.items():
            _check_completeness(place, terms, unclean.get(place, []), history, found)
        for place, of in roles.items():
            reported = [(term.epoch, term.watermark, term.node) for term in led[place]]
            candidates.check_complete(place, of, reported, unclean.get(place, []))
            candidates.check_truncations(place, of)
            candidates.check_additions(place, of)
        candidates.check_unclean(faults)
        return {
            place: max(Watermark(term.watermark, term.node, term.epoch) for term in terms if term.epoch == last)
            for place, terms in led.items()
            if (last := _last_epoch(history, place)) in {term.epoch for term in terms}
        }
    return {}


def _last_epoch(history: MetadataHistory, place: Place) -> int:
    return max((state.leader_epoch for state in history.states.get(place, {}).values()), default=NO_LEADER)


def _role(term: Term, columns: _Columns) -> Role:
    row = term.rows[0]
    numbers = (columns.leader, columns.leader_epoch, columns.partition_epoch, columns.end)
    return Role(term.place, term.node, term.node_id, term.rows, *(int(column[row]) for column in numbers))


def _terms(trace: TraceRows, ids: Mapping[str, int]) -> Iterator[Term]:
    rows = np.flatnonzero(trace.is_event(*_OF_REPLICAS) & (trace.topic != NO_CODE))
    # Rows are in the order in which each node told them, which a stable sort keeps.
    rows = rows[np.lexsort((trace.life[rows], trace.partition[rows], trace.topic[rows]))]
    keys = np.stack((trace.topic[rows], trace.partition[rows], trace.life[rows]))
    of_life = life_ids(trace)
    begins = np.any(np.diff(keys, axis=1, prepend=NONE) != 0, axis=0) | np.isin(trace.event[rows], _BOUNDARIES)
    for own in np.split(rows, np.flatnonzero(begins)[1:]) if len(rows) else ():
        first = own[0]
        node = trace.nodes[trace.node[first]]
        yield Term(
            (trace.topics[trace.topic[first]], int(trace.partition[first])), node,
            of_life.get(int(trace.life[first]), ids.get(node, NONE)), own, bool(trace.event[first] == CODE["role"]),
        )  # fmt: skip


def _check_watermarks(term: Term, columns: _Columns, found: Findings) -> None:
    """None lies past its log's end, as far as that is known."""
    event = columns.event[term.rows]
    is_end, is_watermark = np.isin(event, _ENDS), event == CODE["high watermark"]
    latest = np.maximum.accumulate(np.where(is_end, np.arange(len(event)), -1))
    ends = np.where(latest >= 0, columns.end[term.rows][latest], np.iinfo(np.int64).max)
    watermarks = columns.offset[term.rows]
    for at in np.flatnonzero(is_watermark & (watermarks > ends))[:1]:
        found.add(
            "HighWatermarkMonotonicity", "high watermark past the log's end",
            f"the high watermark of {_name(term)} on {term.node} is {watermarks[at]}, and its log ends at {ends[at]}",
            place=term.place, offset=int(ends[at]),
        )  # fmt: skip


def _check_log_starts(term: Term, columns: _Columns, found: Findings) -> None:
    """Whatever was held back of a high watermark is written before a log start."""
    event = columns.event[term.rows]
    is_start, is_watermark = event == CODE["log start"], event == CODE["high watermark"]
    if not is_start.any():
        return
    told = columns.offset[term.rows]
    watermarks = np.where(is_watermark, told, 0)
    if term.is_role:
        watermarks[0] = columns.high_watermark[term.rows[0]]
    highest = np.maximum.accumulate(watermarks)
    for at in np.flatnonzero(is_start & (told > highest))[:1]:
        found.add(
            "ValidLogStart", "log start above the high watermark",
            f"the log of {_name(term)} on {term.node} starts at {told[at]}, and as far as it has told only what is "
            f"below {highest[at]} is committed",
            place=term.place, offset=int(highest[at]), count=int(told[at] - highest[at]),
        )  # fmt: skip
    if term.is_role and columns.leader[term.rows[0]] == term.node_id:
        starts = told[is_start]
        for at in np.flatnonzero(np.diff(starts) < 0)[:1]:
            found.add(
                "ValidLogStart", "leader's log start falls",
                f"the log start of {_name(term)} on {term.node}, which leads it, fell from {starts[at]} to "
                f"{starts[at + 1]}",
                place=term.place, offset=int(starts[at + 1]),
            )  # fmt: skip


@dataclass(frozen=True)
class _Led:
    """A term as leader."""

    node: str
    epoch: int
    end: int  # as it began
    watermark: int  # the highest


def _check_leadership(term: Term, columns: _Columns, found: Findings) -> _Led:
    rows = term.rows
    event = columns.event[rows]
    epoch, begin = int(columns.leader_epoch[rows[0]]), int(columns.end[rows[0]])
    at_end = np.flatnonzero(np.isin(event, _ENDS))
    ends = columns.end[rows][at_end]
    for at in np.flatnonzero(np.diff(ends) < 0)[:1]:
        cut = event[at_end[at + 1]] == CODE["truncate"]
        found.add(
            "LeaderAppendOnly", "leader's log shrinks",
            f"{term.node} leads {_name(term)} in leader epoch {epoch} from offset {begin} on, and its log, which ended "
            f"at {ends[at]}, {'was cut to' if cut else 'now ends at'} {ends[at + 1]}",
            place=term.place, offset=int(ends[at + 1]), count=int(ends[at] - ends[at + 1]),
        )  # fmt: skip
    reported = columns.offset[rows][event == CODE["high watermark"]]
    watermarks = np.concatenate(([columns.high_watermark[rows[0]]], reported))
    for at in np.flatnonzero(np.diff(watermarks) < 0)[:1]:
        found.add(
            "HighWatermarkMonotonicity", "leader's high watermark falls",
            f"the high watermark of {term.node}, leader of {_name(term)} in leader epoch {epoch}, fell from "
            f"{watermarks[at]} to {watermarks[at + 1]}",
            place=term.place, offset=int(watermarks[at + 1]), count=int(watermarks[at] - watermarks[at + 1]),
        )  # fmt: skip
    return _Led(term.node, epoch, begin, int(watermarks.max()))


def _check_metadata(term: Term, trace: TraceRows, columns: _Columns, history: MetadataHistory, found: Findings) -> None:
    """RolesMatchMetadata, of each line that names a partition epoch."""
    states = history.states.get(term.place, {})
    event = columns.event[term.rows]
    for row in term.rows[np.isin(event, (CODE["role"], CODE["isr"], CODE["isr proposed"]))].tolist():
        partition_epoch = int(columns.partition_epoch[row])
        state = states.get(partition_epoch)
        if state is None:
            _check_unknown(term, partition_epoch, states, history, found)
        elif columns.event[row] == CODE["isr proposed"]:
            _check_proposal(term, trace, columns, row, state, found)
        else:
            _check_state(term, trace, columns, row, state, found)


def _check_unknown(
    term: Term, partition_epoch: int, states: Mapping[int, PartitionState], history: MetadataHistory, found: Findings
) -> None:
    """Only what lies past the end of a log that holds everything is wrong; a beginning may have been trimmed."""
    if history.complete and partition_epoch > max(states, default=NO_LEADER) and (states or not history.trimmed):
        found.add(
            ROLES_MATCH_METADATA, "state that no metadata log gives",
            f"{term.node} acted on partition epoch {partition_epoch} of {_name(term)}, and the metadata log knows "
            f"epochs up to {max(states, default=NO_LEADER)}",
            place=term.place, once=("unknown", term.place, term.node, partition_epoch),
        )  # fmt: skip


def _check_state(
    term: Term, trace: TraceRows, columns: _Columns, row: int, state: PartitionState, found: Findings
) -> None:
    isr = trace.members("isr", row)
    reported = int(columns.leader_epoch[row]), tuple(sorted(isr or ()))
    known = state.leader_epoch, tuple(sorted(state.isr))
    leader = int(columns.leader[row])
    if reported == known and leader in (state.leader, NONE):
        return
    says = f"leader epoch {reported[0]}, ISR {list(reported[1])}" + (f", leader {leader}" if leader != NONE else "")
    found.add(
        ROLES_MATCH_METADATA, "role or ISR differs",
        f"{term.node} took for the state of {_name(term)} at partition epoch {state.partition_epoch}: {says}; the "
        f"metadata log says: leader epoch {known[0]}, ISR {list(known[1])}, leader {state.leader}",
        place=term.place, once=("differs", term.place, term.node, state.partition_epoch, reported, leader),
    )  # fmt: skip


def _check_proposal(
    term: Term, trace: TraceRows, columns: _Columns, row: int, state: PartitionState, found: Findings
) -> None:
    isr = trace.members("isr", row) or ()
    leads = int(columns.leader_epoch[row]) == state.leader_epoch and state.leader == term.node_id
    if leads and set(isr) <= set(state.replicas):
        if set(isr) == set(state.isr) and not state.recovering:
            found.add(
                "ProposedIsr", "proposal of the ISR that stands",
                f"{term.node} proposed the ISR {sorted(isr)} for {_name(term)} at partition epoch "
                f"{state.partition_epoch}, at which it is that by the metadata log",
                place=term.place, once=("stands", term.place, term.node, state.partition_epoch),
            )  # fmt: skip
        return
    found.add(
        ROLES_MATCH_METADATA, "improper ISR proposal",
        f"{term.node} proposed the ISR {sorted(isr)} for {_name(term)} at partition epoch {state.partition_epoch} in "
        f"leader epoch {columns.leader_epoch[row]}; by the metadata log {state}",
        place=term.place, once=("proposal", term.place, term.node, state.partition_epoch, tuple(isr)),
    )  # fmt: skip


def _check_one_leader(trace: TraceRows, columns: _Columns, history: MetadataHistory | None, found: Findings) -> None:
    """A leader epoch has one leader, whoever tells of it."""
    removed = history.removed if history is not None else set()
    rows = np.flatnonzero(trace.is_event("role") & (trace.topic != NO_CODE))
    claims: dict[tuple[int, int, int], dict[int, str]] = defaultdict(dict)
    for row in rows.tolist():
        key = int(trace.topic[row]), int(trace.partition[row]), int(columns.leader_epoch[row])
        claims[key].setdefault(int(columns.leader[row]), trace.nodes[trace.node[row]])
    for (topic, partition, epoch), leaders in claims.items():
        place = trace.topics[topic], partition
        if len(leaders) > 1 and place[0] not in removed:
            said = " and ".join(f"{node} named {leader}" for leader, node in sorted(leaders.items()))
            found.add(
                ROLES_MATCH_METADATA, "two leaders of a leader epoch",
                f"leader epoch {epoch} of {place[0]}-{partition} has {len(leaders)} leaders: {said}", place=place,
            )  # fmt: skip


def _unclean_elections(history: MetadataHistory, elr_enabled: bool) -> dict[Place, list[int]]:
    """By partition, the leader epochs whose leader may lack what was committed."""
    epochs: dict[Place, list[int]] = defaultdict(list)
    for change in history.elections:
        if change.is_unclean or (not elr_enabled and _is_last_standing(change)):
            epochs[change.after.place].append(change.after.leader_epoch)
    return epochs


def _is_last_standing(change: Change) -> bool:
    before = change.before
    return before is not None and before.isr == (change.after.leader,)


def _check_completeness(
    place: Place, terms: list[_Led], unclean: list[int], history: MetadataHistory, found: Findings
) -> None:
    states = history.states.get(place)
    if not states:
        return
    known_from = min(state.leader_epoch for state in states.values()) if history.trimmed else 0
    known_until = max(state.leader_epoch for state in states.values())
    for term in terms:
        if term.epoch > known_until:
            continue  # how it was elected is not known
        era = max([known_from, *(epoch for epoch in unclean if epoch <= term.epoch)])
        earlier = [other for other in terms if era <= other.epoch < term.epoch]
        highest = max(earlier, key=lambda other: other.watermark, default=None)
        if highest is not None and term.end < highest.watermark:
            found.add(
                "LeaderCompleteness", "incomplete leader",
                f"{term.node} began to lead {place[0]}-{place[1]} in leader epoch {term.epoch} with a log that ends at "
                f"{term.end}, and {highest.node}, leader of epoch {highest.epoch}, had committed everything below "
                f"{highest.watermark}",
                place=place, offset=term.end, count=highest.watermark - term.end,
                once=("incomplete", place, term.node, term.epoch),
            )  # fmt: skip


def _name(term: Term) -> str:
    return f"{term.place[0]}-{term.place[1]}"
