"""What `chaos check` shows of one run or history, or of many; and `chaos run` of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.record import results
from harness.record.judging import Outcome, examples
from harness.record.results import NOT_JUDGED
from harness.report import witnesses, words
from harness.report.console import COLOURS, print_summary
from harness.report.terminal import Terminal


def conclude(directory: Path, verdict: Mapping[str, Any]) -> int:
    """The summary of a run of a log, and its exit code."""
    record = results.read_json(directory / "run.json")
    console = Terminal()
    faults = results.read_faults(directory, verdict.get("origin_ns"))
    print_summary(console, directory, verdict, faults, record.get("problems", []), str(record.get("tested") or ""))
    if verdict["exit_code"] == ExitCode.FAIL:
        # What lies there is of another verdict if this one could not be put there.
        _print_witnesses(console, examples(verdict) if "unsaved" in verdict else witnesses.of_run(directory))
        _print_witnesses(console, [f"{name}: {meaning}" for name, meaning in _broken_of_others(verdict)])
    return int(verdict["exit_code"])


def _broken_of_others(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Properties of checkers of the user's own that do not hold, with what they mean: no document of ours says that."""
    own = words.own_properties(verdict)
    anomalies = verdict["anomalies"] if own else {}
    broken = {name for name, of in anomalies.items() if of["count"] and not of["weak"]}
    return [(name, meaning) for name, meaning in own.items() if name in broken]


def print_one(console: Terminal, outcome: Outcome) -> None:
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
    console.print(Text(f"  history     {outcome.path} ({verdict.get('workload') or 'append'})"))
    console.print(Text(f"  operations  {reported}"))
    for name, of in verdict.get("measured", {}).items():
        quantiles = ", ".join(f"{quantile}: {value:,.3f}" for quantile, value in of.items())
        console.print(Text(f"  measured    {name} {quantiles}"))
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


#: Of runs of explorations: of more, those that passed are counted, and not named.
_MOST_PASSED: Final = 100


def print_many(console: Terminal, outcomes: Sequence[Outcome], *, explored: bool = False) -> None:
    """A line each, then how many there are of each. explored: they are runs of explorations."""
    if not outcomes:
        console.print(Text("there is no run in it"))
        return
    brief = explored and len(outcomes) > _MOST_PASSED
    named = [outcome for outcome in outcomes if not brief or outcome.word != "pass"]
    width = max((len(outcome.path) for outcome in named), default=0)
    for outcome in named:
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


def as_dict(outcome: Outcome) -> dict[str, Any]:
    if outcome.error is not None:
        return {"path": outcome.path, "verdict": None, "error": outcome.error, "exit_code": outcome.exit_code}
    return {"path": outcome.path, **outcome.verdict, "notes": list(outcome.notes), "witnesses": list(outcome.witnesses)}
