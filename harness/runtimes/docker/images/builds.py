"""The temporary folders, containers and labels of image builds, and the removal of what killed builds left behind.

A build has a folder, /var/tmp/chaos-builds-<uid>/<pid>.<start>-<random>, named for the harness process that it dies
with (harness.runtimes.owner); commands run in it under guard.py. Images that are not finished, and the containers in
which the engine makes them, have the label chaos.build with the same owner. Everything here may be repeated.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, NotFound

from harness.cluster import RuntimeUnavailable
from harness.runtimes.owner import is_alive, owner

from ..engine import BUILD_LABEL, IMAGE_LABEL, RUN_LABEL

#: Of /var/tmp, not /tmp: that may be small, or allow no programs. A folder a user, so that none is in another's way.
FOLDERS: Final = Path("/var/tmp")
_NAME: Final = "chaos-builds-"
_OWNER: Final = re.compile(r"(\d+)\.(\d+)-")  # no colon: that separates paths in too many places
_GUARD: Final = Path(__file__).with_name("guard.py")
_UNMOUNT: Final = ("umount", "--lazy")


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder, removed at the end. Raises RuntimeUnavailable."""
    with _in_our_place() as ours:
        folder = tempfile.mkdtemp(prefix=f"{owner().replace(':', '.')}-", dir=ours)
    with tempfile.TemporaryDirectory(prefix="in-", dir=folder) as inner:
        try:
            yield Path(inner)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _in_our_place() -> Iterator[Path]:
    """This user's folder of builds. Raises RuntimeUnavailable, also for an OSError within."""
    ours = FOLDERS / f"{_NAME}{os.getuid()}"
    try:
        ours.mkdir(mode=0o700, exist_ok=True)
        status = ours.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise RuntimeUnavailable(f"{ours} is another user's: have it removed, images are built there.")
        yield ours
    except OSError as error:
        raise RuntimeUnavailable(f"No image can be built in {ours}: {error.strerror or error}.") from error


@contextmanager
def one_at_a_time(wait: Callable[[], object]) -> Iterator[None]:
    """Of this user's processes. wait: called if another one has to end first. Two that bootstrap a base at once would
    do everything twice, and both call apt-get, which refuses the second. Raises RuntimeUnavailable."""
    with _in_our_place() as ours:
        lock = os.open(ours / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)  # a process that dies lets go of it as well


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """To its end, or this process'. folder: of scratch(), where its temporary files are too."""
    guarded = [sys.executable, "-I", str(_GUARD), str(os.getpid()), str(folder.parent), *command]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(guarded, capture_output=True, text=True, check=False, env=environment)


def labelled(dockerfile: str, name: str) -> str:
    """The same, with labels on what it makes from its first step on: those of the engine's own come with the last."""
    labels = f"LABEL {IMAGE_LABEL}={name} {BUILD_LABEL}={owner()}"
    return re.sub(r"(?m)^FROM .*$", lambda line: f"{line[0]}\n{labels}", dockerfile, count=1)


def remove_dead(api: docker.APIClient) -> Iterator[str]:
    """What killed builds left: processes, folders, containers, images without a name. Tells each that is gone. Raises
    OSError or APIError if something stays."""
    yield from remove_folders()
    yield from _remove_containers(api)
    yield from _remove_images(api)


def remove_folders() -> Iterator[str]:
    """The part of it that needs no engine."""
    for folder in sorted(FOLDERS.glob(f"{_NAME}*/*")):
        found = _OWNER.match(folder.name)
        if found is None or is_alive(f"{found[1]}:{found[2]}") or not _is_ours(folder):
            continue
        for pid in _processes_in(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                yield f"process {pid} of a dead build"
        for mount in _mounts_in(folder):
            subprocess.run([*_UNMOUNT, mount], capture_output=True, check=False)
        if left := _mounts_in(folder):  # removing would go on in what is mounted
            raise OSError(f"{left[0]} of a dead build cannot be unmounted")
        _remove_tree(folder)
        yield f"folder {folder} of a dead build"


def _is_ours(folder: Path) -> bool:
    """Made by a build of the user in whose place it is, and this user's to remove."""
    place = folder.parent.lstat()
    is_place = stat.S_ISDIR(place.st_mode) and folder.parent.name == f"{_NAME}{place.st_uid}"
    return is_place and stat.S_ISDIR(folder.lstat().st_mode) and os.geteuid() in (0, place.st_uid)


def _remove_tree(folder: Path) -> None:
    for attempt in range(5):
        try:
            shutil.rmtree(folder)
            return
        except FileNotFoundError:
            return
        except OSError:  # a process that is being killed made another file
            if attempt == 4:
                raise


def _processes_in(folder: Path) -> list[int]:
    """Those that have their root or working directory there, or its path among their arguments or as TMPDIR."""
    found = []
    inside = os.fsencode(folder)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            places = [os.fsencode(os.readlink(process / name)) for name in ("root", "cwd")]
            words = [*(process / "cmdline").read_bytes().split(b"\0"), *(process / "environ").read_bytes().split(b"\0")]
            reported = [word.removeprefix(b"TMPDIR=") for word in words]
            if int(process.name) != os.getpid() and any(
                each == inside or each.startswith(inside + b"/") for each in (*places, *reported)
            ):
                found.append(int(process.name))
    return found


def _mounts_in(folder: Path) -> list[str]:
    """The innermost first."""
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return sorted((mount for mount in mounts if Path(mount).is_relative_to(folder)), reverse=True)


def _remove_containers(api: docker.APIClient) -> Iterator[str]:
    """A run's have the label too, of the image that they are made of."""
    for container in api.containers(all=True, filters={"label": BUILD_LABEL}):
        if RUN_LABEL in container["Labels"] or not _is_dead(container["Labels"]):
            continue
        try:
            api.remove_container(container["Id"], force=True, v=True)
        except NotFound:
            continue
        except APIError as error:
            if error.status_code != 409:  # being removed already: the engine does so with a build that was cut off
                raise
            continue
        yield f"container {container['Id'][:12]} of a dead build"


def _remove_images(api: docker.APIClient) -> Iterator[str]:
    for image in api.images(filters={"dangling": True, "label": IMAGE_LABEL}):
        if not _is_dead(image.get("Labels") or {}):
            continue
        try:
            api.remove_image(image["Id"])
        except NotFound:
            continue
        except APIError as error:
            if error.status_code != 409:  # a container is made of it
                raise
            continue
        yield f"image {image['Id'].removeprefix('sha256:')[:12]} of a dead build"


def _is_dead(labels: Mapping[str, Any]) -> bool:
    """Also of a build that knew no such label yet."""
    return not is_alive(labels.get(BUILD_LABEL, ""))
