"""Whatever a node puts on its volume, the agent, root among the host's files, neither follows, waits nor fills."""

from __future__ import annotations

import errno
import inspect
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from cluster_image.storage.records import build_batch
from harness.runtimes.agent import verbs
from harness.runtimes.agent.machine import Machine
from harness.runtimes.agent.volume import copying, damage, disk, loss, other, pages, tree

SECRET = b"a file of the host"
OWNER = copying.Owner(os.getuid(), os.getgid())
MOST = 8 << 30
CHOICE = {"what": ["segment"], "which": 0.0, "how": "flip", "where": 0.5, "bit": 0.5}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture
def volume(tmp_path: Path, host: Path) -> Path:
    """One sound log among all else."""
    volume = tmp_path / "volume"
    (volume / "t-0").mkdir(parents=True)
    (volume / "t-0" / "00000000000000000000.log").write_bytes(b"x" * 100)
    (volume / "t-0" / "00000000000000000100.log").write_bytes(b"y" * 100)
    (volume / "link.log").symlink_to(host / "secret")
    (volume / "link").symlink_to(host / "secret")
    (volume / "folder").symlink_to(host)
    (volume / "t-1").symlink_to(host)
    os.mkfifo(volume / "fifo.log")
    os.mkfifo(volume / "fifo")
    (volume / "device-null").symlink_to("/dev/zero")
    for name, size in (("sparse.log", 1 << 40), ("sparse", 1 << 30)):
        with open(volume / name, "wb") as file:
            file.truncate(size)
    (volume / "set-uid").write_bytes(b"#!/bin/sh\n")
    (volume / "set-uid").chmod(0o4755)
    (volume / "escape\x1b[2J").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(volume) + b"/no-\xff-text")).write_bytes(b"")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(volume / "socket"))
    listening.close()
    deep = volume
    for _ in range(tree.MOST_DEPTH + 5):
        deep = deep / "d"
        deep.mkdir()
    (deep / "bottom").write_bytes(b"")
    return volume


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A FIFO that is opened would wait for ever: pytest-timeout tells; and nothing takes long."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 20


def copy(volume: Path, target: Path, most: int = MOST) -> dict[str, Any]:
    target.mkdir(exist_ok=True)
    return copying.copy(volume, target, OWNER, most)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(60)
def test_a_copy_holds_the_logs_and_nothing_of_the_host_and_tells_the_rest(volume: Path, tmp_path: Path) -> None:
    answer = copy(volume, tmp_path / "copy")
    found = contents(tmp_path / "copy")
    assert found == {
        "t-0/00000000000000000000.log": b"x" * 100,
        "t-0/00000000000000000100.log": b"y" * 100,
    }
    assert answer["files"] == 2 and answer["bytes"] == 200
    assert not any(path.is_symlink() for path in (tmp_path / "copy").rglob("*"))
    reported = answer["left_out"]
    for kind, examples in {
        "5 × symbolic link": "device-null, folder, link, …", "2 × FIFO": "fifo, fifo.log", "1 × socket": "socket",
        "1 × set-uid or set-gid file": "set-uid", "1 × file of more than": "sparse.log", "1 × sparse file": "sparse",
        "2 × name that is not plain text": r"escape\x1b[2J, no-\udcff-text", f"folder {tree.MOST_DEPTH} deep": "d/d",
    }.items():  # fmt: skip
        assert kind in reported and examples in reported, reported
    assert reported.isprintable()


def test_a_copy_has_no_permissions_of_its_file_and_keeps_its_holes(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    path = tmp_path / "volume" / "0.log"
    with open(path, "wb") as file:
        file.write(b"begin")
        file.truncate(8 << 20)
        file.seek(8 << 20)
        file.write(b"end")
    path.chmod(0o777)
    assert copy(tmp_path / "volume", tmp_path / "copy")["left_out"] == ""
    made = tmp_path / "copy" / "0.log"
    assert made.read_bytes() == path.read_bytes()
    assert made.stat().st_mode & 0o7777 == 0o600
    assert made.stat().st_blocks * 512 < 1 << 20


def test_a_copy_replaces_an_earlier_one_and_follows_no_link_at_its_place(tmp_path: Path, host: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "0.log").write_bytes(b"new")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "0.log").symlink_to(host / "secret")
    copy(tmp_path / "volume", tmp_path / "copy")
    assert (host / "secret").read_bytes() == SECRET
    assert (tmp_path / "copy" / "0.log").read_bytes() == b"new"


