"""What a run shows while it goes on, and the few lines it ends with."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from rich.live import Live
from rich.status import Status
from rich.text import Text

from harness.report.live import Board, Moment
from harness.report.terminal import Terminal

if TYPE_CHECKING:
    from harness.run.injector import InjectedFault

#: Where output is no terminal: seconds between lines of live progress.
PLAIN_INTERVAL_S = 5.0
#: Where it is one: seconds from one drawing to the next, at least.
REDRAW_S = 0.1
#: Unclean recoveries that a summary names.
MOST_RECOVERIES = 8
#: Lines of a kind in a summary.
MOST_LINES = 40
_PARTITIONS: Final = 4
COLOURS = {"pass": "bold green", "fail": "bold red", "unknown": "bold yellow"}


#: What printing raises where the reader is gone (rich ends the program for it): no reason for a run not to go on.
_NOBODY_READS = (OSError, ValueError, SystemExit)


@dataclass(frozen=True)
class Counts:
    """What a workload has done so far."""

    operations: int = 0
    acknowledged: int = 0
    failed: int = 0
    indeterminate: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)  # by name, since the last look


class Progress:
    """Lines that stay (`say`) and one that changes (`update`), on standard error; without a terminal all stay.

    A context manager. Any thread may tell it something: what hosts do is told by threads of their own.
    """

    def __init__(self, console: Terminal | None = None) -> None:
        self._console = console or Terminal(stderr=True)
        self._lock = threading.RLock()
        self._status: Status | None = None
        self._live: Live | None = None
        self._board = Board()
        self._drawn_at = -REDRAW_S
        self._ticked_at = -PLAIN_INTERVAL_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()

    def say(self, line: str) -> None:
        with suppress(*_NOBODY_READS):
            self._console.print(Text(line))

    @property
    def redraws(self) -> bool:
        """Is there a terminal, so that more than a line now and then is shown?"""
        return self._console.is_terminal

    def moment(self, moment: Moment, line: str) -> bool:
        """What goes on, drawn anew each time; without a terminal `line`, now and then. Was it shown?"""
        if not self.redraws:
            return self.tick(line)
        if time.monotonic() - self._drawn_at < REDRAW_S:  # simulated moments come by the thousand
            return False
        self._drawn_at = time.monotonic()
        with self._lock, suppress(*_NOBODY_READS):
            drawn = self._board.draw(moment)
            if self._live is None:
                self.settle()
                self._live = Live(drawn, console=self._console, transient=True, auto_refresh=False)
                self._live.start()
            self._live.update(drawn, refresh=True)
        return True

    def tick(self, line: str) -> bool:
        """As update, for a line that changes many times a second: without a terminal only now and then. Was it
        shown?"""
        if self._console.is_terminal:
            self.update(line)
            return True
        if time.monotonic() - self._ticked_at < PLAIN_INTERVAL_S:
            return False
        self._ticked_at = time.monotonic()
        self.say(line)
        return True

    def update(self, line: str) -> None:
        if not self._console.is_terminal:
            self.say(line)
            return
        with self._lock, suppress(*_NOBODY_READS):
            self._end_live()
            if self._status is None:
                self._status = self._console.status(_one_line(line))
                self._status.start()
            else:
                self._status.update(_one_line(line))

    def settle(self) -> None:
        """Take away what changes."""
        with self._lock:
            self._end_live()
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _one_line(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ellipsis")


def live_line(
    elapsed: float, time_limit: float, counts: Counts, errors: Mapping[str, int], faults: Sequence[InjectedFault]
) -> str:
    """`12 s of 60 s · 45,120 operations · 44,800 acknowledged · 12 failed · 0 indeterminate · errors of 3 requests
    (NOT_LEADER_OR_FOLLOWER 3) · kill on broker-1`. Records are counted, and errors by the request that got one.

    faults: in force at any time since the last such line; of those that are healed it says so."""
    parts = [
        f"{elapsed:.0f} s of {time_limit:g} s",
        f"{counts.operations:,} operations",
        f"{counts.acknowledged:,} acknowledged",
        f"{counts.failed:,} failed",
        f"{counts.indeterminate:,} indeterminate",
    ]
    parts += [f"errors of {sum(errors.values()):,} requests{_names(errors)}"] * bool(errors)
    parts += [
        f"{fault.nemesis} on {', '.join(fault.targets)}{'' if fault.in_force else ', healed'}" for fault in faults
    ] or ["no fault in force"]
    return " · ".join(parts)


def _names(errors: Mapping[str, int]) -> str:
    shown = sorted(errors.items(), key=lambda item: -item[1])[:3]
    return f" ({', '.join(f'{name} {count:,}' for name, count in shown)})" if shown else ""


def print_summary(
    console: Terminal,
    directory: Path,
    verdict: Mapping[str, Any],
    faults: Sequence[Mapping[str, Any]],
    problems: Sequence[str],
    tested: str = "",
) -> None:
    """Verdict and reason, counts, a line for each fault, what went wrong in the harness, and where to go on.

    faults: as from results.read_faults. tested: which build of the target that was.
    """
    name = str(verdict.get("verdict", "unknown"))
    headline = Text.assemble((name, COLOURS.get(name, "bold")), f": {verdict.get('reason', '')}")
    console.print()
    console.print(headline)
    for line in _summary_lines(directory, verdict, faults, problems, tested):
        console.print(Text(line))


def _summary_lines(
    directory: Path,
    verdict: Mapping[str, Any],
    faults: Sequence[Mapping[str, Any]],
    problems: Sequence[str],
    tested: str,
) -> list[str]:
    from checkers.verdict import keeping

    changed = keeping.change(verdict)
    lines = [f"  {'verdict':<10}  {changed}"] if changed else []
    if tested:
        lines.append(f"  tested      {tested}")
    if verdict.get("unsaved"):
        lines.append(f"  not saved   {verdict['unsaved']}")
    ended = verdict.get("ended_early")
    if ended and str(ended) not in str(verdict.get("reason")):
        lines.append(f"  cut short   {ended}")
    lines += [f"  {'no effect':<10}  {each['nemesis']}: {each['why_not']}"
              for each in verdict.get("nemeses") or () if each["why_not"]]  # fmt: skip
    lines += _shortened([f"  {'missing':<10}  {gap}" for gap in verdict.get("evidence_missing") or ()])
    lines.append(f"  operations  {_counts(verdict.get('operations', {}))}")
    for number, text in enumerate(availability_lines(verdict.get("availability"))):
        lines.append(f"  {'' if number else 'latency':<10}  {text}")
    for number, each in enumerate(verdict.get("thresholds") or ()):
        lines.append(f"  {'' if number else 'thresholds':<10}  {threshold_line(each)}")
    lines += [f"  {'damaged':<10}  {entry['file']}: {entry['why']}" for entry in verdict.get("damaged", ())]
    contract = verdict.get("contract", {})
    if contract.get("explanation"):
        lines.append(f"  contract    {contract['explanation']}")
    lost = [attribution_line(each) for each in verdict.get("attribution") or () if each["records"]]
    lines += _shortened([f"  {'' if number else 'lost':<10}  {text}" for number, text in enumerate(lost)], 6)
    losses = [str(each) for each in verdict.get("losses") or ()]
    lines += _shortened([f"  {'' if number else 'losses':<10}  {text}" for number, text in enumerate(losses)])
    lines += [f"  {'recoveries' if i == 0 else '':<10}  {text}" for i, text in enumerate(_possible_losses(verdict))]
    lines += _shortened([f"  {'faults' if i == 0 else '':<10}  {fault_line(fault)}" for i, fault in enumerate(faults)])
    lines += _shortened([f"  {'problem':<10}  {problem}" for problem in problems if problem != ended])
    if "unsaved" not in verdict and _is_of(report := directory / "report.html", verdict):
        lines.append(f"  report      {report}")
    lines.append(f"  judge again chaos check {directory}")
    return lines


def _is_of(report: Path, verdict: Mapping[str, Any]) -> bool:
    """Was the report made of this verdict, not of one before?"""
    try:
        made = report.stat().st_mtime
    except OSError:
        return False
    return made >= datetime.fromisoformat(verdict.get("checked_at", "1970-01-01T00:00:00Z")).timestamp()


def _shortened(lines: Sequence[str], most: int = MOST_LINES) -> list[str]:
    """As many as a person reads."""
    more = [f"  {'':<10}  and {len(lines) - most:,} more; see the report"] if len(lines) > most else []
    return [*lines[:most], *more]


_HELD = {True: "held", False: "broken", None: "not measured"}


def attribution_line(group: Mapping[str, Any]) -> str:
    """`310 acknowledged records: fault 0 took the last copy, of broker-3; chaos-0 26–335`. group: an entry of
    `attribution` in a verdict."""
    from harness.report import words

    records, acknowledged = group["records"], group["acknowledged"]
    kind = "acknowledged record" if records == acknowledged else "record"
    how = f", {acknowledged:,} of them acknowledged" if 0 < acknowledged < records else ""
    cause = group["cause"] if group["fault"] is None else f"fault {group['fault']} {group['cause']}"
    where = [
        f"{name} {', '.join(str(first) if first == last else f'{first}–{last}' for first, last in ranges)}"
        for name, ranges in list(group["partitions"].items())[:_PARTITIONS]
    ]
    more = len(group["partitions"]) - len(where)
    return f"{words.plural(records, kind)}{how}: {cause}; {', '.join(where)}{f' and {more} more' if more else ''}"


def threshold_line(of: Mapping[str, Any]) -> str:
    """`p99 < 500ms: broken, 728.0 ms`. of: an entry of the verdict's `thresholds`."""
    held = _HELD[of["held"]]
    return f"{of['expect']}: {held}{'' if of['measured'] == held else ', ' + of['measured']}"


