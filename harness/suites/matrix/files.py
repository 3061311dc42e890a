"""What a matrix leaves behind, from which it goes on where it was interrupted.

In its directory, results/matrix-<name of its file>, are matrix.json (what became of each run), matrix.md, matrix.html,
and what runner.py writes there.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.errors import BadArguments, HarnessFailure
from harness.record.results import NOT_JUDGED, utc_now
from harness.suites.matrix import tables
from harness.suites.matrix.file import Matrix
from harness.suites.parts import Planned
from harness.suites.results import Ran
from harness.suites.runner import Runner
from harness.suites.stories import can_be_told, whole
from spark_history.regular import read_object, replacing

_STATE: Final = "matrix.json"


class MatrixFiles:
    """directory: of the matrix. command: that makes it, in words."""

    def __init__(self, matrix: Matrix, directory: Path, command: str) -> None:
        self._matrix = matrix
        self._directory = directory
        self._command = command
        self.results: dict[str, Ran] = {}  # by the keys of runs
        self._kept: set[Planned] = set()  # of what was carried out now
        self._started_at = utc_now()

    def load(self) -> None:
        """What earlier runs of this matrix have come to. Raises BadArguments."""
        try:
            found = read_object(self._directory / _STATE)
            self.results = {
                key: Ran(**{**ran, "story": whole(ran.get("story"))}) for key, ran in found["cells"].items()
            }
            self._started_at = str(found["started_at"])
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = error if isinstance(error, OSError) else "it is not what chaos matrix has written"
            raise BadArguments(f"{self._directory / _STATE} cannot be read: {why}; remove it to begin anew") from None

    def left(self, *, with_stories: bool = False) -> list[Planned]:
        """What was not judged may be the next time. with_stories: also what failed and has none yet."""
        return [planned for planned in self._matrix.runs if self._is_left(planned, with_stories)]

    def judged(self, planned: Planned) -> Ran | None:
        """What became of a run, if it is there still: all that it lacks is its story."""
        ran = self.results.get(planned.key)
        there = ran is not None and ran.verdict != NOT_JUDGED and (self._directory / ran.directory).is_dir()
        return ran if there else None

    def _is_left(self, planned: Planned, with_stories: bool) -> bool:
        ran = self.results.get(planned.key)
        if ran is None or ran.verdict == NOT_JUDGED:
            return True
        return with_stories and ran.story is None and can_be_told(planned, ran)

    def save(self, runner: Runner) -> None:
        """Raises HarnessFailure if nothing can be written."""
        for planned, ran in runner.results.items():
            # Of what was cut short only a fail stays, which more time could not have made good.
            if planned not in self._kept and (not runner.over or ran.verdict == "fail"):
                self.results[planned.key] = ran
                self._kept.add(planned)
        self.write()

    def write(self) -> None:
        """Raises HarnessFailure if nothing can be written."""
        made = f"Made by `{self._command}`; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
        state = {
            "command": self._command, "started_at": self._started_at, "finished_at": None if self.left() else utc_now(),
            "cells": {key: asdict(ran) for key, ran in self.results.items()},
        }  # fmt: skip
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            _write(self._directory / _STATE, json.dumps(state, indent=2) + "\n")
            _write(self._directory / "matrix.md", tables.markdown(self._matrix, self.results, made))
            _write(self._directory / "matrix.html", tables.page(self._matrix, self.results, made))
        except OSError as error:
            reason = error.strerror or error
            raise HarnessFailure(f"the table cannot be written to {self._directory}: {reason}") from error


def _write(path: Path, text: str) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text(text)
