"""Runs of workloads on Apache Kafka in one process of Java, without the rest of a run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from checkers import check
from harness.plan.plan import Plan
from harness.record.history import Recorder
from spark_history.spark.tasks import Here
from tests.clusters.apache_kafka import ApacheKafka

TARGET: Final = "kafka:4.2.0"
SECONDS: Final = 8
MOST_S: Final = 60


def carry_out(
    kafka: ApacheKafka, directory: Path, workload_class: Any, client: str, wishes: Mapping[str, str],
    seconds: float = SECONDS, enough: int = 0, **fields: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """The verdict on a run. wishes: settings of the workload; fields: of the plan. enough: records that are to be
    acknowledged, for which a busy machine has MOST_S."""
    run = directory / f"run-{directory.name}"
    run.mkdir()
    plan = Plan(
        run=run.name, target=TARGET, client=client, workload_settings=wishes, nemesis=(), topic=directory.name,
        rate=1000, time_limit=seconds, seed=4, **fields,
    )  # fmt: skip
    plan.save(run)

    async def story() -> None:
        brokers = [SimpleNamespace(address=("127.0.0.1", kafka.ports[node])) for node in (1, 2, 3)]
        recorder = Recorder(run, run.name)
        workload = workload_class(plan, SimpleNamespace(brokers=brokers), recorder)
        await workload.set_up()
        stop = asyncio.Event()
        working = asyncio.create_task(workload.run(stop))
        began = time.monotonic()
        await asyncio.wait([working], timeout=seconds)
        acknowledged = 0
        while acknowledged < enough and time.monotonic() < began + MOST_S:
            await asyncio.sleep(0.5)
            acknowledged = workload.counts().acknowledged
        stop.set()
        await working
        healed = workload._clock()
        await workload.final_read()
        await workload.close()
        recorder.close()
        (run / "run.json").write_text(json.dumps({"healed_ns": healed, **workload.facts()}))

    async def bounded() -> None:
        async with asyncio.timeout(150):
            await story()

    asyncio.run(bounded())
    return check(run, Here())


def anomalies(verdict: Mapping[str, Any], *, weak: bool = False) -> set[str]:
    return {
        name for found in verdict["anomalies"].values() if found["weak"] is weak for name in found["anomalies"]
    }  # fmt: skip
