"""Events in JSON: an object a line, or one array of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from spark_history.jepsen.events.event import Event, make_event
from spark_history.jepsen.events.forms import Forms, Garbage
from spark_history.jepsen.events.text import TextFile

_SKIP: Final = re.compile(r"[\s,]*")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
#: Group 1: half a character, which no text in UTF-8 can hold. Java cuts long messages anywhere.
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_decode = json.JSONDecoder().raw_decode


def json_events(file: TextFile) -> Iterator[Event]:
    """Raises HistoryError."""
    forms = _JsonForms(file)
    number = 0
    for lines in file.lines():
        for line in lines:
            number += 1
            for since, each in forms.add(number, line):
                yield make_event(file.path, since, each)
    for since, each in forms.end(number):
        yield make_event(file.path, since, each)


class _JsonForms(Forms[dict[str, Any]]):
    def parse(self, text: str) -> tuple[list[dict[str, Any]], str]:
        if _SURROGATE.search(text):
            text = _ESCAPE.sub(lambda match: match[0] if match[1] is None else "\\ufffd", text)
        at = _skip(text, 0)
        if not self.begun and text[at : at + 1] == "[":
            self.opened = "["
            at = _skip(text, at + 1)
        self.begun = True
        found: list[dict[str, Any]] = []
        while at < len(text):
            if text[at] == "]" and self.opened and not self.ended:
                self.ended = True
                at = _skip(text, at + 1)
                continue
            if self.ended or text[at] != "{":
                raise Garbage("it is not JSON", found)
            try:
                each, at = _decode(text, at)
            except json.JSONDecodeError as error:
                if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
                    return found, text[at:]
                raise Garbage(f"it is not JSON ({error.msg})", found) from None
            except (ValueError, RecursionError):
                raise Garbage("it is not JSON that can be read", found) from None
            found.append(each)
            at = _skip(text, at)
        return found, ""


def _skip(text: str, at: int) -> int:
    match = _SKIP.match(text, at)
    return at if match is None else match.end()
