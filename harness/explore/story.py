"""A simulated run that failed, told in order of time: see harness/record/timeline/story.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers.properties import HANG
from harness.explore.shrinking.witness import witness_of
from harness.explore.simulate import Simulated
from harness.record.timeline import story
from harness.record.timeline.story import Event, setting_of


def tell(simulated: Simulated, verdict: Mapping[str, Any], trace: Iterable[Event]) -> list[str]:
    """Numbered lines. Times are seconds since the first operation, as in the verdict."""
    plan, tables = simulated.plan, simulated.tables
    sentence, where = _broken(simulated, verdict)
    return story.tell(
        tables["faults"].to_pylist(),
        trace,
        lambda partition, offset: _acknowledged(tables["operations"], partition, offset),
        where=where,
        setting=setting_of(plan),
        sentence=sentence,
        origin=(pc.min(tables["operations"]["invoke"]).as_py() or 0) / 1e9,
        ended=simulated.virtual_s if simulated.violation is None else simulated.violation.time_ns / 1e9,
    )


def _acknowledged(operations: pa.Table, partition: int, offset: int) -> Sequence[Mapping[str, Any]]:
    rows = operations.filter(
        (pc.field("partition") == partition) & (pc.field("offset") == offset)
        & (pc.field("kind") == "append") & (pc.field("outcome") == "ok")
    )  # fmt: skip
    found: list[dict[str, Any]] = rows.sort_by("complete").to_pylist()
    return found


def _broken(simulated: Simulated, verdict: Mapping[str, Any]) -> tuple[str, str]:
    """The sentence about what is broken, and the partition that it is about: "topic-0", or empty."""
    witness, plan = witness_of(simulated), simulated.plan
    if witness is None:
        return f"{verdict['verdict']}: {verdict['reason']}", f"{plan.topic}-0" if plan.partitions == 1 else ""
    violation = simulated.violation
    if violation is not None:
        happened = violation.property if violation.property == HANG else f"{violation.property} is violated"
        return f"{happened}: {violation.message}", violation.where
    example = verdict["anomalies"][witness.broken.property]["example"] or verdict["reason"]
    named = re.search(rf"{re.escape(plan.topic)}-\d+", example)
    return f"{witness.broken} is violated: {example}", named.group() if named else f"{plan.topic}-0"
