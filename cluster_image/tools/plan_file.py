"""Plans of reassignments, in the format of Kafka's kafka-reassign-partitions, checked as a whole before any is begun:
`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 3]}, …]}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..placement.spread import Replicas
from .cluster import Place, State
from .output import ToolError


def read_plan(path: str) -> dict[Place, Replicas]:
    """What is said of each partition. Raises ToolError: it is no plan."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise ToolError(f"{path} is no plan: it is nested too deeply") from None
    partitions = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(partitions, list) or content.get("version", 1) != 1:
        raise ToolError(f'{path} is no plan: {{"version": 1, "partitions": […]}} expected')
    if not partitions:
        raise ToolError(f"{path} names no partition")
    plan: dict[Place, Replicas] = {}
    for number, item in enumerate(partitions, 1):
        place, replicas = _read_one(path, number, item)
        if place in plan:
            raise ToolError(f"{path} names partition {place[0]}-{place[1]} twice")
        plan[place] = replicas
    return plan


def _read_one(path: str, number: int, item: Any) -> tuple[Place, Replicas]:
    match item:
        case {"topic": str(topic), "partition": int(index), "replicas": list(replicas)} if all(
            isinstance(r, int) and not isinstance(r, bool) for r in (index, *replicas)
        ):
            pass
        case _:
            raise ToolError(f"{path}: partition {number} of the plan needs topic, partition and a list of replicas")
    name = f"{topic}-{index}"
    if not replicas:
        raise ToolError(f"{path}: {name} would have no replica")
    if len(set(replicas)) != len(replicas):
        raise ToolError(f"{path}: {name} would be on broker {_first_twice(replicas)} twice")
    return (topic, index), tuple(replicas)


def _first_twice(replicas: list[int]) -> int:
    return next(r for place, r in enumerate(replicas) if r in replicas[:place])


def check_plan(path: str, plan: Mapping[Place, Replicas], state: State) -> None:
    """Raises ToolError: this cluster cannot carry it out, or is carrying out another one."""
    for place, replicas in plan.items():
        name = f"{place[0]}-{place[1]}"
        if place not in state.replicas:
            raise ToolError(f"{path}: there is no partition {name}")
        if place in state.moving and state.targets()[place] == replicas:
            continue  # by an earlier run, which is to be gone on with
        unknown = [r for r in replicas if r not in state.brokers]
        if unknown:
            raise ToolError(f"{path}: {name} would be on broker {unknown[0]}, and there is no such broker alive")
        if place in state.moving and state.targets()[place] != replicas:
            raise ToolError(
                f"{path}: {name} is being reassigned to {list(state.targets()[place])} already: wait for it, or cancel "
                "it with reassign --cancel"
            )
