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


def require_regular(path: Path | str) -> None:
    """For what opens it by its name. Raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise NotRegular("it is no regular file")


def open_regular(path: Path) -> BinaryIO:
    """For reading. Raises OSError."""
    require_regular(path)
    return path.open("rb")


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
