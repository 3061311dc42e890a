"""An event of a foreign history, whichever way it is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from spark_history.errors import HistoryError
from spark_history.jepsen.events import edn
from spark_history.jepsen.events.edn import Named

TYPES: Final = ("invoke", "ok", "fail", "info")


MOST_TIME: Final = 1 << 62  # ns; what is no such number is no time


class Event(NamedTuple):
    line: int  # where its text begins, from 1
    type: str  # one of TYPES
    process: int | str | None  # str: not a client, e.g. nemesis
    f: str | None
    value: Any  # as edn.py or json gives it
    time: int | None
    more: Mapping[str, Any]  # the other fields, by name
    has_value: bool = True  # False: there is no :value, which says less than a nil does; `value` is None


NOTHING_MORE: Final[Mapping[str, Any]] = {}


def make_event(path: Path, line: int, fields: Mapping[Any, Any]) -> Event:
    """Of a map whose keys are keywords or strings."""
    named = {plain_name(key): value for key, value in fields.items()}
    kind = plain_name(named.pop("type", None))
    if kind not in TYPES:
        known = "names no :type" if kind is None else f"has a :type {short(str(kind))}"
        raise HistoryError(f"{path} line {line}: the operation {known}; valid are {', '.join(TYPES)}")
    process = named.pop("process", None)
    if isinstance(process, Named):
        process = process.name
    elif isinstance(process, str) and process.lstrip("-").isdigit():
        process = int(process)
    elif not (process is None or isinstance(process, (int, str))) or isinstance(process, bool):
        raise HistoryError(f"{path} line {line}: {short(str(process))} is no :process")
    f = named.pop("f", None)
    time = named.pop("time", None)
    if not isinstance(time, int) or not -MOST_TIME < time < MOST_TIME:
        time = None
    named.pop("index", None)
    has_value = "value" in named
    return Event(
        line, kind, process, None if f is None else str(plain_name(f)), named.pop("value", None),
        time, named or NOTHING_MORE, has_value,
    )  # fmt: skip


def plain_name(key: Any) -> Any:
    """:f, "f" and ":f" are the same name."""
    return key.name if isinstance(key, Named) else key.removeprefix(":") if isinstance(key, str) else key


def short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def says_nothing(path: Path, event: Event) -> HistoryError:
    """Of an ok completion without the value that it would have to have."""
    what = event.f or "operation"
    reported = "its :value is nil" if event.has_value else "it has no :value"
    return HistoryError(f"{path} line {event.line}: this {what} is ok, but does not say what it found: {reported}")


def shown(value: Any) -> str:
    """A value as messages name it."""
    return short(edn.write(value))
