"""Defects of histories of objects: scripts of a few operations each, that no right object could have done.

Times are in ms from the place. Values, keys and elements are those of the place alone, from 10^9 up, so that nothing
else can explain what the script found; `now` is what the object answers at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: From a kind and an argument to the result.
Do = Callable[[str, Any], Any]
Micro = list[Any]


@dataclass(frozen=True)
class Line:
    """One operation. result: if it is ok, or what gives it. process: those of a script that have the same number are of
    one."""

    kind: str
    argument: Any
    result: Any = None
    invoke: int = 0
    complete: int = 4
    process: int = 0
    outcome: str = "ok"


@dataclass(frozen=True)
class Defect:
    """script: from the first number of a place to its operations. plan: what its plan must say."""

    what: str
    anomaly: str  # that must be found
    script: Callable[[int], list[Line]]
    plan: Mapping[str, Any] = field(default_factory=dict)

    def lines(self, place: int) -> list[Line]:
        return self.script(10**9 + 100 * place)


def _one_by_one(*lines: tuple[str, Any, Any]) -> list[Line]:
    return [Line(*line, 10 * number, 10 * number + 4, number) for number, line in enumerate(lines)]


def _read(change: Callable[[Any], Any]) -> Callable[[int], list[Line]]:
    """A read that finds something else than there is."""
    return lambda _: [Line("read", None, lambda do: change(do("read", None)))]


def _now(*more: int, without: int | None = None) -> Callable[[Do], Any]:
    return lambda do: [*(each for each in do("read", None) if each != without), *more]


_BANK: Final[Mapping[str, Defect]] = {
    "wrong-total": Defect(
        "a read sees one half of a transfer", "wrong-total", _read(lambda held: {**held, "a": held["a"] - 5})
    ),
    "negative-value": Defect(
        "a transfer leaves less than nothing",
        "negative-value",
        _read(lambda held: {**held, "a": -5, "b": held["a"] + held["b"] + 5}),
    ),
    "nil-balance": Defect("a read finds no balance", "nil-balance", _read(lambda held: {**held, "a": None})),
    "unexpected-key": Defect(
        "a read finds an account that there is not", "unexpected-key", _read(lambda held: {**held, "z": 0})
    ),
}

_LONG_FORK: Final[Mapping[str, Defect]] = {
    "long-fork": Defect(
        "two reads see two writes in opposite orders",
        "long-fork",
        lambda key: [
            *(Line("txn", [["w", key + each, 1]], [["w", key + each, 1]], 0, 9, each) for each in (0, 1)),
            *(
                Line(
                    "txn",
                    [["r", key, None], ["r", key + 1, None]],
                    [["r", key, 1 - each or None], ["r", key + 1, each or None]],
                    1,
                    8,
                    2 + each,
                )
                for each in (0, 1)
            ),
        ],
    )
}

_COMMENTS: Final[Mapping[str, Defect]] = {
    "missing": Defect(
        "a read returns a write, and not one that had completed when it began",
        "missing",
        lambda value: _one_by_one(
            ("write", value, value), ("write", value + 1, value + 1), ("read", None, _now(value + 1))
        ),
    )
}

_SEQUENTIAL: Final[Mapping[str, Defect]] = {
    "trailing-nil": Defect(
        "a read finds the last subkey, and not the one before it",
        "trailing-nil",
        lambda key: _one_by_one(("write", key, key), ("read", key, [key, [f"{key}_3", None, f"{key}_1", f"{key}_0"]])),
    )
}

_SET_FULL: Final[Mapping[str, Defect]] = {
    "lost": Defect(
        "an element was read, and is gone for good",
        "lost",
        lambda value: _one_by_one(("add", value, value), ("read", None, _now(value)), ("read", None, _now())),
    ),
    "stale": Defect(
        "a read does not return what was added before, in a set that is to be linearizable",
        "stale",
        lambda value: _one_by_one(
            ("add", value, lambda do: do("add", value)), ("read", None, _now(without=value)), ("read", None, _now())
        ),
        {"linearizable": True},
    ),
    "duplicated": Defect(
        "a read returns an element twice",
        "duplicated",
        lambda value: _one_by_one(("add", value, lambda do: do("add", value)), ("read", None, _now(value))),
    ),
}

_QUEUE: Final[Mapping[str, Defect]] = {
    "phantom": Defect(
        "a dequeue returns what nobody enqueued", "phantom", lambda value: _one_by_one(("dequeue", None, value))
    ),
    "duplicate": Defect(
        "one value is dequeued twice",
        "duplicate",
        lambda value: _one_by_one(("enqueue", value, value), ("dequeue", None, value), ("dequeue", None, value)),
    ),
}

_TOTAL_QUEUE: Final[Mapping[str, Defect]] = {
    "lost": Defect(
        "an acknowledged value never comes out", "lost", lambda value: _one_by_one(("enqueue", value, value))
    ),
    "unexpected": Defect(
        "a value comes out that nobody enqueued", "unexpected", lambda value: _one_by_one(("dequeue", None, value))
    ),
}


# --- rw-register -----------------------------------------------------------------------------------------------------


def _txn(number: int, *micro: Micro, invoke: int = 0, complete: int = 9, outcome: str = "ok") -> Line:
    asked = [[f, key, value if f == "w" else None] for f, key, value in micro]
    return Line("txn", asked, list(micro), invoke, complete, number, outcome)


def _at_once(*txns: list[tuple[str, int, int | None]]) -> Callable[[int], list[Line]]:
    """Keys and values count from the place."""
    return lambda base: [_txn(number, *_of(base, micro)) for number, micro in enumerate(txns)]


def _in_turn(*txns: list[tuple[str, int, int | None]], process: int | None = None) -> Callable[[int], list[Line]]:
    def lines(base: int) -> list[Line]:
        return [
            _txn(
                number if process is None else process, *_of(base, micro), invoke=10 * number, complete=10 * number + 4
            )
            for number, micro in enumerate(txns)
        ]

    return lines


def _of(base: int, micro: list[tuple[str, int, int | None]]) -> list[Micro]:
    return [[f, base + key, None if value is None else base + value] for f, key, value in micro]


def _g1a(base: int) -> list[Line]:
    first, then = _of(base, [("w", 0, 1), ("r", 0, 1)])
    return [_txn(0, first, outcome="fail"), _txn(1, then, invoke=10, complete=14)]


_RW_REGISTER: Final[Mapping[str, Defect]] = {
    "g0": Defect(
        "two transactions write two keys, in opposite orders, where writes follow reads",
        "G0",
        _at_once([("w", 0, 1), ("r", 1, 2), ("w", 1, 3)], [("r", 0, 1), ("w", 0, 4), ("w", 1, 2)]),
        {"wfr_keys": True},
    ),
    "g1a": Defect("a read returns what a transaction that failed had written", "G1a", _g1a),
    "g1b": Defect(
        "a read returns what its transaction overwrote", "G1b", _at_once([("w", 0, 1), ("w", 0, 2)], [("r", 0, 1)])
    ),
    "g1c": Defect(
        "two transactions read each other's writes",
        "G1c",
        _at_once([("w", 0, 1), ("r", 1, 2)], [("w", 1, 2), ("r", 0, 1)]),
    ),
    "g-single": Defect(
        "a read sees one write of a transaction and not another",
        "G-single",
        _at_once([("w", 0, 1), ("w", 1, 2)], [("r", 0, None), ("r", 1, 2)]),
    ),
    "g-single-process": Defect(
        "a process does not see what it wrote before",
        "G-single-process",
        _in_turn([("w", 0, 1)], [("r", 0, None)], process=1),
    ),
    "g-single-realtime": Defect(
        "a stale read: it does not see what had been acknowledged",
        "G-single-realtime",
        _in_turn([("w", 0, 1)], [("r", 0, None)]),
    ),
    "g-nonadjacent": Defect(
        "a long fork: two readers see two writes in opposite orders",
        "G-nonadjacent",
        _at_once([("w", 0, 1)], [("w", 1, 2)], [("r", 0, 1), ("r", 1, None)], [("r", 0, None), ("r", 1, 2)]),
    ),
    "g2": Defect(
        "write skew: two transactions each do not see the other's write",
        "G2-item",
        _at_once([("r", 0, None), ("w", 1, 2)], [("r", 1, None), ("w", 0, 1)]),
    ),
    "lost-update": Defect(
        "two transactions read the same version and both write",
        "lost-update",
        _at_once([("w", 0, 9)], [("r", 0, 9), ("w", 0, 1)], [("r", 0, 9), ("w", 0, 2)]),
    ),
    "internal": Defect(
        "a transaction does not read what it has just written", "internal", _at_once([("w", 0, 1), ("r", 0, None)])
    ),
    "future-read": Defect(
        "a transaction reads what it only writes afterwards", "future-read", _at_once([("r", 0, 1), ("w", 0, 1)])
    ),
    "garbage-read": Defect("a read returns what nobody wrote", "garbage-read", _at_once([("r", 0, 77)])),
    "cyclic-versions": Defect(
        "a key goes back to an earlier version, where keys are linearizable",
        "cyclic-versions",
        _in_turn([("w", 0, 1)], [("w", 0, 2)], [("r", 0, 1)]),
        {"linearizable_keys": True},
    ),
}

DEFECTS: Final[Mapping[str, Mapping[str, Defect]]] = {
    "rw-register": _RW_REGISTER, "bank": _BANK, "long-fork": _LONG_FORK, "comments": _COMMENTS,
    "sequential": _SEQUENTIAL, "set-full": _SET_FULL, "queue": _QUEUE, "total-queue": _TOTAL_QUEUE,
}  # fmt: skip
#: By workload and name, what it is and the anomaly that must be found.
DEFECTS_OF: Final[Mapping[str, Mapping[str, str]]] = {
    workload: {name: f"{defect.what}: {defect.anomaly}" for name, defect in defects.items()}
    for workload, defects in DEFECTS.items()
}
