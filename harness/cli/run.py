"""`chaos run`: one run, or one for each of several seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from harness.cli.nemesis import IntervalOption, NemesisOption, RecoveryOption, pace
from harness.cli.options import (
    AbortIfOption,
    DeleteRecordsOption,
    ExpectOption,
    FormerTargetsOption,
    MutantOption,
    ProducersOption,
    ResultsOption,
    ShortLivedTopicsOption,
    SparkUiOption,
    StrikeOption,
    TargetOption,
    TimeLimitOption,
    administration,
    refuse_former_targets,
)
from harness.cli.spark import LOCAL, SparkOption, check_reachable
from harness.errors import BadArguments, ExitCode, HarnessFailure, RuntimeUnavailable, Stopped, describe
from harness.record import results
from harness.report.terminal import print_table, say, say_json

if TYPE_CHECKING:
    from harness.run.order import Done, Order

DEFAULT_NEMESIS: Final = "power-outage"
#: From the best to the worst that may become of several runs.
_WORSE: Final = (ExitCode.PASS, ExitCode.UNKNOWN, ExitCode.HARNESS_FAILURE, ExitCode.FAIL)


def run(
    context: typer.Context,
    nemesis: NemesisOption = DEFAULT_NEMESIS,
    schedule: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Faults from a file instead, e.g. a run's schedule.toml, edited by hand."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="All that is not given here from a file, e.g. a run's plan.toml."),
    ] = None,
    interval: IntervalOption = None,
    recovery: RecoveryOption = None,
    target: TargetOption = "kraft",
    on: Annotated[
        Literal["auto", "docker", "simulation", "ssh"],
        typer.Option(
            help="Containers, one process with virtual time, or hosts of your own (--hosts); auto: containers where "
            "Docker answers."
        ),
    ] = "auto",
    hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The hosts of --on ssh: see docs/hosts.md.")
    ] = None,
    time_limit: TimeLimitOption = 60.0,
    seed: Annotated[int | None, typer.Option(help="Of the fault schedule; by default a new one each time.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="A run for each of these seeds, one after the other.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Records a second, all producers together.")] = 2000.0,
    records_per_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Records of one request; by default by the rate, 1 up to 150/s.")
    ] = None,
    delete_records: DeleteRecordsOption = None,
    short_lived_topics: ShortLivedTopicsOption = None,
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
    workload_settings: Annotated[
        list[str] | None,
        typer.Option("--workload-set", metavar="NAME=VALUE", help="A setting of the workload; repeatable."),
    ] = None,
    client: Annotated[
        str, typer.Option(metavar="NAME", help="What the workload appends and reads by; see chaos list clients.")
    ] = "kio",
    producers: ProducersOption = "plain",
    client_settings: Annotated[
        list[str] | None,
        typer.Option("--client-set", metavar="NAME=VALUE", help="A setting of the client, its own names; repeatable."),
    ] = None,
    clients: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="TLS and SASL of every client (docs/clients.md); repeatable."),
    ] = None,
    timeouts: Annotated[
        Literal["short", "kafka"],
        typer.Option(help="Time-outs so short that a minute shows something, or Kafka's defaults."),
    ] = "short",
    kafka_home: Annotated[
        Path | None,
        typer.Option(metavar="DIR|TGZ", help="A distribution of Kafka to test, or a source tree where one was built."),
    ] = None,
    upgrade_to: Annotated[
        str | None,
        typer.Option(metavar="VERSION|DIR|TGZ", help="The release that --nemesis membership:upgrade leads to."),
    ] = None,
    strike: StrikeOption = None,
    targets: FormerTargetsOption = None,
    workload: Annotated[str, typer.Option(metavar="NAME", help="What clients do.")] = "append",
    file_system: Annotated[
        Literal["ext4", "xfs"] | None, typer.Option(help="Of each node's volume, in containers; by default ext4.")
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
    bug: Annotated[
        str | None, typer.Option(metavar="ID", help="Give every node a historical bug; see chaos list bugs.")
    ] = None,
    mutant: MutantOption = None,
    latency_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="In simulation: from one host to another; by default 0.5.")
    ] = None,
    task_order: Annotated[
        Literal["fifo", "random", "pct"] | None,
        typer.Option(
            metavar="ORDER", help="In simulation, of tasks that are ready at once: fifo (the default), random or pct."
        ),
    ] = None,
    encode_messages: Annotated[
        bool, typer.Option("--encode-messages", help="In simulation: encode and decode every message.")
    ] = False,
    expect: ExpectOption = None,
    abort_if: AbortIfOption = None,
    results_directory: ResultsOption = results.DEFAULT,
    spark: SparkOption = LOCAL,
    spark_ui_port: SparkUiOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Start nothing: print who would be struck when, and by which commands.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print verdicts as JSON, a line each, instead of summaries.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it runs.")] = False,
    run_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the run's directory; by default its start, nemeses and seed.")
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Record only; chaos check judges it later.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up afterwards.")] = False,
    allow_vacuous: Annotated[
        bool, typer.Option("--allow-vacuous", help="Pass also if a nemesis named here did not take effect.")
    ] = False,
) -> int:
    """Start a cluster, work on it, break it, and judge what it did."""
    if schedule is not None and (_is_given(context, "nemesis") or interval or recovery):
        raise BadArguments("--schedule says which faults there are and when; leave out what else would say it")
    alone = {"--seed": seed is not None, "--keep": keep, "--run-name": run_name is not None, "--no-check": no_check}
    if seeds is not None and (given_too := [name for name, is_given in alone.items() if is_given]):
        raise BadArguments(f"--seeds makes a run for each; leave out {given_too[0]}")
    refuse_former_targets(targets)

    from harness.cli.histories.check import check_port
    from harness.cli.histories.showing import conclude
    from harness.plan import plan_file, registry
    from harness.plan.plan import parse_client_settings, parse_features, parse_settings, parse_workload_settings
    from harness.plan.seeds import parse_seeds
    from harness.run.order import Order
    from harness.targets.security import given as given_security

    check_port(spark_ui_port)
    fields = {} if plan is None else plan_file.read(plan)
    given = {name: context.params[name] for name in _AS_THEY_ARE if _is_given(context, name)}
    fields |= given | {name: value for name, value in pace(interval, recovery).items() if value is not None}
    fields |= administration(delete_records, short_lived_topics)
    if _is_given(context, "nemesis"):
        fields["nemesis"] = registry.parse_names(nemesis)
        fields.pop("schedule", None)
    if schedule is not None:
        fields["schedule"] = str(schedule)
    if settings:
        tested = registry.make_target(str(fields.get("target", target)))
        fields["settings"] = {**fields.get("settings", {}), **parse_settings(settings, tested)}
    if workload_settings:
        fields["workload_settings"] = {
            **fields.get("workload_settings", {}), **parse_workload_settings(workload_settings)
        }  # fmt: skip
    if client_settings:
        driven = registry.make_client(str(fields.get("client", client)))
        read = parse_client_settings(client_settings, driven)
        fields["client_settings"] = {**fields.get("client_settings", {}), **read}
    if clients:
        fields["clients"] = {**fields.get("clients", {}), **given_security.parse(clients)}
    if features:
        fields["features"] = {**fields.get("features", {}), **parse_features(features)}
    if expect:
        fields["expect"] = tuple(expect)
    if abort_if:
        fields["abort_if"] = tuple(abort_if)
    if kafka_home is not None:
        fields["kafka_home"] = str(kafka_home)
    if upgrade_to is not None:
        fields["upgrade_to"] = upgrade_to
    if hosts is not None:
        fields["hosts"] = str(hosts)
    if allow_vacuous:
        fields["must_take_effect"] = "none"
    check_reachable()
    order = Order(fields, results_directory, keep, spark_ui_port, run_name, not no_check, quiet)
    if dry_run:
        return _dry_run(replace(order, starts=False), [None] if seeds is None else parse_seeds(seeds), as_json=as_json)
    showing = _as_json if as_json else lambda done: conclude(done.directory, done.verdict)
    if seeds is not None:
        return _one_after_the_other(order, parse_seeds(seeds), showing, with_table=not as_json)
    done = order.prepared().carry_out()
    if no_check and not as_json:
        say(f"recorded; chaos check {done.directory} judges it")
        return ExitCode.PASS
    return showing(done)


def _dry_run(order: Order, seeds: Sequence[int | None], *, as_json: bool) -> int:
    """seeds: None: the order's own, or one that is drawn."""
    from harness.run.dry import showing
    from harness.run.dry.preview import preview

    for number, seed in enumerate(seeds):
        asked = order if seed is None else replace(order, fields={**order.fields, "seed": seed})
        found = preview(asked.prepared())
        if as_json:
            say_json(showing.as_json(found))
            continue
        say("\n" * bool(number), end="")
        showing.show(found)
    return ExitCode.PASS


