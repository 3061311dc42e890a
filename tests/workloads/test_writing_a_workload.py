"""What docs/writing-a-workload.md shows works as it stands there: the class in it, and the package beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from tests import ROOT
from tests.project import example_package

DOCUMENT = ROOT / "docs" / "writing-a-workload.md"
PACKAGE = ROOT / "docs" / "example-workload"
RUN = (
    "run", "--on", "simulation", "--workload", "box-office", "--nemesis", "kill", "--time-limit", "12", "--rate", "40",
    "--partitions", "2", "--seed", "1", "--json", "--quiet",
)  # fmt: skip


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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example package is installed, by pip, without any network."""
    scratch: Path = tmp_path_factory.mktemp("example")
    source = shutil.copytree(PACKAGE, scratch / "source")  # building leaves things beside it
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
        "--disable-pip-version-check", "--root-user-action=ignore", "--target", str(scratch / "site"), str(source),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return scratch / "site"


def chaos(site: Path | None, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, filter(None, (ROOT, site))))
    return subprocess.run(
        [sys.executable, "-m", "harness", *words], cwd=directory, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip


def judged(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout.startswith("{"), done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(verdict, json.loads((ROOT / "docs" / "schemas" / "verdict.json").read_text()))
    return verdict


def test_the_package_is_small_and_listed(site: Path, tmp_path: Path) -> None:
    assert len((PACKAGE / "box_office.py").read_text().splitlines()) < 150
    assert "box-office\tBooks, cancels and counts" in chaos(site, tmp_path, "list", "workloads").stdout
    assert "seats\tno show oversold\tNo show has" in chaos(site, tmp_path, "list", "checkers").stdout
    assert "no checker but those of chaos itself" in chaos(None, tmp_path, "list", "checkers").stdout


def test_the_package_passes_and_its_section_is_in_the_report(site: Path, tmp_path: Path) -> None:
    verdict = judged(chaos(site, tmp_path, *RUN, "--run-name", "right"))
    assert verdict["verdict"] == "pass", verdict["reason"]
    assert (
        verdict["anomalies"]["seats linearizability"]["count"] == verdict["anomalies"]["no show oversold"]["count"] == 0
    )
    told = verdict["own_checkers"]["seats"]
    assert told["package"] == "box-office 1.0" and [row[0] for row in told["section"]["rows"]] == ["0", "1"]
    assert sum(row[2] for row in told["section"]["rows"]) > 50  # bookings
    page = (tmp_path / "results" / "right" / "report.html").read_text()
    assert "Each show has 20 seats." in page and "seats booked at the end" in page
    # Whoever judges the run again without the package does not pass it.
    (again,) = [judged(chaos(None, tmp_path, "check", "right", "--json"))]
    assert again["verdict"] == "unknown" and again["reason"].startswith("checker seats is not installed here")
    assert judged(chaos(site, tmp_path, "check", "right", "--json"))["verdict"] == "pass"


def test_its_planted_fault_is_found_and_named(site: Path, tmp_path: Path) -> None:
    done = chaos(site, tmp_path, *RUN, "--workload-set", "decide=before", "--run-name", "wrong")
    verdict = judged(done)
    assert (verdict["verdict"], done.returncode) == ("fail", 1)
    assert verdict["reason"].startswith("not linearizable (")
    found = verdict["anomalies"]["seats linearizability"]
    assert found["anomalies"].keys() == {"not linearizable"} and "these cannot all take effect" in found["example"]
    assert [name for name, of in verdict["anomalies"].items() if of["count"] and not of["weak"]] == [
        "seats linearizability"
    ]
    page = (tmp_path / "results" / "wrong" / "report.html").read_text()
    assert "seats linearizability" in page and "Bookings, cancellations and looks at a show take effect" in page
    said = chaos(site, tmp_path, "check", "wrong")
    assert said.returncode == 1
    assert "seats linearizability: Bookings, cancellations and looks" in said.stdout and "book " in said.stdout


def test_its_checker_judges_many_seeds(site: Path, tmp_path: Path) -> None:
    done = chaos(site, tmp_path, "explore", "--workload", "box-office", "--seeds", "0..3", "--nemesis", "kill,pause",
                 "--time-limit", "12", "--partitions", "2", "--workers", "1", "--json")  # fmt: skip
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["totals"]["runs"] == found["totals"]["passed"] == 4, found
    assert "seats linearizability" in found["checked"]
