"""What somebody waits for who opens the pages of 10,000 runs, in seconds of the processor: others may take some of it
meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.record.catalog.index import Index
from tests.harness.record.catalog import made
from tests.harness.report.browse.serving import alive, served

COUNT = 10_000
FIRST_PAGE_S = 1.0
FILTER_S = 0.2
FILTERS = (
    "/?verdict=fail", "/?nemesis=kill&verdict=fail", "/?q=lost+bug", "/?setting=broker.session.timeout.ms%3D2000",
    "/?seed=100..9000&page=20", "/?since=2026-02-02&until=2026-02-04", "/?target=kafka%3A4.2.0",
    "/?q=nothing-like-that",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("many")
    made.many(directory, COUNT, faults=1, partitions=0)
    index = Index(directory, alive)
    assert index.refresh() == COUNT
    index.close()
    return directory


def least(times: int, work: Callable[[], object]) -> float:
    taken = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.timeout(600)
def test_the_first_page_and_filters(results: Path) -> None:
    def first_page() -> None:
        """From an index on the disk: opened, compared with all directories, and searched."""
        index = Index(results, alive)
        assert index.refresh() == 0
        index.close()

    opened = least(3, first_page)
    with served(results) as asked:
        began = time.process_time()
        assert f"of {COUNT:,}" in asked.get("/").text
        assert opened + time.process_time() - began < FIRST_PAGE_S
        for path in FILTERS:
            assert least(5, lambda path=path: asked.get(path)) < FILTER_S, path  # type: ignore[misc]
