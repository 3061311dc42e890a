"""Becomes the agent of a host: two processes that no session holds, of which one undoes what the other has done."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from .. import clock_library
from ..machine import Volume
from . import folder as run_folder
from . import holding, undo
from .cgroups import Cgroup
from .launch import Launch
from .machine import CONFIGURATION, HostMachine, Parts, make_clock, prepare
from .network import HostEnds
from .process import NodeProcess
from .server import Server
from .service.machine import service_machine
from .volumes.device import DeviceVolume

_CONTAINER_CLOCK: Final = "/dev/shm"


def serve(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """configuration: see _machine(). Returns, with what the harness wants to know of the agent, once it can be asked.
    Raises Held, OSError, RuntimeError; nothing of the run is left then."""
    data_directory = run_folder.resolved(configuration["data_directory"])
    lock = holding.hold(configuration["holder"])
    # By an agent that was killed together with its guard; after a reboot of ours, what lies there is what goes on.
    if not configuration["resumes"]:
        with holding.beginning():
            undo.undo(data_directory, agent_too=False)
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os.close(lock)
        with os.fdopen(reading) as words:
            told = words.read()
        answer: dict[str, Any] = json.loads(told or '{"error": "it ended without a word"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer
    os.close(reading)
    _guard(configuration, data_directory, lock, writing)


def _guard(configuration: Mapping[str, Any], data_directory: Path, lock: int, writing: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        folder = run_folder.make(data_directory, configuration["run"], resumes=configuration["resumes"])
        _close_streams(folder / "agent.log")
        worker = os.fork()
        if not worker:
            _work(configuration, folder, lock, writing)
        holding.note(lock, {**configuration["holder"], "guard": os.getpid(), "worker": worker})
        os.close(writing)
        writing = -1  # whatever is told later nobody hears, and the number may be another file's
        os.waitpid(worker, 0)
        undo.undo(data_directory)
        holding.remove_files()
        status = 0
    except BaseException as error:
        with suppress(OSError):
            os.write(writing, json.dumps({"error": str(error)}).encode())
        with suppress(OSError):
            undo.undo(data_directory)
            holding.remove_files()
    finally:
        os._exit(status)


def _work(configuration: Mapping[str, Any], folder: Path, lock: int, writing: int) -> NoReturn:
    guard, machine = os.getppid(), None
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        prepare()
        with holding.beginning():
            machine = _machine(configuration, folder)
        with Server(holding.SOCKET, machine) as server:
            os.write(writing, json.dumps({"boot": holding.boot()}).encode())
            os.close(writing)
            writing = -1
            server.serve_until(configuration["rescue_after_s"])
    except Exception as error:  # the harness tells whoever started it
        with suppress(OSError):
            os.write(writing, json.dumps({"error": f"{error}"}).encode())
    except SystemExit:
        pass
    finally:
        if os.getppid() != guard:  # which was killed: nobody else undoes
            with suppress(OSError):
                if machine is not None:
                    machine.volume.release()
                undo.undo(folder.parent)
                holding.remove_files()
        os._exit(0)


def _machine(configuration: Mapping[str, Any], folder: Path) -> HostMachine:
    """configuration: node (its name), run, data_directory, file_system, size (bytes), device (""; or the block device
    that the volume is), node_user (uid); ends (HostEnds), own (address); launch (of a Launch, without root and mounts),
    mounts (by what the process sees, of the host, or of the run's folder if relative), files (by name in the run's
    folder, their content in base64), configuration (the node's), clock (is one needed?); may_reboot, trigger (by which
    that is done: see itself/reboot.py), resumes (after that: what lies there is as the node left it); may_set_clock
    (the host's own), clock_stand_in (what is set in its place: see itself/wall_clock.py).
    With service, of a cluster that was there: see service_machine()."""
    if "service" in configuration:
        return service_machine(configuration, folder)
    user, resumes = configuration["node_user"], configuration["resumes"]
    place, file_system = folder / "volume", configuration["file_system"]
    volume = (
        DeviceVolume(Path(configuration["device"]), place, file_system) if configuration["device"]
        else Volume(folder / "volume.img", place, file_system, outlives=not configuration["may_reboot"])
    )  # fmt: skip
    root = folder / "root"
    if not resumes:
        made = volume.make(configuration["size"])
        made()
        root.mkdir()
        for name, content in configuration["files"].items():
            _write(folder / name, base64.b64decode(content), user)
        _write(folder / CONFIGURATION, configuration["configuration"].encode(), user)
    volume.attach(user)
    launch = dict(configuration["launch"])
    mounts = {target: _place(folder, source) for target, source in configuration["mounts"].items()}
    clock, clock_start, no_clock = None, int(time.time()), ""
    if configuration["clock"] and not configuration["may_set_clock"]:
        library = folder / "libfaketime.so"
        try:
            clock_library.make(library)
        except (OSError, ValueError) as error:
            no_clock = f"this host has no libfaketime that can be used ({getattr(error, 'strerror', None) or error})"
        else:
            clock = folder / "clock"
            environment = make_clock(clock, clock_start)
            library.chmod(0o755)
            launch["environment"] = {**launch["environment"], **environment}
            mounts |= {_CONTAINER_CLOCK: str(clock), environment["LD_PRELOAD"]: str(library)}
    cgroup = Cgroup(configuration["run"], folder)
    process = NodeProcess(folder, Launch(root=str(root), mounts=mounts, user=user, **launch), cgroup)
    parts = Parts(
        folder=folder, volume=volume, process=process, cgroup=cgroup, ends=HostEnds(**configuration["ends"]),
        own=configuration["own"], clock=clock, clock_start=clock_start, outlives=configuration["may_reboot"],
        trigger=configuration["trigger"], may_set_clock=configuration["may_set_clock"],
        clock_stand_in=configuration["clock_stand_in"], no_clock=no_clock,
    )  # fmt: skip
    return HostMachine(configuration["node"], parts)


def _place(folder: Path, source: str) -> str:
    return source if source.startswith("/") else str(folder / source)


def _write(path: Path, content: bytes, user: int) -> None:
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_bytes(content)
    os.chown(path, user, user)


def _close_streams(log: Path) -> None:
    """A session ends when nobody has its streams any more."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, descriptor in ((0, nothing), (1, output), (2, output)):
        os.dup2(descriptor, number)
