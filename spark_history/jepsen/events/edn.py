"""EDN values in and out: the notation of Clojure data, in which Jepsen writes its histories (edn-format.org).

| EDN                              | here                                                         |
| -------------------------------- | ------------------------------------------------------------ |
| nil, true, false                 | None, True, False                                            |
| 1, +1, 1N, 0x1f; 1.5, 1e3; 1.5M  | int; float; Decimal                                          |
| 1/3                              | Fraction                                                     |
| "text", \\a                       | str, Char                                                    |
| :keyword, symbol                 | Keyword, Symbol: one object a name                           |
| [1 2], (1 2)                     | tuple: Clojure, too, calls a vector and a list of the same equal |
| #{1 2}                           | frozenset                                                    |
| {1 2}                            | Map, a dict that can be an element or a key                  |
| #tag value                       | Tagged                                                       |
| #:ns{:a 1}                       | Map, of {:ns/a 1}                                            |
| #_ value, ; comment, ^meta value | left out                                                     |
| #object[…], #<…>, #'var          | what Clojure prints of objects without a notation: as Tagged or Symbol |

The reader is one regular expression that tiles the text, and a stack: about 0.5 µs a token. The library edn_format
0.8.0 (Apache-2.0) lexes and parses with PLY, a token at a time, and refuses what Jepsen prints of objects; hence a
reader of our own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, ClassVar, Final, Self


class EdnError(ValueError):
    """The text is not EDN. The message says why, without a place."""


class Incomplete(EdnError):
    """The text ends within a form: with more text it may be EDN. forms: those before it; used: their tokens."""

    def __init__(self, why: str, forms: Sequence[Any] = (), used: int = 0) -> None:
        super().__init__(why)
        self.forms = forms
        self.used = used


class Named:
    """A keyword or a symbol: two of the same name are the same object."""

    __slots__ = ("name",)
    name: str
    _all: ClassVar[dict[str, Any]]  # of the class, by name

    def __new__(cls, name: str) -> Self:
        known: Self | None = cls._all.get(name)
        if known is None:
            known = object.__new__(cls)
            known.name = name
            cls._all[name] = known
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name,)


class Keyword(Named):
    """`Keyword("type")` is :type."""

    __slots__ = ()
    _all: ClassVar[dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f":{self.name}"


class Symbol(Named):
    """What is not quoted and means nothing else."""

    __slots__ = ()
    _all: ClassVar[dict[str, Any]] = {}

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Char:
    character: str


@dataclass(frozen=True)
class Tagged:
    tag: str  # without its #
    value: Any


class Map(dict[Any, Any]):
    """A map. Never changed once it is read."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


_ATOM: Final = r'[^\s,()\[\]{}";]'
#: Tiles any text but for white space, commas and comments. The lone `"` begins a string that does not end.
_TOKEN: Final = re.compile(
    r"""[\s,]*(?:;[^\n]*(?:\n[\s,]*|$))*("""
    r"""[()\[\]}]|\{|\#\{|\#?"[^"\\]*(?:\\.[^"\\]*)*"|"|\#_|\#<[^>]*>|\^"""
    rf"""|\\.{_ATOM}*|{_ATOM}+|$)""",
    re.DOTALL,
)
_CHARACTERS: Final = {
    "newline": "\n", "space": " ", "tab": "\t", "return": "\r", "formfeed": "\f", "backspace": "\b",
}  # fmt: skip
_NAME_OF_CHARACTER: Final = {text: name for name, text in _CHARACTERS.items()}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|(\d{1,4000}))N?")
_FLOAT: Final = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_RATIO: Final = re.compile(r"([-+]?\d+)/(\d+)")
#: Of forms within forms: values are gone through recursively.
MOST_LEVELS: Final = 100
CLOSES: Final = {"(": ")", "[": "]", "{": "}", "#{": "}"}
_SPECIAL: Final = {"Inf": float("inf"), "-Inf": float("-inf"), "NaN": float("nan")}

