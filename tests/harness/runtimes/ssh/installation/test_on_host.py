"""What runs on hosts to install, here."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.runtimes.ssh.installation import on_host

COMMAND = [sys.executable, "-c", Path(on_host.__file__).read_text()]
KILLED, LIVING = "agent-00000000000000aa", "agent-00000000000000bb"
FILES = {"a/module.py": b"x = 1\n", "data": bytes(300_000)}


def packed(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def receiver(target: Path, sha256: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "receive", str(target), sha256, "compile"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def received(target: Path, archive: bytes, sha256: str = "") -> str:
    """What it complains of."""
    process = receiver(target, sha256 or hashlib.sha256(archive).hexdigest())
    _, complaint = process.communicate(archive)
    assert bool(process.returncode) == bool(complaint)
    return complaint.decode().strip()


def there(directory: Path, *, thoroughly: bool = True) -> list[str]:
    done = subprocess.run([*COMMAND, "look", str(directory), "all" * thoroughly], capture_output=True, check=True)
    return sorted(json.loads(done.stdout)["there"])


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_piece_is_there_once_and_changes_no_more(tmp_path: Path) -> None:
    at, archive = tmp_path / "made", packed(FILES)
    assert there(at) == []
    assert received(at / "piece", archive) == ""
    assert there(at) == ["piece"] and names(at) == ["piece", "piece.files"]
    assert (at / "piece" / "a" / "module.py").read_bytes() == FILES["a/module.py"]
    assert list((at / "piece").rglob("*.pyc")), "compiled"
    times = {path: path.stat().st_mtime_ns for path in at.rglob("*")}
    assert received(at / "piece", archive) == ""
    assert {path: path.stat().st_mtime_ns for path in at.rglob("*")} == times


def test_what_is_not_what_was_sent_leaves_nothing(tmp_path: Path) -> None:
    archive = packed(FILES)
    assert received(tmp_path / "piece", archive, "0" * 64) == "what arrived is not what was sent"
    assert received(tmp_path / "piece", archive[: len(archive) // 2]) != ""
    assert names(tmp_path) == []


@pytest.mark.parametrize("damage", ["shorter", "other", "gone", "no list", "half a list"])
def test_a_damaged_piece_is_not_there_and_is_made_whole(tmp_path: Path, damage: str) -> None:
    archive, data, listed = packed(FILES), tmp_path / "piece" / "data", tmp_path / "piece.files"
    assert received(tmp_path / "piece", archive) == ""
    if damage == "shorter":
        data.write_bytes(b"")
    elif damage == "other":
        data.write_bytes(b"\1" * len(FILES["data"]))
    elif damage == "gone":
        data.unlink()
    elif damage == "no list":
        listed.unlink()
    else:
        listed.write_text(listed.read_text()[:40])
    assert there(tmp_path) == []
    assert there(tmp_path, thoroughly=False) == (["piece"] if damage == "other" else [])
    assert received(tmp_path / "piece", archive) == ""
    assert there(tmp_path) == ["piece"] and data.read_bytes() == FILES["data"]
    assert names(tmp_path) == ["piece", "piece.files"]


def test_what_a_killed_one_has_left_is_swept_and_not_what_a_living_one_makes(tmp_path: Path) -> None:
    archive = packed(FILES)
    sha256 = hashlib.sha256(archive).hexdigest()
    killed, living = receiver(tmp_path / KILLED, sha256), receiver(tmp_path / LIVING, sha256)
    for each in (killed, living):
        assert each.stdin is not None
        each.stdin.write(archive[:200_000])
        each.stdin.flush()
    until = time.monotonic() + 20
    while len(list(tmp_path.glob("*.new/data"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    assert {name.split(".")[0] for name in names(tmp_path)} == {KILLED, LIVING}
    assert received(tmp_path / "piece", archive) == ""
    assert {name.split(".")[0] for name in names(tmp_path)} == {LIVING, "piece"}
    living.communicate(archive[200_000:])
    assert living.returncode == 0
    assert there(tmp_path) == [LIVING, "piece"]
    assert names(tmp_path) == [LIVING, f"{LIVING}.files", "piece", "piece.files"]


def removed(directory: Path) -> dict[str, list[str]]:
    done = subprocess.run([*COMMAND, "remove", str(directory)], capture_output=True, check=True)
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told


def test_pieces_alone_are_removed_and_the_directory_if_nothing_else_is_in_it(tmp_path: Path) -> None:
    """Somebody may have told us to install into /usr/local."""
    at, archive = tmp_path / "local", packed(FILES)
    assert removed(at) == {"removed": [], "others": []}
    assert received(at / LIVING, archive) == received(at / "site-packages-3.11-x86_64-00000000000000cc", archive) == ""
    (at / f"{KILLED}.7.new").mkdir()
    (at / KILLED).mkdir()  # its list was never written
    (at / "bin").mkdir()
    for name in ("bin/tool", "settings.new", "a.files", "a-0123"):
        (at / name).touch()
    assert received(at / LIVING, archive) == "" and (at / "settings.new").exists()
    told = removed(at)
    assert sorted(told["removed"]) == [KILLED, LIVING, "site-packages-3.11-x86_64-00000000000000cc"]
    assert sorted(told["others"]) == names(at) == ["a-0123", "a.files", "bin", "settings.new"]
    assert (at / "bin" / "tool").exists()
    assert removed(at)["removed"] == []
    for name in ("bin/tool", "settings.new", "a.files", "a-0123"):
        (at / name).unlink()
    (at / "bin").rmdir()
    assert received(at / LIVING, archive) == ""
    assert removed(at) == {"removed": [LIVING], "others": []}
    assert names(tmp_path) == []
