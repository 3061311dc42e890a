"""`chaos check`: its arguments, and what it shows of one run or history, or of many."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from harness.cli.guarded import guarded
from harness.cli.options import parse_time_limit
from harness.cli.spark import LOCAL, SparkOption
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.record import results
from harness.record.judging import Asked, Judge, Outcome, check_choices, check_workload, examples, worst
from harness.record.results import NOT_JUDGED
from harness.record.sources import find
from harness.report import witnesses
from harness.report.console import COLOURS, Progress, print_summary
from harness.report.terminal import Terminal, say_json
from spark_history.spark.master import LOOPBACK

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
        typer.Option(metavar="NAME", help="Of a history: register, append, list-append, kafka, mutex, …; or guessed."),
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
    check_workload(workload)
    check_port(spark_ui_port)
    plan = _plan(initial, nil_reads, failed_cas, consistency, memory_limit, time_limit)
    if workload not in (None, "append"):  # which is what Jepsen calls list-append
        check_choices(workload, plan)
    left_out: list[str] = []
    sources = find(paths, results_directory, left_out.append)
    asked = Asked(workload, keyed, plan, spark_ui_port)

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
        for source in sources:
            for outcome in judge.judge(source):
                outcomes.append(outcome)
                if as_json:
                    progress.settle()
                    say_json(_as_dict(outcome))
    if not as_json:
        if len(outcomes) == 1:
            _print_one(console, outcomes[0])
        else:
            _print_many(console, outcomes)
    return worst(outcomes)


def main() -> None:
    """`chaos check …`, of sys.argv, without the other commands. Raises SystemExit always."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(check)
    command = typer.main.get_command(app)
    sys.exit(guarded(lambda: command.main(sys.argv[2:], prog_name="chaos check", standalone_mode=False)))


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
        _check_model(consistency)
        plan["consistency"] = consistency
    if time_limit is not None and not 0 < time_limit < float("inf"):
        raise BadArguments(f"--time-limit is {time_limit}; it must be a number of seconds above 0")
    bounds = {"memory_mb": memory_limit, "seconds": time_limit}
    if given := {name: bound for name, bound in bounds.items() if bound is not None}:
        plan["bounds"] = given
    return plan


def _check_model(consistency: str) -> None:
    from checkers.transactions.consistency import model_named
    from spark_history.files import HistoryError

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


def conclude(directory: Path, verdict: Mapping[str, Any]) -> int:
    """The summary of a run of a log, and its exit code."""
    record = results.read_json(directory / "run.json")
    console = Terminal()
    faults = results.read_faults(directory, verdict.get("origin_ns"))
    print_summary(console, directory, verdict, faults, record.get("problems", []), str(record.get("tested") or ""))
    if verdict["exit_code"] == ExitCode.FAIL:
        # What lies there is of another verdict if this one could not be put there.
        _print_witnesses(console, examples(verdict) if "unsaved" in verdict else witnesses.of_run(directory))
    return int(verdict["exit_code"])


def _print_one(console: Terminal, outcome: Outcome) -> None:
    if outcome.error is not None:
        raise (BadArguments if outcome.refused else HarnessFailure)(outcome.error)
    if outcome.directory is not None:
        conclude(outcome.directory, outcome.verdict)
        return
    verdict = outcome.verdict
    console.print()
    console.print(_verdict(outcome, f": {verdict['reason']}"))
    if changed := _changed(verdict):
        console.print(Text(f"  verdict     {changed}"))
    if unsaved := verdict.get("unsaved"):
        console.print(Text(f"  not saved   {unsaved}"))
    counts = verdict.get("operations", {})
    reported = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    console.print(Text(f"  history     {outcome.path} ({verdict.get('workload')})"))
    console.print(Text(f"  operations  {reported}"))
    if outcome.word == "fail":  # else it is the reason
        for text in verdict.get("undecided_reasons", ()):
            console.print(Text(f"  undecided   {text}"))
    for note in outcome.notes:
        console.print(Text(f"  note        {note}"))
    _print_witnesses(console, outcome.witnesses)


def _changed(verdict: Mapping[str, Any]) -> str | None:
    from checkers.verdict import keeping

    return keeping.change(verdict)


def _print_witnesses(console: Terminal, lines: Sequence[str]) -> None:
    if lines:
        console.print()
    for line in lines:
        console.print(Text(f"  {line}"))


def _verdict(outcome: Outcome, rest: str) -> Text:
    return Text.assemble((outcome.word, COLOURS.get(outcome.word, "bold")), rest)


def _print_many(console: Terminal, outcomes: Sequence[Outcome]) -> None:
    """A line each, then what was not judged, and how many there are of each."""
    if not outcomes:
        console.print(Text("there is no run in it"))
        return
    width = max(len(outcome.path) for outcome in outcomes)
    for outcome in outcomes:
        reason = outcome.error if outcome.error is not None else str(outcome.verdict["reason"])
        if changed := _changed(outcome.verdict):
            reason = f"{reason} ({changed})"
        if unsaved := outcome.verdict.get("unsaved"):
            reason = f"{reason} ({unsaved})"
        rest = f"{'':{12 - len(outcome.word)}}{reason}"
        console.print(Text(f"{outcome.path:<{width}}  ").append_text(_verdict(outcome, rest)))
    words = [outcome.word for outcome in outcomes]
    counts = ", ".join(
        f"{words.count(word):,} {word}" for word in ("pass", "fail", "unknown", NOT_JUDGED) if word in words
    )
    console.print(Text(f"{len(outcomes):,} judged: {counts}"))


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    if outcome.error is not None:
        return {"path": outcome.path, "verdict": None, "error": outcome.error, "exit_code": outcome.exit_code}
    return {"path": outcome.path, **outcome.verdict, "notes": list(outcome.notes), "witnesses": list(outcome.witnesses)}
