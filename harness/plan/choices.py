"""Checks the `choice` of a fault that somebody wrote by hand: it must look like the choices that its nemesis draws,
so that a nemesis need not list what is valid.

Words are those that it draws or that a knob of the same name allows; numbers have the signs of those that it draws, and
what is a fraction stays one. What this cannot know the nemesis checks itself (Nemesis.check).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from nemesis import Nemesis, knobs

#: So many that every word is among them.
_DRAWS: Final = 200
#: Keys of numbers in [0, 1) that stand for one of several things.
_FRACTIONS: Final = frozenset({"node", "rack", "which", "where", "bit", "share"})


def problem(nemesis: Nemesis, choice: Mapping[str, Any], targets: Sequence[str]) -> str | None:
    """Why this nemesis cannot strike so, as a clause; None: it can. targets: () if the nemesis chooses them."""
    drawn = [nemesis.draw(Random(f"choices/{number}")).choice for number in range(_DRAWS)]
    there_are = knobs(nemesis)
    for key, value in choice.items():
        values = [each[key] for each in drawn if key in each]
        if not values:
            known = ", ".join(dict.fromkeys(name for each in drawn for name in each)) or "none"
            return f"it has a choice {key!r}; there are {known}"
        if key in getattr(nemesis, "free_choices", ()) and isinstance(value, str):  # a user's own may be older
            continue
        knob = there_are.get(key)
        words = knob.valid if knob is not None and not knob.is_number else ()
        if wrong := _compare(value, values, [str(word) for word in words if word != "drawn"], key in _FRACTIONS):
            return f"its {key} is {value!r}; {wrong}"
    check = getattr(nemesis, "check", None)  # a user's own may have none
    try:
        if check is not None:
            check({**drawn[0], **choice}, targets)
    except ValueError as error:
        return str(error)
    return None


def _compare(value: Any, drawn: Sequence[Any], words: Iterable[str], fraction: bool) -> str | None:
    """Why a value is none such as these, as what would be valid."""
    kind = drawn[0]
    if isinstance(kind, str):
        valid = sorted({*map(str, drawn), *words})
        return None if value in valid else f"valid: {', '.join(valid)}"
    if isinstance(kind, list):
        valid = sorted({str(word) for each in drawn for word in each} | set(words))
        fits = isinstance(value, list) and value and all(word in valid for word in value)
        return None if fits else f"valid: a list of {', '.join(valid)}"
    if isinstance(kind, Mapping):
        return None if isinstance(value, Mapping) else "valid: a table"
    if isinstance(kind, int | float) and not isinstance(kind, bool):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return "valid: a number"
        if all(isinstance(each, int) for each in drawn) and not float(value).is_integer():
            return "valid: a whole number"
        if fraction and not 0 <= value < 1:
            return "valid: a number from 0 to below 1"
        if value < 0 <= min(drawn):
            return "valid: no number below 0"
        if value == 0 < min(drawn):
            return "valid: a number above 0"
    return None
