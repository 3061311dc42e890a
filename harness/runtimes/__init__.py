"""Where a cluster under test can run: docker/, simulation/. Each implements harness.cluster."""

from __future__ import annotations

from typing import Literal

from harness.cluster import RuntimeUnavailable


def choose_runtime() -> tuple[Literal["docker", "simulation"], str]:
    """What `--on auto` stands for on this machine, and why, as a line for the user."""
    from harness.runtimes.docker import engine

    try:
        engine.connect().close()
    except RuntimeUnavailable as error:
        return "simulation", f"in simulation, as Docker does not answer: {error}"
    return "docker", "in containers, as Docker answers; --on simulation needs none"
