"""What is sent to hosts, as it is kept here."""

from __future__ import annotations

import hashlib
import os
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
        return pieces._piece("agent", {"agent": source}, compiles=True)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(16)))
    assert len(set(made)) == 1
    content = made[0].archive.read_bytes()
    assert hashlib.sha256(content).hexdigest() == made[0].sha256
    with tarfile.open(made[0].archive) as archive:
        assert archive.getnames() == ["agent/module.py"]
    assert [path.name for path in made[0].archive.parent.glob("*.new")] == []
