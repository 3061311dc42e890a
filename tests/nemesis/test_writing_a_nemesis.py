"""The example of docs/writing-a-nemesis.md works as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from tests import ROOT
from tests.project import example_package

DOCUMENT = ROOT / "docs" / "writing-a-nemesis.md"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example_package.install(DOCUMENT, "nemeses", tmp_path, monkeypatch)


@pytest.mark.usefixtures("installed")
def test_the_example_is_found_with_its_knob(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["list", "nemeses"])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("frozen-kill")]
    assert "frozen_s=2 (0.1 to 60: seconds" in row and "docker, simulation" in row


@pytest.mark.usefixtures("installed")
def test_the_example_strikes_and_is_healed() -> None:
    wanted = "frozen-kill:frozen_s=1.5"
    assert registry.make_nemeses([wanted])[wanted].frozen_s == 1.5  # type: ignore[attr-defined]
    plan = Plan(run="r", on="simulation", nemesis=(wanted,), seed=1, time_limit=25.0, rate=40.0, partitions=2)
    simulated = simulate(plan)
    rows = simulated.tables["faults"].to_pylist()
    last = {row["fault"]: row for row in rows}.values()
    assert len(last) >= 2 and all(row["effective"] and row["end"] is not None for row in last)
    assert not simulated.crash and simulated.violation is None and not simulated.problems