def availability_lines(availability: Mapping[str, Any] | None) -> list[str]:
    """A few lines for people: latency, for which share of the time there was any, and what became of it in faults."""
    from checkers.verdict.thresholds import all_windows

    if not availability or not availability.get("latency_ms"):
        return []
    latency, gaps = availability["latency_ms"], availability["gaps"]
    reported = [
        f"latency p50 {latency['p50']:,.1f} ms, p99 {latency['p99']:,.1f} ms, p99.9 {latency['p99.9']:,.1f} ms, max "
        f"{latency['max']:,.1f} ms; longest time without any acknowledgement {gaps['longest_ms']:,.0f} ms"
    ]
    if least := availability.get("least_served"):  # verdicts of earlier versions do not say
        share = f"{least['share']:.0%}"
        reported.append(f"every partition acknowledged for {share} of the time at least ({least['partition']})")
    if windows := all_windows(availability):
        worst = max(windows, key=lambda window: window["longest_gap_ms"])
        known = [w["recovery"]["sustained_from_heal_ms"] for w in windows if w["until_s"] is not None]
        slow = max((value for value in known if value is not None), default=None)
        never = sum(value is None for value in known)
        reported.append(
            f"in faults a partition acknowledged nothing for {worst['longest_gap_ms']:,.0f} ms at worst "
            f"({worst['gap_on']}, fault {worst['fault']} {worst['nemesis']})"
            + (f"; whole again {slow:,.0f} ms after the heal at the latest" if slow is not None else "")
            + (f"; not before the end after {never} of them" if never else "")
        )
    return reported


