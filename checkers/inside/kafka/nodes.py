"""What can be told of the inside of Apache Kafka after a run: from the metadata log on every disk, from what nodes told
when they were asked (harness/targets/kafka/watch.py), and from what else lies on the disks (disks.py).

Properties of the metadata are those of every KRaft cluster (checkers/inside/metadata/). What needs a trace of the
nodes' own steps is not checked: see NOT_CHECKED.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.inside.collected import assigned_replicas
from checkers.inside.kafka.cut_disks import check_committed, judge_cut_disks, not_kept, who_served
from checkers.inside.kafka.disks import judge_disks
from checkers.inside.metadata.copies import judge_copies, split
from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.history import MetadataHistory, judge_history
from checkers.inside.metadata.memberships import CommitTimes, memberships
from checkers.inside.metadata.quorum_trace import judge_quorum, node_ids, what_was_reported
from checkers.inside.metadata.replay import Change
from checkers.inside.of_nodes import OfNodes, Options
from checkers.inside.trace_rows import read_rows, rows_by_node
from checkers.properties import ROLES_MATCH_METADATA
from spark_history.files import compact
from spark_history.schema import METADATA_LOG, TRACE

BROKER_EPOCHS: Final = "BrokerEpochMonotonicity"
VOTERS: Final = "VotersOneByOne"
UNCLEAN: Final = "UncleanElection"
#: Properties of kraft's nodes that Kafka's do not let one see, each with the reason.
NOT_CHECKED: Final = {
    "LeaderCompleteness, LeaderCandidateCompleteness, ReplicationQuorumSuperset, StrongIsr, LeaderAppendOnly": (
        "these need each step of each replica, and Kafka's nodes leave no trace; what is lost or differs in the end, "
        "final reads and replicas' logs show"
    ),
    "MinIsrRecoveryQuorum": "Kafka's LastKnownELR names the last leader alone",
    "index files": "they are made anew from the segments whenever they do not fit",
}


def judge(run: str, tables: Mapping[str, pa.Table], options: Options, faults: Sequence[Mapping[str, Any]]) -> OfNodes:
    """See checkers.inside.nodes.judge()."""
    trace, metadata_log = tables["trace"], tables["metadata_log"]
    found = Findings(run)
    not_checked = ["no node's metadata log was collected"] * (not metadata_log.num_rows)
    not_checked += ["no node told anything while the cluster ran"] * (not trace.num_rows)
    looked_at: dict[str, str] = {}
    entries = tables["disk_state"].to_pylist()
    at_cuts = [row for row in entries if row["cut"] is not None]
    history: MetadataHistory | None = None
    held = None
    gaps: list[str] = []
    if metadata_log.num_rows:
        plain = metadata_log
        metadata_log = metadata_log.cast(compact(METADATA_LOG))
        logs = split(metadata_log)
        judge_copies(logs, found)
        count = f"{metadata_log.num_rows:,} metadata records"
        looked_at["MetadataLogMatching"] = count
        leaders = _check_elections(plain, found)
        looked_at["ElectionSafety"] = f"{leaders:,} elections on record"
        if voters := _check_voters(plain, found):
            looked_at[VOTERS] = f"{voters:,} sets of voters on record"
        _check_broker_epochs(plain, found)
        registrations = pc.sum(pc.equal(plain["type"].cast(pa.string()), "RegisterBrokerRecord")).as_py() or 0
        looked_at[BROKER_EPOCHS] = f"{registrations:,} registrations on record"
        if trace.num_rows:
            rows = read_rows(trace.cast(compact(TRACE)))
            judge_quorum(rows, found)
            reported = what_was_reported(rows)
            history = judge_history(
                metadata_log, logs, reported, found, min_insync_replicas=options.min_insync_replicas,
                elr_enabled=False, recovery_quorum=False,
            )  # fmt: skip
            gaps = list(history.notes)
            asked = int(rows.is_event("metadata").sum())
            looked_at["CommittedPrefix"] = f"{count}; the quorum's leader told {asked:,} times up to where"
            if at_cuts and (cuts := check_committed(at_cuts, _told_committed(trace), reported.voters, faults, found)):
                looked_at["CommittedPrefix"] += f"; {cuts:,} power cuts of controllers"
            looked_at["HighWatermarkMonotonicity"] = f"{asked:,} answers of the quorum's leader"
            if history.states:
                states = sum(map(len, history.states.values()))
                looked_at |= dict.fromkeys(
                    ("ValidControllerState", "ValidControllerIsrAndElr"), f"{states:,} states of partitions"
                )
                looked_at[UNCLEAN] = f"{len(history.elections):,} elections of leaders"
                _check_unclean(history, options, found)
                told = _check_what_was_told(trace, history, found)
                looked_at[ROLES_MATCH_METADATA] = f"{told:,} answers of brokers"
            held = memberships(rows, node_ids(rows), history)
    if entries:
        down = _down(trace)
        final = [row for row in entries if row["cut"] is None]
        assigned = {} if held is None else assigned_replicas(held)
        looked_at |= {
            name: f"{number:,} entries"
            for name, number in judge_disks(final, found, options.compacted, down, assigned).items()
        }
        not_checked += [f"{node} did not run in the end: its files are not held against its log" for node in down]
        not_checked += not_kept(at_cuts, faults)
        served = who_served(trace, faults)
        for name, number in judge_cut_disks(at_cuts, final, found, served, options.compacted).items():
            looked_at[name] += f", and {number:,} right after power cuts"
    else:
        not_checked.append("nothing that lay on the disks beside records was collected")
    not_checked += [f"{names}: {why}" for names, why in NOT_CHECKED.items()]
    anomalies = list(found.anomalies())
    return OfNodes(
        rows=[row for of in anomalies for row in of.rows],
        tally=[entry for of in anomalies for entry in of.tally],
        trace_rows=trace.num_rows,
        metadata_records=metadata_log.num_rows,
        checked=list(looked_at),
        not_checked=[*gaps, *not_checked],
        unclean_recoveries=_unclean_recoveries(history, trace),
        memberships=None if held is None else held.as_json(),
        gaps=gaps,
        collected=tables["collected"].to_pylist(),
        trace_of=rows_by_node(trace),
        metadata_of=rows_by_node(metadata_log),
        looked_at=looked_at,
    )


def _down(trace: pa.Table) -> list[str]:
    """Nodes that did not answer when they were asked last."""
    rows = trace.filter(pc.is_in(trace["event"].cast(pa.string()), pa.array(["answers", "silent"])))
    last = {row["node"]: row["event"] for row in sorted(rows.to_pylist(), key=lambda row: row["number"])}
    return sorted(node for node, event in last.items() if event == "silent")


def _told_committed(trace: pa.Table) -> dict[int, int]:
    """By time, up to which offset the quorum's leader said that the metadata log is committed."""
    rows = trace.filter(pc.equal(trace["event"].cast(pa.string()), "metadata")).to_pylist()
    return {row["time"]: json.loads(row["fields"])["offset"] for row in rows}


