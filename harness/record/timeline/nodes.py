"""What nodes logged and traced in a span of time, line by line, of files that may be large, damaged or hostile.

Of a file that is larger than is read at once, the place where the span begins is searched for: lines are written in
order of time, but for what is held back for a moment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, Literal

from harness.record.timeline.clock import Shift, WallClock
from spark_history.regular import NotRegular, require_regular

Kind = Literal["log", "trace", "fault", "operation"]
Span = tuple[int, int]

#: Characters of a line that are kept: whoever writes longer ones does not do so to be read.
MOST_TEXT: Final = 2000
_AT_ONCE: Final = 8 << 20  # bytes of a file
_MOST_READ: Final = 64 << 20  # bytes of a file in one span
_HELD_NS: Final = 1_000_000_000  # a line may be so much older than those in front of it
_LOG4J: Final = re.compile(r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d),(\d{3})\] (\w+) (.*)$", re.DOTALL)
_LOGGER: Final = re.compile(r" \(([\w.$]+)\)$")
_FOLLOWING: Final = 12  # lines of a stack trace that are kept
_SEVERE: Final = frozenset({"WARN", "WARNING", "ERROR", "FATAL", "CRITICAL"})


@dataclass(frozen=True, order=True)
class Line:
    """time: monotonic ns. node: who says it; "" of faults and operations. where: of which partition, if that is
    known. level: of a log."""

    time: int
    node: str
    kind: Kind
    text: str
    where: str = ""
    level: str = ""

    @property
    def severe(self) -> bool:
        return self.level.upper() in _SEVERE


def log_lines(path: Path, span: Span, clock: WallClock | None, shifts: Sequence[Shift] = ()) -> Iterator[Line]:
    """Of a node's log, JSON with monotonic times or Log4j's with wall times; a line without a time belongs to the one
    before it. Nothing of a file that is not there or is no file."""
    node = path.name.removesuffix(".log")

    def time_of(text: str) -> int | None:
        if text.startswith('{"time":'):
            digits = text[8:40].lstrip().partition(",")[0]
            return int(digits) if digits.isdecimal() else None
        if clock is not None and (found := _LOG4J.match(text[:200])):
            wall = _seconds(found[1])
            return None if wall is None else clock.monotonic(wall + int(found[2]) * 1_000_000, shifts)
        return None

    line: Line | None = None
    following: list[str] = []
    for text in _lines(path, span, time_of):
        time = time_of(text)
        if time is None:
            following.append(text)
            continue
        if line is not None:
            yield _whole(line, following)
        following = []
        line = _parsed(node, time, text) if span[0] <= time <= span[1] else None
    if line is not None:
        yield _whole(line, following)


def trace_lines(path: Path, span: Span) -> Iterator[Line]:
    """Of a node's trace (cluster_image/telemetry/trace.py)."""
    node = path.name.removesuffix(".jsonl")

    def time_of(text: str) -> int | None:
        digits = text[8:40].partition(",")[0] if text.startswith('{"time":') else ""
        return int(digits) if digits.isdecimal() else None

    for text in _lines(path, span, time_of):
        time = time_of(text)
        if time is None or not span[0] <= time <= span[1]:
            continue
        try:
            row = json.loads(text)
            fields = ", ".join(f"{name} {_value(value)}" for name, value in row["fields"].items())
            yield Line(time, node, "trace", f"{row['event']}{fields and ': ' + fields}"[:MOST_TEXT], str(row["where"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _value(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


def _parsed(node: str, time: int, text: str) -> Line:
    if text.startswith("{"):
        try:
            row = json.loads(text)
            rest = {key: value for key, value in row.items() if key not in ("time", "level", "logger", "message")}
            where = str(rest.pop("partition", ""))
            more = ", ".join(f"{key} {_value(value)}" for key, value in rest.items())
            logger = str(row.get("logger", "")).rpartition(".")[2]
            told = f"{logger}: {row.get('message', '')}{more and ': ' + more}"
            return Line(time, node, "log", told[:MOST_TEXT], where, str(row.get("level", "")))
        except (ValueError, AttributeError):
            return Line(time, node, "log", text[:MOST_TEXT])
    found = _LOG4J.match(text)
    assert found is not None  # it has a time
    told = found[4].rstrip("\n")
    if by := _LOGGER.search(told):
        told = f"{by[1].rpartition('.')[2]}: {told[: by.start()]}"
    return Line(time, node, "log", told[:MOST_TEXT], level=found[3])


def _whole(line: Line, following: Sequence[str]) -> Line:
    if not following:
        return line
    shown = following[:_FOLLOWING] if line.severe else []
    more = [f"({len(following) - len(shown):,} more lines)"] if len(following) > len(shown) else []
    text = "\n".join([line.text, *shown, *more])[:MOST_TEXT]
    return Line(line.time, line.node, line.kind, text, line.where, line.level)


@lru_cache(maxsize=4096)
def _seconds(text: str) -> int | None:
    """Of a wall clock in UTC, in ns."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000_000
    except ValueError:
        return None


def _lines(path: Path, span: Span, time_of: Callable[[str], int | None]) -> Iterator[str]:
    try:
        require_regular(path)
        with path.open("rb") as file:
            size = path.stat().st_size
            start = 0 if size <= _AT_ONCE else _place(file, size, span[0] - _HELD_NS, time_of)
            file.seek(start)
            read = 0
            while raw := file.readline(_AT_ONCE):
                read += len(raw)
                text = raw.decode(errors="replace").rstrip("\r\n")
                time = time_of(text)
                if read > _MOST_READ or (time is not None and time > span[1] + _HELD_NS):
                    return
                yield text
    except (OSError, NotRegular):
        return


def _place(file: BinaryIO, size: int, since: int, time_of: Callable[[str], int | None]) -> int:
    """The start of a line, before all lines that are not older."""
    low, high = 0, size
    while high - low > _HELD_BYTES:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline(_AT_ONCE)
        place = file.tell()
        time = None
        while time is None and (raw := file.readline(_AT_ONCE)):
            time = time_of(raw.decode(errors="replace"))
        if time is None or time >= since:
            high = middle
        else:
            low = min(place, high)
    file.seek(low)
    if low:
        file.readline(_AT_ONCE)
    return file.tell()


_HELD_BYTES: Final = 1 << 16
