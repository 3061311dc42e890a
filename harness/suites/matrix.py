"""Carries a matrix out, a run after the other, and keeps what became of each: it goes on where it was interrupted.

A matrix' directory, results/matrix-<name of its file>, has matrix.json (verdicts by cell), matrix.md, matrix.html, and
runs/ with a directory for each run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments, HarnessFailure, RuntimeUnavailable, Stopped, describe
from harness.record.results import NOT_JUDGED
from harness.run.order import Order
from harness.suites import matrix_tables as tables
from harness.suites.matrix_file import Cell, Matrix
from harness.suites.matrix_tables import Result
from spark_history.regular import read_object

_STATE: Final = "matrix.json"


class Carried:
    """directory: of the matrix. command: that makes it, in words."""

    def __init__(self, matrix: Matrix, directory: Path, command: str) -> None:
        self._matrix = matrix
        self._directory = directory
        self._command = command
        self.results: dict[str, Result] = {}

    def load(self) -> None:
        """What earlier runs of this matrix have come to. Raises BadArguments."""
        try:
            found = read_object(self._directory / _STATE)["cells"]
            self.results = {key: Result(**result) for key, result in found.items()}
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadArguments(f"{self._directory / _STATE} cannot be read: {error}; remove it to begin anew") from None

    def left(self) -> list[Cell]:
        """What was not judged may be the next time."""
        judged = {key for key, result in self.results.items() if result.verdict != NOT_JUDGED}
        return [cell for cell in self._matrix.cells if cell.key not in judged]

    def carry_out(self, tell: Callable[[str], object]) -> bool:
        """Every cell that is left. False: the user has asked to stop. Raises Stopped where there is nothing to judge
        then, and BadArguments before the first run, if one of them makes no sense."""
        left = self.left()
        for cell in left:
            try:
                self._order(cell).prepared()
            except BadArguments as error:
                raise BadArguments(f"{cell.row}, {cell.column}: {error}") from None
        self.save()  # where nothing can be written, nothing begins
        for number, cell in enumerate(left, start=1):
            tell(f"{cell.row}, {cell.column}, seed {cell.seed}: {number} of {len(left)}")
            result, stopped = self._run(cell)
            if not stopped or result.verdict == "fail":  # which more time could not have made good
                self.results[cell.key] = result
                self.save()
            if stopped:
                return False
        return True

    def _order(self, cell: Cell) -> Order:
        return Order({**cell.fields, "seed": cell.seed}, self._directory / "runs")

    def _run(self, cell: Cell) -> tuple[Result, bool]:
        began = time.monotonic()
        try:
            done = self._order(cell).prepared().carry_out()
        except Stopped:
            raise
        except (BadArguments, HarnessFailure, RuntimeUnavailable, OSError) as error:
            return Result(NOT_JUDGED, describe(error), 0, round(time.monotonic() - began, 1), ""), False
        verdict, report = done.verdict, done.directory / "report.html"
        return Result(
            str(verdict["verdict"]), str(verdict["reason"]), int(verdict.get("lost", 0)),
            round(time.monotonic() - began, 1), str(report.relative_to(self._directory)) if report.exists() else "",
        ), done.was_stopped  # fmt: skip

    def save(self) -> None:
        made = f"Made by `{self._command}`; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
        found = tables.squares(self._matrix, self.results)
        state = {"command": self._command, "cells": {key: result._asdict() for key, result in self.results.items()}}
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            _write(self._directory / _STATE, json.dumps(state, indent=2) + "\n")
            _write(self._directory / "matrix.md", tables.markdown(self._matrix, found, made))
            _write(self._directory / "matrix.html", tables.page(self._matrix, found, made, self._reasons()))
        except OSError as error:
            reason = error.strerror or error
            raise HarnessFailure(f"the table cannot be written to {self._directory}: {reason}") from error

    def _reasons(self) -> Mapping[str, Any]:
        return {
            f"{cell.row}, {cell.column}, seed {cell.seed}": f"{result.verdict}: {result.reason}"
            for cell in self._matrix.cells
            if (result := self.results.get(cell.key)) is not None and result.verdict != "pass"
        }


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(text)
    beside.replace(path)
