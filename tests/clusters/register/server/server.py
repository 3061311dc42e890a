"""A register behind a port: `read` and `write VALUE`, a line each; the answer is the value. It is kept in a file, and
beside it a log of what was asked, which is not synced."""

import os
import socketserver
import sys

with open(sys.argv[1]) as properties:
    SETTINGS = dict(line.strip().split("=", 1) for line in properties)
WIDTH = 20


class Client(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            word, _, value = line.decode().strip().partition(" ")
            os.write(log, line)
            if word == "write":
                os.pwrite(register, value.ljust(WIDTH).encode(), 0)
                if SETTINGS["synced"] == "true":
                    os.fsync(register)
            self.wfile.write(os.pread(register, WIDTH, 0) + b"\n")


if __name__ == "__main__":
    os.makedirs(SETTINGS["folder"], exist_ok=True)
    os.chdir(SETTINGS["folder"])
    register = os.open("register", os.O_RDWR | os.O_CREAT)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    socketserver.TCPServer.allow_reuse_address = True
    socketserver.TCPServer(("", int(SETTINGS["port"])), Client).serve_forever()
