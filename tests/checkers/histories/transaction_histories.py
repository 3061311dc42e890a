"""Small histories of transactions for tests: written by hand, drawn at random, and judged by trying all orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any

import pyarrow as pa

from checkers.transactions import check_tables
from checkers.verdict.judged import Judged, verdict
from spark_history.schema import MICRO_OPERATIONS, TRANSACTIONS

#: ("append", key, value), ("read", key, [values] or None), ("write", key, value), ("read", key, value of a register),
#: ("send", key, offset or None, value), ("poll", key, [(offset, value), …])
Micro = tuple[Any, ...]


@dataclass
class Txn:
    micro: list[Micro]
    invoke: int = 0
    complete: int | None = 10
    outcome: str = "ok"
    process: int | None = None  # None: one of its own


def tables(txns: Sequence[Txn], run: str = "run") -> dict[str, pa.Table]:
    rows, micro = [], []
    for op, txn in enumerate(txns):
        rows.append(
            {
                "run": run,
                "process": 100 + op if txn.process is None else txn.process,
                "op": op,
                "invoke": txn.invoke,
                "complete": txn.complete,
                "outcome": txn.outcome,
                "error": None,
            }
        )
        for position, each in enumerate(txn.micro):
            micro += [{"run": run, "op": op, "position": position, **row} for row in _rows(each)]
    return {
        "transactions": pa.Table.from_pylist(rows, schema=TRANSACTIONS),
        "micro_operations": pa.Table.from_pylist(micro, schema=MICRO_OPERATIONS),
    }


def _rows(micro: Micro) -> list[dict[str, Any]]:
    kind, key = micro[:2]
    common = {"kind": kind, "key": key}
    if kind == "append":
        return [common | {"offset": None, "value": micro[2]}]
    if kind == "write" or (kind == "read" and not isinstance(micro[2], list | tuple | None)):
        return [common | {"offset": None, "value": micro[2]}]
    if kind == "send":
        return [common | {"offset": micro[2], "value": micro[3]}]
    records = list(enumerate(micro[2] or ())) if kind == "read" else micro[2]
    return [common | {"offset": at, "value": value} for at, value in records] or [
        common | {"offset": None, "value": None}
    ]


def check(txns: Sequence[Txn], workload: str = "list-append", **plan: Any) -> Judged:
    return check_tables({"run": "run", "workload": workload, **plan}, tables(txns))


def word(txns: Sequence[Txn], workload: str = "list-append", **plan: Any) -> str:
    return str(verdict(check(txns, workload, **plan), {"workload": workload})["verdict"])


def names(judged: Judged, property_: str = "transactions") -> set[str]:
    return {anomaly for of, anomaly, _, _ in judged.tally if of == property_}


def found(txns: Sequence[Txn], workload: str = "list-append", **plan: Any) -> set[str]:
    return names(check(txns, workload, **plan))


# Brute force


def serializable(txns: Sequence[Txn], *, strict: bool) -> bool:
    """Does an order of the transactions that are ok, and of some indeterminate ones, explain all reads?"""
    ok = [txn for txn in txns if txn.outcome == "ok"]
    info = [txn for txn in txns if txn.outcome == "info"]
    return any(
        _order_exists(ok + list(some), {}, strict)
        for number in range(len(info) + 1)
        for some in combinations(info, number)
    )


def _order_exists(left: list[Txn], state: dict[int, tuple[int, ...]], strict: bool) -> bool:
    if not left:
        return True
    for txn in left:
        others = [other for other in left if other is not txn]
        if strict and any(
            other.outcome == "ok" and other.complete is not None and other.complete < txn.invoke for other in others
        ):
            continue
        after = apply(txn, state)
        if after is not None and _order_exists(others, after, strict):
            return True
    return False


def apply(txn: Txn, state: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]] | None:
    """The lists after the transaction; None: it read something else."""
    after = dict(state)
    for kind, key, value in txn.micro:
        if kind == "append":
            after[key] = (*after.get(key, ()), value)
        elif txn.outcome == "ok" and tuple(value or ()) != after.get(key, ()):
            return None
    return after


# At random


def draw(random: Random, *, complete: bool) -> list[Txn]:
    """Up to five transactions executed one after the other at an instant of each, perhaps then broken.

    complete: every append that may have happened is read in the end, by a transaction that reads all keys.
    """
    keys = random.randint(1, 3)
    txns = []
    number = random.randint(2, 5)
    lists: dict[int, list[int]] = {key: [] for key in range(keys)}
    values = dict.fromkeys(range(keys), 0)
    instants = sorted(random.sample(range(1, 60), number))
    for instant in instants:
        outcome = random.choices(["ok", "info", "fail"], [8, 0 if complete else 1, 1])[0]
        happens = outcome == "ok" or (outcome == "info" and random.random() < 0.5)
        micro: list[Micro] = []
        scratch = {key: list(elements) for key, elements in lists.items()}
        for _ in range(random.randint(1, 3)):
            key = random.randrange(keys)
            if random.random() < 0.5:
                values[key] += 1
                scratch[key].append(values[key])
                micro.append(("append", key, values[key]))
            else:
                micro.append(("read", key, list(scratch[key]) if outcome == "ok" else None))
        if happens:
            lists = scratch
        invoke = max(0, instant - random.randint(0, 20))
        end = instant + random.randint(0, 20)
        txns.append(Txn(micro, invoke, None if outcome == "info" else end, outcome, None))
    _break(random, txns)
    if complete:
        _read_all(random, txns, keys, lists)
    return sorted(txns, key=lambda txn: txn.invoke)


def _read_all(random: Random, txns: list[Txn], keys: int, lists: dict[int, list[int]]) -> None:
    """Add what makes every version known: a transaction that reads all keys when the others have completed."""
    final = {key: list(elements) for key, elements in lists.items()}
    if random.random() < 0.3:  # an order that no order of the transactions need have
        random.shuffle(final[random.randrange(keys)])
    end = max(txn.complete or txn.invoke for txn in txns)
    txns.append(Txn([("read", key, final[key]) for key in range(keys)], end + 1, end + 2))


def _break(random: Random, txns: list[Txn]) -> None:
    """In one of many ways, or not at all."""
    reads = [
        (txn, place)
        for txn in txns
        if txn.outcome == "ok"
        for place, micro in enumerate(txn.micro)
        if micro[0] == "read"
    ]
    how = random.randrange(9)
    if how in (0, 1, 2) and reads:
        txn, place = random.choice(reads)
        kind, key, elements = txn.micro[place]
        elements = list(elements)
        if how == 0 and elements:
            elements.pop()
        elif how == 1:
            elements.append(random.randint(1, 4))
        elif how == 2:
            random.shuffle(elements)
        txn.micro[place] = (kind, key, elements)
    elif how == 3:  # another time
        txn = random.choice(txns)
        length = (txn.complete or txn.invoke + 5) - txn.invoke
        txn.invoke = random.randint(0, 60)
        txn.complete = None if txn.complete is None else txn.invoke + length
    elif how == 4:  # another outcome
        txn = random.choice(txns)
        if txn.outcome != "ok":
            return
        txn.outcome = random.choice(["fail", "info"])
        txn.micro = [(kind, key, value if kind == "append" else None) for kind, key, value in txn.micro]
    elif how == 5:  # two reads of different states
        for txn, place in random.sample(reads, min(2, len(reads))):
            kind, key, elements = txn.micro[place]
            txn.micro[place] = (kind, key, list(elements)[: random.randint(0, len(elements))])
    elif how == 6 and len(txns) > 1:  # the reads of a transaction as of another moment
        txn = random.choice(txns)
        if txn.outcome == "ok":
            txn.micro = [(k, key, [] if k == "read" else value) for k, key, value in txn.micro]
