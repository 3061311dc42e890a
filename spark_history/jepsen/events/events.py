"""The events of a foreign history, one after the other, whichever way it is written down.

An event is a map of Jepsen's: `type` (invoke, ok, fail, info), `process` (a number, or a name such as nemesis), `f`
(what was called), `value`, and where the client says so `time`, `error`, `key` and others. Three notations are told
apart by what the file begins with:

* EDN, Jepsen's history.edn: maps one after the other, a line each or over several; or one vector or list of maps;
  records (`#jepsen.history.Op{…}`, and the older tags) count as maps.
* JSON: an object a line, or one array of objects, with the same fields, as elle-cli reads them.
* text, Jepsen's log and history.txt: `INFO  jepsen.util - 3	:invoke	:write	4`, that is process, type, f, value and
  error, with or without what the logger puts before them. Lines of the log that are no operation are skipped.

The last form of a file may be cut off: it is left out and a note says so. Anything else that cannot be read is an error
that names the line.

Measured, CPU time of one core: 260,000 lines/s of registers in EDN, 220,000 in JSON, 690,000 in text; 135,000 of
list-append with reads of 20 elements in EDN; 50,000 where EDN is written in no order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_history.errors import HistoryError
from spark_history.jepsen.events.edn_events import edn_events
from spark_history.jepsen.events.event import Event
from spark_history.jepsen.events.json_events import json_events
from spark_history.jepsen.events.text import TextFile
from spark_history.jepsen.events.text_events import TEXT_LINE, text_events


@dataclass(frozen=True)
class Foreign:
    """A history file that is being read. events: to be gone through once; notes, doubts: complete after that."""

    path: Path
    notation: str  # EDN, JSON or text
    events: Iterator[Event]
    notes: list[str]
    doubts: list[str]


def open_history(path: Path) -> Foreign:
    """Find out how the history in the file is written. Raises HistoryError, as going through the events does."""
    file = TextFile(path)
    notation, read = _notation(file)
    return Foreign(path, notation, read(file), file.notes, file.doubts)


def _notation(file: TextFile) -> tuple[str, Callable[[TextFile], Iterator[Event]]]:
    head = file.head()
    text = _COMMENTS.sub("", head, count=1).lstrip("\0")
    if not text:
        raise HistoryError(f"{file.path} is empty, so there is nothing to judge")
    if _JSON.match(text):
        return "JSON", json_events
    if _EDN.match(text):
        return "EDN", edn_events
    if any(TEXT_LINE.search(line) for line in head.split("\n")) or "jepsen" in head:
        return "text", text_events
    raise HistoryError(f"{file.path} is no history: it holds neither EDN, nor JSON, nor operations as Jepsen logs them")


_COMMENTS: Final = re.compile(r"(?:\s+|;[^\n]*\n)*")
_JSON: Final = re.compile(r'\[?\s*\{\s*"|\[\s*(?:\]|$)')
_EDN: Final = re.compile(r"[\[({#]")
