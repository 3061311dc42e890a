"""Undoes what a run has done to a service, and says what there is of it, by what was noted in the run's folder."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ... import proc
from ...process import Process
from .process import FILE, Service, ServiceProcess, is_stopped, until, wake

_SOON_S: Final = 5.0


def amiss(folder: Path) -> list[str]:
    """What is otherwise with the service of a run than it was before it, and is the run's doing: a clause each."""
    noted = _noted(folder)
    if noted is None:
        return []
    pid = _service(noted).process(noted["like"])
    if proc.is_alive(pid):
        return [f"the service (pid {pid}) is stopped"] if is_stopped(pid) else []
    return [] if noted["how"] == "running" else ["the service does not run"]


def go_on(folder: Path) -> None:
    """It is not stopped any more."""
    noted = _noted(folder)
    if noted is not None and is_stopped(pid := _service(noted).process(noted["like"])):
        process = Process()
        process.watch(pid)
        process.signal(signal.SIGCONT)
        wake(proc.ancestors(pid))


def kill_for_good(folder: Path) -> None:
    """If its process is there, it is ended, all of it."""
    noted = _noted(folder)
    if noted is not None:
        ServiceProcess(_service(noted), folder, noted["brought"], noted["like"]).kill_for_good()


def put_right(folder: Path) -> None:
    """It runs, if it does not because of the run. Raises OSError."""
    noted = _noted(folder)
    if noted is None or noted["how"] == "running":
        return
    service = _service(noted)
    if noted["how"] == "starting":  # it may be about to be there
        until(lambda: proc.is_alive(service.process(noted["like"])), _SOON_S)
    ServiceProcess(service, folder, noted["brought"], noted["like"]).start()


def remove_what_was_brought(folder: Path) -> None:
    """The agent itself, if it was not here before the run."""
    noted = _noted(folder)
    if noted is not None and noted["brought"]:
        brought = Path(noted["brought"])
        shutil.rmtree(brought, ignore_errors=True)
        with suppress(OSError):
            Path(f"{brought}.files").unlink(missing_ok=True)  # see on_host.py of the installation
            brought.parent.rmdir()


def _noted(folder: Path) -> Mapping[str, Any] | None:
    try:
        return dict(json.loads((folder / FILE).read_text()))
    except (OSError, ValueError):
        return None


def _service(noted: Mapping[str, Any]) -> Service:
    return Service(**noted["service"])
