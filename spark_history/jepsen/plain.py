"""Values of a foreign history, in EDN or JSON, as plain JSON and as text."""

from __future__ import annotations

import json
from typing import Any

from spark_history.jepsen import edn
from spark_history.jepsen.edn import Char, Keyword, Named, Tagged


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
