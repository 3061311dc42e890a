"""Numbers, durations, evidence and verdicts in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from checkers.verdict import own
from harness.report.metadata_words import metadata

DASH = "—"
MOST_LINKS = 6  # of a network, named in a sentence

#: What is checked of consumer groups; and inside the cluster, from the nodes' traces and metadata logs, in simulation
#: also after every step.
PROPERTIES = {
    "at-least-once processing": "A group that commits after processing processes each acknowledged record by the end, "
    "where a member had the time.",
    "at-most-once processing": "A group that commits before processing processes no record twice.",
    "committed offsets": "What is committed is what the last commit says. It goes back on purpose only, and nothing "
    "else is ever answered.",
    "consumer positions": "While a member owns a partition it is handed records without a gap or a repetition, from an "
    "offset that may have been committed when it was given the partition, but for stated resets.",
    "commit order": "Members commit after processing, or before it, as their group says.",
    "partition ownership": "Nobody owns a partition beside another within a generation, and nothing is committed by "
    "who was replaced.",
    "group settles": "Within settle_s of all faults being healed, and of the last change of its members, each "
    "partition is owned by one live member, and has been handed out to its end.",
    "consumer groups, allowed": "Weak: what a right Kafka may do too, counted.",
    "transactions": "What is committed is read by read_committed consumers, all of it, in order and once; nothing of "
    "an aborted transaction is.",
    "exactly-once processing": "Of each committed record that a loop has committed to be past, one record of its "
    "output is committed, and one alone.",
    "transactions settle": "Within settle_s of all faults being healed no transaction is open any more, and the loops "
    "have processed the last records of their inputs.",
    "transactions, allowed": "Weak: what Kafka does not promise, counted: transactions that write are not isolated "
    "from each other.",
    "ValidControllerIsrAndElr": "Members of an ISR or ELR are replicas, nobody is in both, and beside an ISR of "
    "min.insync.replicas members nobody else is eligible.",
    "ValidControllerState": "A leader is in its ISR, nobody in an ISR is fenced or shutting down, and no metadata "
    "record contradicts the state before it.",
    "MinIsrRecoveryQuorum": "When ISR and ELR are empty, enough replicas are still known to have been eligible.",
    "ValidReplicas": "A partition’s replicas are different brokers, all of them registered; when it is created, over "
    "as many racks as there are, and none would be better on another broker; and no change leaves fewer than "
    "min.insync.replicas of them, or of those in sync.",
    "LeaderCompleteness": "Who begins to lead has everything that leaders of earlier epochs had committed, unless an "
    "unclean recovery lies in between.",
    "LeaderCandidateCompleteness": "Who may be elected has everything that leaders of earlier epochs had committed.",
    "ReplicationQuorumSuperset": "A leader counts on everybody in the ISR: within its epoch nobody is added whom it "
    "has not proposed.",
    "StrongIsr": "A member of the ISR never cuts off what its leader has committed counting on it; in simulation also: "
    "what a leader takes a follower to hold, it holds.",
    "UncleanExclusion": "Who comes back from an unclean shutdown may not be elected until it has joined the ISR again.",
    "LeaderAppendOnly": "While it leads, a leader’s log never shrinks.",
    "HighWatermarkMonotonicity": "While it leads, a leader’s high watermark never falls; none lies past its log’s end.",
    "ValidLogStart": "No log starts above what its replica knows to be committed; while it leads, a leader’s log start "
    "never falls; in simulation also: no follower’s log starts above where any leader’s ever did, "
    "and no leader’s below what a follower has told that it has deleted.",
    "MetadataLogMatching": "If two nodes’ metadata logs hold a record with the same offset and epoch, they agree up to "
    "there; and a snapshot is the state that the log gives.",
    "ElectionSafety": "An epoch of the controllers’ quorum has one leader.",
    "WatermarkAdvances": "A leader’s high watermark is where all replicas that it waits for are, and it waits for "
    "nobody who may not join the ISR.",
    "IsrExpands": "A follower that keeps up with its leader is not left outside of the ISR for long.",
    "ReassignmentCompletes": "A reassignment whose whole target is in the ISR is over soon.",
    "LeaderResigns": "A controller that leads the quorum, and that no majority of it follows, gives up.",
    "UncleanRecovery": "Unclean recovery elects, of those who have told, whose log goes furthest, by epoch first; and "
    "an election is told as unclean where its leader was in neither ISR nor ELR, and nowhere else.",
    "BrokerUnfenced": "A broker that runs and is reached is registered in its present life, and not fenced.",
    "LeaderElected": "A cluster whose nodes run and reach each other has an active controller, and each partition a "
    "leader.",
    "RequestsAnswered": "Who waits for what has been committed has an answer, and clients of a healed cluster have "
    "theirs.",
    "UnexpectedError": "A node’s code is never where it does not know how to go on: no request and nothing else in it "
    "ends in an error of the code itself.",
    "RecordsDeleted": "A leader deletes soon what log.retention.bytes leaves no room for, and the files of what lies "
    "below its log’s start; a broker the logs of which it is no replica; and who writes a snapshot of the metadata "
    "keeps one besides, and the log from its end on.",
    "Liveness": "Whatever else a healed cluster must come to: nodes run, and have the same metadata and the same logs.",
    "OpenedLog": "A log that is opened ends where the last batch ends that is whole and follows on the one before; the "
    "leader epoch before its begin is known if the disk tells it; and who has no proof of a clean shutdown believes no "
    "more than its recovery point.",
    "IsrShrinks": "Who does not keep up with its leader leaves the ISR: a member has what there was one and a half "
    "times replica.lag.time.max.ms ago, or its leader proposes another ISR.",
    "LogFiles": "Each segment of a log is open once, and no other is; none but the newest is empty.",
    "FlushedOffset": "What a node takes to be on its disk of a log, a power cut at that moment would leave.",
    "VoterEndOffset": "What the leader of the controllers’ quorum counts a voter for, that voter’s disk has.",
    "ProducerSequence": "The batches of an idempotent producer are in a log in their order, each once and none left "
    "out; what is next is not refused as out of order.",
    "ProducerEpoch": "Once a producer has a successor of a higher epoch in a log, nothing of its own comes after; and "
    "only then is it refused for that.",
    "NoFalseDuplicate": "What a leader answers as a duplicate is in its log, where it says.",
    "ProducerState": "What a replica remembers of producers is what its log says.",
    "ProposedIsr": "What a leader proposes is another ISR than the one it has, or that it has recovered from an "
    "unclean election; in simulation also: where there is an ELR and its ISR is below min.insync.replicas, "
    "it adds nobody who lags.",
    "DecidedIsr": "What a replica takes for the ISR of a partition epoch, the controller has decided for it.",
    "FollowerSession": "A leader takes no fetch from before a follower’s restart for a later one.",
    "FetchedFromLeader": "A replica that follows is fetched from the leader that it knows of, and from nobody else; "
    "what is no replica of a broker it does not fetch.",
    "FetchAnswered": "Who fetches is told what is so of each partition, as soon as there is something to tell, and not "
    "before: an error where the broker leads it no more or has none, or a follower that has nothing must begin "
    "elsewhere, else its high watermark.",
    "AdministratorAnswered": "What administrators ask for is refused only for what is so, and else written as it was "
    "asked.",
    "BrokerAnswered": "What brokers ask the controller for is decided as it was asked, or refused for what is so; and "
    "they are told what is decided.",
    "QuorumAnswered": "A member of the metadata quorum makes of what others ask and answer what Raft makes of it: "
    "who hears no leader grants a pre-vote, who hears one does not, a leader that is announced is followed, what "
    "is from another cluster, no voter or an epoch that has passed is refused, and who fetches waits only where there "
    "is nothing to tell.",
    "ElectionTimeouts": "A voter stands for election no sooner and no later than it should, and by chance: after one "
    "to two times the election timeout, a follower up to a tenth later than the fetch timeout.",
    "AcknowledgedOnceCommitted": "An append with acks=all is acknowledged no sooner than it is committed, and not "
    "given up after that; and given up once its time is up.",
    "OffsetLookup": "What a leader answers of its log by a time or a leader epoch, the log says.",
    "OneLeader": "At no time do two replicas of a partition take themselves for its leader.",
    "IsrOfLatestLeader": "Nobody writes a partition’s ISR in ZooKeeper after a later leader has, and only who is not "
    "the latest is kept from it.",
    "ElectedIsr": "A new leader was in the ISR that the one before it left, and begins with it. In simulation alone.",
    "FollowersAwaited": "A new leader takes no follower out of the ISR whose broker is there, before that has had its "
    "time to catch up. In simulation alone.",
    "LeaderStays": "A leader gives up by itself for a later one, or for the preferred replica, where that may lead, "
    "or, with v2.close.isr, as a reassignment that it was about is given up. In simulation alone.",
    "IsrOfReplicas": "A new leader counts alone on what it knows for replicas of the partition, whoever stands in the "
    "ISR that it found. In simulation alone.",
    "ClosedByLatestLeader": "No broker closes a replica at the word of a leader whom another has followed.",
    "VotersOneByOne": "The voters of the controllers’ quorum change one at a time.",
    "CommittedPrefix": "All nodes take the same metadata for committed, a majority of the controllers has it, and so "
    "has every controller that is elected.",
    "RolesMatchMetadata": "What a broker takes for a partition’s leader, epoch and ISR is what the committed metadata "
    "says; only the leader proposes an ISR.",
    "BrokerEpochMonotonicity": "Each registration of a broker has a higher epoch than those before.",
    "UncleanElection": "Unless unclean elections are permitted, nobody leads who was in neither ISR nor ELR, but the "
    "last leader known to have been.",
    "SegmentIntegrity": "Every batch on disk is whole and in order, its CRC is right, and segments follow each other.",
    "LeaderEpochCheckpoint": "leader-epoch-checkpoint tells of each epoch in the log at which offset it begins; in "
    "simulation also: what a node takes the epochs of a log for is what its batches say.",
    "RecoveryPointCheckpoint": "What a broker takes to be on its disk is in its log; in simulation also: a power cut "
    "at that moment would leave it.",
    "HighWatermarkCheckpoint": "What a replica takes for committed is in its log.",
    "LogStartCheckpoint": "A log begins within its segments.",
    "CleanShutdown": "No node that runs says that it was shut down cleanly; in simulation also: whoever says so had "
    "all of its logs on its disk, and has lost nothing since that the disk would tell; and whose disk says so, and has "
    "lost nothing, says so at its next start.",
    "ProducerSnapshot": "What is remembered of producers can be read, and is of offsets that the log reaches.",
    "QuorumState": "quorum-state can be read, is no older than the metadata log, and no epoch has two leaders; in "
    "simulation also: a voter’s epoch and vote are in it, durably, before anybody hears of them.",
    "MetaProperties": "Nodes are of one cluster, each under its own id, no two with the same directory.",
    "LogMatching": "A batch with the same leader epoch and offset is the same on all replicas, at all times.",
    "NoCommittedRecordLostGlobally": "The log of some replica begins with all that was committed.",
    "ConsistentRead": "Whoever takes itself for a leader shows below its high watermark what is committed.",
    "Hang": "A run comes to its end.",
}


def own_properties(verdict: Mapping[str, Any]) -> dict[str, str]:
    """Those of checkers of the user's own, with what they mean, by verdict.json."""
    own = verdict.get("own_checkers")
    found = (
        [told.get("properties") for told in own.values() if isinstance(told, Mapping)] if isinstance(own, dict) else []
    )
    return {str(name): str(meaning) for of in found if isinstance(of, Mapping) for name, meaning in of.items()}


