"""`python -m cluster_image node.properties`: run one node until SIGTERM. Logs are JSON lines on standard output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

from . import bugs, node, wire
from .config import Config, ConfigError, parse
from .disk import LocalDisk
from .tcp import TcpNetwork

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


def main(path: str) -> int:
    try:
        config = parse(Path(path).read_text())
    except (OSError, ConfigError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=config["log.level"], handlers=[handler])
    with bugs.switched_on(config["chaos.bug"] or None):
        uvloop.run(_run(config))
    return 0


def _fail(error: BaseException) -> None:
    """A node that cannot go on must not linger half alive: the controller would not fence it."""
    logging.getLogger("cluster_image").critical("cannot go on", exc_info=error)
    os._exit(1)


async def _run(config: Config) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    role = config["process.roles"]
    network = TcpNetwork(wire.SUPPORTED[role], max_request_bytes=config["socket.request.max.bytes"])
    disk = LocalDisk(config["log.dirs"])
    started = node.Node(config, disk, network, random.Random(), _fail, wall_clock=time.time)
    try:
        await node.run(started, stop)
    except Exception as error:
        _fail(error)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m cluster_image node.properties")
    sys.exit(main(sys.argv[1]))
