"""The checkout as a package: its wheel has all that runs need, and metadata as one that is published has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    # From a copy of what is in the repository: setuptools leaves its build directory beside the sources.
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, files)):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (directory / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / "source" / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
               "--wheel-dir", str(directory), str(directory / "source")]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (found,) = directory.glob("*.whl")
    return found


def test_a_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        (points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        said = message_from_string(archive.read(metadata).decode())
        assert "[pytest11]" in archive.read(points).decode() and "[console_scripts]" in archive.read(points).decode()
    stated = {name: said[name] for name in ("Name", "License-Expression", "Requires-Python")}
    assert stated == {"Name": "chaos", "License-Expression": "Apache-2.0", "Requires-Python": ">=3.11"}
    classifiers = said.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers and any(each.startswith("Development Status") for each in classifiers)
    assert any(name.endswith("/licenses/LICENSE") for name in names) and "Two commands" in said.get_payload()
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"harness", "nemesis", "workloads", "checkers", "spark_history", "cluster_image"}
    assert all(f"{top}/py.typed" in names for top in tops)


def test_what_it_installs_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    # The dependencies are those of this environment; the checkout, which it has too, is behind.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(installed)
    program = f"import harness; assert harness.__file__.startswith({str(installed)!r}), harness.__file__; "
    program += "from harness.__main__ import main; main()"
    arguments = "run --on simulation --nemesis power-outage --time-limit 15 --rate 50 --seed 1 --json --quiet"
    done = subprocess.run([sys.executable, "-P", "-c", program, *arguments.split()], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["verdict"] == "pass" and (tmp_path / verdict["path"] / "report.html").is_file()
    for needed in ("runtimes/docker/images/base.Dockerfile", "runtimes/agent", "targets/kafka/image/java.sh"):
        assert (installed / "harness" / needed).exists(), needed
