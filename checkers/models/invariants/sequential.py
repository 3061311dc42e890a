"""sequential (of Jepsen's tests of CockroachDB, TiDB and Dgraph): does the order of one client hold for all?

A client writes the subkeys of a key one after the other, and a read asks for them one after the other too, the last
first: `[k [last … first]]`, nil for what it did not find. Once it has found one, it must find all that were written
before it.

    trailing-nil  a read found a subkey, and not one that had been written before it

This says nothing of sequential consistency beyond it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from checkers.models.invariants.history import Found, History, Row, Told, shown
from checkers.models.objects import freeze


def judge(history: History) -> Found:
    history.only("read", "write", "add")
    writers: dict[Any, list[Row]] = {}
    for row in history.of("write", "add"):
        writers.setdefault(history.frozen(row, "argument"), []).append(row)
    counts, found = Counter[str](), Found()
    for row in history.ok("read"):
        value = history.value(row, "result")
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
            raise history.must_be(row, "result", "[key [subkey or nil …]]")
        key, subkeys = freeze(value[0]), value[1]
        nils = sum(each is None for each in subkeys)
        counts["all" if not nils else "none" if nils == len(subkeys) else "some"] += 1
        first = next((place for place, each in enumerate(subkeys) if each is not None), len(subkeys))
        missed = next((place for place in range(first, len(subkeys)) if subkeys[place] is None), None)
        if missed is not None:
            later = subkeys[missed - 1]
            message = (
                f"a read of the subkeys of {shown(key)} found {shown(freeze(later))}, and not the one that was written "
                f"before it, in place {missed + 1} of {len(subkeys)}"
            )
            found.told.append(Told("trailing-nil", message, [*writers.get(key, ())[:_FEW], row]))
    counts["bad"] = len(found.told)
    found.counts = dict(counts)
    return found


_FEW = 3
