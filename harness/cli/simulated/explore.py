"""`chaos explore`: its arguments, what it shows while it goes on, and the table it ends with."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.text import Text

from harness.cli.nemesis import IntervalOption, NemesisOption, RecoveryOption, pace
from harness.cli.options import (
    DeleteRecordsOption,
    FormerTargetsOption,
    MutantOption,
    ShortLivedTopicsOption,
    StrikeOption,
    TargetOption,
    TimeLimitOption,
    WorkersOption,
    administration,
    check_workers,
    refuse_former_targets,
)
from harness.cli.simulated import systematic
from harness.cli.simulated.systematic import DepthOption, EveryOption, MostOption, OfOption, StepOption
from harness.cli.spark import LOCAL, SparkOption, check_reachable
from harness.errors import BadArguments, HarnessFailure
from harness.report.terminal import Terminal, say_json
from harness.run.interrupt import SIGNALS

if TYPE_CHECKING:
    from harness.explore.exploration import Exploration, Standing
    from harness.explore.guided.guide import Guide
    from harness.explore.workers import Job
    from harness.plan.plan import Plan

#: Rows of the table, and seeds named for each reason; all of them are in explore.json.
MAX_SHOWN = 50
MAX_NAMED = 5


def explore(
    context: typer.Context,
    seeds: Annotated[
        str, typer.Option(metavar="A..B,C,…", help="Seeds to simulate; both ends are included.")
    ] = "0..99",
    nemesis: NemesisOption = "power-outage",
    interval: IntervalOption = None,
    recovery: RecoveryOption = None,
    bug: Annotated[
        str | None, typer.Option(metavar="ID", help="Give every node a historical bug; see chaos list bugs.")
    ] = None,
    mutant: MutantOption = None,
    time_limit: TimeLimitOption = 60.0,
    # Less than `chaos run`: interleavings find bugs, volume takes time.
    rate: Annotated[float, typer.Option(help="Records a second, all producers together.")] = 40.0,
    delete_records: DeleteRecordsOption = None,
    short_lived_topics: ShortLivedTopicsOption = None,
    concurrency: Annotated[int, typer.Option(help="Producers.")] = 2,
    partitions: Annotated[int, typer.Option(help="Of the topic.")] = 4,
    replication_factor: Annotated[int, typer.Option(help="Replicas of each partition.")] = 3,
    min_insync_replicas: Annotated[int, typer.Option(help="acks=all is refused below this.")] = 2,
    acks: Annotated[Literal["all", "1", "0"], typer.Option(help="What counts as acknowledged.")] = "all",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of every node; repeatable.")
    ] = None,
    strike: StrikeOption = None,
    targets: FormerTargetsOption = None,
    target: TargetOption = "kraft",
    workload: Annotated[str, typer.Option(metavar="NAME", help="What clients do.")] = "append",
    producers: Annotated[
        Literal["plain", "idempotent", "fenced"] | None,
        typer.Option(metavar="KIND", help="plain, idempotent or fenced, as of chaos run; by default drawn."),
    ] = None,
    brokers: Annotated[int, typer.Option(help="Each in a rack of its own, but for --racks.")] = 3,
    spare_brokers: Annotated[
        int, typer.Option(help="Further ones that are no members until membership:add has them join.")
    ] = 0,
    racks: Annotated[
        int | None, typer.Option(help="That brokers and controllers are dealt out to, one after the other.")
    ] = None,
    controllers: Annotated[int, typer.Option(help="Voters of the metadata quorum, in the racks of the brokers.")] = 3,
    combined: Annotated[
        bool, typer.Option("--combined", help="No nodes of their own for the controllers: the first brokers are both.")
    ] = False,
    allow_vacuous: Annotated[
        bool, typer.Option("--allow-vacuous", help="Pass also if a nemesis named here took effect in no run.")
    ] = False,
    latency_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="From one host to another; by default drawn for each seed.")
    ] = None,
    task_order: Annotated[
        Literal["fifo", "random", "pct"] | None,
        typer.Option(metavar="ORDER", help="Of tasks ready at once: fifo, random or pct; by default drawn."),
    ] = None,
    vary: Annotated[
        bool,
        typer.Option(
            "--vary/--no-vary",
            help="For each seed, draw settings that --set does not name, latency, producers and the order of tasks.",
        ),
    ] = True,
    encode_messages: Annotated[
        bool, typer.Option("--encode-messages", help="Encode and decode every message.")
    ] = False,
    guided: Annotated[
        bool,
        typer.Option("--guided/--random", help="Change runs that reached new states; or draw all from seeds."),
    ] = False,
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus", metavar="DIR", help="With --guided: runs to begin with, and where to keep better ones."
        ),
    ] = None,
    every: EveryOption = None,
    of: OfOption = "produce",
    step: StepOption = 1,
    most: MostOption = None,
    depth: DepthOption = 1,
    shard: Annotated[
        str | None,
        typer.Option(metavar="K/N", help="Every N-th seed, from the K-th on; chaos check judges all parts together."),
    ] = None,
    resume: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Leave out the seeds that this exploration has simulated; repeatable."),
    ] = None,
    workers: WorkersOption = None,
    until_failure: Annotated[bool, typer.Option("--until-failure", help="Stop at the first seed that fails.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    results_directory: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where explorations are kept.")
    ] = Path("results"),
    spark: SparkOption = LOCAL,
) -> int:
    """Simulate many seeds in parallel, judge them all, and say which failed and how to replay them."""
    refuse_former_targets(targets)

    from harness.plan.seeds import parse_seeds, part_of

    given = named_by_user(context)
    whole = numbers = parse_seeds(seeds) if every is None or "seeds" in given else [0]
    if shard is not None:
        numbers = part_of(numbers, shard)
    check_workers(workers)
    systematic.check(every, of, given, len(numbers), step, most, depth)
    if every is not None:
        limit = {} if "time_limit" in given else {"time_limit": systematic.TIME_LIMIT_S}
        plan, plan_of = planned({**context.params, **limit, "nemesis": "kill"}, numbers[0])
        return _strike_everywhere(plan_of(plan, numbers[0]), context.params)
    plan, plan_of = planned(context.params, numbers[0])
    if corpus is not None and not guided:
        raise BadArguments("--corpus is of runs that are changed, and needs --guided")
    if resume:
        numbers = _left(resume, plan, numbers, guided)
    check_reachable()

    from harness.explore.exploration import explore as explore_seeds

    begin = of_corpus(corpus)
    guide = guide_of(plan, plan_of, numbers, begin) if guided else None
    if corpus is not None:
        _make_corpus(corpus)
    with _showing() as show, _asked_to_stop(show.say) as asked:
        if corpus is not None:
            show.say(f"beginning with {len(begin):,} runs of {corpus}")
        try:
            found = explore_seeds(
                plan,
                numbers,
                results_directory,
                plan_of=plan_of,
                guide=guide,
                of=whole,
                workers=workers,
                until_failure=until_failure,
                stop=asked,
                watch=show,
            )
        except OSError as error:
            raise HarnessFailure(f"results cannot be written to {results_directory}: {error}") from error
    kept = None if guide is None or corpus is None else _keep_corpus(guide, corpus)
    if as_json:
        say_json(found.as_dict(), indent=2)
    else:
        print_exploration(Terminal(), found)
        if kept is not None:
            Terminal().print(Text(f"  corpus    {kept:,} runs in {corpus}"))
    return found.exit_code


def _left(resumed: Sequence[Path], plan: Plan, numbers: Sequence[int], guided: bool) -> list[int]:
    """Raises BadArguments."""
    from harness.explore.parts import left

    if guided:
        raise BadArguments(
            "--resume: runs of a guided exploration are made of others; give its --corpus, and new seeds"
        )
    if not (found := left(resumed, plan, numbers)):
        together = " ".join(map(str, resumed))
        raise BadArguments(f"--resume: all {len(numbers):,} seeds were simulated; chaos check {together} judges them")
    return found


def named_by_user(context: typer.Context) -> set[str]:
    """The options that are not left as they are."""
    source = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, each in source.items() if each is not None and each.name != "DEFAULT"}


def _strike_everywhere(plan: Plan, given: Mapping[str, Any]) -> int:
    """given: by names of explore's parameters."""
    with _showing() as show, _asked_to_stop(show.say) as asked:
        swept = systematic.sweep(
            plan, given["every"], given["of"], given["results_directory"], stop=asked, watch=show.sweep,
            **{name: given[name] for name in ("step", "most", "depth", "workers")},
        )  # fmt: skip
    if given["as_json"]:
        say_json(swept.as_dict(), indent=2)
    else:
        systematic.print_sweep(Terminal(), swept)
    return swept.exit_code


