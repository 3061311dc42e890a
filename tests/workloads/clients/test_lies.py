"""Clients that lie, crash and hang are found out, each of them, by the checkers or by the record."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from checkers import check
from cluster_image.network import Connection
from harness.plan.plan import Plan
from harness.record.history import Recorder, load_journal
from spark_history.spark.tasks import Here
from tests.clusters.local_cluster import local_cluster
from workloads.append import AppendWorkload
from workloads.clients.driven import producing
from workloads.clients.driven.kind import Kind
from workloads.clients.kio.producing import Answered, Sender

CLIENTS: Final = ("librdkafka", "java", "kafka-python", "aiokafka")
ENOUGH: Final = 3000  # acknowledged records


class Told:
    def __init__(self, directory: Path, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.verdict = check(directory, Here())
        self.operations = load_journal(directory / "journal")["operations"].to_pandas()

    @property
    def is_in_order(self) -> bool:
        """As far as clients saw it: nobody has collected what lay on the nodes' disks, so it is no pass."""
        found = self.verdict["anomalies"]["log linearizability"]["count"]
        return self.verdict["verdict"] == "unknown" and not found and not self.verdict["operations"]["undecided"]

    @property
    def anomalies(self) -> set[str]:
        return {name for found in self.verdict["anomalies"].values() for name in found["anomalies"]}


def carry_out(directory: Path, client: str, **plan: Any) -> Told:
    """Work on a cluster in this process until enough is acknowledged, and a final read."""
    run = directory / "run-1"
    run.mkdir()
    made = Plan(run="run-1", client=client, nemesis=(), partitions=2, concurrency=2, rate=1500, time_limit=3, **plan)
    made.save(run)

    async def story() -> dict[str, Any]:
        async with local_cluster(directory / "cluster") as cluster:
            brokers = [SimpleNamespace(address=("127.0.0.1", cluster.ports[node])) for node in (1, 2, 3)]
            recorder = Recorder(run, "run-1")
            workload = AppendWorkload(made, SimpleNamespace(brokers=brokers), recorder)  # type: ignore[arg-type]
            await workload.set_up()
            stop = asyncio.Event()
            working = asyncio.create_task(workload.run(stop))
            while workload.counts().acknowledged < ENOUGH and not working.done():
                await asyncio.sleep(0.1)
            stop.set()
            await working
            await workload.final_read()
            await workload.close()
            recorder.close()
            return dict(workload.facts())

    async def bounded() -> dict[str, Any]:
        async with asyncio.timeout(120):
            return await story()

    return Told(run, asyncio.run(bounded()))


def lie(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """All drivers from now on."""
    from workloads.clients.driven.driven import DrivenInPython
    from workloads.clients.driven.java import Java

    for kind in (DrivenInPython, Java):
        honest = kind.command

        def command(self: Any, python: str, honest: Any = honest) -> list[str]:
            return [python, "-m", "tests.workloads.clients.lying", which, *honest(self, python)]

        monkeypatch.setattr(kind, "command", command)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_honest_client_passes(client: str, tmp_path: Path) -> None:
    told = carry_out(tmp_path, client)
    assert told.is_in_order
    assert told.verdict["operations"]["acknowledged"] > 1000
    assert {each["starts"] for each in told.facts["client_processes"].values()} == {1}


FOUND: Final = {
    "early": "real-time inversion", "drop": "lost append", "double": "duplicate", "reorder": "inconsistent offset",
    "skip": "torn prefix",
}  # fmt: skip
IDEMPOTENT: Final = {
    "librdkafka": {"enable.idempotence": "true"}, "aiokafka": {"enable_idempotence": "true"},
}  # fmt: skip


#: All lies of all clients take minutes: by default each of both once.
PAIRS: Final = (
    list(itertools.product(CLIENTS, FOUND))
    if os.environ.get("CHAOS_LIES")
    else list(zip(itertools.cycle(CLIENTS), FOUND))
)


@pytest.mark.parametrize(("client", "which"), PAIRS)
def test_a_lie_is_found_and_named(client: str, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie(monkeypatch, which)
    told = carry_out(tmp_path, client, client_settings=IDEMPOTENT.get(client, {}))
    assert told.verdict["verdict"] == "fail"
    assert FOUND[which] in told.anomalies


class LyingSender(Sender):
    """Of the own client, in this process: every tenth batch."""

    which = ""
    batches = 0

    async def _produce(self, connection: Connection, batch: bytes) -> Answered:
        LyingSender.batches += 1
        if LyingSender.batches % 10:
            return await super()._produce(connection, batch)
        if self.which == "early":
            self._later = asyncio.create_task(self._produce_later(connection, batch))
            return Answered("ok")
        if self.which == "drop":
            return Answered("ok")
        answered = await super()._produce(connection, batch)
        if self.which == "double":
            await super()._produce(connection, batch)
            return answered
        return answered._replace(offset=None if answered.offset is None else answered.offset + 1)

    async def _produce_later(self, connection: Connection, batch: bytes) -> None:
        await asyncio.sleep(0.3)
        await super()._produce(connection, batch)


@pytest.mark.parametrize("which", ["early", "drop", "double", "reorder"])
def test_a_lie_of_the_own_client_is_found_too(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LyingSender, "which", which)
    monkeypatch.setattr(AppendWorkload, "sender", LyingSender)
    told = carry_out(tmp_path, "kio")
    assert told.verdict["verdict"] == "fail"
    assert FOUND[which] in told.anomalies


def test_who_promises_no_idempotence_may_write_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie(monkeypatch, "double")
    told = carry_out(tmp_path, "librdkafka")
    assert told.is_in_order
    assert "duplicate by retry" in told.anomalies


def test_a_client_that_crashes_is_started_again_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie(monkeypatch, "crash")
    told = carry_out(tmp_path, "librdkafka")
    producers = told.facts["client_processes"]["producers"]
    assert producers["starts"] >= 2 and set(producers["ended"]) == {"ended with exit code 3"}
    crashed = told.operations[told.operations.error == "CLIENT_CRASHED"]
    assert len(crashed) and set(crashed.outcome) == {"info"}
    assert told.is_in_order, "what it had not told of is unknown, and no lie"
    assert told.verdict["operations"]["acknowledged"] > 2000, "the next one went on"


def test_a_client_that_hangs_is_ended_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie(monkeypatch, "hang")
    monkeypatch.setattr(producing, "HANGS_AFTER_S", 0.5)
    monkeypatch.setattr(Kind, "delivery_s", lambda self, settings: 0.5)
    told = carry_out(tmp_path, "librdkafka")
    producers = told.facts["client_processes"]["producers"]
    assert any(how.startswith("hung") for how in producers["ended"])
    hung = told.operations[told.operations.error == "CLIENT_HUNG"]
    assert len(hung) and set(hung.outcome) == {"info"}
    assert told.is_in_order
