"""A host that is none: a session with it, and the agent there."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, Final

from harness.runtimes.ssh.connection.sessions import HostError, HostUnreachable, Output

#: Of an agent's commands, what each prints.
_OUTPUTS: Final = {
    "serve": '{"pid": 1, "boot": "BOOT"}', "boot": "BOOT\n", "remove": "[]", "sh": "", "connect": "",
    "status": '{"held": true, "holder": {}, "silent_s": 0.1, "found": {}}',
}  # fmt: skip


class StandIn:
    """A session with a host. state: "well", "frozen" (TCP stays, nobody answers), "down" (nobody is reached) or "gone"
    (it is there, and no agent)."""

    patience_s = 10.0

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.state = "well"
        self.boot = "boot 1"
        self.takes_s: dict[str, float] = {}  # by what is asked
        self.nonsense: list[bytes] = []  # what is answered next, before the channel ends
        self.asked: Counter[str] = Counter()
        self.ids: list[str] = []
        self.results: dict[str, Any] = {}  # by what is asked; else a time of its clock
        self.ran: list[str] = []  # commands, by their last word that is one of the agent's
        self.outputs: dict[str, list[Output | HostError]] = {}  # by such a word, one after the other; then it is well
        self.closed = False

    def open(self, command: list[str], *, sudo: bool, what: str = "") -> Channel:
        if self.state == "down":
            raise HostUnreachable(f"host {self.name}: nobody answers")
        return Channel(self)

    def run(self, command: list[str], *, input: Any = b"", sudo: bool = False, timeout_s: float = 30.0) -> Output:
        word = next((word for word in reversed(command) if word in _OUTPUTS), "sh")
        time.sleep(self.takes_s.get(word, 0.0))
        self.ran.append(word)
        if self.state == "down":
            raise HostUnreachable(f"host {self.name}: nobody answers")
        if given := self.outputs.get(word):
            output = given.pop(0)
            if isinstance(output, HostError):
                raise output
            return output
        return Output(0, _OUTPUTS[word].replace("BOOT", self.boot).encode(), "")

    def drop(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Channel:
    def __init__(self, host: StandIn) -> None:
        self._host = host
        self._asked: dict[str, Any] = {}
        self._closed = False
        self._ready_at = 0.0
        self.complaints = ""

    def send(self, request: bytes) -> None:
        self._asked = json.loads(request)
        self._host.asked[self._asked["do"]] += 1
        self._host.ids.append(self._asked["id"])
        self._ready_at = time.monotonic() + self._host.takes_s.get(self._asked["do"], 0.0)

    def readline(self, timeout_s: float) -> bytes:
        until = time.monotonic() + timeout_s
        while True:
            if self._closed or self._host.state == "down":
                raise HostUnreachable(f"host {self._host.name}: the connection was lost")
            if self._host.state == "gone":
                self.complaints = self._host.boot
                return b""
            if self._host.state == "well" and time.monotonic() >= self._ready_at:
                if self._host.nonsense:
                    return self._host.nonsense.pop()
                result = self._host.results.get(self._asked["do"], time.monotonic_ns())
                return json.dumps({"result": result}).encode() + b"\n"
            if time.monotonic() >= until:
                raise TimeoutError
            time.sleep(0.005)

    def wait(self, timeout_s: float) -> int:
        return 4 if self._host.state == "gone" else 0

    def close(self) -> None:
        self._closed = True
