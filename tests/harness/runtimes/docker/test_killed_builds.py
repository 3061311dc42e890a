"""A build of an image that is killed, at whatever moment, leaves nothing that `chaos clean` does not remove."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from harness.cluster import RuntimeUnavailable
from harness.runtimes import clean
from harness.runtimes.docker import engine
from harness.runtimes.docker.images import builds, images
from harness.runtimes.owner import owner
from tests import ROOT

#: Builds in two steps, as images.py does: dependencies, then a bootstrap whose children have children.
BUILD = """
import sys, time
from pathlib import Path
from harness.runtimes.docker.images import builds
builds.FOLDERS = Path(sys.argv[1])
step = 'echo $$ >> "$TMPDIR/../pids"; head -c 1000000 /dev/zero > "$TMPDIR/$1"; (sh -c "sleep 600" & sleep 600) & wait'
with builds.scratch() as folder:
    print(folder, flush=True)
    if sys.argv[2] == "between":
        time.sleep(600)
    builds.run(["bash", "-c", step, "step", "one"], folder)
"""


def start(folders: Path, phase: str) -> tuple[subprocess.Popen[str], Path]:
    running = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(folders), phase], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    return running, Path(running.stdout.readline().strip()).parent


def soon(condition: Callable[[], Any], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def finish(running: subprocess.Popen[str]) -> None:
    running.kill()
    running.wait()
    assert running.stdout is not None
    running.stdout.close()


def guard_of(running: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    return int(children[0])


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1, 0.5])
def test_what_a_killed_build_runs_dies_with_it_and_its_folder_goes(tmp_path: Path, delay: float) -> None:
    running, folder = start(tmp_path, "one")
    try:
        time.sleep(delay)
    finally:
        finish(running)
    # It may have died before anything watched over its folder.
    assert soon(lambda: not builds._processes_in(folder)), builds._processes_in(folder)
    soon(lambda: not folder.exists(), 1.0)
    builds_at(tmp_path)
    assert not folder.exists() and list(tmp_path.glob("*/*")) == []


def test_processes_of_a_build_whose_watcher_is_killed_too_are_ended_by_a_clean(tmp_path: Path) -> None:
    running, folder = start(tmp_path, "one")
    try:
        assert soon(lambda: len(builds._processes_in(folder)) >= 4)
        os.kill(guard_of(running), signal.SIGKILL)
    finally:
        finish(running)
    left = builds._processes_in(folder)
    assert left and folder.exists()
    said = builds_at(tmp_path)
    assert f"folder {folder} of a dead build" in said and any(line.startswith("process ") for line in said)
    assert soon(lambda: not builds._processes_in(folder)) and not folder.exists()


def test_a_folder_of_a_build_that_is_killed_between_commands_is_found_and_that_of_a_living_one_left_alone(
    tmp_path: Path,
) -> None:
    dead, folder = start(tmp_path, "between")
    living, other = start(tmp_path, "between")
    try:
        finish(dead)
        assert builds_at(tmp_path) == [f"folder {folder} of a dead build"]
        assert not folder.exists() and other.exists()
    finally:
        finish(living)
    assert builds_at(tmp_path) == [f"folder {other} of a dead build"]
    assert builds_at(tmp_path) == [], "safe to repeat"


def builds_at(folders: Path) -> list[str]:
    before, builds.FOLDERS = builds.FOLDERS, folders  # type: ignore[misc]
    try:
        return list(builds.remove_folders())
    finally:
        builds.FOLDERS = before  # type: ignore[misc]


def test_a_link_in_the_place_of_a_dead_build_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    place = tmp_path / f"chaos-builds-{os.getuid()}"
    place.mkdir()
    (place / "1.1-x").symlink_to(tmp_path / "precious")
    assert builds_at(tmp_path) == [] and (tmp_path / "precious").is_dir()


def test_a_place_of_another_user_is_not_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "FOLDERS", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"chaos-builds-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RuntimeUnavailable, match="another user's"), builds.scratch():
        pass


def test_the_exit_status_and_words_of_a_command_come_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "FOLDERS", tmp_path)
    with builds.scratch() as folder:
        done = builds.run(["sh", "-c", 'echo "$TMPDIR"; echo bad >&2; exit 3'], folder)
        assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (3, str(folder), "bad")
        assert builds.run(["sh", "-c", "kill -9 $$"], folder).returncode == 128 + signal.SIGKILL
    assert list(tmp_path.glob("*/*")) == []


def test_a_base_that_another_chaos_is_building_is_waited_for_and_not_built_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once would both call apt-get, which refuses the second."""
    monkeypatch.setattr(builds, "FOLDERS", tmp_path)
    there: set[str] = set()
    built: list[str] = []
    told: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def build_base(api: Any, tag: str, progress: Any) -> None:
        built.append(tag)
        begun.set()
        assert go_on.wait(30)
        there.add(tag)

    def build(api: Any, tag: str, *rest: Any) -> None:
        there.add(tag)

    monkeypatch.setattr(images, "_build_base", build_base)
    monkeypatch.setattr(images, "_build", build)
    monkeypatch.setattr(images, "_id_of", lambda api, tag: tag if tag in there else "")
    both = [threading.Thread(target=images.ensure_agent, args=(None, told.append)) for _ in range(2)]
    both[0].start()
    assert begun.wait(30)
    both[1].start()
    assert soon(lambda: any("another chaos" in line for line in told))
    go_on.set()
    for each in both:
        each.join(30)
    assert built == [images.base_tag()]


