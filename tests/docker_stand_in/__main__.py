"""Commands, one a line, on the node's listener:

append PATH BATCHES RECORDS sync|unsynced    record batches to a segment under /data
write PATH TEXT sync|unsynced                a whole file
reach HOST PORT                              whether a connection opens within half a second
uid                                          whom this runs as
spin                                         be busy from now on
try_to_write PATH BYTES                      a file of that size, removed again: `written`, or the error's name
exit STATUS                                  end, a moment after the answer
"""

import errno
import os
import signal
import socket
import socketserver
import struct
import sys
import threading
from pathlib import Path


def append(path: str, batches: str, records: str, sync: str) -> str:
    header = struct.Struct(">qiibIhiqqqhii")
    batch = header.pack(0, header.size - 12 + 8, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, int(records)) + os.urandom(8)
    return write(path, batch * int(batches), sync)


def write(path: str, data: "str | bytes", sync: str) -> str:
    file = Path("/data", path)
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as opened:
        opened.write(data if isinstance(data, bytes) else data.encode())
        opened.flush()
        if sync == "sync":
            for synced in (opened.fileno(), *(os.open(folder, os.O_RDONLY) for folder in (file.parent, "/data"))):
                os.fsync(synced)
    return str(file.stat().st_size)


def reach(host: str, port: str) -> str:
    try:
        socket.create_connection((host, int(port)), timeout=0.5).close()
    except OSError as error:
        return type(error).__name__
    return "yes"


def spin() -> str:
    def forever() -> None:
        while True:
            pass

    threading.Thread(target=forever, daemon=True).start()
    return "spinning"


def try_to_write(path: str, size: str) -> str:
    file = Path("/data", path)
    try:
        with file.open("wb") as opened:
            opened.write(os.urandom(int(size)))
            os.fsync(opened.fileno())
        file.unlink()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "written"


def exit_(status: str) -> str:
    threading.Timer(0.05, os._exit, [int(status)]).start()
    return "soon"


def uid() -> str:
    return str(os.getuid())


COMMANDS = {
    "append": append, "write": write, "reach": reach, "uid": uid, "spin": spin, "try_to_write": try_to_write,
    "exit": exit_,
}  # fmt: skip


class Commands(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            name, *arguments = line.decode().split()
            answer = COMMANDS[name](*arguments)
            self.wfile.write(answer.encode() + b"\n")


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
properties = dict(line.strip().split("=", 1) for line in Path(sys.argv[1]).read_text().splitlines())
host, port = properties["listeners"].split(":")
print(f"stand-in {properties['node.id']} listens", flush=True)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer((host, int(port)), Commands).serve_forever()