def meanings() -> dict[str, str]:
    """What each property means, those of the user's own included whose checkers are installed here."""
    return {**own.definitions(), **PROPERTIES}


VERDICTS = {
    "pass": "Every property held, and at least one fault is proven to have taken effect (or none was asked for).",
    "fail": "The recorded history cannot have come from a log that loses and reorders nothing; whether that was "
    "promised is said above. Each violation shown is a witness that can be followed by hand.",
    "unknown": "The run proves nothing either way. It must not be read as a pass.",
}

TERMS = {
    "ISR": "In-sync replicas: those that the leader waits for before it takes a record for committed.",
    "ELR": "Eligible leader replicas (KIP-966): out of the ISR, and known to have all that is committed.",
    "leader epoch": "Counts the elections of a partition’s leader; each record carries that of its leader.",
    "high watermark": "Up to here a partition’s log is committed, and shown to consumers.",
    "MinISR": "min.insync.replicas: with fewer members in the ISR, acks=all is refused.",
}


def duration(seconds: float | None) -> str:
    """Three significant figures with the unit that reads best: 850 µs, 4.12 ms, 12.3 s, 2 min 05 s."""
    if seconds is None or math.isnan(seconds):
        return DASH
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{float(f'{seconds * factor:.3g}'):g} {unit}"


