"""How an export writes events: in EDN or as JSON lines. Values one at a time, and whole columns of texts.

The text of an event is put together column by column: Arrow joins the texts of all rows at once, which takes a
hundredth of the time that a Python loop over rows does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_history.files import Bools, Ints
from spark_history.jepsen.events import edn
from spark_history.jepsen.events.plain import to_json


class Notation(Protocol):
    """nothing: nil. has_keywords: and all that EDN has. gap: between the items of a vector. colon: between a key of a
    map and its value. line: the literals around index, time, process and fields of an event."""

    nothing: str
    has_keywords: bool
    gap: str
    colon: str
    line: tuple[str, str, str, str, str]

    def vector(self, items: Iterable[str]) -> str: ...

    def map(self, items: Mapping[str, str]) -> str: ...

    def key(self, text: str) -> str:
        """Of a map; text: as value() gives it."""

    def value(self, value: Any) -> str: ...

    def head(self, type_: str, f: str) -> str:
        """The fields of an event up to its value."""

    def more(self, name: str) -> str:
        """What comes before the value of a further field."""


class Edn:
    nothing = "nil"
    has_keywords = True
    gap = " "
    colon = " "
    line = ("{:index ", ", :time ", ", :process ", ", ", "}\n")

    def vector(self, items: Iterable[str]) -> str:
        return f"[{' '.join(items)}]"

    def map(self, items: Mapping[str, str]) -> str:
        return f"{{{', '.join(f'{key} {value}' for key, value in items.items())}}}"

    def key(self, text: str) -> str:
        return text

    def value(self, value: Any) -> str:
        return edn.write(value)

    def head(self, type_: str, f: str) -> str:
        return f":type :{type_}, :f :{f}, :value "

    def more(self, name: str) -> str:
        return f", :{name} "


class JsonLines:
    nothing = "null"
    has_keywords = False
    gap = ", "
    colon = ": "
    line = ('{"index": ', ', "time": ', ', "process": ', ", ", "}\n")

    def vector(self, items: Iterable[str]) -> str:
        return f"[{', '.join(items)}]"

    def map(self, items: Mapping[str, str]) -> str:
        return f"{{{', '.join(f'{self.key(key)}: {value}' for key, value in items.items())}}}"

    def key(self, text: str) -> str:
        return text if text.startswith('"') else json.dumps(text)

    def value(self, value: Any) -> str:
        return to_json(value)

    def head(self, type_: str, f: str) -> str:
        return f'"type": "{type_}", "f": {json.dumps(f)}, "value": '

    def more(self, name: str) -> str:
        return f', "{name}": '


NOTATIONS: Final[Mapping[str, Callable[[], Notation]]] = {"edn": Edn, "jsonl": JsonLines}


# Columns of texts


def join(*parts: pa.Array | str) -> pa.Array:
    """The texts of each row one after the other; a text alone stands in all rows. At least one part is a column."""
    return pc.binary_join_element_wise(*(pa.scalar(each) if isinstance(each, str) else each for each in parts), "")


def numbers(values: Ints) -> pa.Array:
    return pa.array(values).cast(pa.string())


def choose(texts: Sequence[str], codes: Any) -> pa.Array:
    """texts[code] of each row."""
    return pa.array(list(texts), pa.string()).take(pa.array(codes))


def pick(mask: Bools, one: pa.Array | str, other: pa.Array | str) -> pa.Array:
    """Row by row, one where it is so, else the other."""
    return pc.if_else(pa.array(mask), one, other)


def lists(texts: pa.Array, lows: Ints, highs: Ints, gap: str) -> pa.Array:
    """For each row the texts from lows to highs (excluded), joined by `gap`."""
    counts = highs - lows
    ends = np.concatenate(([0], np.cumsum(counts)))
    if not (len(lows) and lows[0] == 0 and (lows[1:] == highs[:-1]).all()):  # else they are as they are to stand
        rows = np.repeat(lows - ends[:-1], counts) + np.arange(int(ends[-1]))
        texts = texts.take(pa.array(rows))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts), gap)


def transformed(texts: pa.Array, how: Callable[[str | None], str]) -> pa.Array:
    """`how` of each text, found once for each that differs."""
    if pa.types.is_dictionary(texts.type):
        texts = texts.cast(pa.string())
    coded = texts.dictionary_encode("encode")
    return choose([how(each) for each in coded.dictionary.to_pylist()], coded.indices)


def named(names: Any, notation: Notation, null: int) -> Callable[[Ints], pa.Array]:
    """What numbers stand for, as texts. names: of a plan, EDN by number; null: nil."""
    texts = {int(number): text for number, text in (names or {}).items()}
    known = {number: notation.value(edn.read(text)) for number, text in texts.items()}
    if len(set(known.values())) < len(known):  # in JSON :a and "a" are the same: as EDN they are not
        known = {number: notation.value(text) for number, text in texts.items()}
    known[null] = notation.nothing
    ordered = sorted(known)
    which, spelt = np.array(ordered, np.int64), [known[number] for number in ordered]

    def of(values: Ints) -> pa.Array:
        found = numbers(values)
        place = np.minimum(np.searchsorted(which, values), len(which) - 1)
        hit = which[place] == values
        return pc.replace_with_mask(found, pa.array(hit), choose(spelt, place[hit])) if hit.any() else found

    return of
