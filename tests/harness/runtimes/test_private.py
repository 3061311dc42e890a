"""The folder of a run's secrets."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from harness.runtimes import private


def test_a_run_has_one_that_nobody_else_enters_and_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, other = private.make("a"), private.make("a-b")
    (folder / "secret").write_text("secret")
    assert folder.stat().st_mode & 0o777 == 0o700 and private.runs() == {"a", "a-b"}
    assert private.remove("a") == [str(folder)] and private.runs() == {"a-b"} and other.exists()
    assert private.remove("a") == []


def test_what_only_looks_like_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "chaos-secrets-a.x").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "chaos-secrets-a.y").write_text("")
    assert private.remove("a") == [] and len(list(tmp_path.iterdir())) == 3
