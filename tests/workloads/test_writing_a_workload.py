"""The example of docs/writing-a-workload.md works as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from tests import ROOT

DOCUMENT = ROOT / "docs" / "writing-a-workload.md"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as an installed package: its module, and its entry point."""
    text = DOCUMENT.read_text()
    code, entry_points = (re.search(rf"```{kind}\n(.*?)```", text, re.S) for kind in ("python", "toml"))
    assert code is not None and entry_points is not None
    (tmp_path / "my_workloads.py").write_text(code[1])
    metadata = tmp_path / "my_workloads-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-workloads\nVersion: 1.0\n")
    written = entry_points[1].replace('[project.entry-points."chaos.workloads"]', "[chaos.workloads]").replace('"', "")
    (metadata / "entry_points.txt").write_text(written)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_workloads", raising=False)


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
