"""What the simulated nodes say: JSON lines as in containers, on the simulation's own time line."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from typing import Self

from harness.runtimes.simulation.loop import VirtualLoop
from harness.targets.target import Simulated


class NodeLogs(logging.Handler):
    """A context manager: collects a log for each node while it is entered."""

    def __init__(self, loop: VirtualLoop, simulated: Simulated) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(simulated.log_formatter(lambda: round(loop.time() * 1e9)))
        self._logger = logging.getLogger(simulated.logger)
        self._loop = loop
        self._lines: dict[str, list[str]] = defaultdict(list)
        self._level = self._logger.level

    def __enter__(self) -> Self:
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        process = self._loop.current
        self._lines["network" if process is None else process.name].append(self.format(record))

    def save(self, directory: Path) -> None:
        """<directory>/<node>.log"""
        directory.mkdir(parents=True, exist_ok=True)
        for name, lines in self._lines.items():
            (directory / f"{name}.log").write_text("\n".join([*lines, ""]))
