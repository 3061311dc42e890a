"""The example of docs/writing-a-workload.md works as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from tests import ROOT
from tests.project import example_package

DOCUMENT = ROOT / "docs" / "writing-a-workload.md"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example_package.install(DOCUMENT, "workloads", tmp_path, monkeypatch)


@pytest.mark.usefixtures("installed")
def test_the_example_survives_what_append_does_not() -> None:
    assert "synced" in registry.names(registry.WORKLOADS)
    verdicts = {}
    for workload in ("append", "synced"):
        plan = Plan(run="r", on="simulation", nemesis=("power-outage-cluster",), workload=workload, seed=1,
                    time_limit=20.0, rate=50.0, partitions=2)  # fmt: skip
        simulated = simulate(plan)
        assert not simulated.crash, simulated.crash
        verdicts[workload] = simulated.judge()["verdict"]
    assert verdicts == {"append": "fail", "synced": "pass"}
