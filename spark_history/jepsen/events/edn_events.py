"""Events in EDN.

Jepsen prints all operations with their fields in the same few orders, so each order that was met becomes one regular
expression for the lines to come, and the text of a short value that was met before is not read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_history.jepsen.events import edn
from spark_history.jepsen.events.edn import EdnError, Incomplete, Keyword, Map, Tagged
from spark_history.jepsen.events.event import NOTHING_MORE, Event, make_event, short
from spark_history.jepsen.events.forms import Forms, Garbage
from spark_history.jepsen.events.text import TextFile


@dataclass(frozen=True)
class _Template:
    """Lines with their fields in one order. The positions are those of groups; -1: there is no such field."""

    match: Callable[[str], re.Match[str] | None]
    type: int
    process: int
    f: int
    value: int
    time: int
    more: Sequence[tuple[str, int]]


_MOST_TEMPLATES: Final = 16
_PLAIN: Final = ("[[", '["')
_LONGEST_KEPT: Final = 48
_MOST_KEPT: Final = 1 << 17
_FIELD: Final = {
    "type": r":(invoke|ok|fail|info)", "process": r"(-?\d{1,18}|:[\w-]+)", "time": r"(-?\d{1,18})",
    "index": r"-?\d{1,18}", "f": r":([^\s,;\"\[\](){}\\]+)",
}  # fmt: skip
_VALUE: Final = r"(.*[^\s,])"


def _template(line: str, names: Sequence[str]) -> _Template | None:
    """names: of the fields of the line, in order."""
    pattern = "[,\\s]+".join(f":{re.escape(name)} +{_FIELD.get(name, _VALUE)}" for name in names)
    match = re.compile(rf"\s*\{{{pattern}\}}[\s,]*").fullmatch
    if "type" not in names or len(set(names)) < len(names) or match(line) is None:
        return None
    groups = {name: number for number, name in enumerate(name for name in names if name != "index")}
    position = {name: groups.get(name, -1) for name in ("type", "process", "f", "value", "time")}
    more = [(name, group) for name, group in groups.items() if name not in position]
    return _Template(match, more=more, **position)


def edn_events(file: TextFile) -> Iterator[Event]:
    templates: list[_Template] = []
    kept: dict[Any, Any] = {None: None}  # values by their text
    processes: dict[Any, int | str | None] = {None: None}
    slow = _EdnForms(file)
    line_number = 0
    for lines in file.lines():
        for line in lines:
            line_number += 1
            if not slow.pending:
                found = template = None
                for template in templates:
                    found = template.match(line)
                    if found is not None:
                        break
                if found is not None and template is not None:
                    texts: tuple[Any, ...] = (*found.groups(), None)
                    try:
                        text = texts[template.value]
                        value = kept[text] if text in kept else _one_form(text, kept)
                        more = {name: edn.read(texts[group]) for name, group in template.more} or NOTHING_MORE
                    except EdnError:
                        pass  # the expression took too much for a value
                    else:
                        text = texts[template.process]
                        process = processes.get(text)
                        if process is None and text is not None:
                            process = text[1:] if text[0] == ":" else int(text)
                            processes[text] = process
                        time = texts[template.time]
                        yield Event(
                            line_number, texts[template.type], process, texts[template.f], value,
                            None if time is None else int(time), more, template.value >= 0,
                        )  # fmt: skip
                        continue
            maps = slow.add(line_number, line)
            for number, each in maps:
                yield make_event(file.path, number, each)
            if len(maps) == 1 and maps[0][0] == line_number and len(templates) < _MOST_TEMPLATES:
                new = _template(line, [key.name for key in maps[0][1] if isinstance(key, Keyword)])
                if new is not None:
                    templates.append(new)  # those with most fields first: the others take these for a value's
                    templates.sort(key=lambda each: -len(each.more))
    for number, each in slow.end(line_number):
        yield make_event(file.path, number, each)


def _one_form(text: str, kept: dict[Any, Any]) -> Any:
    value = _by_json(text) if text[:2] in _PLAIN else None
    if value is None:
        value = edn.read(text)
    if len(text) <= _LONGEST_KEPT:
        if len(kept) > _MOST_KEPT:
            kept.clear()
            kept[None] = None
        kept[text] = value
    return value


def _by_json(text: str) -> Any:
    """A transaction of list-append, `[[:append 3 1] [:r 3 [1]]]`, or what an export of ours says of a log,
    `["topic" 3 [[4 17]]]`, by way of JSON: five times as fast. None: not so plain."""
    if text[1] == '"':
        topic = text.find('"', 2) + 1
        if text.count('"') != 2 or "\\" in text or " " in text[:topic]:
            return None
        plain = text[:topic] + text[topic:].replace("nil", "null")
    elif '"' in text:
        return None
    else:
        plain = text.replace("[:append ", '["append" ').replace("[:r ", '["r" ').replace("nil", "null")
    try:
        return json.loads(plain.replace(" ", ","))
    except ValueError:
        return None


class _EdnForms(Forms[Map]):
    def parse(self, text: str) -> tuple[list[Map], str]:
        words = edn.tokens(text)
        if not words:
            return [], ""
        at = 0
        if not self.begun and words[0] in ("[", "("):
            at = 1
        try:
            if self.ended:
                raise EdnError("there is more after the end of the history")
            forms, closer = edn.read_forms(words[at:])
            if closer is not None:
                if edn.CLOSES.get(words[0] if at else self.opened) != closer:
                    raise EdnError(f"{closer!r} closes nothing")
                self.ended = True
            rest = ""
        except Incomplete as cut:
            forms, rest = list(cut.forms), " ".join(words[at + cut.used :])
            if at and not forms:
                return [], text  # the bracket is met again
        except EdnError as error:
            raise Garbage(str(error), []) from None
        if at:
            self.opened = words[0]
        self.begun = True
        return [_map(form) for form in forms], rest


def _map(form: Any) -> Map:
    while isinstance(form, Tagged):
        form = form.value
    if not isinstance(form, Map):
        raise Garbage(f"{short(edn.write(form))} is no operation", [])
    return form
