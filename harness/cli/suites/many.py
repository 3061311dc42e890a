"""What `chaos suite` and `chaos matrix` have in common: how many runs go on at once, and what is said meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from harness.errors import BadArguments
from harness.report.terminal import say

JobsOption = Annotated[int, typer.Option("--jobs", metavar="N", help="Runs at once.")]
_MOST_JOBS: Final = 64


def check_jobs(jobs: int) -> None:
    """Raises BadArguments."""
    if not 1 <= jobs <= _MOST_JOBS:
        raise BadArguments(f"--jobs is {jobs}; valid is 1 to {_MOST_JOBS}")


class Telling:
    """A line when a run begins and when it ends."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._begun = 0

    def __call__(self, event: Mapping[str, Any]) -> None:
        title = f"{event['name']}, seed {event['seed']}"
        if event["event"] == "started":
            self._begun += 1
            say(f"{title}: {self._begun} of {self._runs}", file=sys.stderr)
        else:
            say(f"{title}: {event['outcome']} after {event['took_s']:.0f} s, {event['verdict']}: {event['reason']}",
                file=sys.stderr)  # fmt: skip
