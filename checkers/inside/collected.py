"""Is all the evidence there that a run should have left of its nodes? What is not is named, and forbids a `pass`.

The harness notes what it collected of each node (spark_history.schema.COLLECTED): replica logs, trace, metadata log,
and the checksums of the files that these were read from. Here it is held against what the tables hold, against the
replicas that the metadata says there are, and against the files of the run's directory, as far as there is one.

A run of before these notes were made is held against its plan and itself: each of its brokers has left replica logs,
and where one node has left a trace or a metadata log, so have the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from checkers.inside.log_matching import InSync
from checkers.inside.metadata.memberships import Memberships
from checkers.log.scope import ANYWHERE, Options, lasting_topic
from spark_history.damage import Damage, begins_as, differs

if TYPE_CHECKING:
    from checkers.inside.of_nodes import OfNodes

#: Tables of what nodes left, as COLLECTED names them.
TRACE: Final = "trace"
METADATA_LOG: Final = "metadata log"
REPLICA_LOG: Final = "replica log"
#: Of a plan: whoever wrote it also notes what it collects.
_NEWER: Final = "must_take_effect"
_GROWS: Final = ".jsonl"  # nodes write on while they are collected


@dataclass(frozen=True)
class Held:
    """How many rows the tables of a history hold of each node; of replica logs, by (node, partition), e.g. chaos-0."""

    trace: Mapping[str, int] = field(default_factory=dict)
    metadata_log: Mapping[str, int] = field(default_factory=dict)
    replica_logs: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of(self, piece: Mapping[str, Any]) -> int | None:
        """Of a row of COLLECTED; None: there is no table of it."""
        if piece["what"] == REPLICA_LOG:
            return self.replica_logs.get((piece["node"], _log(piece)), 0)
        tables = {TRACE: self.trace, METADATA_LOG: self.metadata_log}
        table = tables.get(piece["what"])
        return None if table is None else table.get(piece["node"], 0)


def gaps_of(
    plan: Mapping[str, Any],
    nodes: OfNodes | None,
    replica_records: Mapping[tuple[str, str], int],
    logs: Iterable[str],
) -> list[str]:
    """See gaps(). replica_records: as Held.replica_logs."""
    if nodes is None:
        return []
    held = Held(nodes.trace_of, nodes.metadata_of, replica_records)
    return [*gaps(plan, nodes.collected, held, nodes.who_held_what, logs), *nodes.gaps]


def in_sync(nodes: OfNodes, options: Options) -> InSync:
    """Which replicas must hold the final log, of a run that recovered."""
    return InSync(
        must_hold_the_final_log(nodes.collected, nodes.who_held_what),
        nodes.watermarks,
        options.compacted,
        nodes.log_starts,
        options.log_start == ANYWHERE,
    )


def gaps(
    plan: Mapping[str, Any],
    collected: Sequence[Mapping[str, Any]],
    held: Held,
    memberships: Memberships | None,
    logs: Iterable[str],
) -> list[str]:
    """What is missing of the evidence, a sentence each. collected: rows of COLLECTED. logs: the
    partitions that the history has, e.g. chaos-0. A history that has no nodes (foreign, or generated) lacks none."""
    if plan.get("on") not in ("docker", "simulation", "ssh") or not plan.get("replica_logs", True):
        return []
    logs = list(logs)
    found = [piece["problem"] for piece in collected if piece["problem"] is not None]
    lacking = [piece for piece in collected if held.of(piece) not in (None, piece["records"])]
    unheld = [piece["what"] == REPLICA_LOG and _log(piece) not in logs for piece in lacking]
    found += _not_compared([piece for piece, of_none in zip(lacking, unheld, strict=True) if of_none])
    found += [_fewer(piece, held) for piece, of_none in zip(lacking, unheld, strict=True) if not of_none]
    if not collected:
        older = _NEWER not in plan
        found += _of_older(plan, held) if older else ["what was collected of the nodes was not noted"]
    for what in (TRACE, METADATA_LOG):
        noted = {piece["node"] for piece in collected if piece["what"] == what}
        found += [f"no {what} of {node} was looked for" for node in node_names(plan) if noted and node not in noted]
    found += _missing_replicas(plan, collected, held, memberships, logs)
    return list(dict.fromkeys(found))


def _log(piece: Mapping[str, Any]) -> str:
    return f"{piece['topic']}-{piece['partition']}"


def _not_compared(replica_logs: Sequence[Mapping[str, Any]]) -> list[str]:
    """replica_logs: of partitions of which the history has no operation."""
    if not replica_logs:
        return []
    logs, count = sorted({_log(piece) for piece in replica_logs}), len(replica_logs)
    return [
        f"of {', '.join(logs[:3])}{', …' * (len(logs) > 3)} no operation is left, so {count:,} collected replica "
        f"log{'s' * (count != 1)} of {'them' if len(logs) > 1 else 'it'} could be compared with nothing"
    ]


def _fewer(piece: Mapping[str, Any], held: Held) -> str:
    of = f" of {_log(piece)}" if piece["what"] == REPLICA_LOG else ""
    return (
        f"of the {piece['what']}{of} on {piece['node']} {piece['records']:,} rows were collected, and "
        f"{held.of(piece):,} are on record"
    )


def _of_older(plan: Mapping[str, Any], held: Held) -> list[str]:
    nodes = node_names(plan)
    brokers = [node for node in nodes if node.startswith("broker")]
    have = {node for node, _ in held.replica_logs}
    found = [f"no replica log of {node} is on record" for node in brokers if node not in have]
    for what, of in ((TRACE, held.trace), (METADATA_LOG, held.metadata_log)):
        found += [f"no {what} of {node} is on record" for node in nodes if of and node not in of]
    return found


def node_names(plan: Mapping[str, Any]) -> list[str]:
    """As the harness names them: older plans do not say it. None where the plan does not say how many there are."""
    members = plan.get("members")
    if isinstance(members, list):
        return [str(name) for name in members]
    brokers, controllers = plan.get("brokers"), plan.get("controllers")
    if type(brokers) is not int or type(controllers) is not int:
        return []
    apart = 0 if plan.get("combined") else controllers
    return [f"{role}-{i}" for role, n in (("broker", brokers), ("controller", apart)) for i in range(1, n + 1)]


def _missing_replicas(
    plan: Mapping[str, Any],
    collected: Sequence[Mapping[str, Any]],
    held: Held,
    memberships: Memberships | None,
    logs: Iterable[str],
) -> list[str]:
    """Replicas without a log, as the last metadata assigns them; where that is not known, by their number alone. Of
    topics that live shortly no logs are collected."""
    there: dict[str, set[str]] = {}
    for each in collected:
        if each["what"] == REPLICA_LOG:
            there.setdefault(_log(each), set()).add(each["node"])
    for node, log in held.replica_logs:
        there.setdefault(log, set()).add(node)
    assigned = {} if memberships is None else assigned_replicas(memberships)
    factor, topic = plan.get("replication_factor"), lasting_topic(plan)
    if not there:  # which is told of each broker
        return []
    found = []
    for log in logs:
        if topic is not None and log.rpartition("-")[0] != topic:
            continue
        have = there.get(log, set())
        if log in assigned:
            found += [f"no log of {log} on {node} is on record" for node in assigned[log] if node not in have]
        elif type(factor) is int and len(have) < factor:
            found.append(f"the logs of {len(have)} of the {factor} replicas of {log} are on record")
    return found


def assigned_replicas(memberships: Memberships) -> dict[str, list[str]]:
    """By partition, the nodes that hold it in the end; only where all of them are known by name."""
    return _named(memberships, {f"{t}-{p}": steps[-1].replicas for (t, p), steps in memberships.steps.items() if steps})


def in_sync_replicas(memberships: Memberships) -> dict[str, list[str]]:
    """The same, of those that are in the ISR in the end."""
    return _named(memberships, {f"{t}-{p}": steps[-1].isr for (t, p), steps in memberships.steps.items() if steps})


def _named(memberships: Memberships, ids: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    names = {node_id: name for name, node_id in memberships.ids.items()}
    return {log: [names[id_] for id_ in of] for log, of in ids.items() if all(id_ in names for id_ in of)}


def must_hold_the_final_log(
    collected: Sequence[Mapping[str, Any]], memberships: Memberships | None
) -> dict[str, dict[str, bool]]:
    """As InSync.by_log: by partition, the nodes that are in its ISR in the end, and whether their logs were collected
    as a whole; of a partition whose ISR is not known, all whose logs were collected."""
    noted: dict[str, dict[str, bool]] = {}
    for each in collected:
        if each["what"] == REPLICA_LOG:
            noted.setdefault(_log(each), {})[each["node"]] = each["problem"] is None
    known = {} if memberships is None else in_sync_replicas(memberships)
    return {
        log: {node: nodes.get(node, False) for node in known.get(log, nodes)} for log, nodes in noted.items()
    }  # fmt: skip


def changed_files(directory: Path, collected: Sequence[Mapping[str, Any]]) -> list[Damage]:
    """The files of a run that the history was read from and that are gone, or not as they were then."""
    files = [each for each in collected if each["what"] == "file"]

    def why(piece: Mapping[str, Any]) -> str:
        path, sum_ = directory / piece["file"], (piece["size"], piece["crc"])
        return begins_as(path, sum_) if path.suffix == _GROWS else differs(path, [sum_])

    with ThreadPoolExecutor() as threads:
        reasons = zip(files, threads.map(why, files), strict=True)
        return [(piece["file"], reason) for piece, reason in reasons if reason]
