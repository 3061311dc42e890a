"""Foreign histories, as Jepsen, Elle, Knossos and Porcupine have them, read into the tables of schema.py.

text.py          lines of a file, gzipped or not
edn.py           values in EDN
events.py        the events of a history in EDN, JSON or as text
operations.py    invocations with their completions, on one time line
registers.py     registers, and calls of other objects
transactions.py  list-append, rw-register and kafka
logs.py          our own workload `append`
guess.py         which workload a history is of, where nobody says
export.py        and back: a run of ours as Jepsen would have written it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spark_history.errors import HistoryError
from spark_history.jepsen import guess, logs, registers, transactions
from spark_history.jepsen.events.events import open_history
from spark_history.jepsen.events.plain import to_json
from spark_history.jepsen.operations import PLAN, Numbers, Operations, Pair, faults

#: Who judges histories, by module.
REGISTERS: Final = "checkers.registers"
TRANSACTIONS: Final = "checkers.transactions"
MODELS: Final = "checkers.models"
INVARIANTS: Final = "checkers.models.invariants"
#: What a history can be of, and who judges it; None: checkers.check, as it does our own runs of logs.
FAMILY: Final[Mapping[str, str | None]] = {
    "register": REGISTERS, "cas-register": REGISTERS, "append": None,
    "list-append": TRANSACTIONS, "rw-register": TRANSACTIONS, "kafka": TRANSACTIONS,
    "mutex": MODELS, "owned-mutex": MODELS, "queue": MODELS, "fifo-queue": MODELS, "set": MODELS, "kv": MODELS,
    "counter": MODELS, "multi-register": MODELS,
    "bank": INVARIANTS, "long-fork": INVARIANTS, "comments": INVARIANTS, "sequential": INVARIANTS,
    "set-full": INVARIANTS, "total-queue": INVARIANTS,
}  # fmt: skip
WORKLOADS: Final = tuple(FAMILY)

#: Fields of plan.json that checkers look at, and that an export therefore tells.
PLAN_FIELDS: Final = (
    "run", "target", "promise", "inside", "workload", "acks", "min_insync_replicas", "nemesis", "must_take_effect",
    "settings", "cleanup.policy", "log_start", "initial", "nil_reads", "failed_cas", "consistency", "wfr_keys",
    "sequential_keys", "linearizable_keys", "accounts", "total_amount", "negative_balances", "group_size",
    "linearizable",
)  # fmt: skip
#: What an export tells beside the plan: see checkers.verdict.verdict.Evidence.
BESIDE_THE_PLAN: Final = ("doubts", "violation")

#: Operations that are looked at to tell what a history is of; as many more, as long as these do not tell.
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
        odd = "".join(f"; {each}" for each in (*foreign.notes, *foreign.doubts))
        raise HistoryError(f"{path} holds no operation{odd}")
    reported = _reported(operations)
    doubts, violation = (reported.pop(name, None) for name in BESIDE_THE_PLAN)
    notes: list[str] = []
    initial = "initial" in {**reported, **given}
    if workload is None and reported.get("workload") in WORKLOADS:
        workload = str(reported["workload"])
    while workload is None and guess.needs_more(first) and (more := list(islice(pairs, max(_LOOKED_AT, len(first))))):
        first += more
    levelled = any(name in {**reported, **given} for name in guess.OF_TRANSACTIONS)
    workload = _workload(path, first, workload, notes, initial=initial, levelled=levelled)
    plan: dict[str, Any] = {"run": _run_name(path), "nemesis": [], **reported, **given}
    plan |= {"workload": workload, "source": "imported", "replica_logs": False}
    run, every = str(plan["run"]), chain(first, pairs)
    if workload == "append":
        tables = logs.logs(operations, every, run)
        count = tables["operations"].num_rows
    else:
        if keyed is None:
            keyed = FAMILY[workload] != TRANSACTIONS and workload != "sequential" and registers.is_keyed(first)
            notes += [_KEYED] * keyed
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
    doubts = [*(doubts or ()), *foreign.doubts]
    return Imported(plan, tables, [*foreign.notes, *notes], count, foreign.notation, doubts, violation)


_KEYED: Final = "its values are taken for [key value], each key an object of its own; --not-keyed says otherwise"


def _workload(
    path: Path, first: Sequence[Pair], asked: str | None, notes: list[str], *, initial: bool, levelled: bool
) -> str:
    """asked: or what the history says. initial: is the first value given? levelled: is something that only
    transactions have? Raises HistoryError, Undecided if the operations fit several."""
    if asked == "append" and "list-append" in guess.candidates(first):  # what Jepsen calls append
        return "list-append"
    if asked is not None:
        return asked
    if not first:
        return "register"  # of nothing, any
    guessed = guess.workload(path, first, initial=initial, levelled=levelled)
    notes.append(f"taken for a history of {guessed}, after its operations; --workload says otherwise")
    return guessed


def _reported(operations: Operations) -> dict[str, Any]:
    """What an export tells of the plan, and beside it."""
    for _, event in operations.nemesis:
        if event.f == PLAN and isinstance(event.value, Mapping):
            reported: dict[str, Any] = json.loads(to_json(event.value))
            return {
                name: reported[each]
                for name in (*PLAN_FIELDS, *BESIDE_THE_PLAN)
                if (each := name.replace("_", "-")) in reported
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
