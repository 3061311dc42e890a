"""`chaos explore`: its arguments, and what is done by them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from harness.cli.nemesis import IntervalOption, NemesisOption, RecoveryOption
from harness.cli.options import (
    DeleteRecordsOption,
    FormerTargetsOption,
    MutantOption,
    ShortLivedTopicsOption,
    StrikeOption,
    TargetOption,
    TimeLimitOption,
    WorkersOption,
    check_workers,
    refuse_former_targets,
)
from harness.cli.simulated import systematic
from harness.cli.simulated.guiding import guide_of, keep_corpus, make_corpus, of_corpus
from harness.cli.simulated.planning import planned, seeds_of
from harness.cli.simulated.showing import asked_to_stop, print_exploration, showing
from harness.cli.simulated.systematic import DepthOption, EveryOption, MostOption, OfOption, StepOption
from harness.cli.spark import LOCAL, SparkOption, check_reachable
from harness.errors import BadArguments, HarnessFailure, describe
from harness.report.terminal import Terminal, say_json

if TYPE_CHECKING:
    from harness.plan.plan import Plan


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
    records_per_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Records of one request; by default drawn, half of the time 1.")
    ] = None,
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
            help="For each seed, draw settings that --set does not name, latency, producers, the size of batches and "
            "the order of tasks.",
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
    check_workers(workers)
    systematic.check(every, of, given, len(whole), step, most, depth)
    if shard is not None:
        numbers = part_of(numbers, shard)
    if every is not None:
        limit = {} if "time_limit" in given else {"time_limit": systematic.TIME_LIMIT_S}
        plan, plan_of = planned({**context.params, **limit, "nemesis": "kill"}, numbers, draws_faults=False)
        return _strike_everywhere(plan_of(plan, numbers[0]), context.params)
    plan, plan_of = planned(context.params, whole)
    if corpus is not None and not guided:
        raise BadArguments("--corpus is of runs that are changed, and needs --guided")
    if resume:
        numbers = _left(resume, plan, plan_of.drawn, numbers, guided)
    check_reachable()

    from harness.explore.exploration import explore as explore_seeds

    begin = of_corpus(corpus)
    guide = guide_of(plan, plan_of, numbers, begin) if guided else None
    source = guide or seeds_of(plan, plan_of, numbers)
    if corpus is not None:
        make_corpus(corpus)
    with showing() as show, asked_to_stop(show.say) as asked:
        if corpus is not None:
            show.say(f"beginning with {len(begin):,} runs of {corpus}")
        try:
            found = explore_seeds(
                plan,
                source,
                results_directory,
                of=whole,
                drawn=plan_of.drawn,
                workers=workers,
                until_failure=until_failure,
                stop=asked,
                watch=show,
            )
        except OSError as error:
            raise HarnessFailure(f"results cannot be written to {results_directory}: {describe(error)}") from error
    if as_json:
        say_json(found.as_dict(), indent=2)
    else:
        print_exploration(Terminal(), found)
    if guide is not None and corpus is not None:
        kept = keep_corpus(guide, corpus)
        if not as_json:
            Terminal().print(Text(f"  corpus    {kept:,} runs in {corpus}"))
    return found.exit_code


def _left(
    resumed: Sequence[Path], plan: Plan, drawn: Collection[str], numbers: Sequence[int], guided: bool
) -> list[int]:  # fmt: skip
    """Raises BadArguments."""
    from harness.explore.parts import left

    if guided:
        raise BadArguments(
            "--resume: runs of a guided exploration are made of others; give its --corpus, and new seeds"
        )
    if not (found := left(resumed, plan, numbers, drawn)):
        together = " ".join(map(str, resumed))
        raise BadArguments(f"--resume: all {len(numbers):,} seeds were simulated; chaos check {together} judges them")
    return found


def named_by_user(context: typer.Context) -> set[str]:
    """The options that are not left as they are."""
    source = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, each in source.items() if each is not None and each.name != "DEFAULT"}


def _strike_everywhere(plan: Plan, given: Mapping[str, Any]) -> int:
    """given: by names of explore's parameters."""
    with showing() as show, asked_to_stop(show.say) as asked:
        swept = systematic.sweep(
            plan, given["every"], given["of"], given["results_directory"], stop=asked, watch=show.sweep,
            **{name: given[name] for name in ("step", "most", "depth", "resume", "workers")},
        )  # fmt: skip
    if given["as_json"]:
        say_json(swept.as_dict(), indent=2)
    else:
        systematic.print_sweep(Terminal(), swept)
    return swept.exit_code


def read_options(words: str) -> Mapping[str, Any]:
    """As planned() takes them: options of `chaos explore`, as typed. Raises BadArguments, or click's errors."""
    alone = typer.Typer(add_completion=False)
    alone.command("explore")(explore)
    return typer.main.get_command(alone).make_context("explore", shlex.split(words)).params
