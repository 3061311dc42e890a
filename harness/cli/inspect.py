"""`chaos inspect`: what lies on the disks of a run's nodes, judged anew, property by property."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from harness.cli.options import ResultsOption
from harness.errors import ExitCode
from harness.record import results
from harness.report.terminal import print_table, say

_SHOWN = 20  # anomalies


def inspect(
    run: Annotated[str, typer.Argument(metavar="RUN", help="By name or directory, or latest.")],
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Read the disks and traces of a run's nodes again, as they lie in its directory now, and judge the run by them."""
    from harness.record.inspecting import inspect as judge

    directory = results.find(run, results_directory)
    verdict, rows = judge(directory)
    found = Counter(row["property"] for row in rows)
    looked_at = {**verdict["nodes"].get("looked_at", {})}
    if verdict["replica_records"]:
        looked_at = {"LogMatching": f"{verdict['replica_records']:,} records of replicas", **looked_at}
    names = dict.fromkeys([*verdict["anomalies"], *looked_at, *found])
    print_table(
        ("property", "anomalies", "looked at"),
        [(name, f"{found[name]:,}", looked_at.get(name, "")) for name in names],
    )  # fmt: skip
    for reason in verdict["nodes"]["not_checked"]:
        say(f"not checked: {reason}")
    for row in rows[:_SHOWN]:
        say(f"{row['property']}: {row['anomaly']}: {row['message']}")
    if len(rows) > _SHOWN:
        say(f"… and {len(rows) - _SHOWN:,} more")
    say(f"{verdict['verdict']}: {verdict['reason']}")
    return ExitCode(verdict["exit_code"])