def _as_json(done: Done) -> int:
    """As `chaos check --json` has it. Without a verdict there is no exit code of it."""
    say_json({"path": str(done.directory), **done.verdict})
    return int(done.verdict.get("exit_code", ExitCode.PASS))


#: Options whose values are a plan's as they are.
_AS_THEY_ARE: Final = (
    "target", "on", "time_limit", "seed", "rate", "records_per_batch", "concurrency", "partitions",
    "replication_factor", "min_insync_replicas", "acks", "timeouts", "strike", "workload", "client", "producers",
    "file_system", "brokers", "spare_brokers", "racks", "controllers", "combined", "bug", "mutant", "latency_ms",
    "task_order", "encode_messages",
)  # fmt: skip


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


#: Of the table of several seeds.
_COLUMNS: Final = ("seed", "verdict", "acknowledged", "lost", "faults", "reason")


def _one_after_the_other(
    order: Order, seeds: Sequence[int], showing: Callable[[Done], int], *, with_table: bool
) -> int:
    orders = [replace(order, fields={**order.fields, "seed": seed}) for seed in seeds]
    for each in orders:  # what is wrong with the last one is told before the first begins
        each.prepared()
    rows: list[tuple[str, ...]] = []
    codes: list[ExitCode] = []
    for number, (seed, each) in enumerate(zip(seeds, orders, strict=True), start=1):
        say(f"seed {seed}, {number} of {len(seeds)}", file=sys.stdout if with_table else sys.stderr)
        try:
            done = each.prepared().carry_out()
        except Stopped:
            if with_table:
                say("")
                print_table(_COLUMNS, rows)
            raise
        except (HarnessFailure, RuntimeUnavailable) as error:
            rows.append((str(seed), "not judged", "", "", "", describe(error)))
            codes.append(ExitCode.HARNESS_FAILURE)
            continue
        showing(done)
        rows.append((str(seed), *row_of(done)))
        codes.append(ExitCode(done.verdict["exit_code"]))
        if done.was_stopped:
            break
    if with_table:
        say("")
        print_table(_COLUMNS, rows)
    return worst(codes)


def row_of(done: Done) -> tuple[str, str, str, str, str]:
    """Of a table of runs: verdict, acknowledged, lost, faults that took effect, reason."""
    verdict = done.verdict
    faults = verdict["faults"].values()
    effective, planned = (sum(each[key] for each in faults) for key in ("effective", "injected"))
    return (
        str(verdict["verdict"]), f"{verdict['operations'].get('acknowledged', 0):,}", f"{verdict.get('lost', 0):,}",
        f"{effective} of {planned}", str(verdict["reason"]),
    )  # fmt: skip


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    return max(codes, key=_WORSE.index, default=ExitCode.PASS)
