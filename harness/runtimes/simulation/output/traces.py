"""Collects the traces of simulated nodes, as the same lines that nodes in containers write to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.targets.target import TRACE_SUFFIX, Simulated


class NodeTraces:
    """clock_ns: the simulation's. Listens only: what it is told changes nothing."""

    def __init__(self, simulated: Simulated, clock_ns: Callable[[], int]) -> None:
        self._simulated = simulated
        self._clock_ns = clock_ns
        self._lines: dict[str, list[str]] = {}
        self._traces: dict[str, Any] = {}

    def trace(self, node: str, node_id: int, event: str, where: str, fields: Mapping[str, object]) -> None:
        trace = self._traces.get(node)
        if trace is None:
            lines = self._lines[node] = []
            trace = self._traces[node] = self._simulated.trace_lines(node_id, lines.append, self._clock_ns)
        if event == "start":
            trace.flush()  # of a process that is gone
        trace(event, where, **fields)

    def texts(self) -> dict[str, str]:
        """By node, as read_traces() takes them."""
        for trace in self._traces.values():
            trace.flush()
        return {node: "".join(lines) for node, lines in self._lines.items()}

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for node, text in self.texts().items():
            (directory / f"{node}{TRACE_SUFFIX}").write_text(text)
