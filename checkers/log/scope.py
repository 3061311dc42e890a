"""Which part of which log is judged, and what its plan says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_history.errors import HistoryError
from spark_history.log import NEVER, FinalReads

ANYWHERE: Final = -1  # a log start that may have moved
#: By setting, in ms.
_RETENTION: Final = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}


@dataclass(frozen=True)
class Options:
    """What the check needs to know of a run, apart from its history."""

    acks_all: bool = True
    since: int = NEVER  # acknowledgements from here on are counted apart, monotonic ns
    compacted: bool = False
    keys: int = 0  # of a compacted log: a value has the key of its remainder by this; 0: its keys are not known
    retries: bool = False  # without idempotence: a value may stand at several offsets
    markers: bool = False  # offsets may hold markers of transactions, which no read returns
    retention: bool = False  # records go also at a time that no operation tells
    log_start: int = 0  # below it records may be gone; ANYWHERE: below the lowest fetch offset of a final read

    @property
    def sparse(self) -> bool:
        """May there be offsets at which a log that works shows nothing?"""
        return self.compacted or self.markers

    @staticmethod
    def of(plan: Mapping[str, Any], struck: int | None) -> Options:
        """plan: the content of plan.json; struck: when the first fault took effect, monotonic ns. Raises
        HistoryError."""
        settings = plan.get("settings") or {}
        if not isinstance(settings, Mapping):
            raise HistoryError(f"settings of the plan is {settings!r}; it must be an object of names and values")
        log = plan.get("log") or {}
        if not isinstance(log, Mapping):
            raise HistoryError(f"log of the plan is {log!r}; it must be an object of names and values")
        policy = plan.get("cleanup.policy", log.get("cleanup.policy", settings.get("log.cleanup.policy", "delete")))
        keys = log.get("keys", 0)
        if not isinstance(keys, int) or isinstance(keys, bool) or keys < 0:
            raise HistoryError(f"keys of the plan's log is {keys!r}; it must be how many there are")
        start = plan.get("log_start", 0)
        if start != "moves" and (not isinstance(start, int) or isinstance(start, bool) or start < 0):
            raise HistoryError(f'log_start of the plan is {start!r}; it must be an offset, or "moves"')
        return Options(
            acks_all=str(plan.get("acks", "all")) in ("all", "-1"),
            since=NEVER if struck is None else struck,
            compacted="compact" in str(policy),
            keys=keys,
            retries=plan.get("idempotence", True) in (False, "false"),
            markers=log.get("markers") is True,
            retention=retention_ns(plan) is not None,
            log_start=ANYWHERE if start == "moves" else start,
        )

    def final(self, final_reads: FinalReads) -> FinalReads:
        """What of them tells the final log."""
        return final_reads.after_last_gap() if self.log_start == ANYWHERE else final_reads

    def complete(self, final_reads: FinalReads) -> bool:
        """Is the final log of a partition known from where it starts?"""
        final_reads = self.final(final_reads)
        from_start = self.log_start == ANYWHERE or final_reads.start <= self.log_start
        return from_start and final_reads.known(self.sparse)


def retention_ns(plan: Mapping[str, Any]) -> int | None:
    """How old a record grows before a broker may delete it, ns; None: nothing is deleted for its age; 0: what is
    deleted is not known, as with log.retention.bytes. plan: the content of plan.json."""
    settings = plan.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    if str(settings.get("log.retention.bytes", "-1")).strip() != "-1":
        return 0
    for name, ms in _RETENTION.items():  # the finest counts, as in Kafka
        if name in settings:
            text = str(settings[name]).strip()
            if text == "-1":
                return None
            return int(text) * ms * 1_000_000 if text.isascii() and text.isdigit() else 0
    return None


def lasting_topic(plan: Mapping[str, Any]) -> str | None:
    """The one whose logs are there and appended to for all of a run, where there are others that live shortly; None:
    every topic is so."""
    return None if plan.get("short_lived_topics") is None else plan.get("topic")


@dataclass(frozen=True)
class Scope:
    """Which segment of which log, and what is known of the whole log."""

    run: str
    topic: str
    partition: int
    low: int
    high: int | None
    final_reads: FinalReads
    end: int  # how long the log once was, as far as any operation saw
    origin: int  # monotonic ns at which the run began
    options: Options = Options()

    @property
    def log(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def whole(self) -> bool:
        """Is it all of the log?"""
        return self.low == 0 and self.high is None

    @property
    def final_known(self) -> bool:
        """Is the final log known, from the lowest fetch offset of a final read?"""
        return self.final_reads.known(self.options.sparse)

    @property
    def asked_from(self) -> int:
        """From which offset on it matters what stands there."""
        if self.options.log_start != ANYWHERE:
            return self.options.log_start
        final = self.final_reads
        return 0 if final.start == NEVER else final.start if final.first == NEVER else final.first

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Scope:
        """The inverse of dataclasses.asdict(), also after a journey as JSON."""
        final_reads, options = FinalReads.of(fields["final_reads"]), Options(**fields["options"])
        return Scope(**{**fields, "final_reads": final_reads, "options": options})
