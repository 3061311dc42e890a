"""A service that was on this host before the run: its process, which is nobody's child here, and how it is started and
stopped.

What was done to it is noted in the run's folder before it is done, so that whoever undoes a run knows of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ... import kernel, proc
from ...process import Process
from .. import folder as run_folder

#: From a command to start it until its process is there.
THERE_S: Final = 30.0
_ASK_S: Final = 10.0
_GONE_S: Final = 10.0
_POLL_S: Final = 0.05
#: In the folder of a run.
FILE: Final = "service.json"
#: A directory of logs that Kafka's process has open has this file in it, locked.
_LOCKED: Final = ".lock"
#: Where systemd has those of its units: of v2, of v1, of both.
_CGROUPS: Final = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
_KILLED: Final = 128 + signal.SIGKILL
_LAST_LINES: Final = 2000
#: What our guard ignores, and Python, its services are not to: a shell cannot undo that.
_COMMAND: Final = """
import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
}  # fmt: skip


@dataclass(frozen=True)
class Service:
    """unit: of systemd; "": the commands start and stop. port: where it serves. topic: of the run."""

    data_directory: str
    port: int
    topic: str
    unit: str = ""
    start: Sequence[str] = ()
    stop: Sequence[str] = ()
    pid_file: str = ""

    def process(self, like: str = "") -> int:
        """The pid; 0: there is none. Of several ways to know it the one that was given comes first. like: the command
        line that its process had before, by which one is known that was started just now."""
        if self.unit:
            return int(self._shown("MainPID") or 0)
        found = self._pid_of_file() or proc.listener(self.port) or proc.holder(Path(self.data_directory, _LOCKED))
        return found or (proc.first(lambda pid: proc.command_line(pid) == like) if like else 0)

    def check(self, pid: int) -> None:
        """Raises OSError: it is not what serves, or works on other data."""
        if not pid:
            raise OSError(f"the service does not run: {self._looked_for} is not there")
        serving = proc.listener(self.port)
        if serving and serving != pid:
            raise OSError(
                f"{self._looked_for} is process {pid} ({proc.name_of(pid)}), but who listens at port {self.port} is "
                f"process {serving} ({proc.name_of(serving)})"
            )
        folder = os.path.realpath(self.data_directory)
        if not os.path.isdir(folder):
            raise OSError(f"{self.data_directory} is no directory of this host")
        if not any(Path(path).is_relative_to(folder) for path in proc.files_of(pid)):
            raise OSError(
                f"process {pid} ({proc.name_of(pid)}), which is {self._looked_for}, has no file of "
                f"{self.data_directory} open"
            )

    @property
    def _looked_for(self) -> str:
        if self.unit:
            return f"the main process of {self.unit}"
        named = f"the process of {self.pid_file} or " if self.pid_file else ""
        return f"{named}who listens at port {self.port}"

    def processes(self, pid: int) -> set[int]:
        """All of it: what is below its process `pid`, and what is in the cgroup of its unit."""
        found = {pid, *proc.descendants(pid)} if pid else set()
        if self.unit and (cgroup := self._shown("ControlGroup").strip()):
            for root in _CGROUPS:
                for file in Path(f"{root}{cgroup}").rglob("cgroup.procs"):
                    with suppress(OSError):
                        found |= set(map(int, file.read_text().split()))
        return found

    def stop_for_good(self) -> None:
        """systemd starts it no more by itself (Restart=): a start that waits is cancelled. Once its processes are dead:
        whatever is asked to end by systemd is woken too (systemd.kill(5))."""
        if self.unit:
            _done(["systemctl", "stop", "--no-block", self.unit], _ASK_S)

    @property
    def is_down(self) -> bool:
        """As systemd has it, if it is a unit: it starts and stops nothing of it just now."""
        return not self.unit or self._shown("ActiveState") in ("inactive", "failed", "")

    def begin(self, like: str) -> None:
        """Starts it. Raises OSError unless its process is there soon."""
        if self.unit:
            command = ["systemctl", "start", "--no-block", self.unit]
            if _done(command, THERE_S) != 0:  # it was started, or ended, too often to be started again
                _done(["systemctl", "reset-failed", self.unit], _ASK_S)
                self._run(command, THERE_S)
        else:
            self._run(self.start, THERE_S)
        until = time.monotonic() + THERE_S
        while not proc.is_alive(self.process(like)):
            if time.monotonic() > until:
                raise OSError(f"{self._looked_for} is not there {THERE_S:g} s after {' '.join(self._begun_by)}")
            time.sleep(_POLL_S)

    def end(self, patience: float) -> int:
        """What ends it, and its exit status; the process may go on for a while."""
        return _done(["systemctl", "stop", "--no-block", self.unit] if self.unit else self.stop, patience)

    def last_words(self) -> str:
        """Of its journal; "": it has none."""
        if not self.unit:
            return ""
        return _said(["journalctl", "--unit", self.unit, "--lines", str(_LAST_LINES), "--output", "cat", "--no-pager"])

    @property
    def _begun_by(self) -> Sequence[str]:
        return ["systemctl", "start", self.unit] if self.unit else self.start

    def _shown(self, name: str) -> str:
        """Of its unit."""
        return _said(["systemctl", "show", "--property", name, "--value", self.unit]).strip()

    def _pid_of_file(self) -> int:
        with suppress(OSError, ValueError):
            pid = int(Path(self.pid_file).read_text().split()[0]) if self.pid_file else 0
            return pid if proc.is_alive(pid) else 0
        return 0

    def _run(self, command: Sequence[str], patience: float) -> None:
        if (status := _done(command, patience)) != 0:
            raise OSError(f"{' '.join(command)} ended with exit status {status}")


