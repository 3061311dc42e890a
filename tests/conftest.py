"""Tests marked `docker` are skipped, with the reason, where there is no engine to use; in CI they fail.

With `pytest --dist loadgroup`, which runs several at a time: those of `docker` one after the other (Docker now and
then loses count of a network's endpoints when several are made at a time), those of `spark` in one process with one
session, others by file. What takes longest begins first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from harness.cluster import RuntimeUnavailable


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    kinds = ("docker", "spark")
    for item in items:
        kind = next((kind for kind in kinds if item.get_closest_marker(kind)), None)
        item.add_marker(pytest.mark.xdist_group(kind or item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: next((n for n, kind in enumerate(kinds) if item.get_closest_marker(kind)), len(kinds)))
    marked = [item for item in items if item.get_closest_marker("docker")]
    if not marked or os.environ.get("CI"):
        return
    from harness.runtimes.docker import engine

    try:
        engine.connect().close()
    except RuntimeUnavailable as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests marked `spark`."""
    from spark_history.session import start

    session = start("local[2]")
    yield session
    session.stop()


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are run here, one after the other: hundreds of damaged runs are judged."""
    from checkers import log_linearizability, log_matching, nodes
    from spark_history import ingest, tasks

    def run_tasks(_: Any, work: Callable[[Any], Any], units: Sequence[Any]) -> list[Any]:
        return [work(json.loads(json.dumps(unit))) for unit in units]

    for module in (ingest, log_linearizability, log_matching, nodes):
        monkeypatch.setattr(module, "run_tasks", run_tasks)
    monkeypatch.setattr(ingest, "parallelism", lambda _: 2)
    monkeypatch.setattr(tasks, "shared", lambda _, directories: list(directories))
