"""Checks a message's structure before kio's decoder sees it.

kio reserves memory for as many elements as an array claims to have, and a claim of 2^31 aborts the process: no
exception, a dead node. It also rejects messages with tagged fields that it does not know, which the protocol
says to skip (KIP-482). So each message is first walked along its schema: every length must fit, the message
must end where the frame does, and unknown tagged fields are cut out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from cluster_image.wire_encoder import write_uvarint


class InvalidStructure(Exception):
    """A message that does not follow its schema."""


class Cut(NamedTuple):
    """frame[start:end] is a section of tagged fields; `known` is the same without the unknown ones."""

    start: int
    end: int
    known: bytes


#: Follows one part of a message: (frame, position, cuts to add to) -> position after the part.
#: Running off the end of the frame raises IndexError or struct.error.
Walk: TypeAlias = Callable[[bytes, int, list[Cut]], int]

_FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def checked(schema: Any, frame: bytes, position: int, *, flexible_header: bool) -> tuple[bytes, int]:
    """The frame to decode `schema` from, without unknown tagged fields, and the position where it starts there.

    position: where the header's own tagged fields start, or the message if the header is not flexible.
    Raises InvalidStructure.
    """
    cuts: list[Cut] = []
    try:
        if flexible_header:
            position = _NO_KNOWN_TAGS(frame, position, [])
        end = _walk_entity(schema)(frame, position, cuts)
    except (IndexError, struct.error):
        raise InvalidStructure("it ends too early") from None
    if end != len(frame):
        raise InvalidStructure(f"it is followed by {len(frame) - end} bytes too many")
    return (_apply(cuts, frame) if cuts else frame), position


def _apply(cuts: list[Cut], frame: bytes) -> bytes:
    parts, kept = [], 0
    for start, end, known in cuts:
        parts += [frame[kept:start], known]
        kept = end
    return b"".join([*parts, frame[kept:]])


@cache
def _walk_entity(schema: Any) -> Walk:
    flexible = schema.__flexible__
    walks: list[Walk] = []
    fixed = 0  # bytes of fixed-size fields since the last other one: walked in one step
    tagged: dict[int, Walk] = {}
    for field in fields(schema):
        tag = get_field_tag(field)
        if tag is not None:
            tagged[tag] = _walk_field(field, flexible, optional=False)
        elif (size := _fixed_size(field)) is not None:
            fixed += size
        else:
            if fixed:
                walks.append(_skip(fixed))
                fixed = 0
            walks.append(_walk_field(field, flexible, optional=is_optional(field)))
    if fixed:
        walks.append(_skip(fixed))
    if flexible:
        walks.append(_walk_tagged_fields(tagged))
    return walks[0] if len(walks) == 1 else _in_sequence(walks)


def _fixed_size(field: Any) -> int | None:
    kind = classify_field(field)
    if isinstance(kind, EntityField) or kind.is_array:
        return None
    return _FIXED_SIZES.get(get_schema_field_type(field))


def _walk_field(field: Any, flexible: bool, *, optional: bool) -> Walk:
    kind = classify_field(field)
    if isinstance(kind, EntityField):
        entity = _walk_entity(kind.type_)
        return _nullable(entity) if optional else entity
    if isinstance(kind, EntityTupleField):
        return _walk_array(_walk_entity(kind.type_), flexible)
    primitive = get_schema_field_type(field)
    if primitive in _FIXED_SIZES:
        size = _FIXED_SIZES[primitive]
        return _walk_sized(flexible, _INT32, size) if kind.is_array else _skip(size)
    value = _walk_sized(flexible, _INT16 if primitive == "string" else _INT32, 1)
    return _walk_array(value, flexible) if kind.is_array else value


def _skip(size: int) -> Walk:
    return lambda frame, position, cuts: position + size


def _in_sequence(walks: list[Walk]) -> Walk:
    def walk(frame: bytes, position: int, cuts: list[Cut]) -> int:
        for step in walks:
            position = step(frame, position, cuts)
        return position

    return walk


def _nullable(entity: Walk) -> Walk:
    """An entity that may be absent: a byte below zero says so (KIP-893)."""

    def walk(frame: bytes, position: int, cuts: list[Cut]) -> int:
        present = frame[position] < 128
        return entity(frame, position + 1, cuts) if present else position + 1

    return walk


def _read_count(frame: bytes, position: int, flexible: bool, legacy: struct.Struct) -> tuple[int, int]:
    """A length or number of elements, 0 for null, and the position after it."""
    if flexible:
        count, position = _read_uvarint(frame, position)
        return max(count - 1, 0), position
    count = legacy.unpack_from(frame, position)[0]
    return max(count, 0), position + legacy.size


def _walk_sized(flexible: bool, legacy: struct.Struct, element_size: int) -> Walk:
    """A string, bytes, or an array of fixed-size elements."""

    def walk(frame: bytes, position: int, cuts: list[Cut]) -> int:
        count, position = _read_count(frame, position, flexible, legacy)
        end = position + count * element_size
        if end > len(frame):
            raise InvalidStructure(f"a length of {count} where {len(frame) - position} bytes are left")
        return end

    return walk


def _walk_array(element: Walk, flexible: bool) -> Walk:
    def walk(frame: bytes, position: int, cuts: list[Cut]) -> int:
        count, position = _read_count(frame, position, flexible, _INT32)
        if count > len(frame) - position:  # every element has at least one byte
            raise InvalidStructure(f"an array of {count} elements where {len(frame) - position} bytes are left")
        for _ in range(count):
            position = element(frame, position, cuts)
        return position

    return walk


def _walk_tagged_fields(known: dict[int, Walk]) -> Walk:
    def walk(frame: bytes, position: int, cuts: list[Cut]) -> int:
        start = position
        count, position = _read_uvarint(frame, position)
        if not count:
            return position
        kept = []
        for _ in range(count):
            field_start = position
            tag, position = _read_uvarint(frame, position)
            size, position = _read_uvarint(frame, position)
            end = position + size
            if end > len(frame):
                raise InvalidStructure(f"a tagged field of {size} bytes where {len(frame) - position} are left")
            if tag in known:
                inner: list[Cut] = []
                if known[tag](frame, position, inner) != end:
                    raise InvalidStructure(f"tagged field {tag} has not the size it claims")
                content = _apply([Cut(s - position, e - position, k) for s, e, k in inner], frame[position:end])
                header = frame[field_start:position] if not inner else _uvarint(tag) + _uvarint(len(content))
                kept.append(header + content)
            position = end
        section = _uvarint(len(kept)) + b"".join(kept)
        if len(section) != position - start:
            cuts.append(Cut(start, position, section))
        return position

    return walk


_NO_KNOWN_TAGS: Final = _walk_tagged_fields({})


def _read_uvarint(frame: bytes, position: int) -> tuple[int, int]:
    byte = frame[position]
    if byte < 128:
        return byte, position + 1
    value = byte & 127
    for shift in (7, 14, 21, 28):
        position += 1
        byte = frame[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + 1
    raise InvalidStructure("a varint of more than 5 bytes")


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    write_uvarint(encoded, value)
    return bytes(encoded)
