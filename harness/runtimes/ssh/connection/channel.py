"""One process on a host: what goes into it, what comes out, and sudo before it.

sudo asks for a password with a prompt of our own, and the process says that it begins before it does: so a password is
written to sudo alone, and only if it asks, never to the process.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, Final, NamedTuple

import paramiko

from harness.errors import BadArguments
from harness.targets.security.given import secret_of

from ..hosts_file import Host
from .connecting import HostError, HostRefused, HostUnreachable

_PROMPT: Final = "chaos-asks-for-the-password"
_BEGINS: Final = "chaos-begins"
_MARKS: Final = re.compile(rf"({_PROMPT}|{_BEGINS}\n)".encode())
_AS_ROOT: Final = f'echo {_BEGINS} >&2; exec "$0" "$@"'
_SUDO_PATIENCE_S: Final = 15.0
_MOST_COMPLAINTS: Final = 1 << 16  # bytes of standard error that are kept, the last ones
_CHUNK: Final = 1 << 15
_LOOK_S: Final = 0.25  # the channel has one time-out, for reading and sending: each looks this often whether it is late
_NOT_FOUND: Final = 127


class Output(NamedTuple):
    status: int  # -1: ended by a signal
    out: bytes
    err: str  # the end of it

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def why(self) -> str:
        """Of one that has failed: the last line that it wrote to standard error, or its exit status."""
        return (self.err.strip().splitlines() or [f"exit status {self.status}"])[-1]


def sudo_words(host: Host, command: Sequence[str]) -> tuple[list[str], str]:
    """The command with sudo before it, and the password that it may ask for. Raises HostRefused."""
    try:
        password = secret_of(host.sudo_password, f"host {host.name}: sudo_password")
    except BadArguments as error:
        raise HostRefused(str(error)) from None
    asking = ["-S", "-p", _PROMPT] if password else ["-n"]
    return ["env", "LC_ALL=C", "sudo", *asking, "--", "sh", "-c", _AS_ROOT, *command], password


class Channel:
    """Of a process that was started. One thread may read while others send."""

    def __init__(self, host: Host, channel: paramiko.Channel, what: str, password: str, *, is_sudo: bool) -> None:
        """what: as it is called in errors. is_sudo: it was started by sudo_words(). Raises HostError if sudo lets
        nothing begin."""
        self._host = host
        self._channel = channel
        self._transport: Any = channel.transport
        channel.settimeout(_LOOK_S)
        self._what = what
        self._sending = threading.Lock()
        self._begun = threading.Event()
        self._asked = 0
        self._complaints = b""
        self._seen = b""
        self._rest = b""  # of a line
        self._is_sudo = is_sudo
        self._password = password
        if not is_sudo:
            self._begun.set()
        self._reader = threading.Thread(target=self._read_complaints, name=f"{host.name}, errors", daemon=True)
        self._reader.start()
        if is_sudo:
            self._wait_until_begun()

    def __repr__(self) -> str:
        return f"Channel({self._host.name!r}, {self._what!r})"

    @property
    def complaints(self) -> str:
        """The end of what it wrote to standard error so far."""
        return self._complaints.decode(errors="replace").strip()

    def send(self, data: bytes, timeout_s: float = 30.0) -> None:
        """All of it. Raises HostUnreachable."""
        with self._sending:
            sent, until = 0, time.monotonic() + timeout_s
            while sent < len(data):
                try:
                    sent += self._channel.send(data[sent : sent + _CHUNK])
                except TimeoutError:
                    if time.monotonic() >= until:
                        raise self._late(timeout_s) from None
                except (OSError, EOFError, paramiko.SSHException):
                    raise self._lost() from None

    def end_input(self) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def readline(self, timeout_s: float | None = None) -> bytes:
        """With its end; b"" once it has written all. Raises TimeoutError, and loses nothing; HostUnreachable."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if not (more := self._receive(until)):
                line, self._rest = self._rest, b""
                return line
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line + b"\n"

    def finish(self, input: bytes | IO[bytes], timeout_s: float, into: IO[bytes] | None = None) -> Output:
        """All that goes in, all that comes out, and its end. into: a file for what comes out, as it comes; `out` is
        empty then. Raises HostUnreachable, and what writing to that file raises."""
        until = time.monotonic() + timeout_s
        if input:
            threading.Thread(target=self._send_all, args=(input, timeout_s), daemon=True).start()
        else:
            self.end_input()
        out = bytearray()
        keep = out.extend if into is None else into.write
        keep(self._rest)
        try:
            while more := self._receive(until):
                keep(more)
        except TimeoutError:
            raise self._late(timeout_s) from None
        status = self.wait(max(0.1, until - time.monotonic()))
        return Output(status, bytes(out), self.complaints)

    def wait(self, timeout_s: float) -> int:
        """Its exit status; -1 if a signal ended it. Raises HostUnreachable."""
        if not self._channel.status_event.wait(timeout_s):
            raise self._late(timeout_s)
        self._reader.join(timeout_s)
        status = self._channel.exit_status
        if status == -1 and not self._transport_lives():
            raise self._lost()
        return status

    def close(self) -> None:
        with suppress(Exception):
            self._channel.close()

    def _receive(self, until: float | None) -> bytes:
        """b"": no more comes. Raises TimeoutError, HostUnreachable."""
        while True:
            try:
                data = self._channel.recv(_CHUNK)
            except TimeoutError:
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError(f"host {self._host.name}: {self._what} says nothing") from None
                continue
            if not data and not self._transport_lives() and self._channel.exit_status == -1:
                raise self._lost()
            return data

    def _send_all(self, input: bytes | IO[bytes], timeout_s: float) -> None:
        with suppress(HostError):  # it ended, or is lost: whoever reads it says so
            if isinstance(input, bytes):
                self.send(input, timeout_s)
            else:
                while piece := input.read(_CHUNK):
                    self.send(piece, timeout_s)
        self.end_input()

    def _read_complaints(self) -> None:
        with suppress(EOFError, paramiko.SSHException):
            while True:
                try:
                    data = self._channel.recv_stderr(_CHUNK)
                except TimeoutError:
                    continue
                except OSError:
                    break
                if not data:
                    break
                if self._begun.is_set():
                    self._complaints = (self._complaints + data)[-_MOST_COMPLAINTS:]
                else:
                    self._look_for_marks(data)
        self._begun.set()

    def _look_for_marks(self, data: bytes) -> None:
        self._seen += data
        while (found := _MARKS.search(self._seen)) is not None:
            self._complaints += self._seen[: found.start()]
            self._seen = self._seen[found.end() :]
            if found[0] == _PROMPT.encode():
                self._asked += 1
                self._answer()
            else:
                self._complaints, self._seen, self._is_sudo = self._seen, b"", False
                self._begun.set()
                return

    def _answer(self) -> None:
        if self._asked == 1:
            self.send(self._password.encode() + b"\n")
        else:  # another one would be counted as an attack
            self.end_input()

    def _wait_until_begun(self) -> None:
        begun = self._begun.wait(_SUDO_PATIENCE_S)
        self._password = ""
        if begun and not self._is_sudo:
            return
        said = (self._complaints + self._seen).decode(errors="replace")
        status = self._channel.exit_status if self._channel.status_event.wait(1.0) else -1
        lives = self._transport_lives()
        self.close()
        if not begun:
            raise HostUnreachable(f"host {self._host.name}: sudo says nothing for {_SUDO_PATIENCE_S:g} s")
        if not lives:
            raise self._lost()
        raise HostRefused(f"host {self._host.name}: {self._why_no_sudo(said, status)}")

    def _why_no_sudo(self, said: str, status: int) -> str:
        user = f"user {self._transport.get_username()}"
        if status == _NOT_FOUND or "No such file" in said:
            return "there is no sudo: install it, or log in as root, or give sudo = false if that user may do it all"
        if self._asked > 1 or "incorrect password" in said:
            return f"sudo does not take the password of {user}: correct what sudo_password refers to"
        if "password is required" in said:
            return (
                f"sudo wants a password of {user}: give sudo_password = env:NAME or file:PATH, or let sudoers have "
                "NOPASSWD"
            )
        if "not in the sudoers" in said or "not allowed" in said or "may not run" in said:
            return f"{user} may not use sudo for everything: let sudoers have it"
        if "tty" in said:
            return f"sudo wants a terminal of {user}: let sudoers have !requiretty"
        return f"sudo does not work for {user} ({' '.join(said.split())[:200] or f'exit status {status}'})"

    def _transport_lives(self) -> bool:
        return bool(self._transport.is_active())

    def _late(self, timeout_s: float) -> HostUnreachable:
        return HostUnreachable(f"host {self._host.name}: {self._what} has not ended within {timeout_s:g} s")

    def _lost(self) -> HostUnreachable:
        if self._transport_lives():
            return HostUnreachable(f"host {self._host.name}: {self._what} has ended ({self.complaints[-200:]})")
        return HostUnreachable(f"host {self._host.name}: the connection was lost during {self._what}")
