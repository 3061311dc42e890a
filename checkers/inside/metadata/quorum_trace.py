"""What the nodes' traces show of the metadata quorum: who led which epoch, and what was taken for committed when."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from checkers.inside.metadata.copies import COMMITTED, Reported
from checkers.inside.metadata.findings import Findings
from checkers.inside.trace_rows import CODE, NONE, TraceRows

_LEADER: Final = "leader"


def node_ids(trace: TraceRows) -> dict[str, int]:
    """The ids of the nodes that have told theirs. Of one in whose place another ran for a while, that of the last."""
    starts = np.flatnonzero(trace.is_event("start"))
    ids = trace.number("node_id")
    return {trace.nodes[trace.node[row]]: int(ids[row]) for row in starts}


def life_ids(trace: TraceRows) -> dict[int, int]:
    """The ids of processes, by life."""
    starts = np.flatnonzero(trace.is_event("start"))
    ids = trace.number("node_id")
    return {int(trace.life[row]): int(ids[row]) for row in starts}


def what_was_reported(trace: TraceRows) -> Reported:
    names = {node_id: node for node, node_id in node_ids(trace).items()}
    starts = np.flatnonzero(trace.is_event("start"))
    voters: dict[int, None] = {}
    for row in starts.tolist():
        voters.update(dict.fromkeys(trace.members("voters", row) or ()))
    reported = np.flatnonzero(trace.is_event("metadata"))
    offset = trace.number("offset")
    delivered: dict[str, int] = {}
    for code, node in enumerate(trace.nodes):
        mine = offset[reported[trace.node[reported] == code]]
        delivered[node] = int(mine.max(initial=0))
    known = sorted(names[voter] for voter in voters if voter in names)
    return Reported(known, not voters or len(known) < len(voters), delivered)


def judge_quorum(trace: TraceRows, found: Findings) -> None:
    """ElectionSafety; CommittedPrefix of those elected; HighWatermarkMonotonicity of the metadata log."""
    _check_one_leader(trace, found)
    rows = np.flatnonzero(trace.is_event("start", "quorum", "metadata", "metadata append", "metadata truncate",
                                          "metadata snapshot"))  # fmt: skip
    if len(rows):
        _check_lives(trace, rows, found)


def _check_one_leader(trace: TraceRows, found: Findings) -> None:
    """Also what followers say of whom they follow."""
    rows = np.flatnonzero(trace.is_event("quorum"))
    epoch, leader = trace.number("epoch"), trace.number("leader")
    claims: dict[int, dict[int, str]] = defaultdict(dict)
    for row in rows[leader[rows] >= 0]:
        claims[int(epoch[row])].setdefault(int(leader[row]), trace.nodes[trace.node[row]])
    for at, leaders in sorted(claims.items()):
        if len(leaders) > 1:
            said = " and ".join(f"{node} told that node {who} does" for who, node in sorted(leaders.items()))
            found.add("ElectionSafety", "two leaders of an epoch",
                      f"epoch {at} of the metadata quorum has {len(leaders)} leaders: {said}")  # fmt: skip


def _check_lives(trace: TraceRows, rows: np.ndarray, found: Findings) -> None:
    """A record that a node of epoch e took for committed was committed by a leader of epoch e or before: every leader
    of a later epoch has it (Raft 5.4.3)."""
    number = {name: trace.number(name) for name in ("epoch", "offset", "end")}
    roles = trace.fields["role"].combine_chunks()
    delivered_in: dict[int, tuple[int, str]] = {}  # by epoch: up to where the log was committed, and who told
    elected: list[tuple[int, int, str]] = []  # epoch, end of the log, node
    life = epoch = end = delivered = NONE
    for row in rows.tolist():
        node, event = trace.nodes[trace.node[row]], trace.event[row]
        if trace.life[row] != life:
            life, epoch, end, delivered = trace.life[row], NONE, NONE, 0
        if event == CODE["quorum"]:
            epoch = int(number["epoch"][row])
            if roles[row].as_py() == _LEADER and end != NONE:
                elected.append((epoch, max(end, delivered), node))
        elif event == CODE["metadata"]:
            offset = int(number["offset"][row])
            if offset < delivered:
                found.add(
                    "HighWatermarkMonotonicity", "falling metadata high watermark",
                    f"{node} had replayed the metadata log up to offset {delivered} and then told that it is "
                    f"committed up to {offset}", offset=offset,
                )  # fmt: skip
            delivered = offset
            if epoch != NONE and offset > delivered_in.get(epoch, (0, ""))[0]:
                delivered_in[epoch] = offset, node
        elif event == CODE["metadata snapshot"]:
            end = max(end, int(number["end"][row]))  # it may have replaced a log that ended before it
        elif event in (CODE["metadata append"], CODE["metadata truncate"]):
            end = int(number["end"][row])
            if event == CODE["metadata truncate"] and end < delivered:
                found.add(
                    COMMITTED, "committed metadata truncated",
                    f"{node} has cut its metadata log to offset {end}, and had taken it for committed up to "
                    f"{delivered}", offset=end,
                )  # fmt: skip
    for epoch, end, node in elected:
        earlier = [(*reported, in_epoch) for in_epoch, reported in delivered_in.items() if in_epoch < epoch]
        committed, teller, in_epoch = max(earlier, default=(0, "", 0))
        if end < committed:
            found.add(
                COMMITTED, "elected without what is committed",
                f"{node} was elected leader of the metadata quorum for epoch {epoch} with a log that ends at {end}, "
                f"and in epoch {in_epoch} {teller} had taken everything below {committed} for committed",
                offset=end,
            )  # fmt: skip