def number(value: float | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, float) and not value.is_integer() and value < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def second(value: float | None) -> str:
    """A point on the report's time line."""
    return DASH if value is None or math.isnan(value) else f"{value:.3f} s"


def size(count: float) -> str:
    if count < 1024:
        return plural(int(count), "byte")
    unit, divisor = ("KiB", 2**10) if count < 2**20 else ("MiB", 2**20) if count < 2**30 else ("GiB", 2**30)
    return f"{count / divisor:.1f} {unit}"


def relative(fault: str, lead: float) -> str:
    """When something happened, by the faults around it (see aggregate.blame)."""
    if not fault:
        return "no fault after it"
    return f"during {fault}" if lead == 0 else f"{duration(lead)} before {fault}"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


def exit_status(status: Any) -> str:
    meanings = {137: "SIGKILL", -9: "SIGKILL", 143: "SIGTERM", -15: "SIGTERM", 0: "clean exit"}
    meaning = meanings.get(status) if isinstance(status, int) else None
    return f"exit status {status} ({meaning})" if meaning else f"exit status {status}"


# What a runtime or nemesis observes (harness/cluster.py) and how it reads, in order; None: said elsewhere or noise.
_EVIDENCE: dict[str, Callable[[Any], str] | None] = {
    "unsynced_records": lambda count: f"lost {plural(count, 'unsynced record')}",
    "lost_by_partition": lambda lost: (
        "by partition " + (", ".join(f"{name}: {records:,}" for name, records in lost.items() if records) or "none")
    ),
    "lost_offsets": None,
    "unsynced_metadata_records": lambda count: f"{plural(count, 'metadata record')}" if count else "",
    "unsynced_bytes": lambda count: f"{size(count)} never synced are gone",
    "unsynced_files": lambda count: f"{plural(count, 'file')} cut short or gone",
    "cut_ns": lambda ns: f"power cut to remounted in {duration(ns / 1e9)}",
    "disk_at_cut": None,
    "disk_not_kept": lambda why: f"its disk could not be copied then: {why}",
    "cut_at": None,
    "network_off_at": None,
    "killed_at": None,
    "clock_uncertainty_ns": None,
    "rebooted": lambda host: f"host {host} was rebooted",
    "shut_down_at": None,
    "remounted_at": None,
    "exit_status": exit_status,
    "pid": None,
    "stopping_ns": lambda ns: f"after {duration(ns / 1e9)}",
    "ended": None,
    "stopped": lambda by_itself: "killed, for it would not stop" if by_itself is False else "",
    "cuts": lambda count: f"cut {count} times",
    "first_cut": lambda facts: f"of these, in the first cut: {_sentence(facts)}",
    "ahead": lambda cut: (
        f"its followers {', '.join(cut['from'])} kept from fetching for {duration(cut['seconds'])} before, "
        f"{plural(cut.get('packets_dropped', 0), 'packet')} dropped"
    ),
    "reassigned": lambda did: "reassigned by " + ", ".join(f"{how} ({count})" for how, count in did.items()),
    "kills": lambda count: f"killed {count} times",
    "place": lambda place: f"following {place}",
    "steps": lambda steps: choreographed(steps),
    "cut_short": lambda _: "its time was over before its last step",
    "cpu_ns_while_frozen": lambda ns: f"ran {duration(ns / 1e9)} meanwhile" if ns else "",
    "frozen_ns": lambda ns: f"frozen for {duration(ns / 1e9)}",
    "frozen_state": None,
    "in_sync_at": None,
    "not_in_sync": lambda obstacle: f"replicas not back in sync: {obstacle}",
    "part_of": lambda of: f"part of {of['composite']}",
    "deferred_s": lambda seconds: f"waited {duration(seconds)} for its turn",
    "groups": lambda groups: "parted " + " from ".join(", ".join(group) for group in groups if group),
    "direction": lambda way: {"outgoing": "only what the first sent", "incoming": "only what the first was sent"}.get(
        way, ""
    ),
    "links": lambda links: f"cut {_first(links)}",
    "clock_offset_ms": lambda ms: f"clock {duration(abs(ms) / 1e3)} {'ahead' if ms > 0 else 'behind'}" if ms else "",
    "clock": None,
    "clock_drifting_ms": None,
    "clock_drifted_ms": lambda ms: (
        f"clock {'gained' if ms > 0 else 'lost'} {duration(abs(ms) / 1e3)} in all while it drifted"
    ),
    "taken_bytes": lambda count: f"took {size(count)}",
    "free_bytes": lambda count: f"{size(count)} left",
    "refused_writes": lambda count: f"{plural(count, 'write')} refused",
    "write_error": lambda name: f"writes get {name}" if name else "",
    "bytes_per_s": lambda count: f"at most {size(count)} a second" if count else "",
    "operations_per_s": lambda count: f"at most {plural(count, 'operation')} a second" if count else "",
    "write_ms_before": lambda ms: f"a small synced write took {duration(ms / 1e3)} before",
    "write_ms_while": lambda ms: f"and {duration(ms / 1e3)} while it was slow",
    "slowed_syncs": lambda count: f"{plural(count, 'sync')} slowed" if count else "",
    "slowed_ms": lambda ms: f"by {duration(ms / 1e3)} together" if ms else "",
    "dropped_bytes": lambda count: f"dropped {size(count)} of clean page cache",
    "resident_before": lambda count: f"of {size(count)} that were cached",
    "resident_after": None,
    "file": lambda path: f"damaged {path}",
    "position": lambda at: f"at byte {at:,}",
    "before": lambda found: f"where there was {found}",
    "after": lambda found: f"there is {found}",
    "truncated_bytes": lambda count: f"{plural(count, 'byte')} cut off",
    "damaged_bytes": None,
    "damaged_by_partition": None,
    "damaged_from": lambda first: ", ".join(f"{log} from offset {offset:,} on" for log, offset in first.items()),
    "restored_bytes": lambda count: f"{plural(count, 'byte')} put back" if count else "",
    "mended_by_node": lambda by_itself: "the node had replaced or dropped what was damaged" if by_itself else "",
    "nothing_to_damage": lambda reason: f"nothing to damage: {reason}",
    "failed_operations": lambda count: f"{plural(count, 'disk operation')} failed",
    "shape": lambda shape: ", ".join(_SHAPES[what](value) for what, value in shape.items()),
    "shaped_links": lambda links: f"on {_first(links)}",
    "round_trip_ms": lambda trip: (
        "round trip " + " before, ".join(duration(trip[when] / 1e3) for when in ("before", "while") if when in trip)
    ),
    "unanswered_ms": lambda ms: f"no answer within {duration(ms / 1e3)}",
    "packets_delayed": lambda count: f"delayed {plural(count, 'packet')}",
    "packets_duplicated": lambda count: f"doubled {plural(count, 'packet')}",
    "packets_reordered": lambda count: f"{plural(count, 'packet')} let ahead of others",
    "delayed_requests": lambda count: f"held back {plural(count, 'request')}",
    "repeated_requests": lambda count: f"repeated {plural(count, 'request')}",
    "api": lambda name: f"of {name}",
    "requests": lambda count: f"of {count:,} there were",
    "held_ms": lambda ms: f"{duration(ms / 1000)} in all" if ms else "",
    "delivered_after_hang_up": lambda count: f"{count:,} arrived when their client had hung up",
    "throttled": lambda count: f"packets waited for their turn {count:,} times",
    "shaped_bytes": lambda count: f"{size(count)} passed at the rate",
    "software": lambda release: {"next": "got the release of --upgrade-to", "first": "got its old release again"}.get(
        release, f"got {release}"
    ),
    "served": lambda levels: f"it supported {_levels(levels)}",
    "serves": lambda levels: f"it supports {_levels(levels)}" if levels else "it has not served again in time",
    "feature": lambda name: name,
    "raised": lambda levels: f"raised from level {levels[0]} to {levels[1]}",
    "steps_left": lambda count: f"{plural(count, 'step')} of the upgrade left" if count else "the upgrade is complete",
    "new_id": lambda broker: f"came back as broker {broker}, with an empty disk",
    "moved_ns": lambda ns: f"leaderships were seen to have moved after {duration(ns / 1e9)}",
    "leaders_moved": lambda count: f"leaders of {plural(count, 'partition')} changed" if count else "",
    "replicas_moved": lambda count: f"replicas of {plural(count, 'partition')} changed" if count else "",
    "added": lambda broker: f"broker {broker} joined",
    "removed": lambda broker: f"broker {broker} was to go",
    "unregistered": lambda _: "unregistered",
    "not_unregistered": lambda why: str(why).removeprefix("not available here: "),
    "unanswered": lambda why: f"then nobody answered: {why}",
    "piled_up_on": lambda broker: f"partitions were piled up on broker {broker} first",
    "not_planned": lambda why: f"nothing was planned: {why}",
    "rebalanced": lambda told: rebalanced(told),
    "metadata": metadata,
    "refused": lambda reasons: f"the controller refused: {'; '.join(reasons)}",
    "packets_dropped": lambda count: f"dropped {plural(count, 'packet')}",
    "packets_dropped_by_link": lambda links: _most(links),
    "packets_dropped_by_node": lambda nodes: _most(nodes),  # of older versions
}


