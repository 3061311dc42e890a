"""guard.py PARENT FOLDER COMMAND…: runs a command of an image build, and kills it once PARENT is gone.

A killed harness cannot clean up after itself, and bash, mmdebstrap and what they start would go on for a minute and
leave 160 MB. So the command is in a session of its own, and in a namespace of mounts where this may make one: when
PARENT, this process' parent, is gone, or a signal asks for it, all of the session is killed and FOLDER removed.
A script, of the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 0x00044000
_PATIENCE_S = 10.0  # for killed processes to be gone

_libc = ctypes.CDLL(None, use_errno=True)


def main(parent: str, folder: str, *command: str) -> int:
    """The command's exit status, as a shell would say it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    running: list[subprocess.Popen[bytes]] = []

    def end(number: int, _: object) -> NoReturn:
        for each in running:
            _kill_session(each.pid)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    if os.getppid() != int(parent):  # it was gone before it could be asked to tell
        end(signal.SIGTERM, None)
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        running.append(subprocess.Popen(command, start_new_session=True, preexec_fn=_begin))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    status = running[0].wait()
    return status if status >= 0 else 128 - status


def _begin() -> None:
    """In the command's process, before it is the command."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # What it mounts (mmdebstrap: /proc) is gone with it, and nothing below the folder leads out of it. Not everybody
    # may do so; whoever may not cannot mount either.
    if _libc.unshare(_CLONE_NEWNS) == 0:
        _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None)


def _kill_session(session: int) -> None:
    """Of which some may have made themselves a group of their own; they do not get out of the session but by asking."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := _of_session(session)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _of_session(session: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
            state, _, _, its, *_ = stat.read().rpartition(b")")[2].split()
            if int(its) == session and state != b"Z":
                found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
