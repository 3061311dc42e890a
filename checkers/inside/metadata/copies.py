"""The metadata log as every node has it: do the copies agree, and is all there that was committed?

Which records are committed is told by the nodes' traces: `metadata` says up to where a node has replayed them. The
traces are read before the disks are (harness/run/components.py), so what was told is in the logs.

The *reference* is, of the voters' logs, the one with the highest last epoch, and of these the longest: as by the
rule of elections it holds everything committed (Raft 5.4.1), if no voter's log is missing. If one is, the reference is
the log of the node that has told most, up to there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import stretches
from checkers.inside.log_matching import compare
from checkers.inside.metadata.findings import Findings
from spark_history.files import Bools, Ints, equals, integers

MATCHING: Final = "MetadataLogMatching"
COMMITTED: Final = "CommittedPrefix"
_NONE: Final = -1


@dataclass(frozen=True)
class Reported:
    """What the traces say of the quorum. delivered: by node, up to where it ever had replayed the committed log."""

    voters: Sequence[str]
    unknown_voters: bool  # has a voter never told which node it is?
    delivered: Mapping[str, int]


@dataclass(frozen=True)
class NodeLog:
    """One node's copy. Columns are in the order of offsets; content: equal numbers are equal records."""

    node: str
    offset: Ints
    epoch: Ints
    batch: Ints
    content: Ints
    rows: Ints  # of the table
    snapshots: Mapping[int, Ints]  # rows of the table, by end offset

    @property
    def start(self) -> int:
        return int(self.offset[0]) if len(self.offset) else self.end

    @property
    def end(self) -> int:
        return int(self.offset[-1]) + 1 if len(self.offset) else max(self.snapshots, default=0)

    @property
    def last_epoch(self) -> int:
        return int(self.epoch[-1]) if len(self.epoch) else _NONE


def split(table: pa.Table) -> dict[str, NodeLog]:
    """By node. table: METADATA_LOG rows of one run, categories as dictionaries."""
    table = table.combine_chunks()
    joined = pc.binary_join_element_wise(table["type"].cast(pa.string()), table["fields"], " ")
    content = joined.combine_chunks().dictionary_encode()
    codes = integers(pa.table({"c": content.indices if len(content) else pa.array([], pa.int64())}), "c", _NONE)
    offset, epoch, batch, snapshot = (integers(table, name, _NONE) for name in ("offset", "epoch", "batch", "snapshot"))
    whole = equals(table, "type", "SnapshotFooter") & (snapshot != _NONE)  # without one it is not complete
    logs = {}
    for node in sorted(pc.unique(table["node"]).to_pylist()):
        mine = equals(table, "node", node)
        rows = _in_order(mine & (snapshot == _NONE), offset)
        ends = np.unique(snapshot[mine & whole]).tolist()
        snapshots = {end: _in_order(mine & (snapshot == end), offset) for end in ends}
        logs[node] = NodeLog(node, offset[rows], epoch[rows], batch[rows], codes[rows], rows, snapshots)
    return logs


def _in_order(mask: Bools, offset: Ints) -> Ints:
    rows = np.flatnonzero(mask)
    return rows[np.argsort(offset[rows], kind="stable")]


def judge_copies(logs: Mapping[str, NodeLog], found: Findings) -> None:
    """MetadataLogMatching: what log_matching.py states of replicas, of all nodes' copies."""
    columns = {
        "node": pa.DictionaryArray.from_arrays(
            np.repeat(np.arange(len(logs)), [len(log.offset) for log in logs.values()]).astype(np.int32), list(logs)
        ),
        "offset": np.concatenate([np.empty(0, np.int64), *(log.offset for log in logs.values())]),
        "leader_epoch": np.concatenate([np.empty(0, np.int64), *(log.epoch for log in logs.values())]),
        "value": np.concatenate([np.empty(0, np.int64), *(log.content for log in logs.values())]),
    }
    if not len(columns["offset"]):
        return
    facts = compare(pa.table(columns))
    for node, of in facts["replicas"].items():
        for last, first in of["holes"]:
            found.add(MATCHING, "replica hole", f"the metadata log on {node} goes from offset {last} to {first}",
                      offset=last + 1)  # fmt: skip
        for offset, before, after in of["decreases"]:
            found.add(MATCHING, "decreasing epoch",
                      f"in the metadata log on {node} the epoch goes down from {before} to {after} at offset {offset}",
                      offset=offset)  # fmt: skip
    for pair in facts["pairs"]:
        first, second = pair["nodes"]
        for low, high, epoch, _, other_epoch, _ in pair["differ"]:
            if low > pair["same_until"]:
                continue
            high = min(high, pair["same_until"])
            found.add(
                MATCHING, "replica divergence",
                f"the metadata logs of {first} and {second} hold the same epoch at offset {pair['same_until']}, but "
                f"differ from offset {low} to {high}: there {first} has a record of epoch {epoch} and {second} "
                + (f"one of epoch {other_epoch}" if other_epoch != epoch else "another of the same epoch"),
                offset=low, count=high - low + 1,
            )  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """The copy that is read; complete: does it hold all that is committed?"""

    log: NodeLog
    complete: bool


