"""What all drivers in Python share: reading commands, saying what came of them, and settings as their clients want
them."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

#: Of deliveries one after the other, as long as one line tells of them: the times of all are that of the last.
MOST_NS = 2_000_000


class Output:
    """Lines to the harness. Any thread may say something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file = sys.stdout.buffer
        sys.stdout = sys.stderr  # what a client prints is no answer

    def say(self, what: str, **fields: Any) -> None:
        line = json.dumps({"is": what, **fields}, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()


class Deliveries:
    """What became of values, told in runs: those whose values and offsets count up. Of one producer; not for several
    threads at a time."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._first = self._count = self._began = self._complete = 0
        self._offset = -1
        self._error: tuple[str, str, str] | None = None  # its name, stage and text

    def add(self, value: int, offset: int, error: tuple[str, str, str] | None = None) -> None:
        now = time.monotonic_ns()
        follows = self._offset + self._count if self._offset >= 0 else -1
        if (
            self._count
            and value == self._first + self._count
            and offset == follows
            and error == self._error
            and now - self._began < MOST_NS
        ):
            self._count += 1
        else:
            self.tell()
            self._first, self._count, self._offset, self._error, self._began = value, 1, offset, error, now
        self._complete = now

    def tell(self) -> None:
        """What has not been told."""
        if not self._count:
            return
        result: dict[str, Any] = {"offset": self._offset}
        if self._error is not None:
            name, stage, text = self._error
            result = {"error": name, "stage": stage, "says": text}
        self._output.say("produced", first=self._first, count=self._count, complete=self._complete, **result)
        self._count = 0


class Positions:
    """Where a consumer stands in each partition, and what it was handed, told in runs."""

    def __init__(self, output: Output, client: int) -> None:
        self._output = output
        self._client = client
        self._next: dict[int, int] = {}

    def assign(self, positions: Mapping[int, int]) -> None:
        self._next = dict(positions)

    def told(self, records: Mapping[int, Iterable[tuple[int, int]]], invoke: int) -> None:
        """records: (offset, value) by partition, as one poll returned them, which began at `invoke`."""
        complete = time.monotonic_ns()
        for partition, of in records.items():
            if partition not in self._next:  # of an assignment before
                continue
            runs: list[list[int]] = []
            start = following = self._next[partition]
            for offset, value in of:
                if runs and offset == runs[-1][0] + runs[-1][2] and value == runs[-1][1] + runs[-1][2]:
                    runs[-1][2] += 1
                else:
                    runs.append([offset, value, 1])
                following = offset + 1
            self._next[partition] = following
            fields = {"from": start, "invoke": invoke, "complete": complete, "runs": runs}
            self._output.say("read", client=self._client, partition=partition, **fields)

    def stuck(self, partition: int | None, error: str, says: str) -> None:
        self._output.say("stuck", client=self._client, partition=partition, error=error, says=says)


def commands() -> Iterator[dict[str, Any]]:
    """Until the harness has nothing more to say, or is gone."""
    for line in sys.stdin.buffer:
        yield decode(line)


def decode(line: bytes) -> dict[str, Any]:
    """A command."""
    command: dict[str, Any] = json.loads(line)
    return command


def key_of(value: int, keys: int) -> bytes | None:
    return (value % keys).to_bytes(8) if keys else None


def int64(data: bytes) -> int:
    return int.from_bytes(data, signed=True)


#: Of settings, those whose values are texts though they may look like numbers.
_AS_THEY_ARE = frozenset({
    "sasl_plain_username", "sasl_plain_password", "ssl_password", "ssl_cafile", "ssl_certfile", "ssl_keyfile",
})  # fmt: skip


def typed(given: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as texts, those that are among the defaults alone, in the types of these. Raises ValueError, a
    sentence."""
    return {name: _typed(name, text, defaults[name]) for name, text in given.items() if name in defaults}


def _typed(name: str, text: str, default: Any) -> Any:
    if name in _AS_THEY_ARE:
        return text
    if default is None and text.lower() in ("none", "null"):
        return None
    if isinstance(default, bool) or (default is None and text.lower() in ("true", "false")):
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} is {text!r}; it must be true or false")
        return text.lower() == "true"
    kinds: tuple[Callable[[str], Any], ...] = (int, float, str)
    if isinstance(default, int | float) and name != "acks":
        kinds = (int, float)
    elif isinstance(default, str):
        kinds = (str,)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"{name} is {text!r}; it must be a number")
