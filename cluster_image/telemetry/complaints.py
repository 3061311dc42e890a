"""Limits the rate of warnings that clients can cause in a node's log, so that nobody can fill the disk with them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

PER_SECOND: Final = 10


class Complaints:
    """Warnings to a log, PER_SECOND at most; how many were kept back is said."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._second = 0
        self._said = 0
        self._kept_back = 0

    def warn(self, message: str, *values: object, exc_info: bool = False) -> None:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            if self._kept_back:
                self._log.warning("%d more such lines were kept back", self._kept_back)
            self._second, self._said, self._kept_back = second, 0, 0
        if self._said < PER_SECOND:
            self._said += 1
            self._log.warning(message, *values, exc_info=exc_info)
        else:
            self._kept_back += 1
