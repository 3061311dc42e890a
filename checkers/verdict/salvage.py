"""Which violations still count when parts of a run are damaged or missing: those that no missing part could explain.

Files are as many operations as a flush held; which, nobody can tell any more. So a violation counts only if all of its
witnesses are on record, and nothing that is not on record could explain it:

| what is missing                | still counts                              | not judged any more                  |
| ------------------------------ | ----------------------------------------- | ------------------------------------ |
| operations, pending appends or | failed but visible, inconsistent offset,  | phantom (the append may be missing), |
| what reads returned            | duplicate, real-time inversion, stale end | lost append (so may the read that    |
|                                | of log, non-monotonic read (the opera-    | found it; the final log counts as    |
|                                | tions contradict each other)              | unknown), skipped offset, torn prefix |
| replica logs                   | replica divergence, decreasing epoch      | replica hole                         |
| trace, metadata log            | what the other one shows                  | all that this one shows: a gap in    |
|                                |                                           | the midst may make the rest seem wrong |
| events of consumer groups, of  | everything else                           | all that these show                  |
| transactions, operations of a  |                                           |                                      |
| user's own workload            |                                           |                                      |
| collected                      | everything, but that a replica lacks some | what else there should have been     |
| faults                         | everything                                | the contract; was there any fault?   |
| plan.json                      | as with operations missing, and as if     | as there; the contract; properties   |
|                                | acks were 1: settings allow some others   | inside the cluster                   |
| violation.json, run.json       | everything                                | what they said                       |

Where histories are laid out by log and have no journal, the same goes for the logs only whose files are damaged.

Real-time order stays sound because positions do: an acknowledgement gives one, and so does a read that is on record,
and the bound of a read is never too high. The verdict is `fail` if anything that counts is left, else `unknown`: it is
never `pass`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, TypeVar

from checkers.properties import LOG_LINEARIZABILITY, LOG_MATCHING

#: Tables of which a log has parts of its own.
OF_LOGS: Final = frozenset({"operations", "reads", "replica_logs"})
#: Beside the names of tables: plan.json is missing.
PLAN: Final = "plan"

#: By property: the tables that it rests on, and the anomalies that count though these have gaps.
_SOUND: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    LOG_LINEARIZABILITY: (
        frozenset({"operations", "reads"}),
        frozenset({
            "failed but visible", "inconsistent offset", "duplicate", "real-time inversion", "stale end of log",
            "non-monotonic read", "duplicate by retry",
        }),
    ),
    LOG_MATCHING: (frozenset({"replica_logs"}), frozenset({"replica divergence", "decreasing epoch"})),
}  # fmt: skip

_SENTENCES: Final = {
    "operations": "lost appends, phantoms and skipped offsets were not looked for: not all operations are on record",
    "reads": "lost appends, phantoms and skipped offsets were not looked for: not all that reads returned is on record",
    "replica_logs": "holes in replicas' logs were not looked for: not all of these are on record",
    "trace": "what the nodes' traces show was not judged: not all of them is on record",
    "disk_state": "what lay on the disks beside records was not judged: not all of it is on record",
    "group_events": "what consumer groups did was not judged: not all of it is on record",
    "transactions": "what transactions did was not judged: not all of them are on record",
    "micro_operations": "what transactions did was not judged: not all of what they sent and polled is on record",
    "stable_offsets": "whether the last stable offset got stuck was not judged: not all looks at it are on record",
    "calls": "what the workload's own operations show was not judged: not all of them are on record",
    "metadata_log": "what the metadata logs show was not judged: not all of them is on record",
    "collected": "whether all the evidence on the nodes was collected is not known",
    PLAN: "without the plan only such violations were looked for as no settings allow",
    "faults": "whether the faults took effect and stayed within the contract is not known",
}

_T = TypeVar("_T")


def counts(property_: str, anomaly: str, missing: Set[str]) -> bool:
    """Is this violation beyond doubt, with parts of these tables missing?"""
    tables, sound = _SOUND.get(property_, (frozenset(), frozenset()))
    if PLAN in missing and anomaly == "duplicate":
        return False  # it may be that of a producer that retries without idempotence
    return tables.isdisjoint(missing) or anomaly in sound


def keep(entries: Iterable[_T], names: Callable[[_T], tuple[str, str]], missing: Set[str]) -> list[_T]:
    """Those that count. names: property and anomaly of an entry."""
    return [entry for entry in entries if counts(*names(entry), missing)]


def not_judged(missing: Set[str], partial: Sequence[str] = ()) -> list[str]:
    """What was left out, a sentence a table. partial: logs parts of which are missing, where the others' are not."""
    sentences = [_SENTENCES[table] for table in sorted(missing)]
    if partial:
        named = ", ".join(partial[:_NAMED]) + (" …" if len(partial) > _NAMED else "")
        sentences.append(f"of {named} not all is on record: no lost append, phantom or hole was looked for there")
    return sentences


_NAMED: Final = 3