#: Atoms seen before: keywords and small numbers come again and again.
_atoms: dict[str, Any] = {"nil": None, "true": True, "false": False}
_MOST_ATOMS: Final = 1 << 16
_NOTHING: Final = object()
_DROPS: Final = ("#_", "^")  # the form after it: of `^`, the metadata
_NO_TAG: Final = ("", "#", "<", "'", '"')  # after a `#`: begins an atom


def tokens(text: str) -> list[str]:
    """The tokens of a text, without white space and comments."""
    found: list[str] = _TOKEN.findall(text)
    while found and not found[-1]:
        found.pop()
    return found


def read_all(text: str) -> list[Any]:
    """Every form in the text. Raises Incomplete if it ends within one, EdnError if it is not EDN."""
    forms, closer = read_forms(tokens(text))
    if closer is not None:
        raise EdnError(f"{closer!r} closes nothing")
    return forms


def read(text: str) -> Any:
    """The one form in the text. Raises EdnError."""
    forms = read_all(text)
    if len(forms) != 1:
        raise EdnError(f"{len(forms)} forms where one is expected")
    return forms[0]


def read_forms(words: Sequence[str]) -> tuple[list[Any], str | None]:
    """The forms that the tokens are, up to a closing bracket that none of them has opened, which is returned too: that
    of the vector which may hold a whole history. Nothing but white space may follow it."""
    stack: list[tuple[str, list[Any]]] = []
    opened, values = "", []  # type: tuple[str, list[Any]]
    atoms, closes = _atoms, CLOSES
    used = 0
    prefixes: list[tuple[str, int]] = []  # tags and what drops a form, each waiting for its form at a depth
    for number, word in enumerate(words):
        if word in closes:
            if len(stack) == MOST_LEVELS:
                raise EdnError(f"there are forms within forms, more than {MOST_LEVELS} deep")
            stack.append((opened, values))
            opened, values = word, []
            continue
        if word in (")", "]", "}"):
            if prefixes and prefixes[-1][1] == len(stack):
                raise EdnError(f"there is no form after {prefixes[-1][0]}")
            if not stack:
                if number != len(words) - 1:
                    raise EdnError(f"there is more after the {word!r} that ends the history")
                return values, word
            if closes[opened] != word:
                raise EdnError(f"{word!r} closes {opened!r}")
            value = _collection(opened, values)
            opened, values = stack.pop()
        elif (value := atoms.get(word, _NOTHING)) is _NOTHING:
            if word == "^" or (word[0] == "#" and word[1:2] not in _NO_TAG):
                prefixes.append((word, len(stack)))
                continue
            if word == '"':
                raise Incomplete("a string is not closed", stack[0][1] if stack else values, used)
            value = _atom(word)
        while prefixes and prefixes[-1][1] == len(stack):
            what, _ = prefixes.pop()
            if what in _DROPS:
                value = _NOTHING
                break
            value = _of_namespace(what[2:], value) if what[:2] == "#:" else Tagged(what[1:], value)
        if value is not _NOTHING:
            values.append(value)
        if not stack and not prefixes:
            used = number + 1
    if stack or prefixes:
        raise Incomplete("a form is not closed", stack[0][1] if stack else values, used)
    return values, None


