"""What a suite leaves behind: in its directory, results/<start>-suite-<name>, beside what runner.py writes there,

| | |
| --- | --- |
| suite.json | what became of each run: see results.py |
| junit.xml, summary.md | the same for CI, and for people |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessFailure, describe
from harness.record.results import utc_now
from harness.suites import junit, summary
from harness.suites.results import Ran, exit_code, save
from harness.suites.runner import Runner
from harness.suites.suite_file import Suite


@dataclass
class SuiteFiles:
    """directory: of the suite, made already. command: that carries it out, in words. junit: where that file goes; None:
    into the directory."""

    suite: Suite
    directory: Path
    command: str
    junit: Path | None = None
    _started_at: str = field(default_factory=utc_now)

    def save(self, runner: Runner) -> None:
        """Raises HarnessFailure if nothing can be written."""
        self._save(runner.ran, {"finished_at": None, "exit_code": None})

    def finish(self, ran: Sequence[Ran]) -> None:
        """Raises HarnessFailure if nothing can be written."""
        self._save(ran, {"finished_at": utc_now(), "exit_code": int(exit_code(ran))})

    def _save(self, ran: Sequence[Ran], end: dict[str, Any]) -> None:
        name = self.suite.name
        facts = {"suite": name, "file": str(self.suite.file), "command": self.command, "started_at": self._started_at}
        try:
            save(self.directory, {**facts, **end}, ran)
            junit.write(self.junit or self.directory / "junit.xml", name, ran, self.directory)
            (self.directory / "summary.md").write_text(summary.markdown(name, ran))
        except OSError as error:
            raise HarnessFailure(f"what became of the suite cannot be written: {describe(error)}") from error
