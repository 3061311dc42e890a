"""Where a cluster under test can run: docker/, simulation/, ssh/. Each implements harness.cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from harness.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from harness.targets.target import Target


class How(NamedTuple):
    """Of a runtime, what is known of it before anything is started: the module `how` of each. methods: of
    harness.cluster's Cluster and Node, by name, the commands and system calls by which each is done, in their order.
    addresses: of a plan, where its nodes will be reached, as far as that is known."""

    methods: Mapping[str, tuple[str, ...]]
    addresses: Callable[[Any], Mapping[str, str]]


def how_in(place: str, *, service: bool = False) -> How:
    """place: as of --on. service: of a cluster that is already there."""
    module = import_module(f"harness.runtimes.{place}.how")
    return How({**module.HOW, **(module.OF_SERVICES if service else {})}, module.addresses)


def choose_runtime(
    only_simulated: Sequence[str] = (), target: Target | None = None
) -> tuple[Literal["docker", "simulation"], str]:
    """What `--on auto` stands for on this machine, and why, as a line for the user. only_simulated: what was asked for
    that only simulation can do. target: what is tested, which may run in one of the two alone: whether that
    is there is seen when the run starts."""
    place: Literal["docker", "simulation"]
    for place in ("docker", "simulation"):
        if target is not None and target.runtimes & {"docker", "simulation"} == {place}:
            return place, f"target {target.name} runs in {' and '.join(sorted(target.runtimes))} only"
    if only_simulated:
        return "simulation", f"in simulation, as only it can do {', '.join(only_simulated)}"
    from harness.runtimes.docker import engine

    try:
        engine.connect().close()
    except RuntimeUnavailable as error:
        return "simulation", f"in simulation, as Docker does not answer. {error}"
    return "docker", "in containers, as Docker answers; --on simulation needs none"
