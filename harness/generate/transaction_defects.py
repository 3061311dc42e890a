"""Defects of histories of transactions: a few transactions each that no consistent system could have executed.

They run on keys of their own, by processes of their own, anywhere among the others. Times are in ms from the place;
keys count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: ("append", key, value), ("read", key, values), ("send", key, offset, value), ("poll", key, ((offset, value), …))
Micro = tuple[Any, ...]


@dataclass(frozen=True)
class Planted:
    """One transaction. Times in ms."""

    micro: tuple[Micro, ...]
    invoke: int = 0
    complete: int = 4
    process: int = 0
    outcome: str = "ok"


@dataclass(frozen=True)
class Defect:
    what: str
    anomaly: str  # that must be found
    transactions: tuple[Planted, ...]


def _together(*transactions: tuple[Micro, ...], after: tuple[Micro, ...] = ()) -> tuple[Planted, ...]:
    """At the same time, by a process each; `after`: what reads the outcome when they have completed."""
    planted = [Planted(micro, number, 10 + number, number) for number, micro in enumerate(transactions)]
    return (*planted, *((Planted(after, 30, 40, 9),) if after else ()))


def _append(key: int, value: int) -> Micro:
    return ("append", key, value)


def _read(key: int, *values: int) -> Micro:
    return ("read", key, values)


def _send(key: int, offset: int | None, value: int) -> Micro:
    return ("send", key, offset, value)


def _poll(key: int, *records: tuple[int, int]) -> Micro:
    return ("poll", key, records)


_STALE: Final = (_append(0, 1),), (_read(0),)

LIST_APPEND: Final[Mapping[str, Defect]] = {
    "g0": Defect(
        "two transactions append to two keys, in opposite orders",
        "G0",
        _together(
            (_append(0, 1), _append(1, 1)), (_append(0, 2), _append(1, 2)), after=(_read(0, 1, 2), _read(1, 2, 1))
        ),
    ),
    "g0-process": Defect(
        "a process' second append comes before its first",
        "G0-process",
        (
            Planted((_append(0, 1),), 0, 4, 0),
            Planted((_append(0, 2),), 6, 9, 0),
            Planted((_read(0, 2, 1),), 20, 24, 9),
        ),
    ),
    "g0-realtime": Defect(
        "an append comes before one that had completed when it was invoked",
        "G0-realtime",
        (
            Planted((_append(0, 1),), 0, 4, 0),
            Planted((_append(0, 2),), 6, 9, 1),
            Planted((_read(0, 2, 1),), 20, 24, 9),
        ),
    ),
    "g1a": Defect(
        "a read returns what a transaction that failed had appended",
        "G1a",
        (Planted((_append(0, 1),), outcome="fail"), Planted((_read(0, 1),), 6, 9, 1)),
    ),
    "g1b": Defect(
        "a read returns the intermediate state of another transaction",
        "G1b",
        _together((_append(0, 1), _append(0, 2)), (_read(0, 1),), after=(_read(0, 1, 2),)),
    ),
    "g1c": Defect(
        "two transactions read each other's appends",
        "G1c",
        _together((_append(0, 1), _read(1, 1)), (_append(1, 1), _read(0, 1)), after=(_read(0, 1), _read(1, 1))),
    ),
    "g1c-process": Defect(
        "a process reads what it only appends in its next transaction",
        "G1c-process",
        (Planted((_read(0, 1),), 0, 4, 0), Planted((_append(0, 1),), 6, 9, 0)),
    ),
    "g1c-realtime": Defect(
        "a read returns what another process only appended when it had completed",
        "G1c-realtime",
        (Planted((_read(0, 1),), 0, 4, 0), Planted((_append(0, 1),), 6, 9, 1)),
    ),
    "g-single": Defect(
        "a read sees one append of a transaction and not another",
        "G-single",
        _together((_append(0, 1), _append(1, 1)), (_read(0), _read(1, 1)), after=(_read(0, 1), _read(1, 1))),
    ),
    "g-single-process": Defect(
        "a process does not see what it appended before",
        "G-single-process",
        tuple(Planted(micro, 6 * i, 6 * i + 4, 0) for i, micro in enumerate((*_STALE, (_read(0, 1),)))),
    ),
    "g-single-realtime": Defect(
        "a stale read: it does not see what had been acknowledged",
        "G-single-realtime",
        tuple(Planted(micro, 6 * i, 6 * i + 4, i) for i, micro in enumerate((*_STALE, (_read(0, 1),)))),
    ),
    "g-nonadjacent": Defect(
        "a long fork: two readers see two appends in opposite orders",
        "G-nonadjacent",
        _together(
            (_append(0, 1),),
            (_append(1, 1),),
            (_read(0, 1), _read(1)),
            (_read(0), _read(1, 1)),
            after=(_read(0, 1), _read(1, 1)),
        ),
    ),
    "g2": Defect(
        "write skew: two transactions each do not see the other's append",
        "G2-item",
        _together((_read(0), _append(1, 1)), (_read(1), _append(0, 1)), after=(_read(0, 1), _read(1, 1))),
    ),
    "g2-process": Defect(
        "write skew over three transactions, two of them of one process",
        "G2-item-process",
        (
            Planted((_append(1, 1),), 0, 4, 0),
            Planted((_read(1), _append(0, 1)), 2, 12, 1),
            Planted((_read(0),), 6, 10, 0),
            Planted((_read(0, 1), _read(1, 1)), 30, 34, 9),
        ),
    ),
    "g2-realtime": Defect(
        "write skew over three transactions, one of which had completed before another began",
        "G2-item-realtime",
        (
            Planted((_append(1, 1),), 0, 4, 0),
            Planted((_read(1), _append(0, 1)), 2, 12, 1),
            Planted((_read(0),), 6, 10, 2),
            Planted((_read(0, 1), _read(1, 1)), 30, 34, 9),
        ),
    ),
    "duplicate": Defect(
        "one element stands twice", "duplicate-elements", _together((_append(0, 1),), after=(_read(0, 1, 1),))
    ),
    "incompatible-order": Defect(
        "two reads return two elements in opposite orders",
        "incompatible-order",
        _together((_append(0, 1),), (_append(0, 2),), (_read(0, 1, 2),), after=(_read(0, 2, 1),)),
    ),
    "lost-append": Defect(
        "an acknowledged append is in no later read",
        "G-single-realtime",
        (
            Planted((_append(0, 1),), 0, 4, 0),
            Planted((_append(0, 2),), 6, 9, 1),
            Planted((_read(0, 2),), 20, 24, 2),
        ),
    ),
    "lost-update": Defect(
        "two transactions read the same list and both append to it",
        "lost-update",
        _together((_read(0), _append(0, 1)), (_read(0), _append(0, 2)), after=(_read(0, 1, 2),)),
    ),
    "internal": Defect(
        "a transaction does not read what it has just appended",
        "internal",
        _together((_append(0, 1), _read(0)), after=(_read(0, 1),)),
    ),
    "future-read": Defect(
        "a transaction reads what it only appends afterwards",
        "future-read",
        _together((_read(0, 1), _append(0, 1)), after=(_read(0, 1),)),
    ),
    "dirty-update": Defect(
        "a committed append stands on one of a transaction that failed",
        "dirty-update",
        (
            Planted((_append(0, 1),), outcome="fail"),
            Planted((_append(0, 2),), 6, 9, 1),
            Planted((_read(0, 1, 2),), 20, 24, 2),
        ),
    ),
    "garbage-read": Defect(
        "a read returns what nobody appended", "garbage-read", _together((_append(0, 1),), after=(_read(0, 1, 77),))
    ),
}

KAFKA: Final[Mapping[str, Defect]] = {
    "lost-write": Defect(
        "a poll skips an acknowledged record, which nobody polls",
        "lost-write",
        (
            Planted((_send(0, 0, 1),), 0, 4, 0),
            Planted((_send(0, 1, 2),), 6, 9, 0),
            Planted((_poll(0, (1, 2)),), 20, 24, 9),
        ),
    ),
    "duplicate": Defect(
        "one record stands at two offsets",
        "duplicate",
        (Planted((_send(0, 0, 1),)), Planted((_poll(0, (0, 1), (1, 1)),), 20, 24, 9)),
    ),
    "inconsistent-offset": Defect(
        "a poll finds another record at an offset than was acknowledged there",
        "inconsistent-offsets",
        (
            Planted((_send(0, 0, 1),), 0, 4, 0),
            Planted((_send(0, None, 2),), 6, 9, 0, "info"),
            Planted((_poll(0, (0, 2)),), 20, 24, 9),
            Planted((_poll(0, (0, 1)),), 20, 24, 8),
        ),
    ),
    "aborted-read": Defect(
        "a poll returns what a transaction that failed had sent",
        "G1a",
        (Planted((_send(0, None, 1),), outcome="fail"), Planted((_poll(0, (0, 1)),), 20, 24, 9)),
    ),
    "phantom": Defect(
        "a poll returns what nobody sent",
        "phantom",
        (Planted((_send(0, 0, 1),)), Planted((_poll(0, (0, 1), (1, 77)),), 20, 24, 9)),
    ),
    "precommitted-read": Defect(
        "a transaction polls what it has sent itself",
        "precommitted-read",
        (Planted((_send(0, 0, 1), _poll(0, (0, 1)))),),
    ),
    "int-poll-skip": Defect(
        "one poll leaves out a record that another returns",
        "int-poll-skip",
        (
            Planted((_send(0, 0, 1), _send(0, 1, 2), _send(0, 2, 3))),
            Planted((_poll(0, (0, 1), (2, 3)),), 20, 24, 9),
            Planted((_poll(0, (0, 1), (1, 2), (2, 3)),), 20, 24, 8),
        ),
    ),
    "int-nonmonotonic-poll": Defect(
        "one poll returns records backwards",
        "int-nonmonotonic-poll",
        (Planted((_send(0, 0, 1), _send(0, 1, 2))), Planted((_poll(0, (1, 2), (0, 1)),), 20, 24, 9)),
    ),
    "int-nonmonotonic-send": Defect(
        "the second send of a transaction has the lower offset",
        "int-nonmonotonic-send",
        (Planted((_send(0, 1, 1), _send(0, 0, 2))), Planted((_poll(0, (0, 2), (1, 1)),), 20, 24, 9)),
    ),
    "nonmonotonic-send": Defect(
        "the second send of a process has the lower offset",
        "nonmonotonic-send",
        (
            Planted((_send(0, 1, 1),), 0, 4, 0),
            Planted((_send(0, 0, 2),), 6, 9, 0),
            Planted((_poll(0, (0, 2), (1, 1)),), 20, 24, 9),
        ),
    ),
    "real-time-inversion": Defect(
        "a send has a lower offset than one that had completed when it was invoked",
        "real-time inversion",
        (
            Planted((_send(0, 1, 1),), 0, 4, 0),
            Planted((_send(0, 0, 2),), 6, 9, 1),
            Planted((_poll(0, (0, 2), (1, 1)),), 20, 24, 9),
        ),
    ),
    "g1c": Defect(
        "two transactions poll what the other has sent",
        "G1c",
        _together((_send(0, 0, 1), _poll(1, (0, 1))), (_send(1, 0, 1), _poll(0, (0, 1)))),
    ),
    "g1c-process": Defect(
        "a process polls what it only sends in its next transaction",
        "G1c-process",
        (Planted((_poll(0, (0, 1)),), 0, 4, 0), Planted((_send(0, 0, 1),), 6, 9, 0)),
    ),
    "g1c-realtime": Defect(
        "a poll returns what another process only sent when it had completed",
        "G1c-realtime",
        (Planted((_poll(0, (0, 1)),), 0, 4, 0), Planted((_send(0, 0, 1),), 6, 9, 1)),
    ),
}
