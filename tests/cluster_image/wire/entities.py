"""Random valid kio entities of any type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_OTHERS: dict[str, Callable[[Random], Any]] = {
    "uint16": lambda r: r.getrandbits(16),
    "uint32": lambda r: r.getrandbits(32),
    "float64": lambda r: r.random(),
    "bool": lambda r: r.random() < 0.5,
    "error_code": lambda r: r.choice(list(ErrorCode)),
    "string": lambda r: "ä" * r.choice((0, 3, 130)),
    "bytes": lambda r: r.randbytes(r.choice((0, 5, 300))),
    "records": lambda r: r.randbytes(r.choice((0, 9, 20_000))),
    "uuid": lambda r: UUID(int=r.getrandbits(128)),
    "timedelta_i32": lambda r: timedelta(milliseconds=r.getrandbits(30)),
    "timedelta_i64": lambda r: timedelta(milliseconds=r.getrandbits(40)),
    "datetime_i64": lambda r: datetime.fromtimestamp(r.getrandbits(30), UTC),
}


def random_entity(schema: Any, random: Random) -> Any:
    values = {}
    for field in fields(schema):
        tagged = get_field_tag(field) is not None
        if tagged and field.default is not MISSING and random.random() < 0.5:
            continue
        if not tagged and is_optional(field) and random.random() < 0.3:
            values[field.name] = None
            continue
        kind = classify_field(field)
        if isinstance(kind, EntityField):
            values[field.name] = random_entity(kind.type_, random)
        elif isinstance(kind, EntityTupleField):
            values[field.name] = tuple(random_entity(kind.type_, random) for _ in range(random.randrange(3)))
        elif kind.is_array:
            values[field.name] = tuple(_primitive(field, random) for _ in range(random.randrange(4)))
        else:
            values[field.name] = _primitive(field, random)
    return schema(**values)


def _primitive(field: Any, random: Random) -> Any:
    name = get_schema_field_type(field)
    if name in _INTEGERS:
        half = 1 << (_INTEGERS[name] - 1)
        return random.randrange(-half, half)
    return _OTHERS[name](random)
