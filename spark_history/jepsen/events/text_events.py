"""Events as Jepsen logs and prints them: process, type, f, value and error, a line each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from spark_history.errors import HistoryError
from spark_history.jepsen.events import edn
from spark_history.jepsen.events.edn import EdnError
from spark_history.jepsen.events.event import NOTHING_MORE, Event, short
from spark_history.jepsen.events.text import TextFile

_LONGEST_KEPT: Final = 48
_MOST_KEPT: Final = 1 << 17
#: What a logger puts before it ends with the name of the logging namespace, or with a dash.
TEXT_LINE: Final = re.compile(
    r"(?:^|\s-\s+(?:jepsen\.\S+\s+)?|jepsen\.\S+\s+-?\s*)(-?\d{1,18}|:[\w-]+)"
    r"\s+:(invoke|ok|fail|info)\s+:(\S+)[ \t]*(.*?)\s*$"
)


def text_events(file: TextFile) -> Iterator[Event]:
    """The last line is left out if it does not end: `12` may have been cut to `1`. Raises HistoryError."""
    kept: dict[str, tuple[Any, Mapping[str, Any]]] = {"": (None, NOTHING_MORE)}
    number = 0
    for lines in file.lines():
        for line in lines:
            number += 1
            if not file.ends_with_newline:
                if line.strip("\0 \t\r"):
                    file.notes.append(f"{file.path} ends within line {number}: that line is left out")
                return
            found = TEXT_LINE.search(line)
            if found is None:
                continue
            process, kind, f, text = found.groups()
            if text in kept:
                value, more = kept[text]
            else:
                value, more = _value_and_error(file.path, number, kind, process, text)
                if len(kept) < _MOST_KEPT and len(text) <= _LONGEST_KEPT:
                    kept[text] = value, more
            who = process[1:] if process[0] == ":" else int(process)
            yield Event(number, kind, who, f, value, None, more, text != "")


def _value_and_error(path: Path, line: int, kind: str, process: str, text: str) -> tuple[Any, Mapping[str, Any]]:
    """What stands after :f. Prose, as nemeses and exceptions write it, is an error."""
    try:
        forms = edn.read_all(text)
    except EdnError as error:
        if kind in ("info", "fail") or process[0] == ":":
            return None, {"error": text}
        raise HistoryError(f"{path} is damaged at line {line}: {short(text)} is no value ({error})") from None
    more = {"error": forms[1] if len(forms) == 2 else tuple(forms[1:])} if len(forms) > 1 else NOTHING_MORE
    return forms[0] if forms else None, more