def _possible_losses(verdict: Mapping[str, Any]) -> list[str]:
    """A line for each unclean recovery, of many for the first."""
    reported = [str(entry.get("message", "")) for entry in verdict.get("unclean_recoveries", ())]
    more = [f"and {len(reported) - MOST_RECOVERIES:,} more; see the report"] if len(reported) > MOST_RECOVERIES else []
    return [*reported[:MOST_RECOVERIES], *more]


def _counts(operations: Mapping[str, int]) -> str:
    """From the verdict's counts, `<kind> <outcome>` each."""
    by_outcome = (
        f"{operations.get(f'append {outcome}', 0):,} {meaning}"
        for outcome, meaning in (("ok", "acknowledged"), ("fail", "failed"), ("info", "indeterminate"))
    )
    by_kind = (
        f"{sum(operations.get(f'{kind} {outcome}', 0) for outcome in ('ok', 'fail', 'info')):,} {noun}"
        for kind, noun in (("read", "reads"), ("list_offsets", "list-offsets"), ("final_read", "final reads"))
    )
    deletions = sum(operations.get(f"delete_records {outcome}", 0) for outcome in ("ok", "fail", "info"))
    deleted = f", {deletions:,} deletions" if deletions else ""
    return f"appends: {', '.join(by_outcome)}; {', '.join(by_kind)}{deleted}"


def fault_line(fault: Mapping[str, Any]) -> str:
    """`power-outage on broker-2, controller-2 from 5.0 s to 7.6 s: lost 12 unsynced records; …`"""
    from harness.report import words

    evidence = fault["evidence"]
    if "skipped" in evidence:
        return f"{fault['nemesis']} skipped: {evidence['skipped']}"
    end = "the end, never healed" if fault["end_s"] is None else f"{fault['end_s']:.1f} s"
    together, apart = words.evidence(evidence), [text for _, text in words.evidence_by_node(evidence)]
    # Of several nodes the sums are enough, where there are any; a single node says everything itself.
    seen = "; ".join(filter(None, [together, *(apart if len(apart) == 1 or not together else [])]))
    effect = "" if fault["effective"] else "no effect seen; "
    return f"{fault['nemesis']} on {', '.join(fault['targets'])} from {fault['start_s']:.1f} s to {end}: {effect}{seen}"
