"""The target of tests of the runtimes: nodes do what the test tells them over TCP (docker_stand_in/), and are configured
as kraft's are."""

from __future__ import annotations

from collections.abc import Sequence

from harness.targets.kraft.target import Kraft
from harness.targets.target import CONFIGURATION, Package
from tests import ROOT

FOLDER = ROOT / "tests" / "clusters" / "docker_stand_in"


class StandIn(Kraft):
    name = "stand-in"
    summary = "does what tests tell it over TCP"

    def packages(self) -> Sequence[Package]:
        return [
            Package(
                FOLDER / "Dockerfile", {"": FOLDER}, places={"": "/opt/chaos/stand_in"},
                command=("python3", "-m", "stand_in", CONFIGURATION),
            )
        ]  # fmt: skip


STAND_IN = StandIn()
