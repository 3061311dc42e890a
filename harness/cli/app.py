"""The command line. Every command returns an exit code of errors.ExitCode; every error is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from harness.cli import nemesis as cli_nemesis
from harness.cli.check import check
from harness.cli.explore import explore
from harness.cli.generate import generate, list_defects
from harness.cli.guarded import guarded
from harness.cli.matrix import matrix
from harness.cli.options import ResultsOption
from harness.cli.run import run
from harness.cli.saved.export import export
from harness.cli.saved.logs import logs
from harness.cli.saved.replay import inspect, replay, shrink
from harness.cli.target import target as target_command
from harness.errors import BadArguments, ExitCode
from harness.plan import registry
from harness.plan.plan import Plan
from harness.record import results
from harness.report.terminal import print_table, say
from harness.runtimes.owner import is_alive, machine
from harness.targets.target import Target

app = typer.Typer(
    name="chaos",
    add_completion=False,
    rich_markup_mode=None,
)

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


app.command()(run)
app.command()(check)
app.command()(explore)
app.command()(generate)
app.command()(export)
app.command()(replay)
app.command()(shrink)
app.command()(inspect)
app.command()(logs)
app.command()(matrix)
app.add_typer(target_command, name="target")


@app.command("list")
def list_(
    what: Annotated[
        Literal["runs", "targets", "nemeses", "workloads", "bugs", "defects", "settings"], typer.Argument()
    ] = "runs",
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Show runs and their verdicts, or what there is to choose from."""
    if what == "runs":
        _print_runs(results_directory)
    elif what == "nemeses":
        print_table(("nemesis", "knobs", "works in", "what it does"), list(cli_nemesis.rows()))
    elif what == "workloads":
        workloads = [(name, registry.load(registry.WORKLOADS, name)) for name in registry.names(registry.WORKLOADS)]
        print_table(("workload", "what it does"), [(name, _first_line(each)) for name, each in workloads])
    elif what == "defects":
        return list_defects()
    elif what == "targets":
        rows = [_target_row(each) for each in registry.targets()]
        print_table(("target", "works in", "promises", "what it is"), rows)
    elif what == "bugs":
        bugs = [row for each in registry.targets() for row in each.bugs()]
        print_table(("bug", "revealed by", "what it is"), bugs)
    else:
        settings = [row for each in registry.targets() for row in each.settings()]
        print_table(("setting", "default", "valid", "what it does"), settings)
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
        print_table(("run", "verdict", "reason"), rows)
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
