"""What is sent to hosts, as it is kept here."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.runtimes.ssh.installation import pieces


def test_those_who_make_the_same_piece_at_one_time_have_the_same_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("CHAOS_CACHE", str(tmp_path / "cache"))

    def make(number: int) -> pieces.Piece:
        source = tmp_path / str(number)
        source.mkdir()
        (source / "module.py").write_text("x = 1\n")
        os.utime(source / "module.py", (number, number))  # as of wheels that each has unpacked for itself
        return pieces._piece("agent", {"agent": source}, has_modules=True)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(16)))
    assert len(set(made)) == 1
    content = made[0].archive.read_bytes()
    assert hashlib.sha256(content).hexdigest() == made[0].sha256
    with tarfile.open(made[0].archive) as archive:
        assert archive.getnames() == [f"agent/__pycache__/module.{sys.implementation.cache_tag}.pyc", "agent/module.py"]
    assert [path.name for path in made[0].archive.parent.glob("*.new")] == []


def test_modules_are_compiled_once_and_a_host_of_the_same_python_takes_them_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "package"
    source.mkdir()
    (source / "module.py").write_text("print(__cached__, (lambda: 0).__code__.co_filename)\n")
    piece = pieces._piece("kraft", {".": source}, has_modules=True)
    assert [piece.is_to_be_compiled_for(version) for version in (pieces._VERSION, "3.99")] == [False, True]
    unpacked = tmp_path / "unpacked"
    with tarfile.open(piece.archive) as archive:
        archive.extractall(unpacked, filter="data")
    compiled = next(unpacked.rglob("*.pyc"))
    before = compiled.read_bytes(), compiled.stat().st_mtime_ns
    run = subprocess.run(
        [sys.executable, "-v", "-c", "import module"], cwd=unpacked, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    )  # fmt: skip
    assert f"matches {unpacked}/module.py" in run.stderr
    assert run.stdout.split() == [str(compiled), f"{unpacked}/module.py"]
    assert (compiled.read_bytes(), compiled.stat().st_mtime_ns) == before
    assert not pieces._piece("kafka", {".": source}, has_modules=False).is_to_be_compiled_for("3.99")