def choreographed(steps: Sequence[Mapping[str, Any]]) -> str:
    """See nemesis.choreography.stage: each step with its second, whom it struck, and what a wait came to."""
    return "; ".join(f"at {duration(step['at_s'])} {step['step']}{_taken(step)}" for step in steps)


def _taken(step: Mapping[str, Any]) -> str:
    what = [", ".join(step.get("struck") or step.get("of") or ())]
    what += [f"cut {_first(step['links'])}" if step["step"].startswith("cut") else ""] if "links" in step else []
    what += [f"to {', '.join(map(str, step['replicas']))}"] if "replicas" in step else []
    what += [f"after {duration(step['waited_s'])}, in vain" if step.get("gave_up") else ""]
    what += [str(step[why]) for why in ("skipped", "failed") if why in step]
    said = "; ".join(filter(None, what))
    return f" ({said})" if said else ""


def rebalanced(told: Mapping[str, Any]) -> str:
    """See nemesis.membership.resizing: how much was moved, how much must be, and what brokers hold with it."""
    moved = sum(len(set(move["to"]) - set(move["from"])) for move in told["moves"])
    least = ", the least possible" if told["is_least"] else ""
    parts = [
        f"{moved:,} of {plural(told['planned'], 'replica')} moved in {duration(told['moving_ns'] / 1e9)} "
        f"({size(told['bytes'])} planned{least})"
    ]
    if told["unfinished"]:
        parts.append(f"{plural(told['unfinished'], 'partition')} still on the move then")
    loads = {str(broker): told["load"]["after"][str(broker)] for broker in told["brokers"]}
    held, led = ([load[what] for load in loads.values()] for what in ("replicas", "leaders"))
    parts.append(
        f"brokers {', '.join(loads)} then held {_range(held)} replicas each, and each was the preferred leader of "
        f"{_range(led)} partitions"
    )
    return "; ".join(parts)


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