def test_no_more_is_copied_than_the_volume_has(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "0").write_bytes(b"x" * 1000)
    for number in range(1, 5):
        os.link(tmp_path / "volume" / "0", tmp_path / "volume" / str(number))
    answer = copy(tmp_path / "volume", tmp_path / "copy", most=2500)
    assert answer["files"] == 2 and "3 × file beyond the 2,500 bytes" in answer["left_out"]


def test_names_beyond_what_is_looked_at_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_NAMES", 50)
    (tmp_path / "volume").mkdir()
    for number in range(200):
        (tmp_path / "volume" / f"{number}.log").write_bytes(b"")
    answer = copy(tmp_path / "volume", tmp_path / "copy")
    assert answer["files"] == 50 and "1 × folder with names beyond the 50" in answer["left_out"]
    survey = loss.final(tmp_path / "volume")
    assert len(survey.segments) == 50 and "names beyond" in str(survey.strange)


def test_what_is_replaced_by_a_link_between_a_look_and_the_opening_is_not_followed(
    volume: Path, host: Path, tmp_path: Path
) -> None:
    """The race that a check of the path alone would lose."""
    for found in tree.walk(volume, tree.Strange()):
        if found.path == "t-0/00000000000000000000.log":
            (volume / found.path).unlink()
            (volume / found.path).symlink_to(host / "secret")
            with pytest.raises(OSError, match="symbolic links"):
                found.open(os.O_RDONLY)
            (volume / found.path).unlink()
            os.mkfifo(volume / found.path)
            with pytest.raises(OSError, match="no regular file"):
                found.open(os.O_RDONLY)
            break
    else:
        pytest.fail("it was there")


def test_a_folder_that_becomes_a_link_meanwhile_is_not_entered(tmp_path: Path, host: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "t-0").mkdir(parents=True)
    (volume / "t-0" / "0.log").write_bytes(b"")
    strange = tree.Strange()
    paths = []
    for found in tree.walk(volume, strange):
        paths.append(found.path)
        if found.path == "t-0":
            (volume / "t-0").rename(tmp_path / "elsewhere")
            (volume / "t-0").symlink_to(host)
    assert paths == ["t-0"] and "folder that cannot be opened (ENOTDIR) (t-0)" in str(strange)


@pytest.mark.parametrize("path", ["../host/secret", "/etc/passwd", "t-1/secret", "folder/secret", "t-0/../x", ""])
def test_no_path_leads_out_of_the_volume(volume: Path, path: str) -> None:
    with pytest.raises(OSError):
        tree.open_beneath(volume, path, os.O_RDWR)


@pytest.mark.timeout(60)
def test_a_survey_of_a_power_cut_reads_no_link_and_waits_for_no_fifo(volume: Path) -> None:
    before = loss.Survey(volume)
    before.complete()
    assert set(before.segments) == {"t-0/00000000000000000000.log", "t-0/00000000000000000100.log"}
    assert before.files == {}
    evidence = loss.compared(before, loss.final(volume))
    assert "2 × FIFO" in evidence["not_surveyed"] and evidence["unsynced_files"] == 0


def test_a_batch_larger_than_any_is_not_read(tmp_path: Path) -> None:
    """Its length would be taken from a header that a node made up, and as much memory with it."""
    (tmp_path / "volume").mkdir()
    with open(tmp_path / "volume" / "0.log", "wb") as file:
        file.write(b"\0" * 8 + (loss._LARGEST_BATCH + 1).to_bytes(4, "big") + b"\0" * 49)
        file.truncate(loss._LARGEST_BATCH + 1024)
    segment = loss.Segment()
    with open(tmp_path / "volume" / "0.log", "rb") as file:
        segment.extend(file.fileno())
    assert segment.end == 0


