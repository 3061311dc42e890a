"""A limit on what the processes of one container read and write of one device: blkio of cgroup v1, io.max of v2.

It holds for what they submit, which is what an fsync waits for. In cgroup v1 the kernel's own writes escape it, of the
journal and of pages that nobody syncs.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_CGROUPS = Path("/sys/fs/cgroup")
_V1_BYTES = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
_V1_OPERATIONS = ("blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device")

_PROBE_WRITES = 4
_PROBE_PATIENCE_S = 10.0


class Limit(NamedTuple):
    """Each of reads and writes."""

    bytes_per_s: int
    operations_per_s: int


class _Cgroup(NamedTuple):
    path: Path
    is_v2: bool


def limit(pid: int, device: str, to: Limit | None) -> None:
    """From now on, for everything in the cgroup of process `pid`; None: no limit. device: "7:0"."""
    cgroup = _cgroup_of(pid)
    if cgroup.is_v2:
        _enable_io(cgroup.path, [])
        values = ("max", "max") if to is None else (str(to.bytes_per_s), str(to.operations_per_s))
        line = f"{device} rbps={values[0]} wbps={values[0]} riops={values[1]} wiops={values[1]}"
        (cgroup.path / "io.max").write_text(line)
        return
    for name in _V1_BYTES:
        (cgroup.path / name).write_text(f"{device} {0 if to is None else to.bytes_per_s}")
    for name in _V1_OPERATIONS:
        (cgroup.path / name).write_text(f"{device} {0 if to is None else to.operations_per_s}")


def is_limited(pid: int, device: str) -> bool:
    """False if the process is gone: its cgroup went with it."""
    try:
        cgroup = _cgroup_of(pid)
        names = ("io.max",) if cgroup.is_v2 else (*_V1_BYTES, *_V1_OPERATIONS)
        return any(f"{device} " in (cgroup.path / name).read_text() for name in names)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.ENOSYS):
            return False
        raise


def write_ms(pid: int, directory: Path, size: int) -> float:
    """How long it takes to write and sync `size` bytes, in a few steps, in the cgroup of process `pid`: by a process
    that enters it, with a file that has no name. At most the probe's patience."""
    cgroup = _cgroup_of(pid)
    reader, writer = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:  # nothing here but system calls: other threads of this process are gone, their locks are not
        status = 1
        with suppress(BaseException):
            _probe(str(cgroup.path / "cgroup.procs"), str(directory), size // _PROBE_WRITES, writer)
            status = 0
        os._exit(status)
    os.close(writer)
    try:
        if not select.select([reader], [], [], _PROBE_PATIENCE_S)[0]:
            os.kill(child, signal.SIGKILL)  # it dies once its write is let go
            return (time.monotonic() - started) * 1e3
        if not (took := os.read(reader, 64)):
            raise OSError(errno.EIO, "the probe of the disk failed", str(directory))
        return float(took)
    finally:
        os.close(reader)
        threading.Thread(target=os.waitpid, args=(child, 0), daemon=True).start()


def lacking() -> str | None:
    """Why there is no such limit here, as a clause, by setting one on this process' own cgroup. None: there is."""
    devices = sorted(Path("/sys/block").glob("loop*/dev"))
    if not devices:
        return "there is no loop device to limit"
    device = devices[0].read_text().strip()
    enabled: list[Path] = []
    try:
        if (cgroup := _cgroup_of(os.getpid())).is_v2:
            _enable_io(cgroup.path, enabled)
        limit(os.getpid(), device, Limit(1 << 30, 1 << 20))
        works = is_limited(os.getpid(), device)
        limit(os.getpid(), device, None)
    except OSError as error:
        return f"this kernel or its cgroups have no I/O throttling ({error.strerror or error})"
    finally:
        for control in reversed(enabled):
            with suppress(OSError):  # somebody else needs it by now
                control.write_text("-io")
    return None if works else "the kernel does not keep an I/O limit that it is given"


def _probe(cgroup: str, directory: str, size: int, report: int) -> None:
    member = os.open(cgroup, os.O_WRONLY)
    os.write(member, b"0")
    descriptor = os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600)
    data = bytes(size)
    started = time.monotonic()
    for _ in range(_PROBE_WRITES):
        os.write(descriptor, data)
        os.fsync(descriptor)
    os.write(report, b"%.1f" % ((time.monotonic() - started) * 1e3))


def _cgroup_of(pid: int) -> _Cgroup:
    unified = _CGROUPS if (_CGROUPS / "cgroup.controllers").exists() else None
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "blkio" in controllers.split(","):
            return _Cgroup(_CGROUPS / "blkio" / path.lstrip("/"), is_v2=False)
        if not controllers and unified is not None:
            return _Cgroup(unified / path.lstrip("/"), is_v2=True)
    raise OSError(errno.ENOSYS, "no cgroup that limits I/O")


def _enable_io(cgroup: Path, enabled: list[Path]) -> None:
    """A cgroup has io.max once each one above it hands the controller down. Harmless where it does already. enabled:
    where it did not, from above."""
    if not (cgroup / "io.max").exists():
        for above in reversed(cgroup.parents):
            control = above / "cgroup.subtree_control"
            if above.is_relative_to(_CGROUPS) and "io" not in control.read_text().split():
                control.write_text("+io")
                enabled.append(control)
