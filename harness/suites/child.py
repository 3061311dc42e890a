"""`python -m harness.suites.child PARENT run …`: `chaos run`, or another command, asked to end early once the process
PARENT has died.

A suite carries its runs out in processes like this one. One that is killed must not leave clusters behind that nobody
waits for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

#: prctl(2): which signal this process gets when its parent dies.
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    parent = int(sys.argv.pop(1))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before it could be watched
        sys.exit(255)

    from harness.__main__ import main as chaos

    chaos()


if __name__ == "__main__":
    main()
