"""Files of a run's directory, which may have been put there by anybody: only regular files are opened.

Opening a named pipe waits for somebody to write into it, and reading a device may never end.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO


class NotRegular(OSError):
    """A directory, a pipe, a socket or a device where a file is due. The message is a clause."""


def open_regular(path: Path) -> BinaryIO:
    """For reading. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular("it is no regular file")
    return open(descriptor, "rb")


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises OSError, or ValueError with what is there instead, as a clause."""
    with open_regular(path) as file:
        content = file.read()
    if not content.strip():
        raise ValueError("it is empty")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it does not hold JSON") from None
    if not isinstance(value, dict):
        raise ValueError("it does not hold a JSON object")
    return value