def test_labels_come_with_the_first_step() -> None:
    text = builds.labelled("# FROM here\nARG BASE\nFROM ${BASE}\nRUN FROM\n", "node").splitlines()
    assert text[2] == "FROM ${BASE}" and text[4] == "RUN FROM"
    assert text[3] == f"LABEL chaos.image=node chaos.build={owner()}"


class _Engine:
    """With a container and images of a dead build, of a living one, and of a run."""

    def __init__(self) -> None:
        dead, alive = {engine.BUILD_LABEL: "1:1"}, {engine.BUILD_LABEL: owner()}
        self.containers_ = [
            {"Id": "a" * 64, "Labels": dead}, {"Id": "b" * 64, "Labels": alive},
            {"Id": "c" * 64, "Labels": {**dead, engine.RUN_LABEL: "run"}},
        ]  # fmt: skip
        self.images_ = [{"Id": f"sha256:{'d' * 64}", "Labels": dead}, {"Id": f"sha256:{'e' * 64}", "Labels": alive}]
        self.removed: list[str] = []

    def containers(self, **_: Any) -> list[Any]:
        return self.containers_

    def images(self, filters: dict[str, Any]) -> list[Any]:
        return self.images_ if filters.get("dangling") else []

    def remove_container(self, name: str, **_: Any) -> None:
        self.removed.append(name[0])

    def remove_image(self, name: str) -> None:
        self.removed.append(name.removeprefix("sha256:")[0])


def test_clean_tells_of_dead_builds_and_leaves_the_living_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = _Engine()
    monkeypatch.setattr(engine, "connect", lambda: fake)
    monkeypatch.setattr(clean.cleanup, "runs", lambda _: {})
    monkeypatch.setattr(builds, "FOLDERS", tmp_path)
    dead = tmp_path / f"chaos-builds-{os.getuid()}" / "1.1-x"
    dead.mkdir(parents=True)
    assert clean.clean() == [
        f"removed folder {dead} of a dead build", f"removed container {'a' * 12} of a dead build",
        f"removed image {'d' * 12} of a dead build",
    ]  # fmt: skip
    assert fake.removed == ["a", "d"]


def test_what_the_engine_removes_itself_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _Engine()

    def removing(*_: Any, **__: Any) -> None:
        raise APIError("removal is already in progress", response=SimpleNamespace(status_code=409))

    fake.remove_container = removing  # type: ignore[method-assign]
    monkeypatch.setattr(builds, "FOLDERS", tmp_path)
    assert list(builds.remove_dead(fake)) == [f"image {'d' * 12} of a dead build"]  # type: ignore[arg-type]


# --- with an engine ---

