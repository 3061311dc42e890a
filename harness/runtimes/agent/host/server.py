"""Answers requests on the agent's socket, each of them once: who asks again, after a lost connection, gets what the
first asking came to."""

from __future__ import annotations

import json
import os
import socketserver
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from .. import verbs
from ..verbs import Verb
from . import holding
from .machine import HostMachine

_KEPT: Final = 4_000  # answers
_LONGEST_REQUEST: Final = 4 << 20
_LONGEST_ANSWER: Final = 8 << 20
_LONGEST_ERROR: Final = 10_000


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


_VERBS: Final[Mapping[str, Verb]] = {
    # Those of every machine, as a host does them.
    **{name: Verb(getattr(HostMachine, verb.call.__name__), verb.arguments) for name, verb in verbs.VERBS.items()},
    "configure": Verb(HostMachine.configure, {"text": _is_text}),
    "configuration": Verb(HostMachine.configuration, {}),
    "boot": Verb(HostMachine.boot, {}),
    "running": Verb(HostMachine.running, {}),
    "ended": Verb(HostMachine.ended, {"patience": verbs.is_seconds}),
    "last_words": Verb(HostMachine.last_words, {}),
    "freezes": Verb(HostMachine.freezes, {}),
    "freeze": Verb(HostMachine.freeze, {}),
    "thaw": Verb(HostMachine.thaw, {}),
    "is_frozen": Verb(HostMachine.is_frozen, {}),
    "set_clock": Verb(HostMachine.set_clock, {"offset_s": _is_number, "drift": _is_number}),
    "clock_offset_s": Verb(HostMachine.clock_offset_s, {}),
    "reboot": Verb(HostMachine.reboot, {}),
    "rebooted": Verb(HostMachine.rebooted, {}),
    "monotonic_ns": Verb(HostMachine.monotonic_ns, {}),
}


def verbs_of(kind: type[HostMachine]) -> dict[str, Verb]:
    """What can be asked of such a host, as it does that."""
    return {
        name: Verb(getattr(kind, verb.call.__name__), verb.arguments)
        for name, verb in _VERBS.items() if name not in kind.refuses
    }  # fmt: skip


class Answers:
    """What requests came to, by their ids."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Any]) -> None:
        self._answer = answer
        self._known: OrderedDict[str, Future[str]] = OrderedDict()
        self._lock = threading.Lock()
        self.heard = time.monotonic()

    def to(self, line: bytes) -> str:
        """One JSON object."""
        self.heard = time.monotonic()
        try:
            request = json.loads(line)
            name = str(request.pop("id"))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            return json.dumps({"error": f"a request is one JSON object with an id: {error}"})
        with self._lock:
            known = self._known.get(name)
            if known is None:
                mine = self._known[name] = Future()
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        if known is not None:
            return known.result()
        try:
            reply = json.dumps({"result": self._answer(request)})
            if len(reply) > _LONGEST_ANSWER:
                raise ValueError(f"the answer has {len(reply):,} bytes, more than anybody reads")
        except Exception as error:  # the harness decides what a failed request means
            reply = json.dumps({"error": f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]})
        mine.set_result(reply)
        return reply


class _Connection(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        while line := self.rfile.readline(_LONGEST_REQUEST):
            self.wfile.write(self.server.answers.to(line).encode() + b"\n")


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path, machine: HostMachine) -> None:
        machines = {machine.name: machine}
        answered = verbs_of(type(machine))
        self.answers = Answers(lambda request: verbs.answer(machines, request, answered))
        path.unlink(missing_ok=True)
        old = os.umask(0o177)
        try:
            super().__init__(str(path), _Connection)
        finally:
            os.umask(old)

    def serve_until(self, rescue_after_s: float) -> None:
        """Returns once nobody has asked anything for so long."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        while True:
            silent = time.monotonic() - self.answers.heard
            holding.hear(self.answers.heard)
            if silent > rescue_after_s:
                return
            time.sleep(min(0.5, rescue_after_s / 5))
