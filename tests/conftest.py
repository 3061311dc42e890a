"""Tests marked `docker` are skipped, with the reason, where there is no engine to use; in CI they fail. So are those
marked `browser` where there is no Chromium.

With `pytest -n 3 --dist loadfile` all files that need a Docker Engine go to one of the processes, first of all: Docker
now and then loses count of a network's endpoints when several are made at a time, and what is compared before and after
is the whole machine's. They mostly wait, and some measure: whatever else runs at the same time is nice to them. All
files that need the session of Spark go to another process: each would start its own, which takes 15 s of CPU.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from harness.cluster import RuntimeUnavailable
from tests import ROOT
from tests.spark_history.spark import spark_archive

NICE: Final = 10


class Grouped(LoadFileScheduling):
    """By file; those that need a Docker Engine as if they were one, and those that need the session of Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        path = self.config.rootpath / file
        return "docker" if _needs_docker(path) else "spark" if _needs_spark(path) else file


@cache
def _needs_docker(file: Path) -> bool:
    return "mark.docker" in file.read_text()


@cache
def _needs_spark(file: Path) -> bool:
    return re.search(r"\bspark: |usefixtures\(\"spark\"", file.read_text()) is not None


def pytest_configure() -> None:
    spark_archive.use()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Grouped | None:
    return Grouped(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ and not _needs_docker(item.path) and os.nice(0) < NICE:
        os.nice(NICE)  # for good: those that need Docker were this process' first, if they were its


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # First what takes long, and must not be begun last.
    items.sort(key=lambda item: (not _needs_docker(item.path), not _needs_spark(item.path), not _is_spark(item)))
    if os.environ.get("CI"):
        return
    for mark, why_not in (("docker", _why_no_engine), ("browser", _why_no_browser)):
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and (reason := why_not()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_engine() -> str:
    from harness.runtimes.docker import engine

    try:
        engine.connect().close()
    except RuntimeUnavailable as error:
        return str(error)
    return ""


def _why_no_browser() -> str:
    lacking = [] if shutil.which("chromium") else ["chromium"]
    lacking += [] if importlib.util.find_spec("playwright") else ["playwright"]
    lacking += [] if any((ROOT / ".browser").glob("axe-*.min.js")) else ["axe-core"]
    if not lacking:
        return ""
    return f"there is no {', '.join(lacking)}: see tests/harness/report/browse/set_up_browser.sh"


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end, and is most of what there is: it is not searched for garbage
    again and again (of six files of tests with 177 s, 152 s were left)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _is_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests marked `spark`, with its pages."""
    from spark_history.spark.session import start
    from tests.spark_history.spark.spark_processes import free_port

    session = start("local[2]", ui_port=free_port())
    yield session
    session.stop()


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are run here, one after the other: hundreds of damaged runs are judged."""
    from checkers.inside import log_matching, nodes
    from checkers.log import linearizability as log_linearizability
    from spark_history import ingest
    from spark_history.spark import tasks

    def run_tasks(_: Any, work: Callable[[Any], Any], units: Sequence[Any]) -> list[Any]:
        return [work(json.loads(json.dumps(unit))) for unit in units]

    for module in (ingest, log_linearizability, log_matching, nodes):
        monkeypatch.setattr(module, "run_tasks", run_tasks)
    monkeypatch.setattr(ingest, "parallelism", lambda _: 2)
    monkeypatch.setattr(tasks, "shared", lambda _, directories: list(directories))