class ServiceProcess(Process):
    """Whatever is the service's process at the moment. folder: of the run."""

    def __init__(self, service: Service, folder: Path, brought: str = "", like: str = "") -> None:
        """brought: the folder of the agent, if that was not here before. like: see Service.process()."""
        super().__init__()
        self.service = service
        self._folder = folder
        self._brought = brought
        self._like = like
        self._status: int | None = None  # of what we have ended
        self._looking = threading.Lock()

    def look(self) -> None:
        """It may have been started anew, by whomever."""
        with self._looking:
            if not self.alive and (pid := self.service.process(self._like)):
                self.watch(pid)

    def start(self) -> int:
        """Its pid. The same again while it runs."""
        self.look()
        if not self.alive:
            self._note("starting")
            self.service.begin(self._like)
            self.look()
        self._note("running")
        self._status = None
        return self.pid

    def running(self) -> bool:
        self.look()
        return self.alive

    def ended(self, patience: float) -> int | None:
        """An exit status as a container has it: 137 of one that we have killed; else that of what has stopped it. None:
        it still runs."""
        if self._status is not None:
            return self._status
        return 0 if self.ended_within(patience) else None

    def last_words(self) -> str:
        return self.service.last_words()

    def ask(self, program: str, mounts: Mapping[str, str] | None = None) -> str:
        raise OSError("a service has the clock of its host")

    def kill(self) -> int:
        self.look()
        if not self.alive:
            return 0
        above = proc.ancestors(self.pid)
        self._note("ended")
        killed = super().kill()
        wake(above)
        self._status = _KILLED
        return killed

    def processes(self) -> set[int]:
        self.look()
        return self.service.processes(self.pid if self.alive else 0)

    def kill_for_good(self) -> int:
        """All its processes, and none of them does anything any more; nobody starts it before we do. See kill(). Raises
        OSError: it was, or does not end."""
        self.note_struck()
        for pid in (others := self.processes()):
            _send(pid, signal.SIGSTOP)  # so that nobody sees another one die
        for pid in others - {self.pid}:
            _send(pid, signal.SIGKILL)
        killed = self.kill()
        self.service.stop_for_good()

        def is_over() -> bool:
            left = [pid for pid in others | self.service.processes(self.service.process()) if proc.is_alive(pid)]
            for pid in left:  # started before systemd knew that it is to stop
                _send(pid, signal.SIGKILL)
            return not left and self.service.is_down

        if not until(is_over, _GONE_S):
            raise OSError(f"{self.service.unit or 'the service'} does not end, though it was killed")
        return killed

    def terminate(self, patience: float) -> bool | None:
        """By what stops it."""
        self.look()
        if not self.alive:
            return None
        self._note("ended")
        until = time.monotonic() + patience
        self._status = self.service.end(patience)
        return self.ended_within(max(0.0, until - time.monotonic()))

    def signal(self, number: int) -> None:
        self.look()
        super().signal(number)
        if number == signal.SIGCONT:
            wake(proc.ancestors(self.pid))

    @property
    def stopped(self) -> bool:
        return self.alive and is_stopped(self.pid)

    def note(self) -> None:
        """It runs, and nothing was done to it yet."""
        self._like = proc.command_line(self.pid)
        self._note("running")

    def note_struck(self) -> None:
        """Whatever is done to it now it may not survive."""
        self._note("struck")

    def _note(self, how: str) -> None:
        run_folder.note(self._folder / FILE, {
            "service": asdict(self.service), "how": how, "brought": self._brought, "like": self._like,
        })  # fmt: skip


def is_stopped(pid: int) -> bool:
    """Or whoever waits for it: su and runuser stop when what they have started does."""
    return any(map(kernel.is_stopped, [pid, *proc.ancestors(pid)]))


def wake(pids: Sequence[int]) -> None:
    """Those that are stopped; the outermost first, for it would not see the others go on."""
    for pid in reversed(pids):
        if kernel.is_stopped(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _done(command: Sequence[str], patience: float) -> int:
    """Its exit status, as a shell has it; one that takes longer is ended, and has timeout's. It has nothing of ours,
    streams neither: what it starts may keep them for ever."""
    nothing = subprocess.DEVNULL
    try:
        status = subprocess.run(
            [sys.executable, "-I", "-c", _COMMAND, *command], stdin=nothing, stdout=nothing, stderr=nothing, cwd="/",
            env=_ENVIRONMENT, umask=0o022, start_new_session=True, timeout=patience, check=False,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124
    return 128 - status if status < 0 else status


def _said(command: Sequence[str]) -> str:
    """"": it failed."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", cwd="/",
            env=_ENVIRONMENT, timeout=_ASK_S, check=True,
        ).stdout  # fmt: skip
    return ""


def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Does it, within so long?"""
    over = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > over:
            return False
        time.sleep(_POLL_S)
    return True


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
