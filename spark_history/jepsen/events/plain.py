"""Values of a foreign history, in EDN or JSON, as plain JSON and as text.

spell() keeps values apart that differ, as CALLS needs it: what JSON has no notation for becomes a text that no string
becomes.

| EDN                                     | as JSON                                             |
| --------------------------------------- | --------------------------------------------------- |
| nil, true, 1, 1.5, "a", [1 2], {"a" 1}  | null, true, 1, 1.5, "a", [1, 2], {"a": 1}           |
| :a, \\a                                 | ":a", "\\\\a": as in EDN                            |
| symbols, #{1 2}, 1/2, 1.5M              | "#a", "##{1 2}", "#1/2", "#1.5M": EDN after a #     |
| ":a", "#a" and others that begin so     | "\\":a\\"": in quotes, as in EDN                    |
| {1 2}                                   | {"#1": 2}                                           |
| #tag value                              | as the value                                        |
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_history.jepsen.events import edn
from spark_history.jepsen.events.edn import Char, Keyword, Map, Named, Tagged


def to_json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Named):
        return value.name
    if isinstance(value, Char):
        return value.character
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    if isinstance(value, (frozenset, set)):
        return sorted((_plain(each) for each in value), key=lambda each: (str(type(each)), json.dumps(each), each != 0))
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Tagged):
        return _plain(value.value)
    return edn.write(value)


def _key(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def spell(value: Any) -> Any:
    """What JSON can hold: equal if and only if the values are, but for tags, the order in maps, and 1 and 1.0."""
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str):
        return edn.write(value) if value.startswith(_MARKS) else value
    if isinstance(value, (Keyword, Char)):
        return edn.write(value)
    if isinstance(value, (tuple, list)):
        return [spell(each) for each in value]
    if isinstance(value, dict):
        return spell_map(value, lambda key: f"#{edn.write(key, canonical=True)}")
    if isinstance(value, Tagged):
        return spell(value.value)
    return f"#{edn.write(value, canonical=True)}"


def spell_map(value: Mapping[Any, Any], other: Callable[[Any], str]) -> dict[str, Any]:
    """other: how to spell a key that is no text. Raises ValueError if two keys are spelt alike."""
    spelt = {each if isinstance(each := spell(key), str) else other(key): spell(item) for key, item in value.items()}
    if len(spelt) < len(value):
        raise ValueError(value)
    return spelt


def unspell(value: Any) -> Any:
    """The inverse of spell()."""
    if isinstance(value, str) and value.startswith(_MARKS):
        return edn.read(value[1:] if value[0] == "#" else value)
    if isinstance(value, list):
        return tuple(unspell(each) for each in value)
    if isinstance(value, dict):
        return Map({unspell(key): unspell(each) for key, each in value.items()})
    return value


_MARKS: Final = (":", "\\", "#", '"')


def untag(value: Any) -> Any:
    """Without the tags of records, e.g. #jepsen.independent.Tuple."""
    while isinstance(value, Tagged):
        value = value.value
    return value


def plain_text(value: Any) -> str:
    """An error as people read it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Named):
        return value.name
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Keyword):
        return " ".join([value[0].name, *(edn.write(each) for each in value[1:] if each is not None)])
    return edn.write(value)
