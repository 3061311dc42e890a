"""Where a node's trace goes: a file outside of the volume that a power cut takes."""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)


class TraceFile:
    """Appends lines to a file, each in one write: a process that is killed has left whole lines, and all of them."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, line: str) -> None:
        """After an error nothing is written any more: a trace with a hole would say what is not true."""
        if self._descriptor < 0:
            return
        data = line.encode()
        try:
            written = os.write(self._descriptor, data)
            if written == len(data):
                return
            error = f"{written} of {len(data)} bytes were written"
        except OSError as problem:
            error = str(problem)
        log.error("the trace ends here: %s: %s", self._path, error)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
