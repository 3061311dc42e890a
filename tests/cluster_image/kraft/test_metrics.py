"""What is counted from the trace, and a scrape of a node that does not answer. Real processes: test_operations.py."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cluster_image.kraft import metrics
from cluster_image.kraft.metadata.records import RECOVERED, RECOVERING
from cluster_image.kraft.metrics import Events, NodeCollector
from cluster_image.telemetry import scraping


def test_isr_changes_count_at_the_leader_and_pass_on() -> None:
    reported: list[tuple[str, str, dict[str, Any]]] = []
    events = Events(1, lambda event, where="", **fields: reported.append((event, where, fields)))
    events("role", "t-0", leader=1, isr=(1, 2, 3))
    events("isr", "t-0", isr=(1, 2))
    events("isr", "t-0", isr=(1,))
    events("isr", "t-0", isr=(1, 3))
    events("isr", "t-0", isr=(1, 3))
    assert (events.isr_shrinks, events.isr_expands) == (2, 1)
    events("role", "t-0", leader=3, isr=(1, 3))
    events("isr", "t-0", isr=(3,))
    events("role", "t-1", leader=2, isr=(1, 2))
    events("isr", "t-1", isr=(2,))
    assert (events.isr_shrinks, events.isr_expands) == (2, 1)  # others lead there, and count there
    assert len(reported) == 9 and reported[1] == ("isr", "t-0", {"isr": (1, 2)})


def test_elections_are_changes_that_name_a_leader() -> None:
    events = Events(101, lambda event, where="", **fields: None)
    events("decide", "t-0", type="PartitionRecord", offset=1, leader=1)
    events("decide", "t-0", type="PartitionChangeRecord", offset=2, isr=(1, 2))
    events("decide", "t-0", type="PartitionChangeRecord", offset=3, leader=2)
    events("decide", "t-0", type="PartitionChangeRecord", offset=4, leader=-1)
    assert (events.elections, events.unclean_elections) == (1, 0)


def test_unclean_elections_are_those_that_say_so() -> None:
    events = Events(101, lambda event, where="", **fields: None)
    events("decide", "t-0", type="PartitionChangeRecord", offset=1, leader=2, leader_recovery_state=RECOVERING)
    events("decide", "t-0", type="PartitionChangeRecord", offset=2, isr=(2, 3), leader_recovery_state=RECOVERED)
    events("decide", "t-0", type="PartitionRecord", offset=3, leader=2, leader_recovery_state=RECOVERING)
    assert (events.elections, events.unclean_elections) == (1, 1)


def _scraped(loop: asyncio.AbstractEventLoop) -> str:
    registry = CollectorRegistry()
    registry.register(NodeCollector(None, None, None, {}, loop))  # type: ignore[arg-type]
    return generate_latest(registry).decode()


def test_a_loop_that_stands_still_is_told_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "_PATIENCE_SECONDS", 0.05)
    read: list[float] = []
    monkeypatch.setattr(metrics, "read", lambda *arguments: read.append(time.monotonic()))
    scraped: list[str] = []

    async def stand_still() -> None:
        thread = threading.Thread(target=lambda: scraped.append(_scraped(loop)))
        thread.start()
        time.sleep(0.3)
        thread.join()
        await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(stand_still())
    loop.close()
    assert "chaos_event_loop_responsive 0.0" in scraped[0]
    assert not read  # nobody waits for it any more
    assert "chaos_event_loop_responsive 0.0" in _scraped(loop)  # the loop is closed: the process is about to end
