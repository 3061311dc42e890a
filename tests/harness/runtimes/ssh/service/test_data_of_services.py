"""Which file systems of services may be lost, by what /proc tells; and what is noted of what is done to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.runtimes.agent import kernel
from harness.runtimes.agent.host import folder as run_folder
from harness.runtimes.agent.host.volumes import alone, given
from harness.runtimes.agent.host.volumes.alone import NotAlone, User
from harness.runtimes.agent.volume import damage, loss, mounts, pages

ROOT_LINE = "21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard"
DATA_LINE = "40 21 253:0 / /srv/kafka rw,nosuid,noatime shared:7 - ext4 /dev/mapper/vg-kafka rw,seclabel,commit=7"
DATA = mounts.parsed(DATA_LINE)[0]


def test_a_line_of_mountinfo_is_read_as_the_kernel_writes_it() -> None:
    line = r"36 35 8:1 /a\040b /mnt/c\134d rw,noatime master:1 propagate_from:2 - xfs /dev/sd\011a rw,logbufs=8"
    (found,) = mounts.parsed(line)
    assert (found.number, found.device_number, found.root, found.point) == (36, "8:1", "/a b", "/mnt/c\\d")
    assert (found.options, found.peers) == (("rw", "noatime"), ("master:1", "propagate_from:2"))
    assert (found.kind, found.source, found.of_file_system) == ("xfs", "/dev/sd\ta", ("rw", "logbufs=8"))
    (without,) = mounts.parsed("36 35 8:1 / /mnt rw - ext4 /dev/sda rw")
    assert without.peers == ()


def test_it_is_mounted_again_with_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(kernel, "mount_with", lambda *given: asked.append(given))
    mounts.mount(DATA)
    (strict,) = mounts.parsed("40 21 253:0 / /d rw,noexec - xfs /dev/vdb rw,sync,attr2,shutdown,noquota")
    mounts.mount(strict)
    nosuid, noatime, noexec, sync, strict_atime = 2, 1 << 10, 8, 16, 1 << 24
    assert asked == [
        ("/dev/mapper/vg-kafka", "/srv/kafka", "ext4", nosuid | noatime, "commit=7"),
        ("/dev/vdb", "/d", "xfs", noexec | sync | strict_atime, "attr2,noquota"),
    ]


@pytest.mark.parametrize(
    ("directory", "lines", "said"),
    [
        ("/var/lib/kafka", [], "is on the root file system"),
        ("/srv/kafkaesque", [], "is on the root file system"),
        ("/d", ["41 21 0:40 / /d rw - btrfs /dev/vdc rw"], "is on /d, of btrfs, which cannot be shut down"),
        ("/d", ["41 21 254:1 /var /d rw - ext4 /dev/vda1 rw"], "is on /d, where only /var of /dev/vda1 is mounted"),
        ("/srv/kafka", [DATA_LINE], "where one file system is mounted over another"),
        ("/srv/kafka", ["41 40 8:2 / /srv/kafka/x rw - xfs /dev/sda2 rw"], "/srv/kafka/x is mounted below that"),
        ("/srv/kafka", ["41 21 253:0 /y /mnt rw - ext4 /dev/dm-0 rw"], "and /mnt is the same file system"),
        ("/d", ["41 21 8:2 / /d ro - xfs /dev/sda2 rw"], "is on /d, which is read-only"),
        ("/d", ["41 21 8:2 / /d rw - ext4 /dev/sda2 rw,usrjquota=aquota.user"], "whose quotas no mount switches on"),
    ],
)
def test_where_the_data_has_no_file_system_of_its_own_that_is_said(directory: str, lines: list[str], said: str) -> None:
    listed = mounts.parsed("\n".join([ROOT_LINE, DATA_LINE, *lines]))
    with pytest.raises(NotAlone, match=said):
        alone.of_its_own(directory, listed)


def test_a_mount_of_its_own_is_found() -> None:
    listed = mounts.parsed(f"{ROOT_LINE}\n{DATA_LINE}")
    assert alone.of_its_own("/srv/kafka/data", listed) == alone.of_its_own("/srv/kafka", listed) == DATA


class Proc:
    """Processes that only a folder has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "self/ns").mkdir(parents=True)
        (folder / "self/ns/mnt").symlink_to("mnt:[1]")

    def add(
        self, pid: int, *, cwd: str = "/", root: str = "/", files: tuple[tuple[str, int], ...] = (), maps: str = "",
        namespace: int = 1, lines: tuple[str, ...] = (ROOT_LINE, DATA_LINE),
    ) -> None:  # fmt: skip
        of = self.folder / str(pid)
        for each in ("ns", "fd", "fdinfo"):
            (of / each).mkdir(parents=True)
        (of / "ns/mnt").symlink_to(f"mnt:[{namespace}]")
        for name, target in (("cwd", cwd), ("root", root), ("exe", "/usr/bin/x")):
            (of / name).symlink_to(target)
        for number, (path, mount) in enumerate(files):
            (of / "fd" / str(number)).symlink_to(path)
            (of / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t02\nmnt_id:\t{mount}\n")
        (of / "maps").write_text(maps)
        (of / "comm").write_text("bash\n")
        (of / "mountinfo").write_text("\n".join(lines))


def test_whoever_uses_it_is_named(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.add(10, cwd="/srv/kafka/data")  # the service
    proc.add(11, cwd="/srv/kafkaesque", files=(("/var/log/x", 21), ("socket:[3]", 9)))
    assert list(alone.users(DATA, {10}, tmp_path)) == []
    proc.add(12, cwd="/srv/kafka")
    proc.add(13, root="/srv/kafka/jail")
    proc.add(14, files=(("/dev/null", 5), ("/srv/kafka/x (deleted)", 40)))
    proc.add(15, maps="7f00-7f01 r--s 00000000 fd:00 12 /srv/kafka/index\n7f02-7f03 rw-p 0 00:00 0\n")
    # In a namespace of its own, where it is elsewhere; and a file that came from there.
    theirs = DATA_LINE.replace("40 21", "90 80").replace("/srv/kafka", "/data").replace("shared:7", "master:7")
    proc.add(16, cwd="/data/z", namespace=2, lines=(theirs,))
    proc.add(17, files=(("/z", 90),))
    assert list(alone.users(DATA, {10}, tmp_path)) == [
        User(12, "bash", "/srv/kafka"), User(13, "bash", "/srv/kafka/jail"), User(14, "bash", "/srv/kafka/x (deleted)"),
        User(15, "bash", "/srv/kafka/index"), User(16, "bash", "/data/z"), User(17, "bash", "/z"),
    ]  # fmt: skip
    assert str(User(12, "bash", "/srv/kafka")) == "process 12 (bash: /srv/kafka)"


def test_a_mount_that_an_unmount_does_not_reach_is_somebodys(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.add(10, namespace=3, lines=(DATA_LINE.replace(" shared:7", ""),))  # the service: it goes with its process
    proc.add(11, namespace=2, lines=(DATA_LINE.replace("shared:7", "master:7"),))
    assert alone.sees_apart(DATA, {10}, tmp_path) == ""
    proc.add(12, namespace=4, lines=(DATA_LINE.replace("shared:7", "shared:8"),))
    assert alone.sees_apart(DATA, {10}, tmp_path) == "process 12 (bash)"


def volume_of(tmp_path: Path) -> given.GivenVolume:
    data, run = tmp_path / "data", tmp_path / "run"
    run.mkdir()
    for name in ("chaos-r-0", "orders-0", "chaos-r-1x"):
        (data / name).mkdir(parents=True)
        for segment in ("00000000000000000000.log", "00000000000000000009.log"):
            (data / name / segment).write_bytes(name.encode() * 50)
    return given.GivenVolume(data, "chaos-r", run)


def test_of_the_data_only_the_topic_of_the_run_is_read_and_damaged(tmp_path: Path) -> None:
    volume = volume_of(tmp_path)
    assert {path.split("/")[0] for path in volume.survey().segments} == {"chaos-r-0"}
    assert loss.final(volume.directory).segments.keys() > volume.survey().segments.keys()
    assert pages.drop_clean(volume.directory, volume.top)["resident_before"] <= 2 * 4096
    choice = {"what": ["segment"], "how": "flip", "where": 0.5, "bit": 0.5}
    for which in (0.0, 0.5, 0.99):
        done, _ = damage.damage(volume.directory, {**choice, "which": which}, lambda: 1, volume.top)
        assert done is not None and done.path == "chaos-r-0/00000000000000000000.log"


@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_whoever_undoes_a_run_mends_what_it_has_damaged(tmp_path: Path, how: str) -> None:
    volume = volume_of(tmp_path)
    file = volume.directory / "chaos-r-0/00000000000000000000.log"
    whole = file.read_bytes()
    choice = {"what": ["segment"], "how": how, "where": 0.5, "bit": 0.5, "which": 0.0}
    damage.damage(volume.directory, choice, lambda: 1, volume.top, volume.note)
    assert file.read_bytes() != whole
    assert given.amiss(tmp_path / "run") == [f"{file} is damaged"]
    given.put_right(tmp_path / "run", list)
    assert (file.read_bytes(), given.amiss(tmp_path / "run")) == (whole, [])
    given.put_right(tmp_path / "run", list)


def test_a_root_file_system_is_refused_before_anything_is_noted(tmp_path: Path) -> None:
    volume = volume_of(tmp_path)
    with pytest.raises(OSError, match=r"the data directory of the service (is on|cannot be)"):
        volume.begin("lost", ())
    assert list((tmp_path / "run").iterdir()) == []


def test_after_a_reboot_no_device_is_mounted_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another's by then."""
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(mounts, "mount", lambda _: pytest.fail("mounted"))
    noted = {"what": "lost", "mount": given.asdict(DATA), "directory": "/srv/kafka", "boot": "another"}
    run_folder.note(run / "lost.json", noted)
    monkeypatch.setattr(mounts, "own", lambda: mounts.parsed(ROOT_LINE))
    assert given.amiss(run) == ["/srv/kafka is not mounted"]
    with pytest.raises(OSError, match="is not mounted since this host was rebooted: mount it"):
        given.put_right(run, list)
    moved = DATA_LINE.replace("253:0", "253:4")
    monkeypatch.setattr(mounts, "own", lambda: mounts.parsed(f"{ROOT_LINE}\n{moved}"))
    given.put_right(run, list)
    assert given.amiss(run) == []
