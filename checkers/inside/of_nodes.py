"""What was found inside the nodes of one run, and what of its plan matters for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from checkers.anomalies import ANOMALIES
from checkers.inside.metadata.memberships import Memberships
from spark_history.schema import COLLECTED, DISK_STATE, METADATA_LOG, TRACE

#: That checks of the inside read, by name.
TABLES: Final = {"trace": TRACE, "metadata_log": METADATA_LOG, "disk_state": DISK_STATE, "collected": COLLECTED}


class Watermark(NamedTuple):
    """As the leader of a partition told it."""

    offset: int
    node: str
    leader_epoch: int


class LogStarts(NamedTuple):
    """Of one partition, in the end. settled: where the log of the leader started a while before: followers had the time
    to take that over. by_node: where each replica's log started last."""

    leader: str
    settled: int
    by_node: Mapping[str, int]


@dataclass(frozen=True)
class Options:
    """What of the plan matters: min.insync.replicas of topics without a value of their own,
    eligible.leader.replicas.version (of a target that does not write it down itself), and whose checks apply: the
    folder of checkers/inside/; "": nobody's. unclean_elections: does unclean.leader.election.enable allow them?
    clock_uncertainty_ns: how far times of nodes may be off, either way: where each has a clock of its own."""

    min_insync_replicas: int
    elr_enabled: bool
    inside: str = "kraft"
    unclean_elections: bool = False
    compacted: Sequence[str] = ()  # topics
    clock_uncertainty_ns: int = 0

    @staticmethod
    def of(plan: Mapping[str, Any], record: Mapping[str, Any] | None = None) -> Options:
        """record: run.json."""
        settings = plan.get("settings") or {}
        version = str(settings.get("eligible.leader.replicas.version", "1"))
        unclean = str(settings.get("unclean.leader.election.enable", "false")).lower() == "true"
        is_compacted = "compact" in str((plan.get("log") or {}).get("cleanup.policy", ""))
        compacted = [str(plan.get("topic"))] if is_compacted else []
        return Options(int(plan.get("min_insync_replicas", 1)), version != "0", inside_of(plan), unclean, compacted,
                       clock_uncertainty_of(record or {}))  # fmt: skip


def clock_uncertainty_of(record: Mapping[str, Any]) -> int:
    """ns. record: run.json, whose host_clocks the runtime ssh writes."""
    clocks = record.get("host_clocks")
    of_each = [each.get("uncertainty_ns") for each in clocks.values() if isinstance(each, Mapping)] if isinstance(
        clocks, Mapping) else []  # fmt: skip
    return max((each for each in of_each if type(each) is int and each >= 0), default=0)


def inside_of(plan: Mapping[str, Any]) -> str:
    """Plans from before there were targets do not say it, and are kraft's."""
    return str(plan.get("inside", "kraft"))


@dataclass(frozen=True)
class OfNodes:
    """What was found of one run. checked: names of properties; not_checked: why others were not, a sentence each; of
    these gaps are those that say that something is missing of the metadata logs.

    unclean_recoveries: an object each, see _unclean_recoveries(). memberships: see Memberships.as_json(); None: the
    metadata does not tell. watermarks: by partition (chaos-0), see replica_trace.judge_replicas(). log_starts: so, too,
    as far as nodes tell them. collected: rows of COLLECTED. trace_of, metadata_of: rows by node. looked_at: how many of
    what was looked at for each property that says so."""

    rows: list[dict[str, Any]]  # ANOMALIES
    tally: list[tuple[str, str, int, int]]  # (property, anomaly, witnesses, records)
    trace_rows: int
    metadata_records: int
    checked: list[str]
    not_checked: list[str]
    unclean_recoveries: list[dict[str, Any]]
    memberships: dict[str, Any] | None = field(default=None, repr=False)
    gaps: list[str] = field(default_factory=list)
    watermarks: dict[str, Watermark] = field(default_factory=dict)
    log_starts: dict[str, LogStarts] = field(default_factory=dict)
    collected: list[dict[str, Any]] = field(default_factory=list, repr=False)
    trace_of: dict[str, int] = field(default_factory=dict)
    metadata_of: dict[str, int] = field(default_factory=dict)
    looked_at: dict[str, str] = field(default_factory=dict)

    @property
    def who_held_what(self) -> Memberships | None:
        return None if self.memberships is None else Memberships.of_json(self.memberships)

    @property
    def anomalies(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=ANOMALIES)