def _collection(opened: str, values: list[Any]) -> Any:
    if opened == "{":
        if len(values) % 2:
            raise EdnError("a map has a key without a value")
        return _whole(Map(zip(values[::2], values[1::2], strict=True)), len(values) // 2)
    return _whole(frozenset(values), len(values)) if opened == "#{" else tuple(values)


def _whole(collection: Any, size: int) -> Any:
    """In Python 1, 1.0 and true are equal, in Clojure they are not."""
    if len(collection) != size:
        raise EdnError("a set or a map has an element twice, or two of 1, 1.0 and true (0, 0.0 and false)")
    return collection


def _of_namespace(namespace: str, value: Any) -> Map:
    """The map that `#:namespace{…}` is. Raises EdnError."""
    if not isinstance(value, Map):
        raise EdnError(f"after #:{namespace} there must be a map")
    return Map({_qualified(namespace, key): each for key, each in value.items()})


def _qualified(namespace: str, key: Any) -> Any:
    if not isinstance(key, Named) or (key.name != "/" and "/" in key.name and not key.name.startswith("_/")):
        return key
    return type(key)(key.name[2:] if key.name.startswith("_/") else f"{namespace}/{key.name}")


def _atom(word: str) -> Any:
    """Raises EdnError."""
    first = word[0]
    if first == '"':
        return _string(word[1:-1])
    value = _of_atom(word, first)
    if len(_atoms) < _MOST_ATOMS:
        _atoms[word] = value
    return value


def _of_atom(word: str, first: str) -> Any:
    if first == ":":
        if len(word) == 1:
            raise EdnError("a keyword without a name")
        return Keyword(word[1:])
    if word == "#":
        raise EdnError("a tag without a name")
    if first == "\\":
        return Char(_character(word[1:]))
    if first.isdigit() or (first in "+-" and word[1:2].isdigit()):
        return _number(word)
    if word[:2] == "##":
        if word[2:] not in _SPECIAL:
            raise EdnError(f"{word} is no number")
        return _SPECIAL[word[2:]]
    return Symbol(word)


def _number(word: str) -> int | float | Decimal | Fraction:
    if match := _INTEGER.fullmatch(word):
        digits = int(match[2], 16) if match[2] else int(match[3])
        return -digits if match[1] == "-" else digits
    if match := _RATIO.fullmatch(word):
        if not int(match[2]):
            raise EdnError(f"{word} divides by zero")
        return Fraction(int(match[1]), int(match[2]))
    try:
        if word[-1] == "M" and (_FLOAT.fullmatch(word[:-1])):
            return Decimal(word[:-1])
        if _FLOAT.fullmatch(word):
            return float(word)
    except (ValueError, InvalidOperation):
        pass
    raise EdnError(f"{word[:40]} is no number")


def _character(name: str) -> str:
    if len(name) == 1:
        return name
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if not name:
        raise EdnError("a character without a name")
    if name[0] == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", name[1:]):
        return chr(int(name[1:], 16))
    if name[0] == "o" and re.fullmatch(r"[0-7]{1,3}", name[1:]):
        return chr(int(name[1:], 8))
    raise EdnError(f"\\{name[:40]} is no character")


def _string(inner: str) -> str:
    if "\\" not in inner:
        return inner
    text = _ESCAPE.sub(_unescape, inner)
    # Java writes what is beyond 16 bits as two.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(text) else text


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _unescape(match: re.Match[str]) -> str:
    name = match[1]
    if name in _ESCAPES:
        return _ESCAPES[name]
    if name[0] == "u" and len(name) == 5:
        return chr(int(name[1:], 16))
    if name[0].isdigit():
        return chr(int(name, 8))
    raise EdnError(f"a string has an escape \\{name}")


def write(value: Any, *, canonical: bool = False) -> str:
    """The value as EDN; canonical: maps sorted, as sets are, so that equal values give equal texts. Raises EdnError for
    what has no notation."""
    if value is None:
        return "nil"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Keyword):
        return f":{value.name}"
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, (tuple, list)):
        return f"[{' '.join([write(each, canonical=canonical) for each in value])}]"
    if isinstance(value, dict):
        entries = [
            f"{write(key, canonical=canonical)} {write(each, canonical=canonical)}" for key, each in value.items()
        ]
        return f"{{{', '.join(sorted(entries) if canonical else entries)}}}"
    if isinstance(value, (set, frozenset)):
        return f"#{{{' '.join(sorted([write(each, canonical=canonical) for each in value]))}}}"
    if isinstance(value, Tagged):
        return f"#{value.tag} {write(value.value, canonical=canonical)}"
    return _write_other(value)


def _write_other(value: Any) -> str:
    if isinstance(value, float):
        if value != value:
            return "##NaN"
        if value in (float("inf"), float("-inf")):
            return "##Inf" if value > 0 else "##-Inf"
        return repr(value)
    if isinstance(value, Decimal):
        return f"{value}M"
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Char):
        code = value.character
        plain = code.isprintable() and not code.isspace() and len(code) == 1
        return f"\\{_NAME_OF_CHARACTER.get(code) or (code if plain else f'u{ord(code):04x}')}"
    raise EdnError(f"a {type(value).__name__} has no notation in EDN")


def quote(text: str) -> str:
    """A string in quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
