"""Tests, run in a process that has one rule less.

The process is forked from one that has imported what others have made and nothing of the project, so that a row costs
its tests and little else. There the file is changed as it is imported; nothing is written.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, Literal, NamedTuple

from .drops import Drop
from .rows import ROOT

Outcome = Literal["fails", "passes", "broken"]
#: Of all of a row's tests together.
PATIENCE_S: Final = 180.0
#: Exit statuses of the process: this and pytest's own. A process that dies otherwise has another.
_PASSED: Final = 100
_OUTCOMES: Final[Mapping[int, Outcome]] = {_PASSED: "passes", _PASSED + 1: "fails"}


class Result(NamedTuple):
    outcome: Outcome
    seconds: float
    printed: str


class _Without(SourceFileLoader):
    """Compiles the file without the rule, and keeps nothing compiled."""

    drop: Drop

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.drop.apply(Path(path).read_text()), path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, drop: Drop) -> None:
        self._drop = drop
        self._module = "cluster_image." + drop.path.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        loader = _Without(fullname, spec.origin)
        loader.drop = self._drop
        spec.loader = loader
        return spec


def preload() -> None:
    """What tests import of others. Hypothesis wants its plugin to be the first that imports it."""
    for name in ("pytest", "_hypothesis_pytestplugin", "numpy", "pyarrow.parquet", "networkx", "kio.serial"):
        importlib.import_module(name)
    assert not [name for name in sys.modules if name.partition(".")[0] in ("cluster_image", "harness", "workloads")]


class Running:
    """A row's tests. Made by the main thread: a process that is forked while other threads work may hang."""

    def __init__(self, tests: Sequence[str], drop: Drop) -> None:
        """Raises ValueError: the drop does not fit its file."""
        drop.apply((ROOT / "cluster_image" / drop.path).read_text())
        self._began = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed by result()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_child, args=(tests, drop, self._output.fileno()))
        self._process.start()

    @property
    def sentinel(self) -> int:
        """Ready once it has ended."""
        return self._process.sentinel

    def result(self) -> Result | None:
        """None while it runs. What hangs is broken: pytest ends tests that do, and that counts as failing."""
        seconds = time.monotonic() - self._began
        if self._process.is_alive():
            if seconds < PATIENCE_S:
                return None
            self._process.kill()
        self._process.join()
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace")
        self._output.close()
        outcome = _OUTCOMES.get(self._process.exitcode or 0, "broken")
        printed += f"\nexit status {self._process.exitcode}\n"
        return Result(outcome, seconds, printed)


def _child(tests: Sequence[str], drop: Drop, output: int) -> None:
    import pytest

    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(ROOT)
    sys.meta_path.insert(0, _Finder(drop))
    sys.path.insert(0, str(ROOT))
    # Nobody reads what assertions say. And of a checkout that was installed from (an egg-info is left there) pytest
    # rewrites, and so loads, the project's modules as well: past the finder, with the rule.
    status = pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "--timeout", "60", *tests])
    sys.stdout.flush()
    os._exit(_PASSED + int(status))