SLOW = """
ARG BASE
FROM ${BASE}
COPY . /made
RUN touch /step-1
RUN sleep 600
"""
BUILD_IMAGE = """
import sys
from pathlib import Path
from harness.runtimes.docker import engine
from harness.runtimes.docker.images import builds, images
builds.BUILD_LABEL = images.BUILD_LABEL = sys.argv[2]
builds.IMAGE_LABEL = images.IMAGE_LABEL = sys.argv[3]
folder = Path(sys.argv[1])
images._build(engine.connect(), sys.argv[4], "test", {"": folder}, folder / "Dockerfile", images.base_tag())
"""


@pytest.mark.docker
@pytest.mark.parametrize("step", [1, 4, 5])
def test_a_killed_build_of_a_layer_leaves_no_container_and_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Labels of its own: a clean of everything would remove what others build."""
    api = engine.connect()
    images.ensure_agent(api, lambda _: None)
    build, image = f"chaos.test-build-{os.getpid()}-{step}", f"chaos.test-image-{os.getpid()}-{step}"
    monkeypatch.setattr(builds, "BUILD_LABEL", build)
    monkeypatch.setattr(builds, "IMAGE_LABEL", image)
    monkeypatch.setattr(builds, "FOLDERS", tmp_path / "none")
    (tmp_path / "Dockerfile").write_text(SLOW)
    (tmp_path / "data").write_bytes(os.urandom(1000))
    tag = f"chaos-test:{os.getpid()}-{step}"
    running = subprocess.Popen(
        [sys.executable, "-c", BUILD_IMAGE, str(tmp_path), build, image, tag], cwd=ROOT,
    )  # fmt: skip

    def there() -> int:
        """Images made so far, and containers."""
        found = api.images(all=True, filters={"label": build})
        return len(found) + len(api.containers(all=True, filters={"label": build}))

    try:
        # A container for the step, too, while it runs.
        assert soon(lambda: there() >= step - 1 and (step < 5 or api.containers(filters={"label": build})), 60)
    finally:
        running.kill()
        running.wait()
    removed: list[str] = []
    # The engine may see only later that nobody waits for it any more, and then it makes nothing new.
    assert soon(lambda: removed.extend(builds.remove_dead(api)) or there() == 0, 30), there()
    assert not images.has_image(api, tag)


BOOTSTRAP = """
import sys
from pathlib import Path
from harness.runtimes.docker import engine
from harness.runtimes.docker.images import builds, images
builds.FOLDERS = Path(sys.argv[1])
with builds.scratch() as folder:
    print(folder, flush=True)
    images._bootstrap(engine.connect(), "chaos-base:killed-" + sys.argv[2], folder)
"""


@pytest.mark.docker
@pytest.mark.parametrize("seconds", [1.0, 8.0])
def test_a_killed_bootstrap_leaves_no_process_and_no_folder(seconds: float) -> None:
    if os.getuid() != 0:
        pytest.skip("bootstrapping takes root")
    place = builds.FOLDERS / f"chaos-test-{os.getpid()}-{seconds}"  # where programs may run, as they may not in /tmp
    place.mkdir()
    try:
        running = subprocess.Popen(
            [sys.executable, "-c", BOOTSTRAP, str(place), str(os.getpid())], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert running.stdout is not None
        folder = Path(running.stdout.readline().strip()).parent
        try:
            assert soon(lambda: b"mmdebstrap" in _commands(folder), 60), "it began"
            time.sleep(seconds)
        finally:
            finish(running)
        assert soon(lambda: not builds._processes_in(folder), 20)
        soon(lambda: not folder.exists(), 5)
        builds_at(place)
        assert not folder.exists() and builds._mounts_in(folder) == []
        assert not images.has_image(engine.connect(), f"chaos-bootstrap:killed-{os.getpid()}")
    finally:
        builds_at(place)
        for folder in place.glob("*"):
            folder.rmdir()
        place.rmdir()


def _commands(folder: Path) -> bytes:
    found = b""
    for pid in builds._processes_in(folder):
        try:
            found += Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
    return found