def guide_of(
    plan: Plan, plan_of: Callable[[Plan, int], Plan], numbers: Sequence[int], begin: Sequence[Job] = ()
) -> Guide:
    """Of an exploration (see planned) with these seeds. begin: runs of a corpus, whose code may have had no bug."""
    from harness.explore.guided.guide import Guide
    from harness.explore.workers import Job
    from harness.plan import registry
    from harness.plan import schedule as schedules

    nemeses = registry.make_nemeses(plan.nemesis, plan.acks, plan.timing)

    def fresh(seed: int) -> Job:
        return Job(plan_of(plan, seed), schedules.build(nemeses, seed, plan.time_limit, plan.pace))

    bug = {"bug": plan.bug, "mutant": plan.mutant}
    return Guide(fresh, numbers, [job._replace(plan=job.plan.model_copy(update=bug)) for job in begin])


def of_corpus(corpus: Path | None) -> Sequence[Job]:
    """Raises BadArguments."""
    from harness.explore.guided.corpus import load

    return load(corpus) if corpus is not None else ()


def _make_corpus(corpus: Path) -> None:
    """At once: what is found would have no place in the end. Raises BadArguments."""
    try:
        corpus.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArguments(f"--corpus {corpus} cannot be made: {error.strerror}") from error


def _keep_corpus(guide: Guide, corpus: Path) -> int:
    """How many runs it has then. Raises HarnessFailure."""
    from harness.explore.guided.corpus import save

    try:
        return save(guide.finish().entries, corpus, guide.not_run)
    except OSError as error:
        raise HarnessFailure(f"the corpus cannot be kept in {corpus}: {error.strerror}") from error