def test_batches_and_bytes_that_are_compared_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "_MOST_BATCHES", 3)
    monkeypatch.setattr(loss, "_KEPT_IN_ALL", 10)
    volume = tmp_path / "volume"
    volume.mkdir()
    batch = b"\0" * 8 + (49).to_bytes(4, "big") + b"\0" * 49
    (volume / "0.log").write_bytes(batch * 10)
    for name in "abc":
        (volume / name).write_bytes(b"0123456789")
    survey = loss.final(volume)
    assert len(survey.segments["0.log"].ends) == 3 and set(survey.files) == {"a"}
    assert "segment with batches beyond the 3" in str(survey.strange) and "(b, c)" in str(survey.strange)


@pytest.mark.timeout(60)
def test_pages_are_dropped_of_files_only(volume: Path) -> None:
    assert "2 × FIFO" in pages.drop_clean(volume)["not_surveyed"]


@pytest.mark.timeout(60)
def test_damage_strikes_no_file_of_the_host(volume: Path, host: Path) -> None:
    (host / "00000000000000000000.log").write_bytes(b"host" * 100)
    (host / "00000000000000000100.log").write_bytes(b"host" * 100)
    done, _ = damage.damage(volume, CHOICE, lambda: 1)
    assert done is not None and done.path == "t-0/00000000000000000000.log"
    # Its folder is a link to the host's by the time that it is restored.
    (volume / "t-0").rename(volume / "gone")
    (volume / "t-0").symlink_to(host)
    damage.restore(volume, done)
    assert (host / "00000000000000000000.log").read_bytes() == b"host" * 100


def test_filling_a_disk_fills_no_file_of_the_host(tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = []
    monkeypatch.setattr(os, "posix_fallocate", lambda descriptor, at, size: filled.append(os.fstat(descriptor)))
    monkeypatch.setattr(disk, "_free", lambda _: 0 if filled else 1 << 20)
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / disk.FILLER).symlink_to(host / "secret")
    disk.fill(tmp_path / "volume")
    assert filled[0].st_ino == (tmp_path / "volume" / disk.FILLER).lstat().st_ino != (host / "secret").stat().st_ino
    (tmp_path / "volume" / disk.FILLER).unlink()
    (tmp_path / "volume" / disk.FILLER).symlink_to(host / "not-there")
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    assert disk.leftovers(tmp_path / "volume") == [], "it is none of ours"
    disk.fill(tmp_path / "volume")
    assert not (host / "not-there").exists()
    assert disk.leftovers(tmp_path / "volume") == ["has a disk that is full on purpose"]


def test_a_folder_in_the_place_of_what_fills_a_disk_keeps_no_fault_in_force(tmp_path: Path) -> None:
    (tmp_path / disk.FILLER).mkdir()
    disk.free(tmp_path)
    assert (tmp_path / disk.FILLER).is_dir(), "the node's own"
    with pytest.raises(OSError, match="keeps putting something of its own there"):
        disk.fill(tmp_path)


@pytest.mark.parametrize("left", [0, 30, 61, 200])
def test_a_log_that_is_cut_short_while_it_is_surveyed_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """As a follower does after each change of leader."""
    log = tmp_path / "t-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(build_batch([b"x" * 500], timestamp_ms=0) * 3)
    read = os.pread

    def cut_short(descriptor: int, wanted: int, position: int) -> bytes:
        os.truncate(log, left)
        return read(descriptor, wanted, position)

    monkeypatch.setattr(os, "pread", cut_short)
    assert str(loss.Survey(tmp_path).strange) == ""


