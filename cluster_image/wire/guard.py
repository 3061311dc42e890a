"""Checks a message's structure before kio's decoder sees it.

kio reserves memory for as many elements as an array claims to have, and a claim of 2^31 aborts the process: no
exception, a dead node. It also rejects messages with tagged fields that it does not know, which the protocol
says to skip (KIP-482). So each message is first walked along its schema: every length must fit, the message
must end where the frame does, and unknown tagged fields are cut out.

An element of an array can be two bytes long, and fifty once it is decoded: what a frame may hold of them is limited,
so that one request takes neither gigabytes nor minutes.
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

from cluster_image.wire.encoder import write_uvarint


class InvalidStructure(ValueError):
    """A message that does not follow its schema."""


#: Elements of all arrays of one message, and its tagged fields: tens of thousands of partitions with their replicas
#: take less.
MAX_ELEMENTS: Final = 1 << 18


class Cut(NamedTuple):
    """frame[start:end] is a section of tagged fields; `known` is the same without the unknown ones."""

    start: int
    end: int
    known: bytes


class Found:
    """What a walk has found on its way: cuts to make, and how many more elements there may be."""

    __slots__ = ("cuts", "room")

    def __init__(self, room: int) -> None:
        self.cuts: list[Cut] = []
        self.room = room

    def count(self, elements: int) -> None:
        self.room -= elements
        if self.room < 0:
            raise InvalidStructure("more elements and tagged fields than its sender may name in one request")


#: Follows one part of a message: (frame, position, what has been found) -> position after the part.
#: Running off the end of the frame raises IndexError or struct.error.
Walk: TypeAlias = Callable[[bytes, int, Found], int]

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


def checked(
    schema: Any,
    frame: bytes,
    position: int,
    *,
    flexible_header: bool,
    more_may_follow: bool = False,
    max_elements: int = MAX_ELEMENTS,
) -> tuple[bytes, int]:
    """The frame to decode `schema` from, without unknown tagged fields, and the position where it starts there.

    position: where the header's own tagged fields start, or the message if the header is not flexible.
    more_may_follow: what follows the message is cut off. max_elements: of all its arrays, and tagged fields. Raises
    InvalidStructure.
    """
    found = Found(max_elements)
    try:
        if flexible_header:
            position = _NO_KNOWN_TAGS(frame, position, Found(max_elements)) if frame[position] else position + 1
        end = _walk_entity(schema)(frame, position, found)
    except (IndexError, struct.error):
        raise InvalidStructure("it ends too early") from None
    if end != len(frame) and more_may_follow:
        frame = frame[:end]
    if end != len(frame):
        raise InvalidStructure(f"it is followed by {len(frame) - end} bytes too many")
    return (_apply(found.cuts, frame) if found.cuts else frame), position


def _apply(cuts: list[Cut], frame: bytes) -> bytes:
    parts, kept = [], 0
    for start, end, known in cuts:
        parts += [frame[kept:start], known]
        kept = end
    return b"".join([*parts, frame[kept:]])


@cache
def _walk_entity(schema: Any) -> Walk:
    flexible = schema.__flexible__
    walks: list[tuple[int, Walk]] = []  # each after so many bytes of fixed-size fields
    fixed = 0
    tagged: dict[int, Walk] = {}
    for field in fields(schema):
        tag = get_field_tag(field)
        if tag is not None:
            tagged[tag] = _walk_field(field, flexible, optional=False)
        elif (size := _fixed_size(field)) is not None:
            fixed += size
        else:
            walks.append((fixed, _walk_field(field, flexible, optional=is_optional(field))))
            fixed = 0
    return _in_sequence(walks, fixed, _walk_tagged_fields(tagged) if flexible else None)


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
    count = _count_reader(flexible, _INT32, nullable=is_optional(field))
    if isinstance(kind, EntityTupleField):
        return _walk_array(_walk_entity(kind.type_), flexible, count)
    primitive = get_schema_field_type(field)
    if primitive in _FIXED_SIZES:
        size = _FIXED_SIZES[primitive]
        return _walk_fixed_array(size, count) if kind.is_array else _skip(size)
    legacy = _INT16 if primitive == "string" else _INT32
    if kind.is_array:
        element = _walk_sized(flexible, _count_reader(flexible, legacy, nullable=False))
        return _walk_array(element, flexible, count)
    return _walk_sized(flexible, _count_reader(flexible, legacy, nullable=is_optional(field)))


def _skip(size: int) -> Walk:
    return lambda frame, position, found: position + size


def _in_sequence(walks: list[tuple[int, Walk]], rest: int, tagged: Walk | None) -> Walk:
    """rest: bytes of fixed-size fields after all of them. tagged: follows the tagged fields at the end, if there are
    any."""

    def walk(frame: bytes, position: int, found: Found) -> int:
        for fixed, step in walks:
            position = step(frame, position + fixed, found)
        position += rest
        if tagged is None:
            return position
        return tagged(frame, position, found) if frame[position] else position + 1

    return walk


def _nullable(entity: Walk) -> Walk:
    """An entity that may be absent: a byte below zero says so (KIP-893)."""

    def walk(frame: bytes, position: int, found: Found) -> int:
        present = frame[position] < 128
        return entity(frame, position + 1, found) if present else position + 1

    return walk


#: Reads a length or number of elements: (frame, position) -> it, 0 for null, and the position after it.
CountReader: TypeAlias = Callable[[bytes, int], tuple[int, int]]


def _count_reader(flexible: bool, legacy: struct.Struct, *, nullable: bool) -> CountReader:
    return _compact_count_reader(nullable) if flexible else _legacy_count_reader(legacy, nullable)


def _compact_count_reader(nullable: bool) -> CountReader:
    """It is one more than what it tells, and 0 for null (KIP-482)."""

    def read(frame: bytes, position: int) -> tuple[int, int]:
        count, position = _read_uvarint(frame, position)
        if not count and not nullable:
            raise InvalidStructure("null where there must be a value")
        return max(count - 1, 0), position

    return read


def _legacy_count_reader(number: struct.Struct, nullable: bool) -> CountReader:
    def read(frame: bytes, position: int) -> tuple[int, int]:
        count = number.unpack_from(frame, position)[0]
        position += number.size
        if count >= 0:
            return count, position
        if count < -1 or not nullable:
            raise InvalidStructure("a length below zero" if count < -1 else "null where there must be a value")
        return 0, position

    return read


def _walk_sized(flexible: bool, count: CountReader) -> Walk:
    """A string or bytes."""

    def walk(frame: bytes, position: int, found: Found) -> int:
        if flexible and 0 < frame[position] < 128:  # as a rule, and a call takes longer
            size, position = frame[position] - 1, position + 1
        else:
            size, position = count(frame, position)
        if size > len(frame) - position:
            raise InvalidStructure(f"a length of {size} where {len(frame) - position} bytes are left")
        return position + size

    return walk


def _walk_fixed_array(element_size: int, count: CountReader) -> Walk:
    def walk(frame: bytes, position: int, found: Found) -> int:
        elements, position = count(frame, position)
        end = position + elements * element_size
        if end > len(frame):
            raise InvalidStructure(f"an array of {elements} elements where {len(frame) - position} bytes are left")
        found.count(elements)
        return end

    return walk


def _walk_array(element: Walk, flexible: bool, count: CountReader) -> Walk:
    def walk(frame: bytes, position: int, found: Found) -> int:
        if flexible and 0 < frame[position] < 128:  # as above
            elements, position = frame[position] - 1, position + 1
        else:
            elements, position = count(frame, position)
        if elements > len(frame) - position:  # every element has at least one byte
            raise InvalidStructure(f"an array of {elements} elements where {len(frame) - position} bytes are left")
        found.count(elements)
        for _ in range(elements):
            position = element(frame, position, found)
        return position

    return walk


def _walk_tagged_fields(known: dict[int, Walk]) -> Walk:
    def walk(frame: bytes, position: int, found: Found) -> int:
        start = position
        count, position = _read_uvarint(frame, position)
        found.count(count)
        kept, cut = [], False
        for _ in range(count):
            field_start = position
            tag, position = _read_uvarint(frame, position)
            size, position = _read_uvarint(frame, position)
            end = position + size
            if end > len(frame):
                raise InvalidStructure(f"a tagged field of {size} bytes where {len(frame) - position} are left")
            if tag in known:
                before = len(found.cuts)
                if known[tag](frame, position, found) != end:
                    raise InvalidStructure(f"tagged field {tag} has not the size it claims")
                inner = found.cuts[before:]
                if inner:
                    del found.cuts[before:]
                    cut = True
                    content = _apply([Cut(s - position, e - position, k) for s, e, k in inner], frame[position:end])
                    kept.append(_uvarint(tag) + _uvarint(len(content)) + content)
                else:
                    kept.append(frame[field_start:end])
            position = end
        if cut or len(kept) < count:
            found.cuts.append(Cut(start, position, _uvarint(len(kept)) + b"".join(kept)))
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
