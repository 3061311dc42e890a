"""An SSH server in this process, which runs what it is told on this machine: for what needs no real host."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko

from harness.runtimes.ssh.hosts_file import Host

_TELLING_S = 0.05


class _Rules(paramiko.ServerInterface):
    def __init__(self, server: SshServer) -> None:
        self._server = server

    def get_allowed_auths(self, username: str) -> str:
        return "password" if self._server.password else "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._server.asked.append(username)
        known = not self._server.password and key.get_base64() == self._server.user_key.get_base64()
        return paramiko.AUTH_SUCCESSFUL if known else paramiko.AUTH_FAILED  # type: ignore[attr-defined, no-any-return]

    def check_auth_password(self, username: str, password: str) -> int:
        self._server.asked.append(username)
        right = password == self._server.password
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED  # type: ignore[attr-defined, no-any-return]

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED  # type: ignore[attr-defined, no-any-return]

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._server.commands.append(command.decode())
        threading.Thread(target=self._server.execute, args=(channel, command.decode()), daemon=True).start()
        return True

    def check_channel_direct_tcpip_request(self, chanid: int, origin: Any, destination: Any) -> int:
        self._server.forwarded.append(destination)
        self._server.forward_to[chanid] = destination
        return paramiko.OPEN_SUCCEEDED  # type: ignore[attr-defined, no-any-return]


class SshServer:
    """On a port of 127.0.0.1. folder: of files of its own: the user's key."""

    def __init__(
        self, folder: Path, *, password: str = "", host_key: paramiko.PKey | None = None, path: str = ""
    ) -> None:
        """path: PATH of commands; "": this process'."""
        self.host_key = host_key or paramiko.ECDSAKey.generate()
        self.user_key = paramiko.ECDSAKey.generate()
        self.key_file = folder / "key"
        self.user_key.write_private_key_file(str(self.key_file))
        self.password = password
        self.path = path
        self.asked: list[str] = []
        self.commands: list[str] = []
        self.forwarded: list[tuple[str, int]] = []
        self.forward_to: dict[int, tuple[str, int]] = {}
        self._transports: list[paramiko.Transport] = []
        self._channels: list[paramiko.Channel] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> SshServer:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()

    def host(self, **fields: Any) -> Host:
        given = {"port": self.port, "user": "somebody", "key": self.key_file, "fingerprint": self.host_key.fingerprint}
        return Host(**{"name": "a", "address": "127.0.0.1", "node_address": "127.0.0.1", **given, **fields})

    def cut(self) -> None:
        """Every connection that there is."""
        for transport in self._transports:
            transport.close()
            transport.join(5)
        self._transports.clear()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            transport = paramiko.Transport(accepted)
            transport.add_server_key(self.host_key)
            self._transports.append(transport)
            with suppress(paramiko.SSHException, EOFError, OSError):
                transport.start_server(server=_Rules(self), event=threading.Event())
                threading.Thread(target=self._forward, args=(transport,), daemon=True).start()

    def _forward(self, transport: paramiko.Transport) -> None:
        while transport.is_active():
            if (channel := transport.accept(0.2)) is None:
                continue
            self._channels.append(channel)  # or it would be closed when nobody holds it
            if channel.chanid in self.forward_to:
                there = socket.create_connection(self.forward_to.pop(channel.chanid))
                threading.Thread(target=_copy, args=(channel, there), daemon=True).start()
                threading.Thread(target=_copy, args=(there, channel), daemon=True).start()

    def execute(self, channel: paramiko.Channel, command: str) -> None:
        environment = {"PATH": self.path or "/usr/bin:/bin", "SSH_CONNECTION": "192.0.2.9 1234 192.0.2.1 22"}
        process = subprocess.Popen(
            command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        assert process.stdin and process.stdout and process.stderr
        copies = [
            threading.Thread(target=_pump, args=(process.stdout, channel.sendall), daemon=True),
            threading.Thread(target=_pump, args=(process.stderr, channel.sendall_stderr), daemon=True),
        ]
        for copy in copies:
            copy.start()
        threading.Thread(target=_feed, args=(channel, process.stdin), daemon=True).start()
        for copy in copies:
            copy.join()
        with suppress(OSError, EOFError):
            channel.send_exit_status(process.wait())
            # That the command was taken is told by another thread: a channel closed before would refuse it.
            time.sleep(_TELLING_S)
            channel.close()


def _pump(stream: Any, send: Any) -> None:
    with suppress(OSError, EOFError), stream:
        while data := stream.read1(1 << 15):
            send(data)


def _feed(channel: paramiko.Channel, stdin: Any) -> None:
    with suppress(OSError):
        while data := channel.recv(1 << 15):
            stdin.write(data)
            stdin.flush()
    with suppress(OSError):
        stdin.close()


def _copy(source: Any, sink: Any) -> None:
    with suppress(OSError, EOFError):
        while data := source.recv(1 << 15):
            sink.sendall(data)
    with suppress(OSError, EOFError):
        sink.close()
