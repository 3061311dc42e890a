"""`chaos doctor` and `chaos clean`: what this machine can do, and what dead runs left on it."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.errors import BadArguments, ExitCode
from harness.report.terminal import say


def doctor() -> int:
    """Say what this machine can do and what is missing."""
    from harness.runtimes.doctor import checks

    findings = checks()
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        say(f"{finding.status:18}  {finding.name}: {finding.detail}{remedy}")
    return ExitCode.PASS if all(finding.ok for finding in findings) else ExitCode.HARNESS_FAILURE


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
