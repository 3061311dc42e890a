"""Commands, one a line, on the node's listener:

append PATH BATCHES RECORDS sync|unsynced    record batches to a segment under /data
write PATH TEXT sync|unsynced                a whole file
reach HOST PORT                              whether a connection opens within half a second
uid                                          whom this runs as
spin                                         be busy from now on
try_to_write PATH BYTES                      a file of that size, removed again: `written`, or the error's name
exit STATUS                                  end, a moment after the answer
peek PATH POSITION SIZE                      size of a file, and bytes of it in hex (`-`: none)
resident PATH                                pages of a file that are in the page cache
write_s BYTES                                how many seconds it takes to append so much to a file and sync it
hear                                         listen on port 9999 (UDP) and take what is poured into port 9998
heard                                        datagrams heard since it was last asked
say HOST NUMBER                              so many datagrams
pour HOST BYTES                              how many seconds so many bytes took, until the other end had them all
connect_s HOST PORT                          how many seconds opening a connection takes
clocks SECONDS                               wall clock less monotonic time, and how long a sleep of so many seconds and
                                             a wait for a lock of as many took by monotonic time
preload                                      LD_PRELOAD of this process, or `none`
modified PATH                                when a file was last modified
"""

import ctypes
import errno
import mmap
import os
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
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


ears: "list[socket.socket]" = []


def hear() -> str:
    def drink(sink: socket.socket) -> None:
        while True:
            connection, _ = sink.accept()
            while connection.recv(1 << 16):
                pass
            connection.close()

    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    ear.bind(("", 9999))
    ear.setblocking(False)
    ears.append(ear)
    threading.Thread(target=drink, args=(socket.create_server(("", 9998)),), daemon=True).start()
    return "listening"


def heard() -> str:
    count = 0
    try:
        while True:
            ears[0].recv(1 << 11)
            count += 1
    except BlockingIOError:
        return str(count)


def say(host: str, number: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        for _ in range(int(number)):
            mouth.sendto(b"x", (host, 9999))
            time.sleep(0.0002)  # a socket's buffer holds few small datagrams
    return "said"


def pour(host: str, size: str) -> str:
    began = time.monotonic()
    with socket.create_connection((host, 9998)) as spout:
        spout.sendall(b"x" * int(size))
        spout.shutdown(socket.SHUT_WR)
        spout.recv(1)
    return str(time.monotonic() - began)


def connect_s(host: str, port: str) -> str:
    began = time.monotonic()
    socket.create_connection((host, int(port)), timeout=10).close()
    return str(time.monotonic() - began)


def peek(path: str, position: str, size: str) -> str:
    content = Path("/data", path).read_bytes()
    return f"{len(content)} {content[int(position) :][: int(size)].hex() or '-'}"


def resident(path: str) -> str:
    with open(Path("/data", path), "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        view = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(len(mapped)), pages)
        del view
        return "error" if failed else str(sum(page & 1 for page in pages))


def write_s(size: str) -> str:
    with open("/data/slow", "ab") as file:
        began = time.monotonic()
        file.write(bytes(int(size)))
        file.flush()
        os.fsync(file.fileno())
        return str(time.monotonic() - began)


def exit_(status: str) -> str:
    threading.Timer(0.05, os._exit, [int(status)]).start()
    return "soon"


def uid() -> str:
    return str(os.getuid())


def clocks(seconds: str) -> str:
    lock = threading.Lock()
    lock.acquire()
    began = time.monotonic()
    time.sleep(float(seconds))
    slept = time.monotonic()
    lock.acquire(timeout=float(seconds))
    waited = time.monotonic()
    return f"{time.time() - time.monotonic()} {slept - began} {waited - slept}"


def preload() -> str:
    return os.environ.get("LD_PRELOAD", "none")


def modified(path: str) -> str:
    return str(Path("/data", path).stat().st_mtime)


COMMANDS = {
    "append": append, "write": write, "reach": reach, "uid": uid, "spin": spin, "try_to_write": try_to_write,
    "exit": exit_, "peek": peek, "resident": resident, "write_s": write_s,
    "clocks": clocks, "preload": preload, "modified": modified,
    "hear": hear, "heard": heard, "say": say, "pour": pour, "connect_s": connect_s,
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