def reference_of(logs: Mapping[str, NodeLog], reported: Reported) -> Reference | None:
    """None: nobody has told how much is committed."""
    voters = [logs[voter] for voter in reported.voters if voter in logs]
    if voters and len(voters) == len(reported.voters) and not reported.unknown_voters:
        return Reference(max(voters, key=lambda log: (log.last_epoch, log.end)), True)
    others = [log for node, log in logs.items() if reported.delivered.get(node)]
    if not others:
        return None
    return Reference(max(others, key=lambda log: min(log.end, reported.delivered[log.node])), False)


def whole_rows(log: NodeLog, logs: Mapping[str, NodeLog]) -> Ints:
    """The rows of a log, and those before its start of a copy that reaches down to offset 0: where two logs share a
    record, they share what is before it."""
    for other in logs.values():
        if log.start and len(log.offset) and len(other.offset) and not other.start:
            at = int(np.searchsorted(other.offset, log.start))
            if at < len(other.offset) and (other.offset[at], other.epoch[at]) == (log.offset[0], log.epoch[0]):
                return np.concatenate([other.rows[:at], log.rows])
    return log.rows


def check_majority(
    logs: Mapping[str, NodeLog], reported: Reported, reference: NodeLog, committed: int, found: Findings
) -> None:
    """A majority of the voters holds everything below `committed`."""
    last = committed - 1
    holding = [
        voter
        for voter in reported.voters
        if logs[voter].end >= committed and _epoch_at(logs[voter], last) in (_NONE, _epoch_at(reference, last))
    ]
    if committed and len(holding) <= len(reported.voters) // 2:
        teller = max(reported.delivered, key=lambda node: reported.delivered[node])
        ends = ", ".join(f"{voter} ends at {logs[voter].end}" for voter in reported.voters)
        found.add(
            COMMITTED, "committed metadata lost",
            f"{teller} has told that metadata is committed up to offset {committed}, and {len(holding)} of "
            f"{len(reported.voters)} controllers hold it: {ends}",
            offset=committed - 1,
        )  # fmt: skip


def _epoch_at(log: NodeLog, offset: int) -> int:
    at = int(np.searchsorted(log.offset, offset))
    return int(log.epoch[at]) if at < len(log.offset) and log.offset[at] == offset else _NONE


def check_prefixes(
    logs: Mapping[str, NodeLog], reported: Reported, reference: NodeLog, committed: int, found: Findings
) -> None:
    """All nodes take the same metadata for committed."""
    for node, log in logs.items():
        end = min(reported.delivered.get(node, 0), committed)
        _, mine, its = np.intersect1d(log.offset, reference.offset, assume_unique=True, return_indices=True)
        differ = (log.epoch[mine] != reference.epoch[its]) | (log.content[mine] != reference.content[its])
        wrong = log.offset[mine][differ & (log.offset[mine] < end)]
        for low, high in stretches(wrong):
            found.add(
                COMMITTED, "committed metadata differs",
                f"{node} took its metadata log up to offset {end} for committed, and from offset {low} to {high} it is "
                f"not that of {reference.node}: epoch {_epoch_at(log, low)} there, {_epoch_at(reference, low)} here",
                offset=low, count=high - low + 1,
            )  # fmt: skip
