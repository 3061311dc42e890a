"""A node's log: a JSON object a line."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Final

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """`time` is CLOCK_MONOTONIC in nanoseconds, the time line of the histories, unless another `clock_ns` is given."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__()
        self._clock_ns = clock_ns

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self._clock_ns(),
            "level": record.levelname,
            "logger": record.name.removeprefix("cluster_image."),
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _PLAIN},
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
