"""What is undone on a host, and what is left alone there: in namespaces of a process' own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.runtimes.agent.host import folder as run_folder

from .namespaces import apart, configuration

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and queues are root's")

UNDO = "print(json.dumps(undo.undo(Path(sys.argv[1]))))"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_folders_of_such_a_name_that_no_run_has_made_are_left_alone(tmp_path: Path) -> None:
    others = ["run-tests", "run-tests/result", "run-link", "run-file", "mine"]
    (tmp_path / "run-tests").mkdir()
    (tmp_path / "run-tests" / "result").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "run-file").touch()
    ours = run_folder.make(tmp_path, "r", resumes=False)
    (ours / "volume").mkdir()
    (tmp_path / "run-link").symlink_to(ours)
    assert run_folder.all_of_ours(tmp_path) == [ours]
    found = json.loads(apart("print(json.dumps(undo.found(Path(sys.argv[1]))))", tmp_path))
    assert found["folders"] == [str(ours)]
    assert json.loads(apart(UNDO, tmp_path)) == [f"folders: {ours}"]
    assert names(tmp_path) == sorted(others)
    assert json.loads(apart(UNDO, tmp_path)) == []
    with pytest.raises(FileExistsError):
        run_folder.make(tmp_path, "tests", resumes=False)
    with pytest.raises(FileExistsError):
        run_folder.make(tmp_path, "tests", resumes=True)
    assert names(tmp_path) == sorted(others)


@pytest.mark.parametrize("was_there", [False, True])
def test_a_data_directory_goes_with_the_run_that_has_made_it(tmp_path: Path, was_there: bool) -> None:
    data = tmp_path / "srv" / "data"
    if was_there:
        data.mkdir(parents=True)
    folder = run_folder.make(data, "r", resumes=False)
    assert run_folder.make(data, "r", resumes=True) == folder
    apart(UNDO, data)
    assert names(tmp_path) == (["srv", "srv/data"] if was_there else [])


def test_what_others_have_put_into_a_data_directory_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run_folder.make(data, "r", resumes=False)
    (data / "others").touch()
    apart(UNDO, data)
    assert names(tmp_path) == ["data", "data/others"]


def test_mounts_of_others_in_a_data_directory_are_none_of_ours(tmp_path: Path) -> None:
    folder = run_folder.make(tmp_path, "r", resumes=False)
    (tmp_path / "others").mkdir()
    (folder / "volume").mkdir()
    told = apart(
        """
data = Path(sys.argv[1])
for each in ("others", "run-r/volume"):
    kernel.mount_with("tmpfs", str(data / each), "tmpfs", 0, "size=1m")
before = undo.found(data)["mounts"]
undo.undo(data)
print(json.dumps([before, (data / "others").is_mount(), (data / "run-r").exists()]))
""",
        tmp_path,
    )
    assert json.loads(told) == [[str(folder / "volume")], True, False]


@pytest.mark.parametrize("how", ["by its guard", "by clean"])
def test_a_data_directory_that_is_a_link_is_unmounted(tmp_path: Path, how: str) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    told = apart(
        """
data, how = sys.argv[1], sys.argv[2]
guard.serve(json.loads(sys.argv[3]))
sys.argv = ["host", "status", data]
host.main()
holder = holding.holder_of()
if how == "by clean":
    os.kill(holder["guard"], signal.SIGKILL)
os.kill(holder["worker"], signal.SIGKILL)
while holding.is_held():
    time.sleep(0.01)
sys.argv = ["host", "remove", data]
host.main()
sys.argv = ["host", "status", data]
host.main()
""",
        tmp_path / "link", how, json.dumps(configuration(tmp_path / "link")),
    )  # fmt: skip
    before, removed, after = map(json.loads, told.splitlines())
    folder = tmp_path / "disk" / "run-r"
    assert (before["held"], before["found"]["mounts"]) == (True, [str(folder / "volume")])
    (device,) = before["found"]["loop devices"]
    assert [line for line in removed if "loop" in line] == ([f"loop devices: {device}"] if how == "by clean" else [])
    assert not after["held"] and not any(after["found"].values())
    assert names(tmp_path) == ["disk", "link"]
    assert device not in Path("/proc/self/mountinfo").read_text()


def test_a_loop_device_is_waited_for_and_told_if_it_stays(tmp_path: Path) -> None:
    folder = run_folder.make(tmp_path, "r", resumes=False)
    told = apart(
        """
import subprocess, threading
data = Path(sys.argv[1])
image = data / "run-r" / "volume.img"
with open(image, "wb") as file:
    file.truncate(1 << 20)
device, descriptor = kernel.attach_loop_device(image)
undo._LOOPS_S = 0.2
try:
    undo.undo(data)
except OSError as error:
    print(str(error) == f"{device.name} is still in use", image.exists())
undo._LOOPS_S = 5.0
threading.Timer(0.5, os.close, [descriptor]).start()
undo.undo(data)
print(Path("/sys/block", device.name, "loop").exists(), data.joinpath("run-r").exists())
""",
        tmp_path,
    )
    assert told.splitlines() == ["True True", "False False"]
    assert not folder.exists()


def test_a_worker_whose_guard_was_killed_undoes_all_by_itself(tmp_path: Path) -> None:
    told = apart(
        """
data = Path(sys.argv[1])
guard.serve(json.loads(sys.argv[2]))
(device,) = undo.found(data)["loop devices"]
os.kill(holding.holder_of()["guard"], signal.SIGKILL)
while holding.is_held():
    time.sleep(0.01)
print(any(undo.found(data).values()), holding.FOLDER.exists(), list(data.iterdir()))
""",
        tmp_path, json.dumps(configuration(tmp_path, rescue_after_s=0.5)),
    )  # fmt: skip
    assert told == "False False []\n"
