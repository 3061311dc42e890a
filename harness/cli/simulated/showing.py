"""What an exploration shows while it goes on, and the table it ends with."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rich.text import Text

from harness.cli.simulated import systematic
from harness.report import words
from harness.report.terminal import Terminal
from harness.run.interrupt import SIGNALS

if TYPE_CHECKING:
    from harness.explore.exploration import Exploration, Standing

#: Rows of the table, and seeds named for each reason; all of them are in explore.json.
MAX_SHOWN = 50
MAX_NAMED = 5


class Show:
    """A progress bar on standard error; without a terminal a line now and then."""

    def __init__(self, console: Terminal) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from harness.report.console import Progress as Lines

        self._console = console
        self._lines = Lines(console)
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self.bar.add_task("exploring", total=None, text="")
        self._judging = False

    def __call__(self, standing: Standing) -> None:
        text = f"{standing.seeds_an_hour:,.0f} seeds an hour · {standing.failing:,} failing so far"
        judging = standing.judging and not self._judging
        self._judging = standing.judging
        self.bar.update(
            self._task, completed=standing.done, total=standing.total, text=text,
            description="judging" if standing.judging else "exploring",
        )  # fmt: skip
        if not self._console.is_terminal:
            line = f"{standing.done:,} of {standing.total:,} seeds · {text}"
            (self._lines.say if judging else self._lines.tick)(f"{line} · judging" if judging else line)

    def sweep(self, done: int, total: int, failing: int) -> None:
        """Of a systematic exploration."""
        text = f"{failing:,} failing so far"
        self.bar.update(self._task, completed=done, total=total, text=text, description="striking")
        if not self._console.is_terminal:
            self._lines.tick(f"{done:,} of {total:,} runs · {text}")

    def say(self, line: str) -> None:
        self._console.print(Text(line))


@contextmanager
def showing() -> Iterator[Show]:
    show = Show(Terminal(stderr=True))
    with show.bar:
        yield show


@contextmanager
def asked_to_stop(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Whether the user has asked to. The first signal asks, the second one stops at once, by KeyboardInterrupt."""
    signals = 0

    def signalled(number: int, frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            raise KeyboardInterrupt
        say("ending early, then judging what there is; once more to stop at once")

    before = {number: signal.signal(number, signalled) for number in SIGNALS}
    try:
        yield lambda: signals > 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_exploration(console: Terminal, found: Exploration) -> None:
    """A table of the seeds that failed, and what became of the others."""
    if found.failing:
        rows = [("seed", "property", "where", "at", "replay")]
        for each in found.failing[:MAX_SHOWN]:
            broken = each.property if each.anomaly in ("", "violation") else f"{each.property}: {each.anomaly}"
            at = "" if each.time_s is None else f"{each.time_s:.3f} s"
            rows.append((str(each.seed), broken or each.result, each.where, at, each.replay))
        systematic.print_failing(console, rows, [each.message for each in found.failing])
    for line in _summary(found):
        console.print(Text(line))


def _summary(found: Exploration) -> Iterator[str]:
    unknown = sum(map(len, found.unknown.values()))
    counts = [
        f"{found.runs:,} {'run' if found.runs == 1 else 'runs'}",
        f"{found.passed:,} passed",
        f"{found.count('fail'):,} failed",
    ]
    counts += [f"{found.count(result):,} {result}" for result in ("crashed", "hang") if found.count(result)]
    counts.append(f"{unknown:,} unknown")
    if found.runs < found.asked:
        counts[0] = f"{found.runs:,} of {found.asked:,} runs"
    yield (
        f"{', '.join(counts)}; {found.simulated_s:,.0f} s simulated in {found.simulate_s:,.1f} s, "
        f"{found.seeds_an_hour:,.0f} seeds an hour, judged in {found.judge_s:,.1f} s"
    )
    if (states := found.states).get("distinct"):
        new = f"; {states['new']:,} new in the last {states['last_runs']:,} runs"  # in all of them they are all new
        yield (
            f"  states    {states['distinct']:,} of the protocol, {states['under_faults']:,} with faults in force"
            + new * (states["last_runs"] < found.runs)
        )
    for reason, seeds in found.unknown.items():
        named = ", ".join(map(str, seeds[:MAX_NAMED])) + (", …" if len(seeds) > MAX_NAMED else "")
        yield f"  unknown   {len(seeds):,}: {reason} (seed {named})"
    for name, why in found.without_effect.items():
        unproven = "; so nothing is proven of it: --allow-vacuous asks for less" * (name in found.lacking_effect)
        yield f"  no effect {name}: in no run; {why}{unproven}"
    for problem in found.problems:
        yield f"  problem   {problem}"
    if found.runs < found.asked and not found.guided:
        left = words.plural(found.asked - found.runs, "seed")
        yield f"  left      {left}: the same command with --resume {found.directory}"
    yield f"  all of it {found.directory}"
    from harness.record.catalog.groups import PAGES

    yield f"  page      {found.directory / PAGES['exploration']}"
