"""`python -m cluster_image node.properties`: run one node until SIGTERM. Logs are JSON lines on standard output.

With the name of a tool instead of a file: look at a cluster or a node's files, or change a cluster (tools/).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

import uvloop

from . import node, tools
from .config import Config, ConfigError, lines_of, v2
from .network import Network
from .network.tasks import Failed
from .network.tcp import TcpNetwork
from .storage.disk import Disk, LocalDisk
from .telemetry.log_lines import JsonFormatter
from .telemetry.printable import say
from .telemetry.trace import Trace, TraceLines, no_trace
from .telemetry.trace_file import TraceFile

#: A thread that decodes what is long keeps the event loop waiting for so long each time that it comes back from the
#: kernel (Python's own: 5 ms).
_SWITCH_S: Final = 0.0005


def main(path: str) -> int:
    try:
        text = Path(path).read_text()
        launch = _generation_of(text)
        config = launch.parse(text)
    except FileNotFoundError as error:
        known = ", ".join(tools.COMMANDS)
        say(f"{path}: {error.strerror}, and no tool of this name; tools are {known}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:  # ConfigError, and a file that is not text
        reason = error.strerror if isinstance(error, OSError) else error
        say(f"{path}: {reason}", file=sys.stderr)
        return 2
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=config["log.level"], handlers=[handler])
    sys.setswitchinterval(_SWITCH_S)
    with launch.switched_on(config):
        try:
            uvloop.run(_run(launch, config))
        except ConfigError as error:
            say(f"{path}: {error}", file=sys.stderr)
            return 2
    return 0


class Generation(Protocol):
    """Of the protocol: the module `launch` of each."""

    def parse(self, properties: str) -> Config:
        """Raises ConfigError."""

    def switched_on(self, config: Config) -> AbstractContextManager[None]: ...

    def node(self, config: Config, disk: Disk, network: Network, failed: Failed, trace: Trace) -> node.Node:
        """Not started, in a running event loop."""


def _generation_of(properties: str) -> Generation:
    """Raises ConfigError."""
    generation = "v2" if v2.is_of(lines_of(properties)) else "kraft"
    launch: Any = import_module(f"cluster_image.{generation}.launch")  # alone: the other would only take time
    return cast(Generation, launch)


def _fail(error: BaseException) -> None:
    """A node that cannot go on must not linger half alive: the controller would not fence it."""
    logging.getLogger("cluster_image").critical("cannot go on", exc_info=error)
    os._exit(1)


async def _run(launch: Generation, config: Config) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    network = TcpNetwork(
        max_request_bytes=config["socket.request.max.bytes"],
        request_memory_bytes=config["queued.max.request.bytes"],
        max_client_elements=4 * config["max.request.partition.size.limit"],
        max_connections=config["max.connections"],
        max_connections_per_ip=config["max.connections.per.ip"],
        credentials=config["sasl.jaas.config"],
    )
    disk = LocalDisk(config["log.dirs"])
    lines = _trace_lines(config, loop)

    def fail(error: BaseException) -> None:
        if lines is not None:
            lines.flush()
        _fail(error)

    trace: Trace = lines if lines else no_trace
    started = launch.node(config, disk, network, fail, trace)
    gc.collect()
    gc.freeze()  # of all that was imported nothing goes any more: full collections need not look through it
    try:
        await node.run(started, stop)
    except Exception as error:
        fail(error)
    if lines is not None:
        lines.flush()


def _trace_lines(config: Config, loop: asyncio.AbstractEventLoop) -> TraceLines | None:
    """To the file that the harness names. If it cannot be written to, the node does not run: less could be judged."""
    if not config["chaos.trace"]:
        return None
    try:
        file = TraceFile(config["chaos.trace"])
    except OSError as error:
        _fail(error)
        raise
    return TraceLines(config["node.id"], file.write, time.monotonic_ns, loop.call_later)


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-") and sys.argv[1] not in tools.COMMANDS:
        sys.exit(main(sys.argv[1]))
    sys.exit(tools.main(sys.argv[1:]))
