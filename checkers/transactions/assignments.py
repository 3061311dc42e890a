"""What clients of the kafka workload did to their consumers, and when a poll need not go on where one left off.

A consumer polls a partition onwards from its position, as long as it has the partition:

| operation                  | positions afterwards                                                          |
| -------------------------- | ----------------------------------------------------------------------------- |
| assign, subscribe of keys  | kept of these keys, gone of all others                                        |
| assign from the beginning  | gone                                                                          |
| unsubscribe, crash, close  | gone                                                                          |
| a rebalance                | gone of the partitions that it names, from the transaction on that tells of it |
| any of them that failed    | as they were                                                                  |

As in jepsen.tests.kafka, an indeterminate one counts as having happened, and a history in which anything subscribes
is one whose consumers may be rebalanced at any time, so nothing follows from where they went on. Jepsen replaces the
client that crashed by one with another process, so that `crash` changes nothing there. It says nothing of a rebalance
without a subscription, and forgets no position when a consumer seeks the beginning: here it does, for then going back
is what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.stored import Stored
from checkers.transactions.history import Transactions
from spark_history.errors import HistoryError
from spark_history.files import Bools, Ints, compact, read_parquet
from spark_history.schema import ASSIGNMENTS

TABLE: Final = "assignments"
_NEEDED: Final = pa.schema(
    [ASSIGNMENTS.field(name) for name in ("process", "op", "kind", "keys", "from_start", "invoke", "outcome")]
)
_KINDS: Final = ("assign", "subscribe", "unsubscribe", "crash", "close")


@dataclass(frozen=True)
class _Loss:
    """What makes a process lose positions: in `keys`, or in all others than these. Of transactions invoked later."""

    invoke: int
    keys: frozenset[int]
    all_others: bool

    def takes(self, key: int) -> bool:
        return (key in self.keys) != self.all_others


class Assignments:
    """Of one run. rebalanced: of its plan, lists of partitions by transaction (a number, as text)."""

    def __init__(self, rows: pa.Table | None, rebalanced: Mapping[str, Any]) -> None:
        """rows: ASSIGNMENTS; None: there are none. Raises HistoryError."""
        self._rebalanced = {_number(op): _keys(keys) for op, keys in rebalanced.items()}
        self._of_polls: dict[int, list[_Loss]] = {}
        self._of_sends: dict[int, list[_Loss]] = {}
        kinds = set[str]()
        columns = [] if rows is None else rows.select(_NEEDED.names).to_pylist()
        for row in sorted(columns, key=lambda row: (row["invoke"], row["op"])):
            kind = row["kind"]
            if kind not in _KINDS:
                raise HistoryError(f"an assignment of the kind {kind!r}, which is none of {', '.join(_KINDS)}")
            kinds.add(kind)
            if row["outcome"] == "fail" or row["process"] is None:
                continue
            named = frozenset[int](row["keys"] or ())
            kept = frozenset[int]() if row["from_start"] else named
            self._of_polls.setdefault(row["process"], []).append(_Loss(row["invoke"], kept, True))
            if kind in ("assign", "subscribe"):
                self._of_sends.setdefault(row["process"], []).append(_Loss(row["invoke"], named, True))
        #: Must consumers go on where they left off? Where nothing is on record, nobody knows what they were given.
        self.in_order = "assign" in kinds and "subscribe" not in kinds

    def eras(self, txns: Transactions, txn: Ints, key: Ints, *, of_sends: bool) -> Ints:
        """For each micro-operation, given by its transaction (index) and key: how often its process had lost its
        position in that partition when the transaction began. Raises HistoryError."""
        losses = self._of_sends if of_sends else self._with_rebalances(txns)
        found = np.zeros(len(txn), np.int64)
        process = txns.process[txn]
        order = np.argsort(process, kind="stable")
        ordered = process[order]
        for which, mine in losses.items():
            rows = order[np.searchsorted(ordered, which) : np.searchsorted(ordered, which, "right")]
            if not len(rows):
                continue
            keys, of_row = np.unique(key[rows], return_inverse=True)
            taken = np.array([[loss.takes(each) for each in keys.tolist()] for loss in mine], np.int64)
            total = np.concatenate([np.zeros((1, len(keys)), np.int64), np.cumsum(taken, axis=0)])
            before = np.searchsorted(np.array([loss.invoke for loss in mine]), txns.invoke[txn[rows]])
            found[rows] = total[before, of_row]
        return found

    def _with_rebalances(self, txns: Transactions) -> dict[int, list[_Loss]]:
        if not self._rebalanced:
            return self._of_polls
        losses = {process: list(mine) for process, mine in self._of_polls.items()}
        rows = txns.index(np.array(list(self._rebalanced), np.int64))
        for row, keys in zip(rows.tolist(), self._rebalanced.values(), strict=True):
            losses.setdefault(int(txns.process[row]), []).append(_Loss(int(txns.invoke[row]), keys, False))
        return {process: sorted(mine, key=lambda loss: loss.invoke) for process, mine in losses.items()}

    def disturbed(self, txns: Transactions, txn: Ints, key: Ints) -> Bools:
        """For each micro-operation: was its partition re-assigned during its transaction?"""
        if not self._rebalanced:
            return np.zeros(len(txn), bool)
        reported = zip(txns.op[txn].tolist(), key.tolist(), strict=True)
        return np.array([one in self._rebalanced.get(op, ()) for op, one in reported], bool)


def _number(op: Any) -> int:
    try:
        return int(op)
    except (TypeError, ValueError):
        raise HistoryError(f"the plan's `rebalanced` names a transaction {op!r}, which is no number") from None


def _keys(keys: Any) -> frozenset[int]:
    if not isinstance(keys, list | tuple) or not all(type(key) is int for key in keys):
        raise HistoryError(f"the plan's `rebalanced` must hold lists of partitions, not {keys!r}")
    return frozenset(keys)


def assignments_of(plan: Mapping[str, Any], rows: pa.Table | None) -> Assignments:
    """Raises HistoryError."""
    rebalanced = plan.get("rebalanced") or {}
    if not isinstance(rebalanced, dict):
        raise HistoryError("the plan's `rebalanced` must be an object: lists of partitions by transaction")
    return Assignments(rows, rebalanced)


def load(run: Stored) -> Assignments:
    """Of a run on disk. Raises HistoryError."""
    if TABLE not in run.tables:
        return assignments_of(run.plan, None)
    tables = [read_parquet(path, _NEEDED) for path in run.paths(TABLE)]
    return assignments_of(run.plan, pa.concat_tables([compact(_NEEDED).empty_table(), *tables]))
