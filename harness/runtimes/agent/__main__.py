"""python3 -m agent serve CONFIGURATION | remove FOLDER | probe FOLDER, inside the agent's container;
python3 -m agent probe-host FOLDER, on a machine that is no container.

`serve` makes and mounts the volumes and then answers requests on FOLDER/agent.sock: one JSON object a line,
`{"node": "broker-1", "do": "cut_power", ...}`, answered by `{"result": ...}` or `{"error": "..."}`. The requests of
one connection are handled in order, those of different connections in parallel. On SIGTERM it unmounts and deletes
all that it made. What goes wrong before it serves is one line on stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socketserver
import sys
from pathlib import Path
from typing import Any

from . import kernel, tools, verbs
from .machine import Machine, Volume
from .network import card as network
from .probe import freezer, probe
from .volume import mounts

_LONGEST_REQUEST = 1 << 20  # bytes
_LONGEST_ANSWER = 8 << 20  # half of what agent_client.py reads as a line
_LONGEST_ERROR = 10_000  # characters
_FOLDER_MODE = 0o710  # the harness' group comes through, to the socket
_UMASK = 0o077


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while line := self.rfile.readline(_LONGEST_REQUEST):
            try:
                result = verbs.answer(self.server.machines, json.loads(line))
                reply = json.dumps({"result": result}).encode()
                if len(reply) > _LONGEST_ANSWER:  # names of a node's files, say
                    raise ValueError(f"the answer has {len(reply):,} bytes, more than anybody reads")
            except Exception as error:  # the harness decides what a failed request means
                reply = json.dumps({"error": f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]}).encode()
            self.wfile.write(reply + b"\n")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024  # a connection for each node comes at once, and asyncio takes a full queue for success

    def __init__(self, path: Path, machines: dict[str, Machine]) -> None:
        self.machines = machines
        super().__init__(str(path), _Connection)


def serve(configuration: dict[str, Any]) -> None:
    """configuration: folder, nodes (names), file_system, size (bytes), node_user, harness_user (uids), and
    harness_group."""
    os.umask(_UMASK)  # what a node wrote is nobody's on the host but the agent's
    folder = Path(configuration["folder"])
    volumes = {
        name: Volume(folder / f"{name}.img", folder / name, configuration["file_system"])
        for name in configuration["nodes"]
    }
    os.chown(folder, 0, configuration["harness_group"])
    folder.chmod(_FOLDER_MODE)
    network.load_library()
    tools.keep_own_namespaces()
    for made in [volume.make(configuration["size"]) for volume in volumes.values()]:
        made()
    _join_engine()
    kernel.bind_shared(folder)
    for volume in volumes.values():
        volume.attach(configuration["node_user"])
    machines = {name: Machine(name, volume) for name, volume in volumes.items()}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    path = folder / "agent.sock.new"
    try:
        with _Server(path, machines) as server:
            os.chown(path, configuration["harness_user"], -1)
            path.rename(folder / "agent.sock")  # it appears when it can be used
            server.serve_forever()
    finally:
        _remove(folder)


def remove(folder: Path) -> None:
    """What a killed agent left. Only when no container of the run is left."""
    _join_engine()
    _remove(folder)


def _remove(folder: Path) -> None:
    """Unmount everything under `folder` and delete it."""
    points = [Path(each.point) for each in mounts.own()]
    for mount in sorted((point for point in points if point.is_relative_to(folder)), reverse=True):
        if mount != folder:
            kernel.shut_down_file_system(mount)  # or unmounting would write out what nobody reads
        kernel.unmount(mount, lazily=True)
    shutil.rmtree(folder, ignore_errors=True)


def _join_engine() -> None:
    """Enter the mount namespace in which the engine resolves what it mounts into containers: that of the shim, our
    parent. It need not be that of PID 1."""
    kernel.enter_mount_namespace_of(os.getppid())


def main() -> int:
    command, argument = sys.argv[1:]
    try:
        if command == "serve":
            serve(json.loads(argument))
        elif command == "remove":
            remove(Path(argument))
        elif command == "probe":
            print(json.dumps(probe(Path(argument), _join_engine)))
        elif command == "probe-host":
            kernel.leave_namespaces()  # whatever is tried is seen by nobody, and ends with this process
            print(json.dumps({**probe(Path(argument), lambda: None), "freezer": freezer()}))
        else:
            raise ValueError(f"unknown command {command}")
    except OSError as error:
        print(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
