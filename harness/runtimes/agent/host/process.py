"""The node's process on a host: a child of the agent, whose output and exit status the agent keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from .. import proc
from .cgroups import Cgroup
from .launch import Launch

_ASK_S: Final = 10.0
_LAST_BYTES: Final = 64 << 10
#: Of a node's output, as of a container's: it must not fill the host.
_MOST_OUTPUT: Final = 256 << 20
#: In the folder of a run: pid and start of its node's process.
_PROCESS: Final = "process"


class NodeProcess:
    """folder: of the run on this host."""

    def __init__(self, folder: Path, launch: Launch, cgroup: Cgroup) -> None:
        self._folder = folder
        self._launch = launch
        self._cgroup = cgroup
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    @property
    def log(self) -> Path:
        return self._folder / "output.log"

    def start(self) -> int:
        """Its pid. The same again while it runs."""
        with self._starting:
            if self._process is not None and self._process.poll() is None:
                return self._process.pid
            launch = replace(self._launch, cgroups=self._cgroup.make())
            with self.log.open("ab") as log:
                if log.tell() > _MOST_OUTPUT:
                    log.truncate(0)
                self._process = subprocess.Popen(
                    self._command(launch, "launch"), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
                )
            self._cgroup.wait_for(self._process.pid)
            return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ended(self, patience: float) -> int | None:
        """The exit status, as a container has it (128 + the signal that killed it); None: it still runs."""
        if self._process is None:
            return 0
        try:
            status = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        return 128 - status if status < 0 else status

    def last_words(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def ask(self, program: str, mounts: Mapping[str, str] | None = None) -> str:
        """What a Python program prints that sees what the node's process sees; with other mounts in the place of some
        of its own. Raises OSError."""
        seen = {**self._launch.mounts, **(mounts or {})}
        python = replace(self._launch, command=[sys.executable, "-c", program], cgroups=[], mounts=seen)
        name = f"asked-{uuid.uuid4().hex}"
        try:
            done = subprocess.run(
                self._command(python, name), capture_output=True, text=True, timeout=_ASK_S, check=False, cwd="/"
            )
        except subprocess.TimeoutExpired as error:
            raise OSError("it did not answer") from error
        finally:
            (self._folder / f"{name}.json").unlink(missing_ok=True)
        if done.returncode != 0:
            raise OSError(done.stderr.strip() or f"exit status {done.returncode}")
        return done.stdout

    def _command(self, launch: Launch, name: str) -> list[str]:
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps(asdict(launch)))
        return [sys.executable, "-m", f"{__package__}.launch", str(file)]


def note_process(folder: Path, pid: int) -> None:
    """So that it is found again, whoever looks."""
    (folder / _PROCESS).write_text(f"{pid} {proc.started(pid)}")


def processes_of(folder: Path) -> list[int]:
    """The node's own, if it is still that very process, and all of its session."""
    try:
        pid, start = (folder / _PROCESS).read_text().split()
    except (OSError, ValueError):
        return []
    return _session(int(pid)) if proc.started(int(pid)) == start else []


def _session(leader: int) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and proc.session(int(name)) == leader]
