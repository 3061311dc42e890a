"""`chaos logs`: what nodes logged and traced, faults and operations, on one time line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.options import ResultsOption
from harness.errors import BadArguments, ExitCode
from harness.record import results
from harness.report.terminal import say, say_json

_WIDTHS = {"log": "log", "trace": "trace", "fault": "FAULT", "operation": "op"}


def logs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run by name, by path, or `latest`.")],
    around: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="A violation (V3, as the report numbers them), a fault (F2) or a time (12.5s)."
        ),
    ] = None,
    window: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, max=3600.0, help="On either side of what --around names.")
    ] = 1.0,
    node: Annotated[list[str] | None, typer.Option(metavar="NODE", help="Only this node; may be given again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Merge what nodes logged and traced, faults and operations, in seconds of the run.

    Operations are shown around a moment only: those that did not succeed, and the nearest."""
    directory = results.find(run, results_directory)
    from harness.record.timeline.lines import ALL, Around, RunTimeline

    timeline = RunTimeline(directory)
    for name in node or ():
        if name not in timeline.nodes:
            there = ", ".join(timeline.nodes) or "none"
            raise BadArguments(f"no node {name!r} left a log or a trace in this run; there are: {there}")
    asked = timeline.around(around, window) if around is not None else Around("", [ALL])
    lines = timeline.lines(
        asked.spans, nodes=node or None, ops=asked.ops, where=asked.where, operations=around is not None
    )  # fmt: skip
    origin = timeline.origin
    if as_json:
        say_json(_object(timeline.directory, asked, lines, origin), indent=1)
        return ExitCode.PASS
    if asked.title:
        say(f"around {asked.title}")
    width = max((len(line.node) for line in lines), default=0)
    place = -1
    for line in lines:
        span = next((at for at, (start, end) in enumerate(asked.spans) if start <= line.time <= end), place)
        if place not in (-1, span):
            say("        …")
        place = span
        level = f"{line.level} " if line.severe else ""
        where = f"{line.where}  " if line.where and line.kind != "log" else ""
        first, *more = line.text.split("\n")
        say(f"{(line.time - origin) / 1e9:11.6f} s  {line.node:{width}}  {_WIDTHS[line.kind]:5}  {where}{level}{first}")
        for each in more:
            say(f"{'':{width + 24}}{each}")
    if not lines:
        say("nothing is on record then")
    if timeline.wall_clock is None and any((timeline.directory / "logs").glob("*.log")):
        say("logs with wall clock times are left out: nothing tells where they stand on the time line of this run")
    return ExitCode.PASS


def _object(directory: Path, asked: Any, lines: Any, origin: int) -> dict[str, Any]:
    spans = [[round((each - origin) / 1e9, 6) for each in span] for span in asked.spans]
    return {
        "run": directory.name,
        "origin_ns": origin,
        "around": asked.title or None,
        "spans_s": spans if asked.title else None,
        "lines": [
            {
                "at_s": round((line.time - origin) / 1e9, 9), "kind": line.kind, "node": line.node or None,
                "where": line.where or None, "level": line.level or None, "text": line.text,
            }
            for line in lines
        ],
    }  # fmt: skip