def test_a_disk_that_is_put_aside_gives_away_no_folder_of_the_host(
    tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its giving away a node puts a link there."""
    volume = tmp_path / "volume"
    volume.mkdir()
    made = Path.mkdir

    def mkdir_and_link(self: Path, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.rmdir()
        self.symlink_to(host)

    given: list[str] = []
    monkeypatch.setattr(Path, "mkdir", mkdir_and_link)
    monkeypatch.setattr(os, "chown", lambda path, *_: given.append(str(path)))
    monkeypatch.setattr(os, "fchown", lambda descriptor, *_: given.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    with pytest.raises(OSError):
        other.make(volume)
    assert given == []


def _fail(path: Path) -> None:
    raise OSError(errno.EIO, "Input/output error", str(path))


@pytest.mark.parametrize("what", ["link", "file"])
def test_what_a_node_has_in_the_place_of_another_goes_and_nothing_else(
    tmp_path: Path, host: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    if what == "link":
        (volume / other.OTHER).symlink_to(host)
    else:
        (volume / other.OTHER).write_bytes(b"")
    assert other.leftovers(volume) == [], "none of ours"
    monkeypatch.setattr(os, "lstat", _fail)
    assert other.leftovers(volume) == [], "of a disk that fails it is told elsewhere"
    monkeypatch.undo()
    other.discard(volume)
    assert not os.path.lexists(volume / other.OTHER) and (host / "secret").read_bytes() == SECRET


# --- what the agent can be asked ---


def test_every_verb_takes_what_its_method_takes() -> None:
    for name, verb in verbs.VERBS.items():
        method = getattr(Machine, name)
        assert verb.call is method
        assert [*verb.arguments] == [*inspect.signature(method).parameters][1:], name
        assert get_type_hints(method).keys() >= verb.arguments.keys()


def test_the_harness_asks_for_verbs_that_there_are() -> None:
    whom = r"(?:self\.name|name|self\.nodes\[0\]\.name|node)"
    asking = re.compile(rf"(?:(?:ask|measure)\(\s*{whom},|_break_disk\() ?\"(\w+)\"")
    runtimes = Path(verbs.__file__).parent.parent
    paths = [path for folder in ("docker", "nodes") for path in (runtimes / folder).glob("*.py")]
    asked = {name for path in paths for name in asking.findall(path.read_text())}
    assert {"cut_power", "copy_disk", "block", "round_trips"} <= asked <= verbs.VERBS.keys()


@pytest.mark.parametrize(
    "request_",
    [
        {"node": "broker-1", "do": "__init__", "name": "x", "volume": None}, {"node": "broker-1", "do": "volume"},
        {"node": "broker-1", "do": "_kill"}, {"node": "broker-1", "do": "__class__"}, {"node": "broker-1", "do": None},
        {"node": "broker-1", "do": ["kill"]}, {"node": "nobody", "do": "kill"}, {"node": ["broker-1"], "do": "kill"},
        {"do": "kill"}, {"node": "broker-1", "do": "kill", "pid": 1}, {"node": "broker-1", "do": "plug_in"},
        {"node": "broker-1", "do": "plug_in", "pid": "self"}, {"node": "broker-1", "do": "plug_in", "pid": True},
        {"node": "broker-1", "do": "plug_in", "pid": -1}, {"node": "broker-1", "do": "started", "pid": 1 << 30},
        {"node": "broker-1", "do": "block", "key": "a; flush ruleset", "incoming": [], "outgoing": []},
        {"node": "broker-1", "do": "block", "key": "a", "incoming": ["10.0.0.1; drop"], "outgoing": []},
        {"node": "broker-1", "do": "copy_disk", "directory": "relative", "owner": 0, "group": 0},
        {"node": "broker-1", "do": "copy_disk", "directory": "/a/../b", "owner": 0, "group": 0},
        {"node": "broker-1", "do": "terminate", "patience": float("nan")},
        {"node": "broker-1", "do": "frozen", "how": "kill"}, [], "kill", None,
    ],
)  # fmt: skip
def test_what_there_is_not_cannot_be_asked(request_: Any) -> None:
    machines: Any = {"broker-1": object()}
    with pytest.raises(verbs.BadRequest):
        verbs.answer(machines, request_)
