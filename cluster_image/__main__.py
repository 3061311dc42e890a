"""`python -m cluster_image node.properties`: run one node until SIGTERM. Logs are JSON lines on standard output.

With the name of a tool instead of a file: look at a cluster or a node's files, or change a cluster (tools/).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

from . import node, tools
from .config import Config, ConfigError, parse
from .kraft import bugs
from .kraft.node import Node
from .network import Address
from .network.tcp import TcpNetwork
from .storage.disk import LocalDisk
from .telemetry.log_lines import JsonFormatter
from .telemetry.printable import say
from .telemetry.trace import Trace, TraceLines, no_trace
from .telemetry.trace_file import TraceFile

#: A thread that decodes what is long keeps the event loop waiting for so long each time that it comes back from the
#: kernel (Python's own: 5 ms).
_SWITCH_S: Final = 0.0005


def main(path: str) -> int:
    try:
        config = parse(Path(path).read_text())
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
    with bugs.switched_on(config["chaos.bug"] or None):
        try:
            uvloop.run(_run(config))
        except ConfigError as error:
            say(f"{path}: {error}", file=sys.stderr)
            return 2
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
    if not config["metrics.port"]:
        started = Node(config, disk, network, random.Random(), fail, wall_clock=time.time, trace=trace)
    else:
        from .telemetry import metrics  # here: most nodes are better off without the library

        events = metrics.Events(config["node.id"], trace)
        counting = metrics.CountingNetwork(network)
        started = Node(config, disk, counting, random.Random(), fail, wall_clock=time.time, trace=events)
        collector = metrics.NodeCollector(started, config, events, counting.requests, loop)
        metrics.serve(collector, Address(config.listener(config["process.roles"][0]).host, config["metrics.port"]))
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