#: What a link does to packets (harness.cluster.Shape).
_SHAPES: dict[str, Callable[[Any], str]] = {
    "delay_ms": lambda ms: f"{duration(ms / 1e3)} late",
    "jitter_ms": lambda ms: f"± {duration(ms / 1e3)}",
    "loss": lambda share: f"{100 * share:.3g} % lost",
    "duplicate": lambda share: f"{100 * share:.3g} % twice",
    "reorder": lambda share: f"{100 * share:.3g} % overtaking",
    "rate_kbit": lambda rate: f"{rate:g} kbit/s",
}


def _levels(levels: Mapping[str, int]) -> str:
    """Of what an upgrade is about."""
    told = [f"{name} up to {levels[name]}" for name in ("metadata.version",) if name in levels]
    return ", ".join(told) or plural(len(levels), "feature")


def _first(links: Sequence[str]) -> str:
    more = len(links) - MOST_LINKS
    return ", ".join(links[:MOST_LINKS]) + (f" and {plural(more, 'more link')}" if more > 0 else "")


def _most(packets: Mapping[str, int]) -> str:
    """Where most packets were dropped, most first."""
    named = sorted(((count, where) for where, count in packets.items() if count), reverse=True)
    reported = ", ".join(f"{where} {count:,}" for count, where in named[:MOST_LINKS])
    return f"of which {reported}" if reported else ""


