"""One node's machine: its volume, its process and its network cable."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from . import kernel
from .lacks import lacks
from .network import echo
from .network.card import Network
from .network.queues import Queues
from .network.shaping import Shaping, Wanted
from .process import Process
from .volume import copying, damage, disk, loss, other, pages, slow

_RELEASE_TIMEOUT = 5.0  # seconds
_STOP_TIMEOUT = 2.0
_PROBED_S = 0.5  # of what a limit lets through, to see that it does no more: the kernel passes 0.1 s of it at once
_MOST_PROBED = 4 << 20  # bytes
_MAKE_FILE_SYSTEM = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
# Only the node's own writes shall keep its disk busy: no inode tables are written in the background.
_MOUNT_OPTIONS = {"ext4": "noinit_itable", "xfs": ""}


class Volume:
    """A file system of its own in an image file, mounted in the engine's mount namespace."""

    def __init__(self, image: Path, directory: Path, file_system: str, *, outlives: bool = True) -> None:
        """outlives: see kernel.attach_loop_device()."""
        self._outlives = outlives
        self.image = image
        self.directory = directory
        self.file_system = file_system
        self._device: Path | None = None
        self._descriptor = -1

    def make(self, size: int) -> Callable[[], None]:
        """Starts making the file system, in the agent's own mount namespace, where mkfs is. Call what is returned
        to wait for it. (A process, not a thread: only a process without threads may change its mount namespace.)"""
        self.directory.mkdir(exist_ok=True)
        image = os.open(self.image, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(image, size)
        finally:
            os.close(image)
        return self._make_file_system(self.image)

    def _make_file_system(self, place: Path) -> Callable[[], None]:
        command = [*_MAKE_FILE_SYSTEM[self.file_system], str(place)]
        making = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def made() -> None:
            output, _ = making.communicate()
            if making.returncode != 0:
                raise OSError(f"{command[0]} failed: {output.strip()}")

        return made

    def attach(self, owner: int) -> None:
        """Mount it for the first time and give it to user `owner`, durably."""
        self._device, self._descriptor = self._open_device()
        self.mount()
        with suppress(FileNotFoundError):
            (self.directory / "lost+found").rmdir()
        self.directory.chmod(0o700)
        os.chown(self.directory, owner, owner)
        root = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(root)
        finally:
            os.close(root)

    def _open_device(self) -> tuple[Path, int]:
        """And a descriptor that keeps it."""
        return kernel.attach_loop_device(self.image, outlives=self._outlives)

    def release(self) -> None:
        """Nothing of it is kept open: once it is unmounted, its loop device is gone."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def top(self, name: str) -> bool:
        """Is what has this name in its root the node's, to be read and damaged?"""
        return True

    def survey(self) -> loss.Survey:
        return loss.Survey(self.directory, self.top)

    def lost_since(self, before: loss.Survey) -> dict[str, Any]:
        return loss.compared(before, loss.final(self.directory, self.top))

    def shut_down(self) -> None:
        """Nobody uses it any more."""
        kernel.shut_down_file_system(self.directory)

    def note(self, done: damage.Damage | None) -> None:
        """It is about to be damaged; None: it is whole again."""

    @property
    def size(self) -> int:
        """Bytes, with what its file system needs for itself."""
        return self.image.stat().st_size

    def mount(self, *, read_only: bool = False) -> None:
        assert self._device is not None
        options = _MOUNT_OPTIONS[self.file_system]
        kernel.mount(self._device, self.directory, self.file_system, options, read_only=read_only)

    @property
    def device_number(self) -> str:
        """As the kernel writes it, "7:0"."""
        assert self._device is not None
        number = self._device.stat().st_rdev
        return f"{os.major(number)}:{os.minor(number)}"

    def unmount(self) -> None:
        """Returns when the kernel has let go of the file system; mounting earlier would bring the old one back."""
        assert self._device is not None
        _retry_while_busy(lambda: kernel.unmount(self.directory))
        kernel.wait_until_released(self._device, _RELEASE_TIMEOUT)


class Machine:
    is_host: ClassVar[bool] = False

    def __init__(self, name: str, volume: Volume, make_queues: Callable[[int], Queues] = Queues) -> None:
        self.name = name
        self.volume = volume
        self._make_queues = make_queues
        self._network: Network | None = None
        self._blocked: dict[str, tuple[list[str], list[str]]] = {}  # by key: addresses from and to which nothing goes
        self._dropped: dict[str, Counter[str]] = {}  # by key: packets, by rules that went with their network
        self._shaping = Shaping(make_queues)
        self._network_holder = Process()
        self._node = Process()
        self._before_failure: loss.Survey | None = None  # of the disk
        self._limit: slow.Limit | None = None  # of what the node's process reads and writes
        self._damage: damage.Damage | None = None

    def plug_in(self, pid: int) -> None:
        """`pid` holds the network namespace of a machine that was just switched on."""
        self._network_holder.watch(pid)
        if self._network:
            self._network.close()
        self._network = self._card(pid)
        for key, (incoming, outgoing) in self._blocked.items():
            self._network.block(key, incoming, outgoing)
        self._shaping.plug_in(self._network)

    def _card(self, pid: int) -> Network:
        return Network(pid)

    def started(self, pid: int) -> None:
        """`pid` is the node's process."""
        self._node.watch(pid)
        if self._limit is not None:
            self._set_limit(self._limit)  # its cgroup is new

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

    def shape(self, key: str, wanted: dict[str, Any]) -> None:
        """wanted: a shaping.Wanted. Stays in force when the power goes and comes back."""
        self._shaping.shape(key, Wanted(**wanted))

    def unshape(self, key: str) -> dict[str, dict[str, int]]:
        """See Shaping.unshape."""
        return self._shaping.unshape(key)

    def mend_network(self) -> None:
        """Nothing is blocked or shaped any more: what the kernel has of ours is removed, noted here or not."""
        self._blocked.clear()
        self._dropped.clear()
        if self._network:
            self._network.clear()
        self._shaping.clear()

    def round_trips(self, addresses: list[str], patience: float) -> dict[str, dict[str, Any]]:
        """See echo.round_trips. Nothing without power. May be asked while the machine is asked for something else."""
        network = self._network
        return echo.round_trips(network, addresses, patience) if network else {}

    def lacks(self, needs: list[str]) -> dict[str, str]:
        """See harness.cluster.Cluster.lacks."""
        return lacks(needs, on_host=self.is_host)

    def leftovers(self) -> list[str]:
        """Traces of faults on this machine, looked up in the kernel. See harness.cluster.Cluster.leftovers."""
        found = []
        if self._network and self._network.has_rules():
            found.append("has rules that drop packets")
        if self._network and self._make_queues(self._network.namespace).there_are():
            found.append("has queues that shape its network")
        if self._node.stopped:
            found.append("is stopped")
        found += disk.leftovers(self.volume.directory)
        found += other.leftovers(self.volume.directory)
        if slow.is_limited(self._node.pid, self.volume.device_number):
            found.append("has a slow disk")
        return found

    def kill(self) -> dict[str, Any]:
        return {"pid": self._node.pid, "killed_at": self._kill()}

    def terminate(self, patience: float) -> dict[str, Any]:
        """SIGTERM; SIGKILL after `patience` seconds. stopped: whether the process ended by itself; None: none ran."""
        asked_at = time.monotonic_ns()
        stopped = self._node.terminate(patience)
        if stopped is False:
            self._kill()
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
        before = self.volume.survey()
        for key in self._blocked:
            self._count_dropped(key)
        self._shaping.unplug()
        start = time.monotonic_ns()
        if self._network:
            self._network.unplug()
        network_off = time.monotonic_ns()
        killed = self._kill_to_lose()
        before.complete()
        self.volume.shut_down()
        shut_down = time.monotonic_ns()
        self.volume.unmount()
        self.volume.mount()
        remounted = time.monotonic_ns()
        self._switch_off()
        evidence = self.volume.lost_since(before)
        evidence["pid"] = self._node.pid
        evidence["cut_ns"] = remounted - start
        evidence["cut_at"] = start
        evidence["network_off_at"] = network_off
        evidence["killed_at"] = killed
        evidence["shut_down_at"] = shut_down
        evidence["remounted_at"] = remounted
        return evidence

    def _switch_off(self) -> None:
        """With the namespace go the sockets: none may send, when the power is back, what it had queued."""
        self._network_holder.kill()
        if self._network:
            self._network.close()
            self._network = None

    def lose_page_cache(self) -> dict[str, Any]:
        """The process is killed, and with it goes what its file system had not written. The machine itself lives on."""
        before = self.volume.survey()
        killed = self._kill_to_lose()
        before.complete()
        self.volume.shut_down()
        self.volume.unmount()
        self.volume.mount()
        return {"pid": self._node.pid, "killed_at": killed, **self.volume.lost_since(before)}

    def fill_disk(self) -> dict[str, Any]:
        return disk.fill(self.volume.directory)

    def free_disk(self) -> int:
        return disk.free(self.volume.directory)

    def fail_disk(self) -> None:
        if self._before_failure is None:
            self._before_failure = disk.fail(self.volume.directory, self.volume.survey())

    def repair_disk(self, patience: float) -> dict[str, Any]:
        """Waits so many seconds for the process to end by itself, as one does that needs its disk; then ends it.
        ended: whether it did. With what the failure has cost; nothing if the disk is whole."""
        before = self._before_failure
        if before is None:
            return {}
        ended = self._node.ended_within(patience)
        self._kill_to_lose()
        self.volume.unmount()
        self.volume.mount()
        self._before_failure = None
        return {"ended": ended, **self.volume.lost_since(before)}

    def drop_clean_pages(self) -> dict[str, Any]:
        return pages.drop_clean(self.volume.directory, self.volume.top)

    def slow_disk(self, bytes_per_s: int, operations_per_s: int) -> dict[str, Any]:
        """Nothing is measured while no process is there to be slow."""
        self._limit = slow.Limit(bytes_per_s, operations_per_s)
        if not self._node.alive:
            return {}
        size = min(int(bytes_per_s * _PROBED_S), _MOST_PROBED)
        before = slow.write_ms(self._node.pid, self.volume.directory, size)
        self._set_limit(self._limit)
        while_slow = slow.write_ms(self._node.pid, self.volume.directory, size)
        return {"write_ms_before": before, "write_ms_while": while_slow}

    def hasten_disk(self) -> None:
        self._limit = None
        self._set_limit(None)

    def make_disk_read_only(self) -> dict[str, Any]:
        """killed: whether the process had to go, for a file system that is open for writing cannot be remounted. ext4
        can refuse writes at once, as after an error; everything is synced before, and the process stands still from
        then until they are refused, so that this costs no data."""
        killed = False
        if self.volume.file_system == "ext4":
            self._node.signal(signal.SIGSTOP)
            try:
                kernel.wait_until_stopped(self._node.pid, _STOP_TIMEOUT)
                kernel.sync_file_system(self.volume.directory)
                kernel.remount(self.volume.directory, "abort")
            finally:
                self._node.signal(signal.SIGCONT)
        else:
            killed = self._kill() > 0
            self.volume.unmount()
            self.volume.mount(read_only=True)
        return {"killed": killed, "write_error": disk.write_error(self.volume.directory)}

    def make_disk_writable(self, patience: float) -> dict[str, Any]:
        """As repair_disk(), at no cost."""
        if disk.write_error(self.volume.directory) != "EROFS":
            return {}
        ended = self._node.ended_within(patience)
        self._kill()
        self.volume.unmount()
        self.volume.mount()
        return {"ended": ended}

    def damage_file(self, choice: dict[str, Any]) -> dict[str, Any]:
        """killed_at, only if there was something to damage; then that."""
        volume = self.volume
        done, killed_at = damage.damage(volume.directory, choice, self._kill_to_lose, volume.top, volume.note)
        self._damage = done or self._damage
        return {"killed_at": killed_at, **(done.evidence() if done else {})}

    def restore_file(self) -> dict[str, Any]:
        done = self._damage
        if done is None:
            return {}
        restored = damage.restore(self.volume.directory, done, self.volume.top)
        self._damage = None
        self.volume.note(None)
        return {"restored_bytes": len(done.before) if restored else 0, "mended_by_node": not restored}

    def put_disk_aside(self) -> str:
        """An empty directory on the volume, for another node to run on. Its name."""
        return other.make(self.volume.directory)

    def take_disk_back(self) -> None:
        other.discard(self.volume.directory)

    def copy_disk(self, directory: str, owner: int, group: int) -> dict[str, Any]:
        """Every file of the volume to `directory`, given to the harness' user. See copying.copy."""
        return copying.copy(
            self.volume.directory, Path(directory), copying.Owner(owner, group), self.volume.size
        )

    def _kill(self) -> int:
        """When it was gone, in ns; 0 if it was not running. What waits for a slow disk dies only once it is let go."""
        self._set_limit(None)
        return self._node.kill()

    def _kill_to_lose(self) -> int:
        """The same, where something is to be done to its disk before anybody starts it again."""
        return self._kill()

    def _set_limit(self, limit: slow.Limit | None) -> None:
        """Of the process that there is, if there is one."""
        if self._node.alive and (limit or slow.is_limited(self._node.pid, self.volume.device_number)):
            try:
                slow.limit(self._node.pid, self.volume.device_number, limit)
            except OSError:  # of many kinds if it has just died, and its cgroup with it
                if self._node.alive:
                    raise

    def _count_dropped(self, key: str) -> None:
        if self._network and key in self._blocked:
            self._dropped.setdefault(key, Counter()).update(self._network.packets_dropped(key))


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