def _of_type(metadata_log: pa.Table, type_: str) -> list[dict[str, Any]]:
    rows = metadata_log.filter(pc.equal(metadata_log["type"].cast(pa.string()), type_)).to_pylist()
    return [row | {"fields": json.loads(row["fields"])} for row in rows]


def _check_elections(metadata_log: pa.Table, found: Findings) -> int:
    """A leader of the quorum writes its own election down: one of each epoch."""
    rows = [row for row in _of_type(metadata_log, "LeaderChange") if "leader_id" in row["fields"]]
    leaders: dict[int, dict[int, str]] = defaultdict(dict)
    for row in rows:
        leaders[row["epoch"]].setdefault(row["fields"]["leader_id"], row["node"])
    for epoch, of in sorted(leaders.items()):
        if len(of) > 1:
            told = " and ".join(f"{node} has that node {leader} does" for leader, node in sorted(of.items()))
            found.add("ElectionSafety", "two leaders of an epoch", f"who leads epoch {epoch} of the quorum? {told}")
    return len(rows)


def _check_voters(metadata_log: pa.Table, found: Findings) -> int:
    """A quorum's voters change one at a time, or two majorities might have no voter in common (Raft's dissertation,
    section 4.1; KIP-853). A voter is a node with its log directory."""
    rows = [row for row in _of_type(metadata_log, "KRaftVoters") if row["snapshot"] is None]
    last: dict[str, tuple[int, set[tuple[int, str]]]] = {}
    for row in sorted(rows, key=lambda row: (row["node"], row["offset"])):
        voters = {(each["voter_id"], each["voter_directory_id"]) for each in row["fields"]["voters"]}
        offset, before = last.get(row["node"], (-1, voters))
        if len(voters ^ before) > 1:
            ids = [sorted(id_ for id_, _ in of) for of in (before, voters)]
            found.add(VOTERS, "several voters changed at once",
                      f"in the metadata log on {row['node']} the quorum's voters are {ids[0]} as of offset {offset}, "
                      f"and {ids[1]} as of offset {row['offset']}", offset=row["offset"])  # fmt: skip
        last[row["node"]] = row["offset"], voters
    return len(rows)


