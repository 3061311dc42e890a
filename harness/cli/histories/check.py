"""`chaos check`: its arguments."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.cli.options import parse_time_limit
from harness.cli.spark import LOCAL, SparkOption
from harness.errors import BadArguments, ExitCode, HarnessFailure
from spark_history.spark.master import LOOPBACK

if TYPE_CHECKING:
    from harness.explore.parts import Part
    from harness.record.judging import Outcome
    from harness.record.sources import HistorySource
    from harness.report.terminal import Terminal

MAX_INITIAL = 1 << 62


def check(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…",
            help="Runs, by name or directory, or latest; directories of runs; Jepsen's histories (EDN, JSON, its log).",
        ),
    ],
    workload: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a history: register, list-append, bank, mutex, …; or guessed."),
    ] = None,
    initial: Annotated[
        str | None, typer.Option(metavar="VALUE", help="Of registers: nil (the default) or an integer.")
    ] = None,
    keyed: Annotated[
        bool | None, typer.Option("--keyed/--not-keyed", help="Are values [key value]? By default if all look so.")
    ] = None,
    nil_reads: Annotated[
        Literal["value", "anything"] | None,
        typer.Option(help="Of registers: does a read of nil say that nil was there, or nothing (as Knossos has it)?"),
    ] = None,
    failed_cas: Annotated[
        Literal["nothing", "evidence"] | None,
        typer.Option(help="Of registers: does a failed cas say that another value was there (as Porcupine has it)?"),
    ] = None,
    consistency: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Of transactions: strict-serializable (the default), serializable, …"),
    ] = None,
    wfr_keys: Annotated[
        bool, typer.Option("--wfr-keys", help="Of rw-register: a transaction writes a key after it reads it.")
    ] = False,
    sequential_keys: Annotated[
        bool, typer.Option("--sequential-keys", help="Of rw-register: keys are sequential; orders their versions.")
    ] = False,
    linearizable_keys: Annotated[
        bool, typer.Option("--linearizable-keys", help="Of rw-register: keys are linearizable; likewise.")
    ] = False,
    total_amount: Annotated[
        int | None, typer.Option(metavar="N", help="Of a bank; by default what its first read adds up to.")
    ] = None,
    negative_balances: Annotated[
        bool, typer.Option("--allow-negative-balances", help="Of a bank: a balance may be below zero.")
    ] = False,
    group_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Of long-fork: keys of a read; by default of the first.")
    ] = None,
    linearizable: Annotated[
        bool, typer.Option("--linearizable", help="Of set-full: a stale read is wrong, and not only reported.")
    ] = False,
    memory_limit: Annotated[
        int | None, typer.Option(metavar="MB", min=1, help="Of a search; beyond it the answer is unknown.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="TIME", parser=parse_time_limit, help="Of a search; beyond it the answer is unknown."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdicts as JSON, a line each.")] = False,
    results_directory: Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are kept.")] = Path(
        "results"
    ),
    spark: SparkOption = LOCAL,
    spark_ui_port: Annotated[
        int | None, typer.Option("--spark-ui-port", metavar="PORT", help="Show Spark's own pages.")
    ] = None,
) -> int:
    """Judge runs again from their histories, also ones whose harness was killed; or histories that others made."""
    from harness.cli.histories.showing import as_dict, print_many, print_one
    from harness.record.judging import Asked, Judge, check_choices, check_workload, worst
    from harness.record.sources import find
    from harness.report.console import Progress
    from harness.report.terminal import Terminal, say_json

    check_workload(workload)
    check_port(spark_ui_port)
    plan = _plan(initial, nil_reads, failed_cas, consistency, memory_limit, time_limit)
    flags = {
        "wfr_keys": wfr_keys, "sequential_keys": sequential_keys, "linearizable_keys": linearizable_keys,
        "negative_balances": negative_balances, "linearizable": linearizable,
    }  # fmt: skip
    numbers = {"total_amount": total_amount, "group_size": group_size}
    plan |= {name: True for name, given in flags.items() if given}
    plan |= {name: given for name, given in numbers.items() if given is not None}
    if workload not in (None, "append"):  # which is what Jepsen calls list-append
        check_choices(workload, plan)
    left_out: list[str] = []
    sources = find(paths, results_directory, left_out.append)
    asked = Asked(workload, keyed, plan, spark_ui_port)
    explored = _parts(sources)

    console = Terminal()
    outcomes: list[Outcome] = []
    with Progress() as progress:
        for text in left_out:
            progress.say(text)

        def judge_log(directory: Path) -> Mapping[str, Any]:
            from harness.run.components import Verification
            from harness.run.run import check as check_run

            return check_run(directory, Verification(), progress, spark_ui_port=spark_ui_port)

        judge = Judge(asked, progress.update, judge_log)
        empty = {each.directory for each in explored if each.ended_without_a_run()}
        for source in sources:
            if source.path.parent in empty:
                continue
            for outcome in judge.judge(source):
                outcomes.append(outcome)
                if as_json:
                    progress.settle()
                    say_json(as_dict(outcome))
    if not as_json:
        if len(outcomes) == 1:
            print_one(console, outcomes[0])
        else:
            print_many(console, outcomes, explored=bool(explored))
    if not explored:
        return worst(outcomes)
    return _judge_together(explored, outcomes, Terminal(stderr=as_json), _directories(sources))


def _parts(sources: Sequence[HistorySource]) -> Sequence[Part]:
    """What the explorations among these say of themselves; nothing where something else is among them, too. Raises
    BadArguments."""
    from harness.explore import parts

    if any(source.kind != "dataset" for source in sources):
        return ()
    found = [parts.read(each) for each in _directories(sources) if (each / parts.FILE).exists()]
    for each in found:
        each.failing()  # what cannot be read is told now, and not after the judging
    return found


def _directories(sources: Sequence[HistorySource]) -> Sequence[Path]:
    return [source.path.parent for source in sources]


def _judge_together(
    explored: Sequence[Part], outcomes: Sequence[Outcome], console: Terminal, directories: Sequence[Path]
) -> ExitCode:
    """As chaos explore judges one: runs of which nothing can be said as nothing happened in them do no harm.
    directories: those of `explored`, and others that do not say what they are."""
    from rich.text import Text

    from harness.explore import parts
    from harness.record.judging import worst

    known = {each.directory for each in explored}
    joined = parts.join(explored, [each for each in directories if each not in known])
    for line in joined.lines:
        console.print(Text(line))
    if (code := worst([each for each in outcomes if not _is_vacuous(each)])) not in (ExitCode.PASS, ExitCode.UNKNOWN):
        return code
    if joined.lost:
        return ExitCode.HARNESS_FAILURE
    passed = any(each.word == "pass" for each in outcomes)
    return code if joined.complete and passed else ExitCode.UNKNOWN


def _is_vacuous(outcome: Outcome) -> bool:
    from checkers.verdict.vacuous import is_vacuous

    return outcome.word == "unknown" and is_vacuous(str(outcome.verdict["reason"]))


def _plan(
    initial: str | None,
    nil_reads: str | None,
    failed_cas: str | None,
    consistency: str | None,
    memory_limit: int | None,
    time_limit: float | None,
) -> dict[str, Any]:
    """What overrides the plans of what is judged. Raises BadArguments."""
    plan: dict[str, Any] = {}
    if initial is not None:
        plan["initial"] = None if initial == "nil" else _integer(initial)
    if nil_reads is not None:
        plan["nil_reads"] = nil_reads
    if failed_cas is not None:
        plan["failed_cas"] = failed_cas
    if consistency is not None:
        models = [each.strip() for each in consistency.split(",")]
        for each in models:
            _check_model(each)
        plan["consistency"] = models if len(models) > 1 else models[0]
    if time_limit is not None and not 0 < time_limit < float("inf"):
        raise BadArguments(f"--time-limit is {time_limit}; it must be a number of seconds above 0")
    bounds = {"memory_mb": memory_limit, "seconds": time_limit}
    if given := {name: bound for name, bound in bounds.items() if bound is not None}:
        plan["bounds"] = given
    return plan


def _check_model(consistency: str) -> None:
    from checkers.transactions.consistency import model_named
    from spark_history.errors import HistoryError

    try:
        model_named(consistency)
    except HistoryError as error:
        raise BadArguments(f"--consistency: {error}") from None


def _integer(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = MAX_INITIAL
    if not -MAX_INITIAL < number < MAX_INITIAL:
        raise BadArguments(f"--initial {text!r} is neither nil nor an integer") from None
    return number


def check_port(port: int | None) -> None:
    """Raises BadArguments or HarnessFailure if Spark's pages cannot be shown there."""
    if port is None:
        return
    if not 1 <= port <= 65535:
        raise BadArguments(f"--spark-ui-port is {port}; valid is 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise HarnessFailure(
                f"--spark-ui-port {port} cannot be used: {error.strerror}; give another, or none for no such page"
            ) from None
