"""The protocol's own properties, as far as the nodes' traces and metadata logs show them after a run.

In simulation all of them are checked after every step with full knowledge; here is what can be told from outside, of
containers too. Names are those of checkers/inside/kraft/simulated, where their sources are; what exactly is
checked of each is said in ../metadata/history.py, ../metadata/replay.py, ../metadata/quorum_trace.py,
replica_trace.py and candidate_trace.py. A checker here builds on what was told and collected, never on what was not:
whatever is missing makes it see less, not more.

Also found: each unclean recovery, which may have lost records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.inside.kraft.candidate_trace import Fault
from checkers.inside.kraft.replica_trace import judge_replicas
from checkers.inside.kraft.start_trace import log_starts
from checkers.inside.metadata.copies import judge_copies, split
from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.history import MetadataHistory, judge_history
from checkers.inside.metadata.memberships import memberships
from checkers.inside.metadata.quorum_trace import judge_quorum, node_ids, what_was_reported
from checkers.inside.metadata.replay import Change, Place
from checkers.inside.of_nodes import LogStarts, OfNodes, Options, Watermark
from checkers.inside.trace_rows import read_rows, rows_by_node
from checkers.properties import NODE_PROPERTIES, ROLES_MATCH_METADATA
from spark_history.files import compact
from spark_history.schema import METADATA_LOG, TRACE

_OF_METADATA: Final = ("MetadataLogMatching",)
_OF_TRACE: Final = (
    "ElectionSafety", "CommittedPrefix", "LeaderAppendOnly", "HighWatermarkMonotonicity", "ValidLogStart",
)  # fmt: skip
_OF_STATE: Final = (
    "ValidControllerIsrAndElr", "ValidControllerState", "MinIsrRecoveryQuorum", "LeaderCompleteness",
    "LeaderCandidateCompleteness", "ReplicationQuorumSuperset", "StrongIsr", "UncleanExclusion", "ProposedIsr",
    ROLES_MATCH_METADATA,
)  # fmt: skip
#: Without ELR nothing of the kind is promised.
_WITH_ELR: Final = frozenset({"MinIsrRecoveryQuorum", "UncleanExclusion"})


def judge(run: str, tables: Mapping[str, pa.Table], options: Options, faults: Sequence[Fault] = ()) -> OfNodes:
    """See checkers.inside.nodes.judge()."""
    trace, metadata_log = tables["trace"], tables["metadata_log"]
    pieces = tables["collected"].to_pylist()
    not_checked = ["no node's metadata log was collected"] * (not metadata_log.num_rows)
    not_checked += ["the nodes left no trace"] * (not trace.num_rows)
    if not metadata_log.num_rows and not trace.num_rows:  # as in most of the runs of a large dataset
        return OfNodes([], [], 0, 0, [], not_checked, [], collected=pieces)
    trace, metadata_log = trace.cast(compact(TRACE)), metadata_log.cast(compact(METADATA_LOG))
    found = Findings(run)
    checked: list[str] = []
    history: MetadataHistory | None = None
    watermarks: Mapping[Place, Watermark] = {}
    starts: Mapping[Place, LogStarts] = {}
    gaps: list[str] = []
    rows = read_rows(trace, options.clock_uncertainty_ns) if trace.num_rows else None
    logs = split(metadata_log) if metadata_log.num_rows else {}
    if logs:
        judge_copies(logs, found)
        checked += _OF_METADATA
    if rows is not None:
        checked += _OF_TRACE
        judge_quorum(rows, found)
        if logs:
            history = judge_history(
                metadata_log, logs, what_was_reported(rows), found,
                min_insync_replicas=options.min_insync_replicas, elr_enabled=options.elr_enabled,
            )  # fmt: skip
            gaps = list(history.notes)
            if history.states:
                checked += [name for name in _OF_STATE if options.elr_enabled or name not in _WITH_ELR]
            not_checked += [*gaps, *_beware_of_removed_topics(trace, history)]
        watermarks = judge_replicas(
            rows, node_ids(rows), history, found, elr_enabled=options.elr_enabled, faults=faults
        )  # fmt: skip
        starts = log_starts(rows, node_ids(rows))
    held = memberships(rows, node_ids(rows), history) if rows is not None and history is not None else None
    anomalies = list(found.anomalies())
    return OfNodes(
        rows=[row for of in anomalies for row in of.rows],
        tally=[entry for of in anomalies for entry in of.tally],
        trace_rows=trace.num_rows,
        metadata_records=metadata_log.num_rows,
        checked=[name for name in NODE_PROPERTIES if name in checked],
        not_checked=not_checked,
        unclean_recoveries=_unclean_recoveries(trace, history),
        memberships=None if held is None else held.as_json(),
        gaps=gaps,
        watermarks={f"{topic}-{partition}": reported for (topic, partition), reported in watermarks.items()},
        log_starts={f"{topic}-{partition}": of for (topic, partition), of in starts.items()},
        collected=pieces,
        trace_of=rows_by_node(trace),
        metadata_of=rows_by_node(metadata_log),
    )


def _beware_of_removed_topics(trace: pa.Table, history: MetadataHistory) -> list[str]:
    """Epochs begin again where a topic is made anew. Where the log's beginning was trimmed, only a controller's
    decision tells that one was removed, and not which. Returns what is not checked therefore."""
    if not history.trimmed:
        return []
    decisions = trace.filter(pc.equal(trace["event"].cast(pa.string()), "decide"))["fields"]
    if pc.any(pc.match_substring(decisions, "RemoveTopicRecord")).as_py():
        history.removed.update(topic for topic, _ in history.states)
        history.removed.update(filter(None, pc.unique(trace["topic"]).to_pylist()))
        history.again.update(history.removed)
        return ["a topic was removed, and the metadata log does not tell which: replicas not checked"]
    return []


def _unclean_recoveries(trace: pa.Table, history: MetadataHistory | None) -> list[dict[str, Any]]:
    """In order of time: topic, partition, leader, leader_epoch, and, as far as known, time (monotonic ns), offset (of
    the metadata record), strategy, candidates (ids of the brokers whose logs were looked at), recovering.

    As the committed metadata says; without it, as controllers have told."""
    reported: dict[tuple[str, int, int], dict[str, Any]] = {}
    for row in trace.filter(pc.equal(trace["event"].cast(pa.string()), "unclean recovery")).to_pylist():
        fields = json.loads(row["fields"])
        key = row["topic"], row["partition"], fields.get("leader_epoch")
        reported[key] = {
            "topic": row["topic"], "partition": row["partition"], "leader": fields.get("leader"),
            "leader_epoch": fields.get("leader_epoch"), "time": row["time"], "offset": None,
            "strategy": fields.get("strategy"), "candidates": fields.get("candidates"), "recovering": None,
        }  # fmt: skip
    if history is None:
        return sorted(reported.values(), key=lambda entry: int(entry["time"]))
    times = _times_of_decisions(trace) if any(change.is_unclean for change in history.elections) else {}
    recoveries = []
    for change in history.elections:
        after = change.after
        if not change.is_unclean or after.offset >= history.committed:
            continue
        known = reported.get((after.topic, after.index, after.leader_epoch), {})
        recoveries.append(_recovery(change, known, times.get((after.topic, after.index, after.offset))))
    return recoveries


def _recovery(change: Change, reported: Mapping[str, Any], time: int | None) -> dict[str, Any]:
    after = change.after
    return {
        "topic": after.topic, "partition": after.index, "leader": after.leader, "leader_epoch": after.leader_epoch,
        "time": reported.get("time", time), "offset": after.offset, "strategy": reported.get("strategy"),
        "candidates": reported.get("candidates"), "recovering": after.recovering,
    }  # fmt: skip


def _times_of_decisions(trace: pa.Table) -> dict[tuple[str, int, int], int]:
    """When a controller last told that it writes a record about a partition, by partition and offset."""
    decisions = trace.filter(pc.equal(trace["event"].cast(pa.string()), "decide"))
    times = {}
    for row in decisions.select(["topic", "partition", "time", "fields"]).to_pylist():
        if row["topic"] is not None:
            times[row["topic"], row["partition"], json.loads(row["fields"]).get("offset")] = row["time"]
    return times
