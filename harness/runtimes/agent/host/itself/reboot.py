"""The real thing: a host that loses its power, as the kernel's own trigger has it (sysrq b: no sync, no unmount).

What its disk held is told before and compared after: the agent writes it down, on the host's own file system, with a
sync of that one file, which leaves the volume's pages where they are. Only where the host's owner says may_reboot, and
never in a container, whose kernel is everybody's.
"""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any, Final

from ...volume import loss
from .. import folder as run_folder

TRIGGER: Final = "/proc/sysrq-trigger"
_AFTER_S: Final = 0.3  # so that the answer arrives
_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC  # PROC_PID_INIT_INO
_REMEMBERED: Final = "disk-before-reboot"


def remember(folder: Path, volume: Path) -> None:
    """What is on the volume now, as its processes see it."""
    survey = loss.Survey(volume)
    survey.complete()
    run_folder.keep(folder / _REMEMBERED, pickle.dumps(survey))


def lost(folder: Path, volume: Path) -> dict[str, Any]:
    """Evidence, as loss.compared(), of what has been lost since; nothing if nothing was remembered."""
    path = folder / _REMEMBERED
    if not path.exists():
        return {}
    with path.open("rb") as file:
        before = pickle.load(file)  # written above, by root, where nobody else writes
    path.unlink()
    return loss.compared(before, loss.final(volume))


def soon(trigger: str) -> None:
    """Raises OSError in a container."""
    if trigger == TRIGGER and in_container():
        raise OSError("this host is a container: its kernel is that of others, and is not rebooted")
    threading.Timer(_AFTER_S, _now, (trigger,)).start()


def _now(trigger: str) -> None:
    Path(trigger).write_text("b")


def in_container() -> bool:
    """By its namespace of processes, by what says so, and by what container engines leave."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    told = any(Path(path).exists() for path in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container"))
    try:
        told = told or b"container=" in Path("/proc/1/environ").read_bytes()
    except OSError:
        told = True
    return told or namespace != _INITIAL_PID_NAMESPACE
