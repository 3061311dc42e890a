"""Commands on hosts over SSH, as a thread would call them: blocking, and from as many threads as one likes.

A connection is made when it is first needed, and anew when it was lost. What was under way then has failed, and its
caller alone knows whether to repeat it.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, Protocol, TypeVar

import paramiko
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from harness.errors import RuntimeUnavailable

from ..hosts_file import Host
from .channel import Channel, Output, sudo_words
from .connecting import Connection, HostError, HostRefused, HostUnreachable, connect

__all__ = [
    "Channel", "HostError", "HostRefused", "HostUnreachable", "Named", "NotOnAll", "Output", "Session", "on_all",
    "together",
]  # fmt: skip

#: Of run() at a time. Those of open() are not counted: a run has three for each of its agents, and sshd's MaxSessions
#: is 10.
_CHANNELS: Final = 7
_LOOK_S: Final = 5.0
_LONGEST_NAME: Final = 60  # of a command, in an error
_LONGEST_WAIT_S: Final = 2.0  # between two attempts to connect


class NotOnAll(RuntimeUnavailable):
    """It did not come to what was asked on every host: a sentence for each that failed. done: on the others, by
    name."""

    def __init__(self, message: str, done: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.done = done


class Named(Protocol):
    @property
    def name(self) -> str: ...


H = TypeVar("H", bound=Named)
T = TypeVar("T")


class Session:
    """With one host. Every method raises HostRefused or HostUnreachable."""

    def __init__(self, host: Host, *, patience_s: float = 0.0, make: Callable[[Host], Connection] = connect) -> None:
        """patience_s: for how long a host that cannot be reached is tried again, each time it is needed."""
        self.host = host
        self.name = host.name
        self.patience_s = patience_s
        self.connections = 0  # that were made so far
        self._make = make
        self._connection: Connection | None = None
        self._connecting = threading.Lock()
        self._failed: tuple[float, HostError] | None = None
        self._closed = False
        self._channels = threading.BoundedSemaphore(_CHANNELS)

    def __repr__(self) -> str:
        return f"Session({self.name!r})"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Now, unless there is a connection."""
        self._connected()

    @property
    def user(self) -> str:
        return self._connected().user

    def run(
        self, command: Sequence[str], *, input: bytes | IO[bytes] = b"", sudo: bool = False, timeout_s: float = 30.0,
        into: IO[bytes] | None = None, what: str = "",
    ) -> Output:  # fmt: skip
        """To its end. into: see Channel.finish. what: what it is called in errors, if not by its words. A command that
        takes longer than timeout_s is HostUnreachable, and may go on there: end it by `timeout` of coreutils if that
        matters."""
        with self._channels:
            channel = self._open(command, sudo, timeout_s, what)
            try:
                return channel.finish(input, timeout_s, into)
            finally:
                channel.close()

    def open(self, command: Sequence[str], *, sudo: bool = False, what: str = "") -> Channel:
        """A process that goes on until its standard input is closed, or it ends by itself. what: as of run()."""
        return self._open(command, sudo, _LOOK_S, what)

    def round_trip_s(self, attempts: int = 3) -> float:
        """The shortest of some, to the SSH server and back."""
        transport = self._connected().transport
        took = []
        for _ in range(attempts):
            started = time.monotonic()
            try:
                transport.global_request("keepalive@openssh.com", wait=True)
            except (paramiko.SSHException, EOFError, OSError) as error:
                raise HostUnreachable(f"host {self.name}: the connection was lost ({error})") from None
            took.append(time.monotonic() - started)
        if not transport.is_active():
            raise HostUnreachable(f"host {self.name}: the connection was lost")
        return min(took)

    def drop(self) -> None:
        """The connection, which is made anew when it is needed again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """For good."""
        self._closed = True
        self.drop()

    def _open(self, command: Sequence[str], sudo: bool, timeout_s: float, what: str) -> Channel:
        """One that is found dead is made anew, once: nothing was asked of the host yet."""
        what = what or shlex.join(command)[:_LONGEST_NAME]
        for attempt in (1, 2):
            connection = self._connected()
            words, password = list(command), ""
            is_sudo = sudo and self.host.sudo and connection.user != "root"
            if is_sudo:
                words, password = sudo_words(self.host, words)
            try:
                opened = connection.transport.open_session(timeout=max(timeout_s, _LOOK_S))
                opened.exec_command(shlex.join(words))
            except (paramiko.SSHException, EOFError, OSError) as error:
                if connection.is_alive or attempt == 2:
                    raise HostUnreachable(f"host {self.name}: no command can be started ({error})") from None
                continue
            return Channel(self.host, opened, what, password, is_sudo=is_sudo)
        raise AssertionError("the second attempt returns or raises")

    def _connected(self) -> Connection:
        asked_at = time.monotonic()
        if (found := self._connection) is not None and found.is_alive:
            return found
        with self._connecting:
            if (found := self._connection) is not None and found.is_alive:
                return found
            if self._failed is not None and self._failed[0] >= asked_at:
                raise self._failed[1]  # somebody else has tried while we waited for our turn
            self.drop()
            try:
                self._connection = found = self._patiently()
            except HostError as error:
                self._failed = (time.monotonic(), error)
                raise
            self._failed = None
            self.connections += 1
            return found

    def _patiently(self) -> Connection:
        until = stop_after_delay(self.patience_s)
        for attempt in Retrying(
            retry=retry_if_exception_type(HostUnreachable), wait=wait_random_exponential(0.2, _LONGEST_WAIT_S),
            stop=lambda state: self._closed or until(state), reraise=True,
        ):  # fmt: skip
            with attempt:
                if self._closed:
                    raise HostRefused(f"host {self.name}: its session was closed")
                return self._make(self.host)
        raise AssertionError("it is tried once at least")


def together(hosts: Iterable[H], work: Callable[[H], T], *, at_most: int = 32) -> dict[str, T | HostError]:
    """work(host) for all of them at once, in threads: by name, in the order of `hosts`, what it returned, or why there
    was none of it. Any other exception is raised once all have ended."""
    each = list(hosts)
    found: dict[str, T | HostError] = {}
    with ThreadPoolExecutor(max(1, min(at_most, len(each))), "hosts") as pool:
        futures = {host.name: pool.submit(work, host) for host in each}
        for name, future in futures.items():
            error = future.exception()
            found[name] = error if isinstance(error, HostError) else future.result()
    return found


def on_all(hosts: Iterable[H], work: Callable[[H], T]) -> dict[str, T]:
    """As together(). Raises NotOnAll once all have ended."""
    found = together(hosts, work)
    done = {name: each for name, each in found.items() if not isinstance(each, HostError)}
    if failed := [str(each) for each in found.values() if isinstance(each, HostError)]:
        raise NotOnAll("; ".join(failed), done)
    return done
