"""`chaos list`: runs and their verdicts, or what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.cli.options import ResultsOption
from harness.cli.results.alive import still_running
from harness.errors import BadArguments, ExitCode, did_you_mean
from harness.record import results
from harness.record.catalog import groups
from harness.report.terminal import Terminal, print_table, say

if TYPE_CHECKING:
    from harness.targets.target import Target
    from nemesis import Nemesis


def list_(
    what: Annotated[
        Literal["runs", "targets", "nemeses", "workloads", "checkers", "clients", "bugs", "defects", "settings"],
        typer.Argument(),
    ] = "runs",
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this one, with all that there is to say of it.")
    ] = None,
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Show runs and their verdicts, or what there is to choose from."""
    if what == "runs":
        _print_runs(results_directory, name)
        return ExitCode.PASS
    if what == "defects":
        from harness.cli.histories.generate import list_defects

        return list_defects()
    from harness.plan import registry

    if what == "nemeses":
        _print(("nemesis", "knobs", "works in", "what it does"), list(_nemeses()), name, brief=(0, 2, 3))
    elif what == "workloads":
        workloads = [(each, registry.summary(registry.WORKLOADS, each)) for each in registry.names(registry.WORKLOADS)]
        _print(("workload", "what it does"), workloads, name)
    elif what == "checkers":
        _print_checkers(name)
    elif what == "clients":
        rows = [(each.name, ", ".join(sorted(each.runtimes)), each.summary) for each in registry.clients()]
        _print(("client", "works in", "what it is"), rows, name)
    elif what == "targets":
        targets = [_target_row(each) for each in registry.targets()]
        _print(("target", "works in", "promises", "what it is"), targets, name, brief=(0, 1, 2))
    elif what == "bugs":
        bugs = [row for each in registry.targets() for row in each.bugs()]
        _print(("bug", "revealed by", "what it is"), bugs, name, brief=(0, 2))
    else:
        settings = list(dict.fromkeys(row for each in registry.targets() for row in each.settings()))
        _print(("setting", "default", "valid", "what it does"), settings, name, brief=(0, 1, 3))
    return ExitCode.PASS


def _print(
    columns: Sequence[str], rows: Sequence[Sequence[str]], name: str | None, brief: Sequence[int] | None = None
) -> None:
    """name: of one row, and its variants: with all columns, a line each. brief: the columns that fit a terminal; other
    programs get all. Raises BadArguments."""
    if name is None:
        shown = range(len(columns)) if brief is None or not Terminal().is_terminal else brief
        print_table([columns[n] for n in shown], [[row[n] for n in shown] for row in rows])
        return
    found = [row for row in rows if row[0] == name or row[0].startswith(f"{name}:")]
    if not found:
        meant = did_you_mean(name, [row[0] for row in rows])
        raise BadArguments(f"there is no {columns[0]} {name!r}{meant}; leave it out to see what there is")
    width = max(map(len, columns))
    for number, row in enumerate(found):
        say("\n" * bool(number) + row[0])
        for column, text in zip(columns[1:], row[1:], strict=True):
            say(f"  {column:<{width}}  {text or '-'}")


def _print_checkers(name: str | None) -> None:
    from harness.plan import registry

    rows = [
        (each, property_, str(meaning))
        for each in registry.names(registry.CHECKERS)
        for property_, meaning in registry.load(registry.CHECKERS, each).properties.items()
    ]
    if rows or name is not None:
        _print(("checker", "property", "what it means"), rows, name)
    else:
        say("no checker but those of chaos itself, which docs/properties.md tells of")


def _nemeses() -> Iterator[tuple[str, str, str, str]]:
    """(name, knobs, works in, what it does) of every nemesis and variant there is."""
    from harness.plan import registry

    for family in registry.names(registry.NEMESES):
        kind = registry.load(registry.NEMESES, family)
        yield _row(family, kind)
        for variant, special in getattr(kind, "variants", {}).items():
            yield _row(f"{family}:{variant}", special)


def _row(name: str, kind: type[Nemesis]) -> tuple[str, str, str, str]:
    from nemesis import knobs

    reported = "; ".join(
        f"{knob.name}={knob.default if isinstance(knob.default, str) else format(knob.default, 'g')} ({_valid(knob)})"
        for knob in knobs(kind).values()
    )
    return name, reported, ", ".join(sorted(kind.runtimes)), kind.summary


def _valid(knob: Any) -> str:
    if not knob.is_number:
        return f"{', '.join(knob.valid) or 'text'}: {knob.help}"
    low, high = knob.valid
    return f"{low:g} to {high:g}: {knob.help}"


def _target_row(target: Target) -> tuple[str, str, str, str]:
    from harness.plan.plan import Plan

    promise = target.promise(Plan.model_construct(run="of-defaults", target=target.name))
    summary = target.summary + "".join(f"; no {what}: {why}" for what, why in target.unsupported.items())
    return target.name, ", ".join(sorted(target.runtimes)), f"{promise.sentence} ({promise.source})", summary


def _print_runs(directory: Path, name: str | None) -> None:
    if directory.exists() and not directory.is_dir():
        raise BadArguments(f"{directory} is no directory")
    rows: list[tuple[str, str, str]] = []
    for run_directory in results.list_runs(directory):
        verdict = results.read_json(run_directory / "verdict.json")
        how = _state(results.read_json(run_directory / "run.json"))
        rows.append((run_directory.name, str(verdict.get("verdict", "not judged")), str(verdict.get("reason", how))))
    for found in results.list_explorations(directory):
        facts = groups.of_group(found, found.name, "exploration")
        judged = facts.verdict != results.NOT_JUDGED
        rows.append((facts.name, facts.verdict, f"an exploration of {facts.reason}" if judged else facts.reason))
    for found in results.list_sweeps(directory):
        facts = groups.of_group(found, found.name, groups.SYSTEMATIC)
        rows.append((facts.name, facts.verdict, facts.reason))
    if rows:
        _print(("run", "verdict", "reason"), rows, name)
    else:
        say(f"no runs under {directory}")


def _state(record: Mapping[str, Any]) -> str:
    """Of a run without a verdict. record: run.json."""
    status = str(record.get("status", ""))
    if status != "running" or still_running(record):
        return status
    return "its harness was killed; chaos check judges what was recorded until then"
