"""The system calls that Python's standard library lacks. Every function raises OSError."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000

_MS_RDONLY = 1
_MS_NOSUID = 1 << 1
_MS_NODEV = 1 << 2
_MS_NOEXEC = 1 << 3
_MS_REMOUNT = 1 << 5
_MS_NOSYMFOLLOW = 1 << 8  # Linux 5.10; older kernels ignore it, and nothing here relies on it
_MS_NOATIME = 1 << 10
_MS_BIND = 1 << 12
_MS_REC = 1 << 14
_MS_PRIVATE = 1 << 18
_MS_SHARED = 1 << 20
_MNT_DETACH = 2
_MNT_EXPIRE = 4
#: By their names in /proc/self/mountinfo, flags of mount(2): of a mount, and of a file system.
MOUNT_FLAGS = {
    "ro": _MS_RDONLY, "nosuid": _MS_NOSUID, "nodev": _MS_NODEV, "noexec": _MS_NOEXEC, "sync": 1 << 4, "mand": 1 << 6,
    "dirsync": 1 << 7, "nosymfollow": _MS_NOSYMFOLLOW, "noatime": _MS_NOATIME, "nodiratime": 1 << 11,
    "relatime": 1 << 21, "lazytime": 1 << 25,
}  # fmt: skip
STRICT_ATIME = 1 << 24
#: Of a volume: whatever a node puts there is data, for the node and for the host.
_AS_DATA = _MS_NOATIME | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_NOSYMFOLLOW

_SIOCSIFFLAGS = 0x8914

_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO = struct.Struct("=5Q 4I 64s 64s 32s 2Q")  # struct loop_info64, which begins with device and inode
# struct loop_config: backing fd, block size, struct loop_info64, 8 reserved words.
_LOOP_CONFIG = struct.Struct("=II 5Q 4I 64s 64s 32s 2Q 8Q")

# _IOR('X', 125, __u32); the flag keeps the journal from being flushed on the way down.
_FS_IOC_SHUTDOWN = 0x8004587D
_SHUTDOWN_NOLOGFLUSH = struct.pack("=I", 2)


def _call(name: str, *arguments: object, about: object = None) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(about) if about is not None else name)


def leave_namespaces() -> None:
    """From now on mounts and network are this process' own. Only while it has a single thread."""
    _call("unshare", _CLONE_NEWNS | _CLONE_NEWNET, about="namespaces")
    _call("mount", None, b"/", None, ctypes.c_ulong(_MS_PRIVATE | _MS_REC), None, about="/")


def leave_network_namespace() -> None:
    """From now on the calling thread's network is its own."""
    _call("unshare", _CLONE_NEWNET, about="network namespace")


def enter_mount_namespace_of(pid: int) -> None:
    """Only while the process has a single thread."""
    with open(f"/proc/{pid}/ns/mnt", "rb") as namespace:
        enter_mount_namespace(namespace.fileno())


def enter_mount_namespace(namespace: int) -> None:
    """The same, by a descriptor of /proc/PID/ns/mnt."""
    _call("setns", namespace, _CLONE_NEWNS, about="mount namespace")


def enter_network_namespace(namespace: int) -> None:
    """Of the calling thread. `namespace` is a descriptor of /proc/PID/ns/net."""
    _call("setns", namespace, _CLONE_NEWNET, about="network namespace")


def take_interfaces_down() -> None:
    """All but the loopback, in the calling thread's network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            if name != "lo":
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("=16sh14x", name.encode(), 0))


def mount(device: Path, target: Path, file_system: str, options: str, *, read_only: bool = False) -> None:
    flags = _AS_DATA | (_MS_RDONLY if read_only else 0)
    _call(
        "mount", os.fsencode(device), os.fsencode(target), file_system.encode(), ctypes.c_ulong(flags),
        options.encode(), about=target,
    )  # fmt: skip


def mount_with(source: str, target: str, file_system: str, flags: int, options: str) -> None:
    """flags: of MOUNT_FLAGS, and no others."""
    _call(
        "mount", os.fsencode(source), os.fsencode(target), file_system.encode(), ctypes.c_ulong(flags),
        options.encode(errors="surrogateescape"), about=target,
    )  # fmt: skip


def remount(target: Path, options: str) -> None:
    _call(
        "mount", None, os.fsencode(target), None, ctypes.c_ulong(_MS_REMOUNT | _AS_DATA), options.encode(),
        about=target,
    )  # fmt: skip


def sync_file_system(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        _call("syncfs", descriptor, about=directory)
    finally:
        os.close(descriptor)


def bind_shared(target: Path) -> None:
    """Make `target` a mount of its own whose mounts and unmounts reach every copy of it."""
    path = os.fsencode(target)
    _call("mount", path, path, None, ctypes.c_ulong(_MS_BIND), None, about=target)
    _call("mount", None, path, None, ctypes.c_ulong(_MS_SHARED), None, about=target)


def unmount(target: Path, *, lazily: bool = False) -> None:
    _call("umount2", os.fsencode(target), _MNT_DETACH if lazily else 0, about=target)


def is_in_use(target: str) -> bool:
    """Does anything hold this mount: a file, a directory, a mount below it, a loop device, swap? The kernel's own
    answer: umount2 with MNT_EXPIRE, which unmounts nothing when it is asked the first time since the mount was used."""
    try:
        _call("umount2", os.fsencode(target), _MNT_EXPIRE, about=target)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        if error.errno == errno.EBUSY:
            return True
        raise
    raise OSError(errno.ESTALE, "it was unmounted, for somebody else has asked the same", target)


def shut_down_file_system(directory: Path) -> None:
    """What xfstests calls godown: from here on nothing more reaches the device, the journal included."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, _SHUTDOWN_NOLOGFLUSH)
    finally:
        os.close(descriptor)


