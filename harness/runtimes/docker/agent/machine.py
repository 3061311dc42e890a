"""One node's machine: its volume, its process and its network cable."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import disk, kernel, loss
from .lacks import lacks
from .network import Network

_RELEASE_TIMEOUT = 5.0  # seconds
_DEATH_TIMEOUT = 10.0
_STOP_TIMEOUT = 2.0
_MAKE_FILE_SYSTEM = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
# Only the node's own writes shall keep its disk busy: no inode tables are written in the background.
_MOUNT_OPTIONS = {"ext4": "noinit_itable", "xfs": ""}


class Volume:
    """A file system of its own in an image file, mounted in the engine's mount namespace."""

    def __init__(self, image: Path, directory: Path, file_system: str) -> None:
        self.image = image
        self.directory = directory
        self.file_system = file_system
        self._device: Path | None = None
        self._descriptor = -1

    def make(self, size: int) -> Callable[[], None]:
        """Starts making the file system, in the agent's own mount namespace, where mkfs is. Call what is returned
        to wait for it. (A process, not a thread: only a process without threads may change its mount namespace.)"""
        self.directory.mkdir(exist_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(size)
        command = [*_MAKE_FILE_SYSTEM[self.file_system], str(self.image)]
        making = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def made() -> None:
            output, _ = making.communicate()
            if making.returncode != 0:
                raise OSError(f"{command[0]} failed: {output.strip()}")

        return made

    def attach(self, owner: int) -> None:
        """Mount it for the first time and give it to user `owner`, durably."""
        self._device, self._descriptor = kernel.attach_loop_device(self.image)
        self.mount()
        with suppress(FileNotFoundError):
            (self.directory / "lost+found").rmdir()
        os.chown(self.directory, owner, owner)
        root = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(root)
        finally:
            os.close(root)

    def mount(self) -> None:
        assert self._device is not None
        kernel.mount(self._device, self.directory, self.file_system, _MOUNT_OPTIONS[self.file_system])

    def unmount(self) -> None:
        """Returns when the kernel has let go of the file system; mounting earlier would bring the old one back."""
        assert self._device is not None
        _retry_while_busy(lambda: kernel.unmount(self.directory))
        kernel.wait_until_released(self._device, _RELEASE_TIMEOUT)


class Machine:
    def __init__(self, name: str, volume: Volume) -> None:
        self.name = name
        self.volume = volume
        self._network: Network | None = None
        self._blocked: dict[str, tuple[list[str], list[str]]] = {}  # by key: addresses from and to which nothing goes
        self._dropped: dict[str, Counter[str]] = {}  # by key: packets, by rules that went with their network
        self._network_holder = _Process()
        self._node = _Process()
        self._before_failure: loss.Survey | None = None  # of the disk

    def plug_in(self, pid: int) -> None:
        """`pid` holds the network namespace of a machine that was just switched on."""
        self._network_holder.watch(pid)
        if self._network:
            self._network.close()
        self._network = Network(pid)
        for key, (incoming, outgoing) in self._blocked.items():
            self._network.block(key, incoming, outgoing)

    def started(self, pid: int) -> None:
        """`pid` is the node's process."""
        self._node.watch(pid)

    def block(self, key: str, incoming: list[str], outgoing: list[str]) -> None:
        """See Network.block. Stays in force when the power goes and comes back."""
        self._count_dropped(key)
        self._blocked[key] = incoming, outgoing
        if self._network:
            self._network.block(key, incoming, outgoing)

    def unblock(self, key: str) -> dict[str, int]:
        """Packets dropped for this key, as Network.packets_dropped."""
        self._count_dropped(key)
        self._blocked.pop(key, None)
        if self._network:
            self._network.block(key, (), ())
        return dict(self._dropped.pop(key, {}))

    def unblock_all(self) -> None:
        for key in list(self._blocked):
            self.unblock(key)

    def lacks(self, needs: list[str]) -> dict[str, str]:
        """See harness.cluster.Cluster.lacks."""
        return lacks(needs)

    def leftovers(self) -> list[str]:
        """Traces of faults on this machine, looked up in the kernel. See harness.cluster.Cluster.leftovers."""
        found = []
        if self._network and self._network.has_rules():
            found.append("has rules that drop packets")
        if self._node.stopped:
            found.append("is stopped")
        found += disk.leftovers(self.volume.directory)
        return found

    def kill(self) -> dict[str, Any]:
        return {"pid": self._node.pid, "killed_at": self._node.kill()}

    def terminate(self, patience: float) -> dict[str, Any]:
        """SIGTERM; SIGKILL after `patience` seconds. stopped: whether the process ended by itself; None: none ran."""
        asked_at = time.monotonic_ns()
        stopped = self._node.terminate(patience)
        return {"pid": self._node.pid, "stopped": stopped, "stopping_ns": time.monotonic_ns() - asked_at}

    def frozen(self, how: str) -> dict[str, Any]:
        """The node is to stand still: by signal, or by the engine, which has frozen it already. cpu_ns: see resumed."""
        if how == "sigstop":
            self._node.signal(signal.SIGSTOP)
            state = kernel.wait_until_stopped(self._node.pid, _STOP_TIMEOUT)
        else:
            state = kernel.frozen_state(self._node.pid)
        return {"frozen_state": state, "cpu_ns": kernel.cpu_ns(self._node.pid)}

    def resumed(self, how: str) -> int:
        """CPU time of all its threads, in ns, up to now: when it goes on."""
        cpu_ns = kernel.cpu_ns(self._node.pid)
        if how == "sigstop":
            self._node.signal(signal.SIGCONT)
        return cpu_ns

    def cut_power(self) -> dict[str, Any]:
        """Times in ns of CLOCK_MONOTONIC. The survey, before and after, is not part of the cut."""
        before = loss.Survey(self.volume.directory)
        for key in self._blocked:
            self._count_dropped(key)
        start = time.monotonic_ns()
        if self._network:
            self._network.unplug()
        network_off = time.monotonic_ns()
        killed = self._node.kill()
        before.complete()
        kernel.shut_down_file_system(self.volume.directory)
        shut_down = time.monotonic_ns()
        self.volume.unmount()
        self.volume.mount()
        remounted = time.monotonic_ns()
        # With the namespace go the sockets: none may send, when the power is back, what it had queued.
        self._network_holder.kill()
        if self._network:
            self._network.close()
            self._network = None
        evidence = loss.lost(before, loss.final(self.volume.directory))
        evidence["pid"] = self._node.pid
        evidence["cut_ns"] = remounted - start
        evidence["cut_at"] = start
        evidence["network_off_at"] = network_off
        evidence["killed_at"] = killed
        evidence["shut_down_at"] = shut_down
        evidence["remounted_at"] = remounted
        return evidence

    def lose_page_cache(self) -> dict[str, Any]:
        """The process is killed, and with it goes what its file system had not written. The machine itself lives on."""
        before = loss.Survey(self.volume.directory)
        killed = self._node.kill()
        before.complete()
        kernel.shut_down_file_system(self.volume.directory)
        self.volume.unmount()
        self.volume.mount()
        evidence = loss.lost(before, loss.final(self.volume.directory))
        return {"pid": self._node.pid, "killed_at": killed, **evidence}

    def fill_disk(self) -> dict[str, Any]:
        return disk.fill(self.volume.directory)

    def free_disk(self) -> int:
        return disk.free(self.volume.directory)

    def fail_disk(self) -> None:
        if self._before_failure is None:
            self._before_failure = disk.fail(self.volume.directory)

    def repair_disk(self, patience: float) -> dict[str, Any]:
        """Waits so many seconds for the process to end by itself, as one does that needs its disk; then ends it.
        ended: whether it did. With what the failure has cost; nothing if the disk is whole."""
        before = self._before_failure
        if before is None:
            return {}
        ended = self._node.ended_within(patience)
        self._node.kill()
        self.volume.unmount()
        self.volume.mount()
        self._before_failure = None
        return {"ended": ended, **loss.lost(before, loss.final(self.volume.directory))}

    def copy_disk(self, directory: str, owner: int, group: int) -> None:
        """Every file of the volume to `directory`, given to the harness' user."""
        target = Path(directory)
        for folder, folders, files in os.walk(self.volume.directory):
            copy = target / os.path.relpath(folder, self.volume.directory)
            copy.mkdir(parents=True, exist_ok=True)
            os.chown(copy, owner, group)
            folders.sort()
            for name in files:
                with suppress(FileNotFoundError):  # a temporary file of a running node
                    shutil.copyfile(Path(folder, name), copy / name)
                    os.chown(copy / name, owner, group)

    def _count_dropped(self, key: str) -> None:
        if self._network and key in self._blocked:
            self._dropped.setdefault(key, Counter()).update(self._network.packets_dropped(key))


class _Process:
    """A process that is not our child, held by pidfd so that a reused pid is never struck."""

    def __init__(self) -> None:
        self.pid = 0
        self._descriptor = -1

    def watch(self, pid: int) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self.pid, self._descriptor = pid, -1
        with suppress(ProcessLookupError):  # it may have died at once
            if pid:
                self._descriptor = os.pidfd_open(pid)

    @property
    def alive(self) -> bool:
        return self._descriptor >= 0 and not self._exited(timeout=0)

    @property
    def stopped(self) -> bool:
        """By SIGSTOP."""
        return self.alive and kernel.is_stopped(self.pid)

    def kill(self) -> int:
        """SIGKILL, and wait until it is gone with everything it held. When it was, in ns; 0 if it was not running."""
        if not self.alive:
            return 0
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        with suppress(OSError):
            kernel.thaw(self.pid)
        if not self._exited(timeout=_DEATH_TIMEOUT):
            raise OSError(errno.ETIMEDOUT, f"process {self.pid} survived SIGKILL for {_DEATH_TIMEOUT:g} s")
        return time.monotonic_ns()

    def terminate(self, patience: float) -> bool | None:
        """SIGTERM, and SIGKILL after so many seconds. Did it end by itself? None: there was nothing to end."""
        if not self.alive:
            return None
        self.signal(signal.SIGTERM)
        if self._exited(timeout=patience):
            return True
        self.kill()
        return False

    def ended_within(self, seconds: float) -> bool:
        """Has it ended, or does it so soon?"""
        return self._descriptor < 0 or self._exited(timeout=seconds)

    def signal(self, number: int) -> None:
        """Nothing if it is gone."""
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def _exited(self, timeout: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout * 1000))


def _retry_while_busy(action: Callable[[], None]) -> None:
    deadline = time.monotonic() + _RELEASE_TIMEOUT
    while True:
        try:
            action()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.0005)