def _check_broker_epochs(metadata_log: pa.Table, found: Findings) -> None:
    """Each registration of a broker has a higher epoch than those before. One that a broker repeats, for it had no
    answer, is of the same incarnation, and keeps its epoch (ClusterControlManager.registerBroker)."""
    last: dict[tuple[str, int], tuple[int, int, str]] = {}
    for row in sorted(_of_type(metadata_log, "RegisterBrokerRecord"), key=lambda row: (row["node"], row["offset"])):
        if row["snapshot"] is not None:
            continue
        key, epoch = (row["node"], row["fields"]["broker_id"]), row["fields"]["broker_epoch"]
        offset, before, former = last.get(key, (-1, -1, ""))
        incarnation = row["fields"]["incarnation_id"]
        if epoch < before or (epoch == before and incarnation != former):
            found.add(BROKER_EPOCHS, "broker epoch does not rise",
                      f"in the metadata log on {key[0]} broker {key[1]} registers with epoch {epoch} at offset "
                      f"{row['offset']}, after epoch {before} at offset {offset}", offset=row["offset"])  # fmt: skip
        last[key] = row["offset"], epoch, incarnation


def _check_unclean(history: MetadataHistory, options: Options, found: Findings) -> None:
    """Without unclean.leader.election.enable nobody is elected who is in neither ISR nor ELR, but the last leader known
    to have been in them."""
    for change in history.elections:
        before, after = change.before, change.after
        if not change.is_unclean or options.unclean_elections or before is None or after.offset >= history.committed:
            continue
        if after.leader not in before.last_known_elr:
            found.add(UNCLEAN, "unclean election that nobody permitted",
                      f"as of metadata offset {after.offset} broker {after.leader} leads {after.topic}-{after.index}, "
                      f"and was in neither its ISR nor its ELR: {before}", place=after.place, offset=after.offset,
                      )  # fmt: skip


def _check_what_was_told(trace: pa.Table, history: MetadataHistory, found: Findings) -> int:
    """Whatever a broker tells of a partition's leader, epoch and ISR, the committed metadata has decided."""
    rows = trace.filter(pc.equal(trace["event"].cast(pa.string()), "told")).to_pylist()
    for row in rows if history.complete else ():
        place, told = (row["topic"], row["partition"]), json.loads(row["fields"])
        states = history.states.get(place)
        if states is None or place[0] in history.removed:
            continue
        decided = any(
            state.leader_epoch == told["leader_epoch"] and state.leader in (told["leader"], -1)
            and sorted(state.isr) == told["isr"]
            for state in states.values()
        ) or (told["leader"] < 0 and any(sorted(state.isr) == told["isr"] for state in states.values()))  # fmt: skip
        if not decided:
            found.add(ROLES_MATCH_METADATA, "told what was not decided",
                      f"{row['node']} told that broker {told['leader']} leads {place[0]}-{place[1]} in leader epoch "
                      f"{told['leader_epoch']} with ISR {told['isr']}, and no committed metadata says so",
                      place=place, once=("told", place, json.dumps(told)))  # fmt: skip
    return len(rows)


def _unclean_recoveries(history: MetadataHistory | None, trace: pa.Table) -> list[dict[str, Any]]:
    """In order of time, as OfNodes has them."""
    if history is None:
        return []
    changes = [each for each in history.elections if each.is_unclean and each.after.offset < history.committed]
    if not changes:
        return []
    times = CommitTimes(read_rows(trace.cast(compact(TRACE))))
    return [_recovery(change, times) for change in changes]


def _recovery(change: Change, times: CommitTimes) -> dict[str, Any]:
    after = change.after
    return {
        "topic": after.topic, "partition": after.index, "leader": after.leader, "leader_epoch": after.leader_epoch,
        "time": times.of(after.offset), "offset": after.offset, "strategy": None, "candidates": None,
        "recovering": after.recovering,
    }  # fmt: skip
