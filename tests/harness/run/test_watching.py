"""What nodes tell when they are asked becomes their traces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.run.watching import Watching
from harness.targets.kafka_api.trace_files import read_traces
from harness.targets.target import Told


class Asked:
    def __init__(self) -> None:
        self.times = 0

    async def ask(self) -> Sequence[Told]:
        self.times += 1
        return [Told("broker-1", "told", "chaos-3", {"leader": self.times, "isr": [1]})]


def test_it_is_read_as_a_trace(tmp_path: Path) -> None:
    async def watch() -> int:
        asked, times = Asked(), iter(range(1000, 2000))
        watching = Watching(asked, tmp_path / "trace", lambda: next(times))
        assert not watching.goes_on
        watching.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await watching.stop()
        assert not watching.goes_on
        return asked.times

    times = asyncio.run(watch())
    traces = read_traces(tmp_path / "trace")
    rows = traces.rows.to_pylist()
    assert len(rows) == times == 2, "once, and once more at the end"
    assert rows[0] | {"fields": ""} == {
        "node": "broker-1", "number": 0, "time": 1000, "event": "told", "topic": "chaos", "partition": 3, "fields": "",
    }  # fmt: skip
    assert traces.pieces[0].problem is None


def test_nothing_to_watch_does_nothing(tmp_path: Path) -> None:
    watching = Watching(None, tmp_path / "trace", lambda: 0)
    watching.start()
    assert not watching.goes_on and not (tmp_path / "trace").exists()


def test_a_watch_that_ended_before_its_time_is_told(tmp_path: Path) -> None:
    class Odd:
        async def ask(self) -> Sequence[Told]:
            raise ValueError("an odd answer")

    async def watched() -> None:
        watching = Watching(Odd(), tmp_path / "trace", lambda: 0)
        watching.start()
        await asyncio.sleep(0.01)
        assert watching.goes_on
        with pytest.raises(ValueError, match="an odd answer"):
            await watching.stop()

    asyncio.run(watched())
