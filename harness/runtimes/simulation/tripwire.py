"""Stops a simulated run whose code bypasses the simulation and uses a real clock, unseeded randomness, a thread, a
file, a socket or another process. Such a run could not be repeated exactly.

Functions are replaced where they can be; interpreter audit events (PEP 578) catch the rest, whoever calls. What
neither reaches: names bound before (`from time import monotonic`), methods of C types (`datetime.now`) and what the
interpreter does not tell of (os.stat, os.getpid). The first two are refused by the linter: banned-api in
pyproject.toml.

Python and its standard library do some of this for themselves: reading source and bytecode to import a module or
print a traceback, stamping the time on a log record. That does not reach the simulation and is let through. So is
what finalizers do while garbage is collected: whose it is, and when, depends on all that this process has done before.
"""

from __future__ import annotations

import _thread
import functools
import gc
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

_CLOCK: Final = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns"),
)
_SECRETS: Final = ("choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe")

#: Audit events that mean the same: https://docs.python.org/3/library/audit_events.html
_EVENTS: Final = frozenset(
    (
        *("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir"),
        *("socket.__new__", "socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"),
        *("socket.gethostname", "subprocess.Popen", "os.fork", "os.forkpty", "os.exec"),
        *("os.posix_spawn", "os.spawn", "os.system"),
    )
)

_STANDARD_LIBRARY: Final = os.path.dirname(os.__file__) + os.sep
_INSTALLED_LIBRARIES: Final = ("site-packages", "dist-packages")
#: Parts of file names in the standard library.
_LET_THROUGH: Final = ("<frozen importlib", "<frozen zipimport", f"{os.sep}linecache.py", f"{os.sep}logging{os.sep}")


class OutsideSimulation(BaseException):
    """What was used, and where. Not an Exception: no code may handle it."""


class Tripwire:
    """While installed and `armed`, whatever the thread that installed it uses of the outside raises OutsideSimulation.

    armed: set it while a simulated process runs.
    tripped: the first error raised, should somebody have swallowed it.
    """

    def __init__(self) -> None:
        self.armed = False
        self.tripped: OutsideSimulation | None = None
        self._originals: list[tuple[Any, str, Any]] = []
        self._thread = 0
        self._armed_before_collection = False

    def install(self) -> None:
        """Raises RuntimeError if one is installed."""
        global _installed
        if _installed is not None:
            raise RuntimeError("a tripwire is installed already")
        _hook_audit_events()
        _installed = self
        self._thread = threading.get_ident()
        gc.callbacks.append(self._collecting)
        for name in _CLOCK:
            self._wire(time, name)
        for name in _SECRETS:
            self._wire(secrets, name)
        for name, value in sorted(vars(random).items()):
            if isinstance(getattr(value, "__self__", None), random.Random):  # functions of the module's own generator
                self._wire(random, name)
        for owner, name in (
            (os, "urandom"),
            (os, "getrandom"),
            (random, "_urandom"),  # of SystemRandom, and so of secrets
            (uuid, "uuid1"),
            (uuid, "uuid4"),
            (threading.Thread, "start"),
            (threading, "_start_new_thread"),
            (_thread, "start_new_thread"),
        ):
            if hasattr(owner, name):
                self._wire(owner, name)
        self._wire(random.SystemRandom, "seed", "random.SystemRandom()")
        self._wire(random.Random, "seed", "random.Random() without a seed", unless=_has_seed)

    def remove(self) -> None:
        """Put everything back. Safe to repeat."""
        global _installed
        self.armed = False
        while self._originals:
            owner, name, original = self._originals.pop()
            setattr(owner, name, original)
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)
        if _installed is self:
            _installed = None

    def __enter__(self) -> Tripwire:
        self.install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()

    def _wire(
        self, owner: Any, name: str, what: str = "", unless: Callable[..., bool] = lambda *arguments, **named: False
    ) -> None:
        original = vars(owner)[name]
        what = what or f"{owner.__name__}.{name}()"

        @functools.wraps(original)
        def wired(*arguments: Any, **named: Any) -> Any:
            if self.armed and not unless(*arguments, **named):
                self.trip(what, sys._getframe(1))
            return original(*arguments, **named)

        self._originals.append((owner, name, original))
        setattr(owner, name, wired)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._armed_before_collection, self.armed = self.armed, False
        else:
            self.armed = self._armed_before_collection

    def trip(self, what: str, frame: FrameType | None) -> None:
        """frame: whose code used it."""
        if threading.get_ident() != self._thread:
            return
        where = used_at = frame
        while where is not None and _is_standard_library(where):
            if any(part in where.f_code.co_filename for part in _LET_THROUGH):
                return
            where = where.f_back
        where = where or used_at
        assert where is not None
        code = where.f_code
        error = OutsideSimulation(f"{what} used by {code.co_qualname} at {code.co_filename}:{where.f_lineno}")
        self.tripped = self.tripped or error
        raise error


def _has_seed(generator: random.Random, a: object = None, version: int = 2) -> bool:
    return a is not None


def _is_standard_library(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    if path.startswith("<"):  # frozen modules, and what dataclasses and named tuples generate
        return True
    return path.startswith(_STANDARD_LIBRARY) and not any(part in path for part in _INSTALLED_LIBRARIES)


_installed: Tripwire | None = None


@functools.cache
def _hook_audit_events() -> None:
    """Once a process: an audit hook cannot be removed."""
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    tripwire = _installed
    if tripwire is not None and tripwire.armed and event in _EVENTS:
        tripwire.trip(f"{event}({', '.join(map(_brief, arguments[:1]))})", sys._getframe(1))


def _brief(value: object) -> str:
    return repr(value) if isinstance(value, str | bytes | int) else "…"
