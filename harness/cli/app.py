"""The command line. Every command returns an exit code of errors.ExitCode; every error is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from harness.cli import nemesis as cli_nemesis
from harness.cli.check import check, check_port, conclude
from harness.cli.explore import explore
from harness.cli.export import export
from harness.cli.generate import generate, list_defects
from harness.cli.guarded import guarded
from harness.cli.nemesis import IntervalOption, NemesisOption, RecoveryOption, pace
from harness.cli.options import (
    FormerTargetsOption,
    StrikeOption,
    TargetOption,
    TimeLimitOption,
    check_seed,
    refuse_former_targets,
)
from harness.cli.replay import replay, shrink
from harness.cli.spark import LOCAL, SparkOption, check_reachable
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.plan import registry, schedule_file
from harness.plan import schedule as schedules
from harness.plan.feasible import check_targets
from harness.plan.plan import Plan, make_plan, parse_features, parse_settings
from harness.record import results, room
from harness.report.terminal import Terminal, printable, say
from harness.runtimes import choose_runtime
from harness.runtimes.owner import is_alive, machine
from harness.targets.target import Target
from nemesis import SIMULATION

DEFAULT_RESULTS = Path("results")
DEFAULT_NEMESIS = "power-outage"

app = typer.Typer(
    name="chaos",
    add_completion=False,
    rich_markup_mode=None,
)

ResultsOption = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are kept.")]
SparkUiOption = Annotated[int | None, typer.Option("--spark-ui-port", metavar="PORT", help="Show Spark's own pages.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `chaos`. Raises SystemExit always."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    sys.exit(guarded(lambda: typer.main.get_command(app).main(words, prog_name="chaos", standalone_mode=False)))


def _tell_version(asked: bool) -> None:
    if asked:
        from checkers.verdict.keeping import checkers_version

        of = checkers_version()
        say(f"chaos {of['version']}, checkers {of['source']}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which this is, and end.")
    ] = False,
) -> None:
    """Breaks a replicated log on purpose, and proves from the record whether it kept its promises."""


@app.command()
def run(
    nemesis: NemesisOption = DEFAULT_NEMESIS,
    schedule: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Faults from a file instead, e.g. a run's schedule.toml, edited by hand."),
    ] = None,
    interval: IntervalOption = None,
    recovery: RecoveryOption = None,
    target: TargetOption = "kraft",
    on: Annotated[
        Literal["auto", "docker", "simulation"],
        typer.Option(help="Containers, or one process with virtual time; auto: containers where Docker answers."),
    ] = "auto",
    time_limit: TimeLimitOption = 60.0,
    seed: Annotated[int | None, typer.Option(help="Of the fault schedule; by default a new one each time.")] = None,
    rate: Annotated[float, typer.Option(help="Records a second, all producers together.")] = 2000.0,
    concurrency: Annotated[int, typer.Option(help="Producers.")] = 4,
    partitions: Annotated[int, typer.Option(help="Of the topic.")] = 8,
    replication_factor: Annotated[int, typer.Option(help="Replicas of each partition.")] = 3,
    min_insync_replicas: Annotated[int, typer.Option(help="acks=all is refused below this.")] = 2,
    acks: Annotated[Literal["all", "1", "0"], typer.Option(help="What counts as acknowledged.")] = "all",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of every node; repeatable.")
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="NAME=LEVEL", help="A feature of Kafka at format; repeatable."),
    ] = None,
    timeouts: Annotated[
        Literal["short", "kafka"],
        typer.Option(help="Time-outs so short that a minute shows something, or Kafka's defaults."),
    ] = "short",
    kafka_home: Annotated[
        Path | None,
        typer.Option(metavar="DIR|TGZ", help="A distribution of Kafka to test, or a source tree where one was built."),
    ] = None,
    strike: StrikeOption = None,
    targets: FormerTargetsOption = None,
    workload: Annotated[str, typer.Option(metavar="NAME", help="What clients do.")] = "append",
    file_system: Annotated[
        Literal["ext4", "xfs"] | None, typer.Option(help="Of each node's volume, in containers; by default ext4.")
    ] = None,
    brokers: Annotated[int, typer.Option(help="Each in a rack of its own.")] = 3,
    controllers: Annotated[int, typer.Option(help="Voters of the metadata quorum, in the racks of the brokers.")] = 3,
    combined: Annotated[
        bool, typer.Option("--combined", help="No nodes of their own for the controllers: the first brokers are both.")
    ] = False,
    bug: Annotated[
        str | None, typer.Option(metavar="ID", help="Give every node a historical bug; see chaos list bugs.")
    ] = None,
    latency_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="In simulation: from one host to another; by default 0.5.")
    ] = None,
    encode_messages: Annotated[
        bool, typer.Option("--encode-messages", help="In simulation: encode and decode every message.")
    ] = False,
    results_directory: ResultsOption = DEFAULT_RESULTS,
    spark: SparkOption = LOCAL,
    spark_ui_port: SparkUiOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up afterwards.")] = False,
    allow_vacuous: Annotated[
        bool, typer.Option("--allow-vacuous", help="Pass also if a nemesis named here did not take effect.")
    ] = False,
) -> int:
    """Start a cluster, work on it, break it, and judge what it did."""
    if schedule is not None and (nemesis != DEFAULT_NEMESIS or interval or recovery):
        raise BadArguments("--schedule says which faults there are and when; leave out what else would say it")
    refuse_former_targets(targets)
    tested = registry.make_target(target)
    wanted = registry.parse_names(nemesis) if schedule is None else schedule_file.names_in(schedule)
    nemeses = registry.make_nemeses(wanted, acks)
    registry.load(registry.WORKLOADS, workload)
    check_seed(seed or 0)
    check_port(spark_ui_port)
    only_simulated = [name for name, each in nemeses.items() if getattr(each, "runtimes", None) == SIMULATION]
    only_simulated += ["--latency-ms"] * (latency_ms is not None) + ["--encode-messages"] * encode_messages
    place, why = choose_runtime(only_simulated, tested) if on == "auto" else (on, "")
    registry.check_runtime(nemeses, place)
    if file_system is not None and place == "simulation":
        raise BadArguments("--file-system is for volumes of containers; leave it out or add --on docker")
    if keep and place == "simulation":
        raise BadArguments("--keep leaves containers up, and a simulation has none; leave it out or add --on docker")
    if place == "docker" and (encode_messages or latency_ms is not None):
        name = "--encode-messages" if encode_messages else "--latency-ms"
        raise BadArguments(f"{name} is for simulated networks; leave it out or add --on simulation")
    fields: dict[str, Any] = {
        "on": place, "nemesis": wanted, "strike": strike or registry.preferred_targets(nemeses), "workload": workload,
        "time_limit": time_limit, "rate": rate, "seed": SystemRandom().randrange(1_000_000) if seed is None else seed,
        "concurrency": concurrency, "acks": acks, "partitions": partitions, "replication_factor": replication_factor,
        "min_insync_replicas": min_insync_replicas, "file_system": file_system or "ext4", "brokers": brokers,
        "controllers": controllers, "combined": combined, "bug": bug, "encode_messages": encode_messages,
        "schedule": None if schedule is None else str(schedule), **pace(interval, recovery),
        "must_take_effect": "none" if allow_vacuous else "each",
        "target": target, "settings": parse_settings(settings or (), tested), "timeouts": timeouts,
        "features": parse_features(features or ()), "kafka_home": None if kafka_home is None else str(kafka_home.absolute()),
        **({} if latency_ms is None else {"latency_ms": latency_ms}),
    }  # fmt: skip
    check_reachable()
    # Before there is a directory that would have to go again.
    tried = make_plan(run="not-yet-named", **fields)
    check_targets(nemeses, tried)
    if schedule is None:
        faults = schedules.build(nemeses, tried.seed, time_limit, tried.pace)
        schedules.check_room(nemeses, faults, time_limit)
    else:
        parts_of_it = registry.make_nemeses(schedule_file.parts_in(schedule), acks)
        faults = schedule_file.read(schedule, parts_of_it, tried.seed, time_limit, tried.node_names)
    directory = results.create(results_directory, wanted, fields["seed"])
    try:
        room.check(directory)
    except HarnessFailure:
        directory.rmdir()
        raise
    plan = make_plan(run=directory.name, **fields)

    from harness.report.console import Progress
    from harness.run.run import components_of
    from harness.run.run import run as run_plan

    components = components_of(plan)
    with Progress() as progress:
        if why:
            progress.say(why)
        if (short := room.short(directory, plan)) is not None:
            progress.say(short)
        running = run_plan(
            plan, nemeses, directory, components, progress, schedule=faults, keep=keep, spark_ui_port=spark_ui_port
        )
        verdict = components.runtime.run(running)
    return conclude(directory, verdict)


app.command()(check)
app.command()(explore)
app.command()(generate)
app.command()(export)
app.command()(replay)
app.command()(shrink)


@app.command("list")
def list_(
    what: Annotated[
        Literal["runs", "targets", "nemeses", "workloads", "bugs", "defects", "settings"], typer.Argument()
    ] = "runs",
    results_directory: ResultsOption = DEFAULT_RESULTS,
) -> int:
    """Show runs and their verdicts, or what there is to choose from."""
    if what == "runs":
        _print_runs(results_directory)
    elif what == "nemeses":
        _print_table(("nemesis", "knobs", "works in", "what it does"), list(cli_nemesis.rows()))
    elif what == "workloads":
        workloads = [(name, registry.load(registry.WORKLOADS, name)) for name in registry.names(registry.WORKLOADS)]
        _print_table(("workload", "what it does"), [(name, _first_line(each)) for name, each in workloads])
    elif what == "defects":
        return list_defects()
    elif what == "targets":
        rows = [_target_row(each) for each in registry.targets()]
        _print_table(("target", "works in", "promises", "what it is"), rows)
    elif what == "bugs":
        bugs = [row for each in registry.targets() for row in each.bugs()]
        _print_table(("bug", "revealed by", "what it is"), bugs)
    else:
        settings = [row for each in registry.targets() for row in each.settings()]
        _print_table(("setting", "default", "valid", "what it does"), settings)
    return ExitCode.PASS


@app.command()
def doctor() -> int:
    """Say what this machine can do and what is missing."""
    from harness.runtimes.doctor import checks

    findings = checks()
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        say(f"{finding.status:18}  {finding.name}: {finding.detail}{remedy}")
    return ExitCode.PASS if all(finding.ok for finding in findings) else ExitCode.HARNESS_FAILURE


@app.command()
def clean(
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this run, also if its harness is still running.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also runs of other users, and images of other checkouts.")
    ] = False,
) -> int:
    """Remove whatever dead runs left: containers, networks, mounts, loop devices, firewall rules. Says what first."""
    from harness.runtimes.clean import NotCleaned, Wish
    from harness.runtimes.clean import clean as clean_machine

    if run is not None and everything:
        raise BadArguments("--run names one run, and --all means every one; give either")
    try:
        removed = clean_machine(Wish(run, everything), say)
    except NotCleaned as error:
        say("\n".join(error.done))
        raise
    say("\n".join(removed) if removed else "nothing was left")
    return ExitCode.PASS


def _target_row(target: Target) -> tuple[str, str, str, str]:
    promise = target.promise(Plan.model_construct(run="of-defaults", target=target.name))
    summary = target.summary + "".join(f"; no {what}: {why}" for what, why in target.unsupported.items())
    return target.name, ", ".join(sorted(target.runtimes)), f"{promise.sentence} ({promise.source})", summary


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().split("\n")[0]


def _print_runs(directory: Path) -> None:
    rows = []
    for run_directory in results.list_runs(directory):
        verdict = results.read_json(run_directory / "verdict.json")
        how = _state(results.read_json(run_directory / "run.json"))
        rows.append((run_directory.name, str(verdict.get("verdict", "not judged")), str(verdict.get("reason", how))))
    for directory_ in results.list_explorations(directory):
        rows.append((directory_.name, *_of_exploration(results.read_json(directory_ / results.EXPLORATION_FILE))))
    if rows:
        _print_table(("run", "verdict", "reason"), rows)
    else:
        say(f"no runs under {directory}")


def _state(record: Mapping[str, Any]) -> str:
    """Of a run without a verdict. record: run.json."""
    status, harness = str(record.get("status", "")), record.get("harness")
    if status != "running" or not isinstance(harness, Mapping) or harness.get("machine") != machine():
        return status
    if is_alive(str(harness.get("process"))):
        return status
    return "its harness was killed; chaos check judges what was recorded until then"


def _of_exploration(reported: Mapping[str, Any]) -> tuple[str, str]:
    """Verdict and reason. reported: exploration.json; {}: it did not come to its end."""
    if not reported:
        return "not judged", "an exploration that did not come to its end"
    words: Mapping[Any, str] = {ExitCode.PASS: "pass", ExitCode.FAIL: "fail", ExitCode.UNKNOWN: "unknown"}
    try:
        word, totals = words.get(reported["exit_code"], "not judged"), reported["totals"]
        counts = ", ".join(f"{totals[name]:,} {name}" for name in ("passed", "failed", "unknown"))
        return word, f"an exploration of {totals['runs']:,} seeds: {counts}"
    except (KeyError, TypeError, ValueError):
        return "not judged", f"an exploration whose {results.EXPLORATION_FILE} is damaged"


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console = Terminal(soft_wrap=False)
    if not console.is_terminal:  # for other programs: a line each, fields set apart by tabs
        for row in rows:
            say("\t".join(row))
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(printable, row))  # so that columns are as wide as what is shown
    console.print(table)
