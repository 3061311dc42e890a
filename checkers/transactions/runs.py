"""The transactions of a run of `chaos run` whose plan has `transactions`: workload `kafka` of this package over what
transactors did (log_anomalies.py, cycles), and what can be asked once all that is committed was read.

| property | anomalies |
| --- | --- |
| transactions | as log_anomalies.py has them; torn transaction |
| exactly-once processing | processed twice, unprocessed input, processed in vain |
| transactions settle | stuck last stable offset, loop not settled |

*Torn transaction*: of the sends of one transaction a read_committed consumer returned some and not others, in logs that
such a consumer has read to their ends (atomicity: KIP-98; Jepsen, Bufstream 0.1.0).

*Loops* read records of the inputs, write one of each to an output, and commit where they got to, in one transaction
(KIP-98, KIP-447: consume, transform, produce). A value of an output is a number of its own times `value_of_loops`, plus
the value that it was made of. *Processed twice*: two committed records of outputs are of one input. *Unprocessed
input*: no committed record of the output is of it, though a loop has committed a place beyond it. *Processed in vain*:
a committed record is of an input that no read_committed consumer ever returned.

*Stuck last stable offset* (KIP-98; KAFKA-17582 is one of its kind): once all faults have been healed for longer than
`settle_s` it is below the high watermark, though every process with a transactional.id has ended: a transaction is open
that nobody will end. *Loop not settled*: none of the loops has come to the last record of an input within `loops_s`,
which leaves time for one whose client hangs to be noticed, and followed by another.

The plan's `transactions`: {"outputs": partitions, "value_of_loops": int, "settle_s": seconds, "loops_s": seconds}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from checkers.groups import healed_of
from checkers.naming import Naming
from checkers.properties import EXACTLY_ONCE_PROCESSING, LOG_LINEARIZABILITY, TRANSACTIONS, TRANSACTIONS_SETTLE
from checkers.transactions import check_tables
from checkers.transactions.history import transactions_of
from checkers.transactions.report import Report
from spark_history.errors import HistoryError
from spark_history.schema import ASSIGNMENTS, MICRO_OPERATIONS
from spark_history.schema import TRANSACTIONS as TRANSACTIONS_TABLE

if TYPE_CHECKING:
    import pandas as pd

TORN: Final = "torn transaction"
NEEDED: Final = ("transactions", "micro_operations", "stable_offsets")
_FEW: Final = 5


@dataclass
class OfTransactions:
    """What was found. rows: ANOMALIES; tally: (property, anomaly, witnesses, records). checked: names of properties.
    undecided: why others were not decided, a sentence each. counts: of transactions, and of what loops did."""

    checked: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    tally: list[tuple[str, str, int, int]] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """A clause for the reason of a pass."""
        ok, fail, info = (self.counts.get(f"transaction {how}", 0) for how in ("ok", "fail", "info"))
        said = f"{ok:,} transactions are committed whole, {fail:,} aborted ones not at all, {info:,} have no known end"
        copies = self.counts.get("of these committed")
        return said if copies is None else f"{said}, and loops processed {copies:,} records once each"

    def as_dict(self) -> dict[str, Any]:
        return {"checked": self.checked, "undecided": self.undecided, "counts": self.counts}


def applies(plan: Mapping[str, Any]) -> bool:
    return isinstance(plan.get("transactions"), Mapping) and bool(plan["transactions"])


def check(
    run: str, plan: Mapping[str, Any], tables: Mapping[str, pa.Table], record: Mapping[str, Any]
) -> OfTransactions:  # fmt: skip
    """tables: those of NEEDED, as they were recorded. record: of run.json healed_ns (when all faults were healed,
    monotonic ns), transactional_ids (by process) and late_requests (harness.runtimes.proxy.proxy.Late), as far as they
    are known. Of a run that this applies to. Raises HistoryError."""
    healed = healed_of(record)
    settings = _Settings.of(plan["transactions"])
    found = OfTransactions([TRANSACTIONS, TRANSACTIONS_SETTLE])
    txns, micro = ended(tables["transactions"], tables["micro_operations"])
    if not len(txns):
        found.undecided.append("no transaction is on record")
        return found
    whole, apart = _with_polls_apart(txns, micro)
    whole["assignments"] = _assignments(run, txns, micro)
    judged = check_tables({**plan, "run": run, "workload": "kafka"}, whole)
    found.undecided += judged.undecided
    # Of the logs that is judged from their operations, with more than transactions did.
    found.rows += [_as_recorded(row, apart) for row in judged.rows if row["property"] != LOG_LINEARIZABILITY]
    found.tally += [entry for entry in judged.tally if entry[0] != LOG_LINEARIZABILITY]
    found.counts |= {"transactions": len(txns)}
    found.counts |= {f"transaction {how}": int((txns["outcome"] == how).sum()) for how in ("ok", "fail", "info")}
    index = transactions_of(run, whole["transactions"])
    report = Report(index, frozenset(), Naming.of(plan))
    of_op = {int(op): number for number, op in enumerate(index.op.tolist())}
    late = _Lateness(txns, _late_requests(record))
    of_run = _Run(settings, txns, micro, report, of_op)
    of_run.check_torn()
    if settings.outputs:
        found.checked.append(EXACTLY_ONCE_PROCESSING)
        found.counts |= of_run.check_loops()
    _check_stable(tables["stable_offsets"].to_pandas(), settings, healed, report)
    if settings.outputs:
        of_run.check_settled(healed)
    found.rows += report.anomalies.rows
    found.tally += report.anomalies.tally
    late.explain(found.rows)
    for row in found.rows:
        row["ops"] = []  # these are numbers of transactions, which operations have too: the witness has them
    return found


def ended(transactions: pa.Table, micro: pa.Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """As they ended, those that did: TRANSACTIONS and MICRO_OPERATIONS, each transaction once."""
    txns = transactions.to_pandas(types_mapper=_nullable).drop_duplicates("op", keep="last")
    rows = micro.to_pandas(types_mapper=_nullable)
    sends = rows[rows["kind"] == "send"].drop_duplicates(["op", "position"], keep="last")
    polls = rows[rows["kind"] != "send"]
    import pandas as pd

    rows = pd.concat([sends, polls]).sort_values(["op", "position"], kind="stable")
    return txns, rows


def _with_polls_apart(txns: pd.DataFrame, micro: pd.DataFrame) -> tuple[dict[str, pa.Table], dict[int, int]]:
    """As tables, and by number of a transaction that was added which one it is of: what transactions polled that are
    not ok is added as a transaction of nobody's that is. A consumer has returned it, whatever becomes of the
    transaction around it; and who has the id next begins where the group's offsets are, which may be committed though
    the answer was lost, and polls on from there."""
    of_others = micro[(micro["kind"] == "poll") & ~micro["op"].isin(txns.loc[txns["outcome"] == "ok", "op"])].copy()
    first = int(txns["op"].max()) + 1
    apart = txns[txns["op"].isin(of_others["op"]) & txns["complete"].notna()].copy()
    of_others = of_others[of_others["op"].isin(apart["op"])]
    numbers = {int(op): first + number for number, op in enumerate(apart["op"])}
    for rows in (apart, of_others):
        rows["op"] = rows["op"].map(numbers).astype("Int64")
    apart["outcome"], apart["process"] = "ok", None
    tables = {
        "transactions": _table(TRANSACTIONS_TABLE, txns, apart),
        "micro_operations": _table(MICRO_OPERATIONS, micro, of_others),
    }
    return tables, {number: op for op, number in numbers.items()}


def _as_recorded(row: dict[str, Any], apart: Mapping[int, int]) -> dict[str, Any]:
    """Of ANOMALIES, with the transactions that are on record in the place of those that were added."""
    if not apart.keys() & set(row["ops"]):
        return row

    def name(found: re.Match[str]) -> str:
        return f"transaction {apart.get(int(found[1]), found[1])}"

    witness = json.loads(row["witness"])
    for step in witness["operations"]:
        step["op"] = apart.get(step["op"], step["op"])
    for edge in witness["edges"]:
        edge |= {end: apart.get(edge[end], edge[end]) for end in ("from", "to")}
    return row | {
        "ops": [apart.get(op, op) for op in row["ops"]], "message": re.sub(r"transaction (\d+)", name, row["message"]),
        "witness": json.dumps(witness),
    }  # fmt: skip


def _table(schema: pa.Schema, *parts: pd.DataFrame) -> pa.Table:
    return pa.concat_tables([pa.Table.from_pandas(part, schema, preserve_index=False) for part in parts])


def _nullable(kind: pa.DataType) -> Any:
    """Integers with nulls stay integers."""
    import pandas as pd

    return {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}.get(kind)


@dataclass(frozen=True)
class _Settings:
    outputs: frozenset[int]
    value_of_loops: int
    settle_ns: int
    loops_ns: int

    @staticmethod
    def of(plan: Mapping[str, Any]) -> _Settings:
        try:
            outputs = frozenset(int(key) for key in plan["outputs"])
            settle_s = float(plan["settle_s"])
            loops_s = float(plan.get("loops_s", settle_s))
            return _Settings(outputs, int(plan["value_of_loops"]), round(settle_s * 1e9), round(loops_s * 1e9))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise HistoryError(f"the plan's transactions cannot be read: {error!r}") from None


def _assignments(run: str, txns: pd.DataFrame, micro: pd.DataFrame) -> pa.Table:
    """Each process was assigned all its partitions, once, and never again, so that it must go on where it left off."""
    keys = sorted(int(key) for key in micro["key"].unique())
    rows = [
        {
            "run": run, "process": int(process), "op": number, "kind": "assign", "keys": keys, "from_start": True,
            "invoke": int(invoke) - 1, "complete": int(invoke) - 1, "outcome": "ok", "error": None,
        }
        for number, (process, invoke) in enumerate(txns.groupby("process")["invoke"].min().items())
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=ASSIGNMENTS)


class _Late(NamedTuple):
    at: int  # monotonic ns
    held_ms: int
    what: str


def _late_requests(record: Mapping[str, Any]) -> Mapping[int, Sequence[_Late]]:
    """By process of the history."""
    late: dict[int, list[_Late]] = {}
    identities, requests = record.get("transactional_ids"), record.get("late_requests")
    if not isinstance(identities, Mapping) or not isinstance(requests, list):
        return late
    for process, identity in identities.items():
        for each in requests:
            if each.get("transactional_id") == identity:
                asks = {True: "(commit)", False: "(abort)"}.get(each.get("committed"), "")
                what = " ".join(filter(None, ("an" if each["api"][0] in "AE" else "a", each["api"], asks)))
                late.setdefault(int(process), []).append(_Late(int(each["at"]), int(each["held_ms"]), what))
    return late


class _Lateness:
    """What was delivered late while a transaction was under way: KAFKA-17754 is of this kind."""

    def __init__(self, txns: pd.DataFrame, late: Mapping[int, Sequence[_Late]]) -> None:
        self._late = late
        of_late = txns[txns["process"].isin(list(late)) & txns["complete"].notna()]
        columns = (of_late[name].astype(int).tolist() for name in ("op", "process", "invoke", "complete"))
        self._times = {op: times for op, *times in zip(*columns, strict=True)}

    def explain(self, rows: Sequence[dict[str, Any]]) -> None:
        """rows: ANOMALIES. Of each that names such a transaction, the first of these is told of."""
        for row in rows:
            met = [(op, late) for op in row["ops"] for late in self._met_by(op)]
            if met:
                op, late = met[0]
                after_ms = (late.at - self._times[op][1]) / 1e6
                row["message"] += (
                    f"; {after_ms:.0f} ms after transaction {op} had begun a broker got {late.what} of the same "
                    f"transactional.id, {late.held_ms / 1000:.1f} s late and meant for an earlier transaction"
                )

    def _met_by(self, op: int) -> Sequence[_Late]:
        process, invoke, complete = self._times.get(op, (-1, 0, 0))
        return [
            late for late in self._late.get(process, ())
            if late.at - late.held_ms * 1_000_000 < invoke <= late.at <= complete
        ]  # fmt: skip


class _Run:
    """polled: (key, value) of all that a read_committed consumer returned in a transaction that is ok."""

    def __init__(
        self, settings: _Settings, txns: pd.DataFrame, micro: pd.DataFrame, report: Report, of_op: Mapping[int, int]
    ) -> None:
        self._settings = settings
        self._report = report
        self._of_op = of_op
        self._last = int(txns["complete"].fillna(0).max())
        rows = micro.merge(txns[["op", "outcome", "invoke"]], on="op")
        self._polls = rows[rows["kind"] == "poll"]
        self._sends = rows[rows["kind"] == "send"].copy()
        self._committed = self._polls[self._polls["outcome"] == "ok"]
        places = set(zip(self._committed["key"], self._committed["value"], strict=True))
        self._sends["seen"] = [place in places for place in zip(self._sends["key"], self._sends["value"], strict=True)]
        self._read_whole = self._read_to_their_ends()

    def _read_to_their_ends(self) -> frozenset[int]:
        """Partitions whose last acknowledged send was read by a read_committed consumer: all that stands before it and
        is committed was read too, or is lost."""
        told = self._sends[self._sends["offset"].notna()]
        if not len(told):
            return frozenset()
        last = told.loc[told.groupby("key")["offset"].idxmax()]
        return frozenset(last[last["seen"]]["key"].tolist())

    def check_torn(self) -> None:
        sends = self._sends[self._sends["key"].isin(self._read_whole)]
        by_txn = sends.groupby("op")["seen"].agg(["sum", "size"])
        for op in by_txn[(by_txn["sum"] > 0) & (by_txn["sum"] < by_txn["size"])].index.tolist():
            of_txn = sends[sends["op"] == op]
            seen, unseen = (_named(of_txn[of_txn["seen"] == is_seen]) for is_seen in (True, False))
            outcome = {"ok": "was committed", "fail": "was aborted"}.get(of_txn["outcome"].iloc[0], "had no known end")
            self._report.add(
                TORN,
                f"transaction {op} {outcome}; of its sends read_committed consumers returned {seen}, but not {unseen}",
                [(self._of_op[int(op)], f"sent {seen}"), (self._of_op[int(op)], f"sent {unseen}")],
                count=len(of_txn), property_=TRANSACTIONS,
            )  # fmt: skip

    def check_loops(self) -> dict[str, int]:
        self._sends["input"] = self._sends["value"] % self._settings.value_of_loops
        copies = self._sends[self._sends["value"] >= self._settings.value_of_loops]
        done = copies[copies["seen"]]
        self._report_twice(done)
        self._report_in_vain(done)
        self._report_unprocessed(copies, done)
        return {"records that loops wrote": len(copies), "of these committed": len(done)}

    def _report_twice(self, done: pd.DataFrame) -> None:
        again = done[done.duplicated("input", keep=False)]
        for value, of_input in again.groupby("input"):
            ops = of_input["op"].tolist()
            self._report.add(
                "processed twice",
                f"input {value} was processed {len(ops)} times: {_named(of_input)}, by transactions "
                f"{', '.join(map(str, ops[:_FEW]))}, are committed",
                [(self._of_op[int(op)], f"committed a record of input {value}") for op in ops[:_FEW]],
                value=int(value), count=len(ops) - 1, property_=EXACTLY_ONCE_PROCESSING,
            )  # fmt: skip

    def _report_in_vain(self, done: pd.DataFrame) -> None:
        returned = set(self._inputs_returned()["value"])
        whole = self._inputs_of()
        for row in done[~done["input"].isin(returned)].itertuples():
            source = whole.get(int(row.input))
            if source is not None and source not in self._read_whole:
                continue  # it may be committed all the same
            self._report.add(
                "processed in vain",
                f"transaction {row.op} committed a record of input {row.input}, which no read_committed consumer "
                "returned in a transaction that is ok",
                [(self._of_op[int(row.op)], f"committed a record of input {row.input}")],
                value=int(row.input), property_=EXACTLY_ONCE_PROCESSING,
            )  # fmt: skip

    def _report_unprocessed(self, copies: pd.DataFrame, done: pd.DataFrame) -> None:
        """Of inputs of which the outputs were read to their ends: all that is committed of these is known."""
        if not self._settings.outputs <= self._read_whole:
            return
        loops = set(copies["op"])
        of_loops = self._polls[self._polls["op"].isin(loops) & (self._polls["outcome"] == "ok")]
        reached = of_loops.groupby("key")["offset"].max()
        inputs = self._inputs_returned()
        beyond = inputs["key"].map(reached).fillna(-1)
        missing = inputs[(inputs["offset"] <= beyond) & ~inputs["value"].isin(set(done["input"]))]
        for key, of_key in missing.groupby("key"):
            first = of_key.sort_values("offset").iloc[0]
            self._report.add(
                "unprocessed input",
                f"{len(of_key)} committed records of partition {key}, the first {first['value']} at offset "
                f"{first['offset']}, have no committed record of the output, though a loop has committed to be past "
                f"offset {reached[key]}",
                [(self._of_op[int(first["op"])], f"polled {first['value']} of partition {key}")],
                value=int(first["value"]), offset=int(first["offset"]), count=len(of_key),
                property_=EXACTLY_ONCE_PROCESSING,
            )  # fmt: skip

    def check_settled(self, healed: int | None) -> None:
        """The last record of each input is to be processed in time."""
        if healed is None or self._last - healed < self._settings.loops_ns:
            return
        done = set(self._sends[(self._sends["value"] >= self._settings.value_of_loops) & self._sends["seen"]]["input"])
        inputs = self._sends[~self._sends["key"].isin(self._settings.outputs) & self._sends["offset"].notna()]
        inputs = inputs[inputs["seen"]]
        for key, of_key in inputs.groupby("key"):
            last = of_key.loc[of_key["offset"].idxmax()]
            if int(last["value"]) not in done and self._settings.outputs <= self._read_whole:
                self._report.add(
                    "loop not settled",
                    f"the last record of partition {key}, {last['value']} at offset {last['offset']}, was not "
                    f"processed within {self._settings.loops_ns / 1e9:g} s of the healing of all faults",
                    [(self._of_op[int(last["op"])], f"sent {last['value']} to partition {key}")],
                    value=int(last["value"]), offset=int(last["offset"]), property_=TRANSACTIONS_SETTLE,
                )  # fmt: skip

    def _inputs_returned(self) -> pd.DataFrame:
        """Records of inputs that a read_committed consumer returned, each once."""
        inputs = self._committed[~self._committed["key"].isin(self._settings.outputs)]
        return inputs.drop_duplicates(["key", "value"])

    def _inputs_of(self) -> Mapping[int, int]:
        """The partition that each value was sent to."""
        sends = self._sends[~self._sends["key"].isin(self._settings.outputs)]
        return dict(zip(sends["value"].astype(int), sends["key"].astype(int), strict=True))


def _named(sends: pd.DataFrame) -> str:
    said = [f"{row.value} of partition {row.key}" for row in sends.head(_FEW).itertuples()]
    return ", ".join(said) + (f" and {len(sends) - _FEW} more" if len(sends) > _FEW else "")


def _check_stable(looks: pd.DataFrame, settings: _Settings, healed: int | None, report: Report) -> None:
    if healed is None or not len(looks):
        return
    last = looks.sort_values("complete").groupby("partition").tail(1)
    late = (last["last_stable"] < last["end"]) & (last["complete"] - healed >= settings.settle_ns)
    for row in last[late].itertuples():
        report.add(
            "stuck last stable offset",
            f"{(row.complete - healed) / 1e9:.1f} s after all faults were healed, and with no transactional producer "
            f"left, the last stable offset of partition {row.partition} is {row.last_stable}, and its high watermark "
            f"{row.end}: a transaction is open that nobody ends",
            [], offset=int(row.last_stable), property_=TRANSACTIONS_SETTLE,
        )  # fmt: skip
