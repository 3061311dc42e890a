"""`chaos explore --every`: its options, and the table it ends with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.text import Text

from harness.errors import BadArguments, HarnessFailure

if TYPE_CHECKING:
    from harness.explore.systematic.sweeping import Ran, Swept
    from harness.plan.plan import Plan
    from harness.report.terminal import Terminal

EveryOption = Annotated[
    Literal["kill", "power", "eio", "short-write", "fsync", "reset", "late"] | None,
    typer.Option("--every", help="Strike so in each operation on disks or (reset, late) each message, a run each."),
]
OfOption = Annotated[
    Literal["produce", "load"],
    typer.Option("--of", help="With --every: operations while clients append, or while a node loads its logs."),
]
StepOption = Annotated[int, typer.Option("--step", metavar="N", help="With --every: only every N-th operation.")]
MostOption = Annotated[
    int | None,
    typer.Option("--most", metavar="N", help="With --every: at most so many, at even distances; of each depth."),
]
DepthOption = Annotated[
    int, typer.Option("--depth", metavar="1|2", help="With --every: 2: strike again while the node loads after that.")
]

#: Seconds that clients work in each run, if nobody says: operations are like each other soon.
TIME_LIMIT_S: Final = 8.0
LEAST_TIME_LIMIT_S: Final = 5.0
#: Rows of the table; all of them are in the file.
MOST_SHOWN: Final = 50
#: Options of explore that are of many seeds, and what --every says to each.
_OF_MANY: Final = {
    "nemesis": "it strikes by itself; leave --nemesis out",
    "interval": "it strikes once; leave --interval out",
    "recovery": "it strikes once; leave --recovery out",
    "guided": "it makes the runs itself; leave it out",
    "corpus": "it makes the runs itself; leave --corpus out",
    "shard": "it makes a run for each operation; leave --shard out",
    "until_failure": "it ends when every operation was struck; give --most for fewer",
}
_OF_EVERY: Final = ("of", "step", "most", "depth")


def check(
    every: str | None, of: str, given: Collection[str], seeds: int, step: int, most: int | None, depth: int
) -> None:
    """given: options that the user has named. Raises BadArguments."""
    from harness.runtimes.simulation.disk.strike import OF_MESSAGES

    if every is None:
        for name in _OF_EVERY:
            if name in given:
                raise BadArguments(f"--{name} is of what strikes in every operation, and needs --every")
        return
    for name, why in _OF_MANY.items():
        if name in given:
            named = "--guided or --random" if name == "guided" else f"--{name.replace('_', '-')}"
            raise BadArguments(f"--every {every} and {named} do not go together: {why}")
    if seeds != 1:
        raise BadArguments(f"--every is of one seed, and --seeds has {seeds}; give one, such as --seeds 7")
    if step < 1 or (most is not None and most < 1):
        name, value = ("--step", step) if step < 1 else ("--most", most)
        raise BadArguments(f"{name} is {value}; it must be at least 1")
    if depth not in (1, 2):
        raise BadArguments(f"--depth is {depth}; valid: 1, 2")
    if every in OF_MESSAGES and (of == "load" or depth == 2):
        named = "--of load" if of == "load" else "--depth 2"
        raise BadArguments(f"--every {every} strikes messages, and {named} is of operations on a disk; leave it out")


def sweep(
    plan: Plan, every: str, of: str, results_directory: Path, *, step: int, most: int | None, depth: int,
    resume: Sequence[Path] | None, workers: int | None, stop: Callable[[], bool],
    watch: Callable[[int, int, int], None],
) -> Swept:  # fmt: skip
    """plan: of the seed. resume: earlier ones, whose runs are not made again. Raises BadArguments, HarnessFailure."""
    from harness.explore.systematic.points import Sweep
    from harness.explore.systematic.sweeping import before, carry_out

    if plan.time_limit < LEAST_TIME_LIMIT_S:
        raise BadArguments(
            f"--every needs {LEAST_TIME_LIMIT_S:g} s for a strike and what follows it, and --time-limit has "
            f"{plan.time_limit:g}"
        )
    wanted = Sweep(plan, every, of, depth)  # type: ignore[arg-type]
    done = {point: ran for each in resume or () for point, ran in before(each, wanted).items()}
    try:
        return carry_out(
            wanted, results_directory, step=step, most=most, done=done, workers=workers, stop=stop, watch=watch
        )
    except OSError as error:
        raise HarnessFailure(f"results cannot be written to {results_directory}: {error}") from error


def print_sweep(console: Terminal, swept: Swept) -> None:
    """A table of the operations whose runs failed, and what there was to strike."""
    if swept.failing:
        rows = [("run", "operation", "file", "property", "replay"), *map(_row, swept.failing[:MOST_SHOWN])]
        print_failing(console, rows, [ran.reason for ran in swept.failing])
    for line in _summary(swept):
        console.print(Text(line))


def print_failing(console: Terminal, rows: Sequence[Sequence[str]], why: Sequence[str]) -> None:
    """rows: the head, then a row each of the first of what failed. why: a sentence each, of all that failed."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(Text(line, style="bold" if number == 0 else ""))
        if number:
            console.print(Text(f"{'':{widths[0]}}  {why[number - 1]}", style="dim"))
    if len(why) >= len(rows):
        console.print(Text(f"… and {len(why) - len(rows) + 1:,} more"))
    console.print()


def _row(ran: Ran) -> tuple[str, str, str, str, str]:
    assert ran.failure is not None
    struck = ran.struck or {"operation": "", "path": ""}
    broken = ran.failure.property or ran.failure.result
    return str(ran.point), struck["operation"], struck["path"], broken, ran.failure.replay


def _summary(swept: Swept) -> Iterator[str]:
    from harness.record.catalog.groups import PAGES, SYSTEMATIC

    while_ = "clients append" if swept.sweep.of == "produce" else "a node loads its logs"
    counted = ", ".join(f"{node} {count:,}" for node, count in swept.counted.items())
    yield f"{sum(swept.counted.values()):,} operations counted while {while_}: {counted}"
    if swept.sweep.depth == 2:
        yield f"{swept.again:,} operations counted while a node loads its logs after the first strike"
    planned = "" if swept.planned == len(swept.ran) else f" of {swept.planned:,}"
    found = swept.results
    told = [f"{found['pass']:,} passed", f"{found['fail']:,} failed"]
    told += [f"{found[name]:,} {name}" for name in ("crashed", "hang") if found[name]]
    runs = "run" if len(swept.ran) == 1 and not planned else "runs"
    told.append(f"{found['unknown']:,} unknown")
    yield f"{len(swept.ran):,}{planned} {runs}, {swept.struck:,} struck: {', '.join(told)}"
    reasons = Counter(each.reason for each in swept.ran if each.result == "unknown")
    for reason, count in reasons.most_common(3):
        yield f"  unknown   {count:,}: {reason}"
    if planned:
        yield f"  left      {swept.planned - len(swept.ran):,}: the same command with --resume {swept.directory}"
    yield f"  all of it {swept.directory}"
    yield f"  page      {swept.directory / PAGES[SYSTEMATIC]}"
