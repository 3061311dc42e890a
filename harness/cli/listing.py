"""`chaos list`: runs and their verdicts, or what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harness.cli.options import ResultsOption
from harness.errors import ExitCode
from harness.record import results
from harness.report.terminal import print_table, say
from harness.runtimes.owner import is_alive, machine

if TYPE_CHECKING:
    from harness.targets.target import Target
    from nemesis import Nemesis


def list_(
    what: Annotated[
        Literal["runs", "targets", "nemeses", "workloads", "bugs", "defects", "settings"], typer.Argument()
    ] = "runs",
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Show runs and their verdicts, or what there is to choose from."""
    if what == "runs":
        _print_runs(results_directory)
        return ExitCode.PASS
    from harness.plan import registry

    if what == "nemeses":
        print_table(("nemesis", "knobs", "works in", "what it does"), list(_nemeses()))
    elif what == "workloads":
        workloads = [(name, registry.load(registry.WORKLOADS, name)) for name in registry.names(registry.WORKLOADS)]
        print_table(("workload", "what it does"), [(name, _first_line(each)) for name, each in workloads])
    elif what == "defects":
        from harness.cli.histories.generate import list_defects

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
        return f"{', '.join(knob.valid)}: {knob.help}"
    low, high = knob.valid
    return f"{low:g} to {high:g}: {knob.help}"


def _target_row(target: Target) -> tuple[str, str, str, str]:
    from harness.plan.plan import Plan

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
