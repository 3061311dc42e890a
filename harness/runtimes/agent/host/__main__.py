"""python3 -m agent.host COMMAND ARGUMENT, as root on a host.

serve                 hold this host and become its agent (guard.py), as a JSON object on standard input says. Returns
                      once it can be asked, or cannot.
connect               pass lines between this process' streams and the agent's socket
send FOLDER           the folder as a compressed tar archive on standard output
status FOLDER         who holds this host, and what there is of runs in this data directory: a JSON object
alone SERVICE         whether this service (see Service, a JSON object) has its file system to itself: a JSON object
                      with `why_not`, a clause that follows "the data directory of the service", "" if it has
boot                  which boot of this host this is
remove FOLDER [RUN]   end the agent if there is one, and undo all that there is of runs: what was removed, a JSON list.
                      RUN: only if it is that one which holds this host, or nobody does

What goes wrong is one line on standard error, and exit status 1; exit status 3: another run holds this host; exit
status 4, of connect: there is no agent, and the line on standard error is holding.boot().
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import sys
import tarfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .. import proc
from . import folder as run_folder
from . import guard, holding, undo
from .machine import prepare
from .service.process import Service
from .volumes import alone

_HELD: Final = 3
_NO_AGENT: Final = 4
_END_S: Final = 30.0
_CHUNK: Final = 1 << 16
_COMPRESSION: Final = 1  # disks are full of zeros: more of it costs more than it saves


class NoAgent(Exception):
    """Nobody listens any more."""


def connect() -> None:
    with socket.socket(socket.AF_UNIX) as agent:
        try:
            agent.connect(str(holding.SOCKET))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoAgent from None

        def to_agent() -> None:
            while data := os.read(0, _CHUNK):
                agent.sendall(data)
            with suppress(OSError):
                agent.shutdown(socket.SHUT_WR)

        threading.Thread(target=to_agent, daemon=True).start()
        while data := agent.recv(_CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]


def send(folder: Path) -> None:
    with (
        gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", compresslevel=_COMPRESSION) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as archive,
    ):
        archive.add(folder, arcname=".")


def status(data_directory: Path) -> dict[str, Any]:
    held = holding.is_held()
    silent = None
    with suppress(OSError):
        silent = round(time.monotonic() - holding.HEARD.stat().st_mtime, 1)
    return {"held": held, "holder": holding.holder_of(), "silent_s": silent, "found": undo.found(data_directory)}


def remove(data_directory: Path, run: str | None = None) -> list[str]:
    """The agent's guard undoes all by itself; what it does not, or nobody is there to, is undone here."""
    holder = holding.holder_of() or {}
    if run is not None and holding.is_held() and holder.get("run") != run:
        return []
    there = undo.found(data_directory)
    done = [f"{kind}: {', '.join(map(str, each))}" for kind, each in there.items() if each]
    if holding.is_held():
        for name in ("worker", "guard"):  # the guard itself only if it does not end when its worker has
            pid = int(holder.get(name, 0))
            if pid and proc.started(pid):
                os.kill(pid, signal.SIGKILL)
                until = time.monotonic() + _END_S
                while holding.is_held() and name == "worker" and time.monotonic() < until:
                    time.sleep(0.02)
            if not holding.is_held():
                break
    lock = holding.hold({"run": run or "", "who": "a clean-up"})  # a run that has begun meanwhile has undone all itself
    try:
        undo.undo(data_directory)
    finally:
        holding.remove_files()
        os.close(lock)
    return done


def why_not_alone(service: Service) -> str:
    try:
        alone.file_system_of(service.data_directory, service.processes(service.process()))
    except alone.NotAlone as error:
        return str(error)
    return ""


def main() -> int:
    command, *arguments = sys.argv[1:]
    try:
        prepare()
        if command == "serve":
            print(json.dumps(guard.serve(json.loads(sys.stdin.buffer.read()))))
        elif command == "alone":
            print(json.dumps({"why_not": why_not_alone(Service(**json.loads(arguments[0])))}))
        elif command == "boot":
            print(holding.boot())
        elif command == "connect":
            connect()
        elif command == "send":
            send(Path(arguments[0]))
        elif command == "status":
            print(json.dumps(status(run_folder.resolved(arguments[0]))))
        elif command == "remove":
            print(json.dumps(remove(run_folder.resolved(arguments[0]), *arguments[1:])))
        else:
            raise ValueError(f"unknown command {command}")
    except holding.Held as error:
        print(json.dumps(error.holder), file=sys.stderr)
        return _HELD
    except NoAgent:
        print(holding.boot(), file=sys.stderr)
        return _NO_AGENT
    except (OSError, RuntimeError) as error:
        where = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        print(f"{getattr(error, 'strerror', None) or error}{where}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