def attach_loop_device(image: Path, attempts: int = 20, *, outlives: bool = True) -> tuple[Path, int]:
    """A loop device over `image` and a descriptor that keeps it. It frees itself when that is closed and nothing
    mounts it any more, so that a killed agent leaves no device behind. outlives: does the image outlive every power
    cut? Else a flush of the device flushes the disk that the image is on."""
    for _ in range(attempts):
        with open("/dev/loop-control", "rb") as control:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        device = Path(f"/dev/loop{number}")
        writable = os.open(device, os.O_RDWR)
        try:
            with open(image, "r+b") as backing:
                name = os.fsencode(image)[-63:]
                config = _LOOP_CONFIG.pack(
                    backing.fileno(), 0, *[0] * 5, 0, 0, 0, _LO_FLAGS_AUTOCLEAR, name, b"", b"", *[0] * 10
                )
                fcntl.ioctl(writable, _LOOP_CONFIGURE, config)
            if outlives:  # to flush the host's own disk would add latency, and no truth
                Path(f"/sys/block/{device.name}/queue/write_cache").write_text("write through")
            # Kernels may forbid holding a device for writing beside its file system.
            return device, os.open(device, os.O_RDONLY)
        except OSError as error:
            if error.errno != errno.EBUSY:  # else another process took this device first
                raise
        finally:
            os.close(writable)
    raise OSError(errno.EBUSY, f"no free loop device after {attempts} attempts")


def loop_inode(device: Path) -> int:
    """Of the file under a loop device."""
    descriptor = os.open(device, os.O_RDONLY)
    try:
        told = fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, bytes(_LOOP_INFO.size))
    finally:
        os.close(descriptor)
    return int(_LOOP_INFO.unpack(told)[1])


def wait_until_released(device: Path, timeout: float) -> None:
    """Until no file system holds `device`: an unmounted one lives on while any mount namespace has a copy."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.0005)


def thaw(pid: int) -> None:
    """Let a frozen process take its SIGKILL. cgroup v2 needs no help; v1 delivers only what is thawed."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "freezer" in controllers.split(","):
            Path(f"/sys/fs/cgroup/freezer{path}/freezer.state").write_text("THAWED")


def frozen_state(pid: int) -> str:
    """FROZEN, FREEZING or THAWED, as the kernel says."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "freezer" in controllers.split(","):
            return Path(f"/sys/fs/cgroup/freezer{path}/freezer.state").read_text().strip()
        if not controllers and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            events = Path(f"/sys/fs/cgroup{path}/cgroup.events").read_text()
            return "FROZEN" if "frozen 1" in events else "THAWED"
    raise OSError(errno.ENOSYS, "no cgroup freezer")


def wait_until_stopped(pid: int, timeout: float) -> str:
    """STOPPED once every thread of the process has taken its SIGSTOP, RUNNING if one has not in time, GONE."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            states = {_stat(task)[0] for task in Path(f"/proc/{pid}/task").iterdir()}
        except OSError:
            return "GONE"
        if states <= {"T", "t"}:
            return "STOPPED"
        if time.monotonic() > deadline:
            return "RUNNING"
        time.sleep(0.0005)


def is_stopped(pid: int) -> bool:
    """By a signal, any thread of it."""
    try:
        return any(_stat(task)[0] in ("T", "t") for task in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def cpu_ns(pid: int) -> int:
    """What all threads of the process have run so far; 0 if it is gone. From the scheduler, exact to the nanosecond."""
    total = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                total += int((task / "schedstat").read_text().split()[0])
    return total


def _stat(task: Path) -> list[str]:
    """Fields of /proc/…/stat from the state on: the name before it may hold anything."""
    return (task / "stat").read_text().rpartition(")")[2].split()