def planned(given: Mapping[str, Any], first: int) -> tuple[Plan, Callable[[Plan, int], Plan]]:
    """What its options make of an exploration: the plan of all its runs, and what a seed makes of it. given: by names
    of explore's parameters. first: of its seeds. Raises BadArguments."""
    from harness.explore import swarm
    from harness.plan import registry
    from harness.plan import schedule as schedules
    from harness.plan.feasible import check_targets
    from harness.plan.plan import make_plan, parse_settings

    tested = registry.make_target(given["target"])
    wanted = registry.parse_names(given["nemesis"])
    nemeses = registry.make_nemeses(wanted, given["acks"])
    registry.check_runtime(nemeses, "simulation", advise=False)
    registry.load(registry.WORKLOADS, given["workload"])
    chosen = {name: given[name] for name in ("latency_ms", "producers", "task_order") if given[name] is not None}
    plan = make_plan(
        run="explore", on="simulation", nemesis=wanted, seed=first,
        strike=given["strike"] or registry.preferred_targets(nemeses),
        must_take_effect="none" if given["allow_vacuous"] else "any",
        settings=parse_settings(given["settings"] or (), tested),
        **{name: given[name] for name in _AS_THEY_ARE}, **pace(given["interval"], given["recovery"]),
        **administration(given["delete_records"], given["short_lived_topics"]), **chosen,
    )  # fmt: skip
    check_targets(nemeses, plan)
    schedules.check_room(
        nemeses, schedules.build(nemeses, first, plan.time_limit, plan.pace), plan.time_limit, plan, plan.pace
    )
    vary = given["vary"]
    return plan, partial(
        swarm.plan_of, draw_settings=vary, draw_latency=vary and "latency_ms" not in chosen,
        draw_producers=vary and "producers" not in chosen, draw_order=vary and "task_order" not in chosen,
    )  # fmt: skip


#: Options whose values are a plan's as they are.
_AS_THEY_ARE: Final = (
    "target", "workload", "time_limit", "rate", "concurrency", "acks", "partitions", "replication_factor",
    "min_insync_replicas", "brokers", "spare_brokers", "racks", "controllers", "combined", "bug", "mutant",
    "encode_messages",
)  # fmt: skip


def read_options(words: str) -> Mapping[str, Any]:
    """As planned() takes them: options of `chaos explore`, as typed. Raises BadArguments, or click's errors."""
    alone = typer.Typer(add_completion=False)
    alone.command("explore")(explore)
    return typer.main.get_command(alone).make_context("explore", shlex.split(words)).params


class _Show:
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
def _showing() -> Iterator[_Show]:
    show = _Show(Terminal(stderr=True))
    with show.bar:
        yield show


@contextmanager
def _asked_to_stop(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
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
        f"{', '.join(counts)}; {found.simulated_s:,.0f} s simulated in {found.wall_s:,.1f} s, "
        f"{found.seeds_an_hour:,.0f} seeds an hour"
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
        yield f"  no effect {name}: in no run; {why}"
    for problem in found.problems:
        yield f"  problem   {problem}"
    if found.runs < found.asked and not found.guided:
        yield f"  stopped   the same command goes on with --resume {found.directory}"
    yield f"  all of it {found.directory}"
    from harness.record.catalog.groups import PAGES

    yield f"  page      {found.directory / PAGES['exploration']}"