def evidence(observed: Mapping[str, Any]) -> str:
    """What was seen of a fault as a whole, in the shape of nemesis.by_node: sums at the top, the facts of each node
    under `nodes`. What its only node already says is left out."""
    nodes = list(_nodes(observed).values())
    said = nodes[0] if len(nodes) == 1 and isinstance(nodes[0], Mapping) else {}
    return _sentence({key: value for key, value in observed.items() if key != "nodes" and key not in said})


def evidence_by_node(observed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same for each node, as (node, sentence)."""
    sentences = (
        (str(node), _sentence(facts if isinstance(facts, Mapping) else {"seen": facts}))
        for node, facts in _nodes(observed).items()
    )
    return [(node, sentence) for node, sentence in sentences if sentence]


def _nodes(observed: Mapping[str, Any]) -> Mapping[str, Any]:
    nodes = observed.get("nodes")
    return nodes if isinstance(nodes, Mapping) else {}


def _sentence(facts: Mapping[str, Any]) -> str:
    known = [key for key in _EVIDENCE if key in facts]
    others = [key for key in facts if key not in _EVIDENCE]
    phrases = {key: _phrase(key, facts[key]) for key in known + others}
    if phrases.get("metadata") and "rebalanced" in facts:  # of the plan that is told before; this is its undoing
        phrases["metadata"] = f"brought back: {phrases['metadata']}"
    return "; ".join(phrase for phrase in phrases.values() if phrase)


def _phrase(key: str, value: Any) -> str:
    plain = f"{key.replace('_', ' ')}: {_listed(value)}"
    if key not in _EVIDENCE:
        return plain
    wording = _EVIDENCE[key]
    if wording is None or value is None:
        return ""
    try:
        return wording(value)
    except (TypeError, ValueError, AttributeError, LookupError):
        return plain


def _listed(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {entry}" for key, entry in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def contract(verdict: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, str]:
    """Whether the faults stayed within what the target promises to survive: `state` (within, beyond, unknown), `title`,
    `facts` as the verdict has them, and `meaning`. plan: plan.json."""
    said = verdict.get("contract")
    said = said if isinstance(said, Mapping) else {}
    worst, within, outcome = said.get("worst"), said.get("within"), str(verdict.get("verdict"))
    acks = str(plan.get("acks", "all"))
    promised = said.get("promise") or plan.get("promise")
    promise = f"{promised['sentence']} ({promised['source']})." if isinstance(promised, Mapping) else ""
    if within is None:
        state, title, consequence = "unknown", "Whether the faults stayed within the contract is not known", ""
    elif within and outcome == "fail" and said.get("promised") is False:
        state, title = "unknown", "What is promised does not cover this run"
        consequence = f"It wrote with acks={acks}: a leader may lose what it alone holds." if acks != "all" else ""
    elif within:
        state, title = "within", "The faults stayed within the contract"
        consequence = {
            "pass": "The promise was put to the test, and it held." if worst else "It was not put to the test here.",
            "fail": "So the violations below break a promise: they are a bug, not bad luck."
            if said.get("promised", acks == "all")
            else f"This run wrote with acks={acks}, which it does not cover: a leader may lose what it alone holds."
            if acks != "all"
            else "The promise does not cover the settings of this run.",
        }.get(outcome, "")
    else:
        state, title = "beyond", "The faults went beyond the contract"
        consequence = {
            "pass": "Nothing was lost all the same, which the protocol did not have to achieve.",
            "fail": "Losing an acknowledged record is a failure regardless; but with this configuration the protocol "
            "does not promise to survive these faults.",
        }.get(outcome, "")
    facts = sentence(str(said.get("explanation") or ""))
    return {"state": state, "title": title, "facts": facts, "meaning": f"{promise} {consequence}".strip()}


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = text.strip()
    return text and text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")
