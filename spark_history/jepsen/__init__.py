"""Foreign histories, as Jepsen, Elle, Knossos and Porcupine have them, read into the tables of schema.py.

    text.py          lines of a file, gzipped or not
    edn.py           values in EDN
    events.py        the events of a history in EDN, JSON or as text
    operations.py    invocations with their completions, on one time line
    registers.py     registers, and calls of other objects
    transactions.py  list-append and kafka
    logs.py          our own workload `append`
    export.py        and back: a run of ours as Jepsen would have written it

Which workload a history is of is guessed from its first operations where nobody says:

| operations                                                | workload                                 |
| --------------------------------------------------------- | ---------------------------------------- |
| values of micro-operations [:append k v], [:r k [v …]]    | list-append                              |
| values of [:send k v], [:poll …]; or assign, subscribe    | kafka                                    |
| values of [:w k v] or [:write k v], [:r k v]              | multi-register                           |
| read of {k nil …}, write                                  | multi-register                           |
| append, read, list-offsets, final-read of ["topic" p …]   | append, our own                          |
| read, write; cas                                          | register; cas-register                   |
| acquire, release                                          | mutex                                    |
| enqueue, dequeue, drain                                   | queue                                    |
| add, read; where reads return a number                    | set; counter                             |
| get, put, append                                          | kv                                       |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from numbers import Number
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spark_history.files import HistoryError
from spark_history.jepsen import logs, registers, transactions
from spark_history.jepsen.events import open_history
from spark_history.jepsen.operations import PLAN, Numbers, Operations, Pair, faults
from spark_history.jepsen.plain import to_json, untag

#: Who judges histories, by module.
REGISTERS: Final = "checkers.registers"
TRANSACTIONS: Final = "checkers.transactions"
MODELS: Final = "checkers.models"
#: What a history can be of, and who judges it; None: checkers.check, as it does our own runs of logs.
FAMILY: Final[Mapping[str, str | None]] = {
    "register": REGISTERS, "cas-register": REGISTERS, "append": None,
    "list-append": TRANSACTIONS, "kafka": TRANSACTIONS,
    "mutex": MODELS, "owned-mutex": MODELS, "queue": MODELS, "fifo-queue": MODELS, "set": MODELS, "kv": MODELS,
    "counter": MODELS, "multi-register": MODELS,
}  # fmt: skip
WORKLOADS: Final = tuple(FAMILY)

#: Fields of plan.json that checkers look at, and that an export therefore tells.
PLAN_FIELDS: Final = (
    "run", "workload", "acks", "min_insync_replicas", "nemesis", "settings", "cleanup.policy", "log_start", "initial",
    "nil_reads", "failed_cas", "consistency",
)  # fmt: skip
#: What an export tells beside the plan: see checkers.verdict.Evidence.
BESIDE_THE_PLAN: Final = ("doubts", "violation")

#: Operations that are looked at to tell what a history is of.
_LOOKED_AT: Final = 5_000


@dataclass(frozen=True)
class Imported:
    """plan: as checkers want it, with `workload` and `source`. notes: what a person should know, a sentence each."""

    plan: dict[str, Any]
    tables: Mapping[str, pa.Table]
    notes: Sequence[str]
    operations: int  # rows of the main table
    notation: str  # EDN, JSON or text
    doubts: Sequence[str] = ()
    violation: Mapping[str, Any] | None = None


def read_history(
    path: Path, *, workload: str | None = None, keyed: bool | None = None, given: Mapping[str, Any] | None = None
) -> Imported:
    """A foreign history as tables of its workload, and its faults. Raises HistoryError.

    workload: one of WORKLOADS; by default what the history says, or guessed. keyed: are values [key value]? By default
    if the first operations all look so. given: entries of the plan (initial, consistency, bounds …) that override what
    the history says of them.
    """
    try:
        return _read_history(path, workload, keyed, given or {})
    except RecursionError:  # of JSON: EDN has edn.MOST_LEVELS
        raise HistoryError(f"{path} holds values within values, too deep to be read") from None


def _read_history(path: Path, workload: str | None, keyed: bool | None, given: Mapping[str, Any]) -> Imported:
    foreign = open_history(path)
    operations = Operations(foreign)
    pairs = operations.pairs()
    first = list(islice(pairs, _LOOKED_AT))
    if not first and not operations.nemesis:
        raise HistoryError(f"{path} holds no operation" + "".join(f"; {note}" for note in foreign.notes))
    told = _told(operations)
    doubts, violation = (told.pop(name, None) for name in BESIDE_THE_PLAN)
    notes: list[str] = []
    workload = _workload(path, first, workload, told.get("workload"), notes)
    plan: dict[str, Any] = {"run": _run_name(path), "nemesis": [], **told, **given}
    plan |= {"workload": workload, "source": "imported", "replica_logs": False}
    run, every = str(plan["run"]), chain(first, pairs)
    if workload == "append":
        tables = logs.logs(operations, every, run)
        count = tables["operations"].num_rows
    else:
        keyed = registers.is_keyed(first) if keyed is None else keyed
        if FAMILY[workload] == TRANSACTIONS:
            tables, values, keys, rebalanced = transactions.transactions(operations, every, run, workload)
            plan |= _names(values, keys) | ({"rebalanced": rebalanced} if rebalanced else {})
        elif FAMILY[workload] == REGISTERS:
            table, values, keys = registers.registers(operations, every, run, keyed=keyed)
            tables = {"registers": table}
            plan |= _names(values, keys)
        else:
            tables = {"calls": registers.calls(operations, every, run, workload, keyed=keyed)}
        count = next(iter(tables.values())).num_rows
        tables["faults"] = faults(operations, run)
    if not operations.timed:
        notes.append("its times cannot be used: the order of its events counts, and second n is the n-th, from 0")
    return Imported(plan, tables, [*foreign.notes, *notes], count, foreign.notation, doubts or (), violation)


def _workload(path: Path, first: Sequence[Pair], asked: str | None, told: Any, notes: list[str]) -> str:
    guessed = _guess(first)
    if asked == "append" and guessed == "list-append":  # what Jepsen calls append
        return guessed
    if asked is not None:
        return asked
    if told in WORKLOADS:
        return str(told)
    if not first:
        return "register"  # of nothing, any
    if guessed is None:
        named = ", ".join(sorted({pair.invoke.f for pair in first if pair.invoke.f is not None})[:8])
        told = f"its operations: {named}" if named else "its operations have no :f"
        raise HistoryError(f"{path} is of no workload known here ({told}); say which by --workload")
    notes.append(f"taken for a history of {guessed}, after its operations; --workload says otherwise")
    return guessed


def _told(operations: Operations) -> dict[str, Any]:
    """What an export tells of the plan, and beside it."""
    for _, event in operations.nemesis:
        if event.f == PLAN and isinstance(event.value, Mapping):
            told: dict[str, Any] = json.loads(to_json(event.value))
            return {
                name: told[each]
                for name in (*PLAN_FIELDS, *BESIDE_THE_PLAN)
                if (each := name.replace("_", "-")) in told
            }
    return {}


def _names(values: Numbers, keys: Numbers) -> dict[str, dict[str, str]]:
    """What numbers stand for, where values or keys are not integers: EDN by number."""
    named = {"names": values.names, "key_names": keys.names}
    return {name: each for name, each in named.items() if each}


def _run_name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    stem = name.rpartition(".")[0] or name
    # Jepsen keeps each run's history in a directory that is named for its time.
    return f"{path.resolve().parent.name}/{stem}" if stem == "history" else stem


def _guess(pairs: Sequence[Pair]) -> str | None:
    fs = {pair.invoke.f for pair in pairs}
    heads = set[str | None]()
    for pair in pairs:
        value = untag(pair.invoke.value)
        if value is None and pair.complete is not None:
            value = untag(pair.complete.value)
        if _is_list(value) and value and _is_list(value[0]):
            heads.update(transactions.head(each) for each in value)
    heads &= {"append", "r", "read", "w", "write", "send", "poll"}
    if heads & {"send", "poll"} or fs & {"assign", "subscribe"}:
        return "kafka"
    if "append" in heads:
        return "list-append"
    if heads & {"w", "write"}:
        return "multi-register"
    if heads:
        done = [
            each for pair in pairs if pair.complete and _is_list(pair.complete.value) for each in pair.complete.value
        ]
        return "multi-register" if any(_is_list(each) and type(each[-1]) is int for each in done) else "list-append"
    if fs <= logs.FS and all(_of_a_log(pair) for pair in pairs):
        return "append"
    workload = next((workload for names, workload in _BY_F if fs <= names), None)
    if workload == "register" and any(isinstance(untag(pair.invoke.value), Mapping) for pair in pairs if _reads(pair)):
        return "multi-register"
    if workload == "set" and any(pair.complete and _is_number(pair.complete.value) for pair in pairs if _reads(pair)):
        return "counter"
    return workload


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)


def _reads(pair: Pair) -> bool:
    return pair.invoke.f == "read"


_BY_F: Final = (
    (frozenset({"read", "write"}), "register"),
    (frozenset({"read", "write", "cas"}), "cas-register"),
    (frozenset({"acquire", "release"}), "mutex"),
    (frozenset({"enqueue", "dequeue", "drain"}), "queue"),
    (frozenset({"add", "read"}), "set"),
    (frozenset({"get", "put", "append"}), "kv"),
)


def _of_a_log(pair: Pair) -> bool:
    value = untag(pair.invoke.value)
    return _is_list(value) and len(value) == 3 and isinstance(value[0], str)


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list))
