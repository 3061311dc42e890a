"""What cluster_image.storage.disk.Disk promises, as cases that run on any disk whose power can be cut.

A case checks what must hold on every run and returns which of the permitted things happened. A real file system may
always choose the same one; a simulated disk must, in some run, choose each.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

import pytest

from cluster_image.storage.disk import Disk

SECTOR = 512


class Machine(Protocol):
    @property
    def disk(self) -> Disk: ...

    def kill(self) -> None:
        """End the process that has files open."""

    def cut_power(self) -> None:
        """And let it come back, with no file open."""

    def fill(self) -> None:
        """Until there is no room left."""

    def free(self) -> None: ...


class Case(NamedTuple):
    run: Callable[[Machine], str]
    outcomes: frozenset[str]


CASES: dict[str, Case] = {}


def case(*outcomes: str) -> Callable[[Callable[[Machine], str]], None]:
    def register(run: Callable[[Machine], str]) -> None:
        CASES[run.__name__] = Case(run, frozenset(outcomes))

    return register


def noise(size: int, seed: int = 0) -> bytes:
    return Random(seed).randbytes(size)


def put(disk: Disk, path: str, *parts: bytes, sync: bool = True) -> None:
    """Create a file and make its name durable; `sync` its content too."""
    file = disk.open(path)
    for part in parts:
        file.append(part)
    if sync:
        file.sync()
    file.close()
    disk.sync_directory(path.rpartition("/")[0])


def made_of(content: bytes, *sources: bytes, start: int = 0) -> bool:
    """Does each sector from `start` on come whole from one of `sources`, or is it zeros?"""
    while start < len(content):
        end = min(start + SECTOR - start % SECTOR, len(content))
        if content[start:end] not in {(source[start:end] + bytes(SECTOR))[: end - start] for source in (*sources, b"")}:
            return False
        start = end
    return True


def share(content: bytes, whole: bytes, least: int = 0) -> str:
    """How much of what was appended to `least` synced bytes is left."""
    assert content[:least] == whole[:least]
    assert len(content) <= len(whole)
    assert made_of(content, whole, start=least)
    return "all" if content == whole else "nothing" if len(content) == least else "part"


# -- without a power cut ----------------------------------------------------------------------------------------


@case("")
def reading_and_writing(machine: Machine) -> str:
    file = machine.disk.open("f")
    file.append(b"0123")
    file.append(b"")
    file.append(b"456789")
    assert file.size() == 10
    assert (file.read_at(2, 3), file.read_at(8, 100), file.read_at(10, 1), file.read_at(50, 1)) == (
        b"234",
        b"89",
        b"",
        b"",
    )
    file.truncate(4)
    file.append(b"x")
    file.sync()
    file.close()
    assert machine.disk.read("f") == b"0123x"
    again = machine.disk.open("f")
    again.truncate(8)
    again.append(b"y")
    assert again.read_at(0, 100) == b"0123x\0\0\0y"
    return ""


@case("")
def names(machine: Machine) -> str:
    disk = machine.disk
    disk.make_directory("d")
    disk.make_directory("d")
    for name in ("b", "a", "B", "é"):
        disk.open(f"d/{name}").close()
    assert disk.list("d") == ["B", "a", "b", "é"]
    disk.rename("d/b", "d/a")
    assert (disk.exists("d/a"), disk.exists("d/b"), disk.exists("d"), disk.exists("")) == (True, False, True, True)
    assert (disk.exists("e/a"), disk.exists("d/a/b")) == (False, False)
    disk.rename("d/a", "d/a")
    disk.remove("d/B")
    assert disk.list("d") == ["a", "é"]
    assert disk.list("") == ["d"]
    return ""


@case("")
def directories_by_other_names_and_removed(machine: Machine) -> str:
    disk = machine.disk
    disk.make_directory("d")
    disk.open("d/f").append(b"x")
    disk.rename("d", "e")
    assert (disk.list(""), disk.read("e/f")) == (["e"], b"x")
    with pytest.raises(OSError):
        disk.remove_directory("e")
    with pytest.raises(FileNotFoundError):
        disk.remove_directory("d")
    disk.remove("e/f")
    disk.remove_directory("e")
    assert disk.list("") == []
    return ""


@case("")
def what_is_missing_or_of_another_kind(machine: Machine) -> str:
    disk = machine.disk
    disk.make_directory("d")
    disk.open("f").close()
    for missing in (
        lambda: disk.read("g"),
        lambda: disk.remove("g"),
        lambda: disk.rename("g", "h"),
        lambda: disk.list("g"),
        lambda: disk.open("g/f"),
        lambda: disk.sync_directory("g"),
        lambda: disk.rename("g/f", "g/h"),
    ):
        with pytest.raises(FileNotFoundError):
            missing()
    for not_a_directory in (
        lambda: disk.list("f"),
        lambda: disk.open("f/g"),
        lambda: disk.remove("f/g"),
        lambda: disk.sync_directory("f"),
    ):
        with pytest.raises(NotADirectoryError):
            not_a_directory()
    for is_a_directory in (
        lambda: disk.open("d"),
        lambda: disk.remove("d"),
        lambda: disk.rename("f", "d"),
    ):
        with pytest.raises(IsADirectoryError):
            is_a_directory()
    # Which error depends on the interpreter's version.
    with pytest.raises(OSError):
        disk.make_directory("f/g")
    assert disk.list("") == ["d", "f"]
    return ""


@case("")
def open_files(machine: Machine) -> str:
    """All see the same bytes, also when the file goes by another name, or by none."""
    disk = machine.disk
    one, other = disk.open("f"), disk.open("f")
    one.append(b"ab")
    other.append(b"c")
    assert one.read_at(0, 9) == other.read_at(0, 9) == b"abc"
    disk.rename("f", "g")
    one.append(b"d")
    assert disk.read("g") == b"abcd"
    disk.remove("g")
    other.append(b"e")
    assert (one.read_at(0, 9), one.size()) == (b"abcde", 5)
    assert disk.list("") == []
    one.close()
    one.close()
    for use in (one.size, one.sync, lambda: one.append(b"x"), lambda: one.read_at(0, 1), lambda: one.truncate(0)):
        with pytest.raises((OSError, ValueError)):
            use()
    assert other.size() == 5
    return ""


@case("")
def a_killed_process_loses_nothing(machine: Machine) -> str:
    file = machine.disk.open("f")
    file.append(noise(5000))
    machine.disk.make_directory("d")
    machine.disk.open("d/e")
    machine.kill()
    assert machine.disk.read("f") == noise(5000)
    assert machine.disk.list("d") == ["e"]
    return ""


@case("")
def a_full_disk(machine: Machine) -> str:
    disk, data = machine.disk, noise(1 << 20)
    file = disk.open("f")
    file.append(b"before")
    file.sync()
    machine.fill()
    with pytest.raises(OSError) as error:
        file.append(data)
    assert error.value.errno == errno.ENOSPC
    left = disk.read("f")
    assert (b"before" + data).startswith(left)
    assert len(left) < len(data), "not all of it can have been written"
    file.truncate(6)
    machine.free()
    file.append(b" and after")
    file.sync()
    assert disk.read("f") == b"before and after"
    return ""


# -- what a power cut leaves alone ------------------------------------------------------------------------------


@case("")
def synced_data_stays(machine: Machine) -> str:
    file = machine.disk.open("f")
    machine.disk.sync_directory("")
    file.append(noise(3000))
    file.sync()
    file.append(noise(77, seed=1))
    file.sync()
    machine.cut_power()
    assert machine.disk.read("f") == noise(3000) + noise(77, seed=1)
    machine.cut_power()
    assert machine.disk.read("f") == noise(3000) + noise(77, seed=1)
    return ""


@case("")
def a_made_directory_stays(machine: Machine) -> str:
    machine.disk.make_directory("a/b/c")
    put(machine.disk, "a/b/c/f", b"content")
    machine.cut_power()
    assert machine.disk.read("a/b/c/f") == b"content"
    return ""


@case("")
def a_directory_that_was_there_is_made_durable_too(machine: Machine) -> str:
    machine.disk.make_directory("a")
    machine.disk.open("a/f").close()
    machine.disk.make_directory("a/b")
    machine.cut_power()
    assert machine.disk.list("a") == ["b", "f"]
    return ""


@case("lost", "kept")
def an_added_directory_is_durable_once_its_parent_is_synced(machine: Machine) -> str:
    machine.disk.add_directory("a")
    with pytest.raises(FileExistsError):
        machine.disk.add_directory("a")
    machine.disk.add_directory("b")
    machine.disk.sync_directory("")
    machine.disk.add_directory("c")
    machine.cut_power()
    assert {"a", "b"} <= set(machine.disk.list(""))
    return "kept" if machine.disk.exists("c") else "lost"


@case("")
def a_synced_truncation_stays(machine: Machine) -> str:
    put(machine.disk, "f", noise(5000))
    file = machine.disk.open("f")
    file.truncate(700)
    file.sync()
    machine.cut_power()
    assert machine.disk.read("f") == noise(5000)[:700]
    return ""


@case("")
def appended_after_a_truncation_and_synced(machine: Machine) -> str:
    put(machine.disk, "f", noise(5000))
    file = machine.disk.open("f")
    file.truncate(700)
    file.append(noise(2000, seed=1))
    file.truncate(1000)
    file.append(noise(10, seed=2))
    file.sync()
    machine.cut_power()
    assert machine.disk.read("f") == noise(5000)[:700] + noise(2000, seed=1)[:300] + noise(10, seed=2)
    return ""


@case("")
def a_synced_removal_stays(machine: Machine) -> str:
    put(machine.disk, "f", noise(100))
    machine.disk.remove("f")
    machine.disk.sync_directory("")
    machine.cut_power()
    assert not machine.disk.exists("f")
    return ""


@case("")
def an_atomic_write_stays(machine: Machine) -> str:
    for content in (noise(1000), noise(600, seed=1)):
        machine.disk.write_atomically("f", content)
        machine.cut_power()
        assert (machine.disk.list(""), machine.disk.read("f")) == (["f"], content)
    return ""


@case("")
def what_was_left_is_there_for_good(machine: Machine) -> str:
    put(machine.disk, "f", noise(1000))
    file = machine.disk.open("f")
    file.append(noise(4000, seed=1))
    machine.disk.open("g").append(b"x")
    machine.cut_power()
    left = machine.disk.list(""), machine.disk.read("f")
    machine.cut_power()
    assert (machine.disk.list(""), machine.disk.read("f")) == left
    return ""


# -- what a power cut may take ----------------------------------------------------------------------------------


@case("nothing", "part", "all")
def unsynced_data_after_synced(machine: Machine) -> str:
    put(machine.disk, "f", noise(1000))
    file = machine.disk.open("f")
    file.append(noise(3000, seed=1))
    machine.cut_power()
    return share(machine.disk.read("f"), noise(1000) + noise(3000, seed=1), least=1000)


@case("gone", "nothing", "part", "all")
def a_new_file_of_which_nothing_is_synced(machine: Machine) -> str:
    file = machine.disk.open("f")
    file.append(noise(3000))
    machine.cut_power()
    return share(machine.disk.read("f"), noise(3000)) if machine.disk.exists("f") else "gone"


@case("gone", "all")
def a_new_file_whose_name_is_not_synced(machine: Machine) -> str:
    file = machine.disk.open("f")
    file.append(noise(3000))
    file.sync()
    machine.cut_power()
    return share(machine.disk.read("f"), noise(3000)) if machine.disk.exists("f") else "gone"


@case("nothing", "part", "all")
def a_new_file_whose_name_alone_is_synced(machine: Machine) -> str:
    put(machine.disk, "f", noise(3000), sync=False)
    machine.cut_power()
    return share(machine.disk.read("f"), noise(3000))


@case("old", "new")
def a_rename_that_is_not_synced(machine: Machine) -> str:
    put(machine.disk, "f", noise(1000))
    put(machine.disk, "f.tmp", noise(600, seed=1))
    machine.disk.rename("f.tmp", "f")
    machine.cut_power()
    if machine.disk.exists("f.tmp"):
        assert machine.disk.read("f.tmp") == noise(600, seed=1)
        assert machine.disk.read("f") == noise(1000)
        return "old"
    assert machine.disk.read("f") == noise(600, seed=1)
    return "new"


@case("old", "new")
def a_directory_renamed(machine: Machine) -> str:
    """It keeps what was synced in it under either name."""
    machine.disk.make_directory("d")
    put(machine.disk, "d/f", noise(1000))
    machine.disk.rename("d", "e")
    machine.cut_power()
    (name,) = machine.disk.list("")
    assert machine.disk.read(f"{name}/f") == noise(1000)
    return {"d": "old", "e": "new"}[name]


@case("neither", "renamed", "both")
def a_rename_and_a_new_file_of_the_old_name(machine: Machine) -> str:
    """Changes of one name reach the disk in order, or the old content would have no name at all."""
    put(machine.disk, "f", noise(1000))
    machine.disk.rename("f", "g")
    file = machine.disk.open("f")
    file.append(noise(600, seed=1))
    file.sync()
    machine.cut_power()
    names = machine.disk.list("")
    assert machine.disk.read(names[-1]) == noise(1000)
    if names == ["f", "g"]:
        assert machine.disk.read("f") == noise(600, seed=1)
        return "both"
    return {"f": "neither", "g": "renamed"}[names[0]]


@case("gone", "back")
def a_removal_that_is_not_synced(machine: Machine) -> str:
    put(machine.disk, "f", noise(1000))
    machine.disk.remove("f")
    machine.cut_power()
    if not machine.disk.exists("f"):
        return "gone"
    assert machine.disk.read("f") == noise(1000)
    return "back"


@case("none", "some", "all")
def names_are_lost_one_by_one(machine: Machine) -> str:
    for number in range(4):
        machine.disk.open(f"f{number}")
    machine.cut_power()
    left = machine.disk.list("")
    assert set(left) <= {"f0", "f1", "f2", "f3"}
    return {0: "none", 4: "all"}.get(len(left), "some")


@case("short", "between", "long")
def a_truncation_that_is_not_synced(machine: Machine) -> str:
    put(machine.disk, "f", noise(5000))
    file = machine.disk.open("f")
    file.truncate(700)
    machine.cut_power()
    content = machine.disk.read("f")
    assert content[:700] == noise(5000)[:700]
    assert 700 <= len(content) <= 5000
    assert made_of(content, noise(5000), start=700)
    return "short" if len(content) == 700 else "long" if content == noise(5000) else "between"


@case("old", "new", "mixed")
def appended_after_a_truncation_and_not_synced(machine: Machine) -> str:
    old, new = noise(5000), noise(5000)[:700] + noise(3000, seed=1)
    put(machine.disk, "f", old)
    file = machine.disk.open("f")
    file.truncate(700)
    file.append(new[700:])
    machine.cut_power()
    content = machine.disk.read("f")
    assert content[:700] == old[:700]
    assert made_of(content, old, new, start=700)
    return {old: "old", new: "new"}.get(content, "mixed")
