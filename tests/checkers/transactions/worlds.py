"""A cluster with transactions as a few lists, that transactors and a loop work on one after the other, and what can be
said of it by looking at it whole. It does things right, but for the faults that it is made with."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pyarrow as pa

from harness.record.history import MemoryRecorder
from workloads.transactions.recording import TransactionRecorder

TOPIC: Final = "chaos"
INPUTS: Final = (0, 1)
OUTPUT: Final = 2
VALUE_OF_LOOPS: Final = 1 << 32
SETTLE_S: Final = 10.0
HEALED: Final = 1_000_000
PLAN: Final[Mapping[str, Any]] = {
    "run": "r",
    "transactions": {"outputs": [OUTPUT], "value_of_loops": VALUE_OF_LOOPS, "settle_s": SETTLE_S},
}
#: What may be planted, by what it must be found as.
FAULTS: Final = {
    "torn": "torn transaction",  # a commit that commits some of the sends alone
    "visible": "G1a",  # an abort that commits
    "again": "processed twice",  # a loop's commit that does not move its place
    "skip": "unprocessed input",  # a loop's abort that moves its place
}


@dataclass
class Record:
    value: int
    txn: int
    visible: bool


class World:
    """fault: one of FAULTS; "": none. often: of the transactions that it may strike."""

    def __init__(self, seed: int, fault: str = "", often: float = 0.3) -> None:
        self._random = Random(seed)
        self._fault = fault
        self._often = often
        self.memory = MemoryRecorder("r")
        self.recorder = TransactionRecorder(self.memory, TOPIC)
        self.logs: dict[int, list[Record | None]] = {key: [] for key in (*INPUTS, OUTPUT)}  # None: a marker
        self.outcomes: dict[int, str] = {}
        self.copied: set[int] = set()  # inputs that the loop polled in transactions that may be committed
        self.reached: dict[int, int] = dict.fromkeys(INPUTS, 0)  # one past what ok transactions of the loop polled
        self._place = dict.fromkeys(INPUTS, 0)
        self._positions: dict[int, dict[int, int]] = defaultdict(lambda: dict.fromkeys(INPUTS, 0))
        self._values, self._copies, self._now = itertools.count(), itertools.count(1), itertools.count(1)
        self._processes = {"transactor": 1, "loop": 2}
        self._fresh = itertools.count(10)

    def run(self, steps: int) -> dict[str, pa.Table]:
        """TRANSACTIONS, MICRO_OPERATIONS and STABLE_OFFSETS, at the end of it all."""
        for _ in range(steps):
            self._transact()
            if self._random.random() < 0.5:
                self._loop(may_fail=True)
        closing = {key: self._close(key) for key in INPUTS}
        while any(self._poll(key, self._place[key]) for key in INPUTS):
            self._loop(may_fail=False)
        closing[OUTPUT] = self._close(OUTPUT)
        for key, log in self.logs.items():
            self.recorder.stable(key, len(log), len(log), next(self._now), next(self._now) + HEALED)
        op = self.recorder.begin(99, [("poll",)], next(self._now))
        polled = [record for key in self.logs for record in self._poll(key, 0)]
        self.recorder.end(op, next(self._now), "ok", polled={0: polled})
        self.recorder.flush()
        return self.memory.tables()

    def expected(self) -> set[str]:
        """The anomalies that there are, by looking at the whole world."""
        found = set()
        seen: dict[int, list[bool]] = defaultdict(list)
        for log in self.logs.values():
            for record in log:
                if record is not None:
                    seen[record.txn].append(record.visible)
        for txn, sends in seen.items():
            if any(sends) and not all(sends):
                found.add("torn transaction")
            if any(sends) and self.outcomes[txn] == "fail":
                found.add("G1a")
        done = Counter(
            record.value % VALUE_OF_LOOPS
            for record in self.logs[OUTPUT] if record is not None and record.visible and record.value >= VALUE_OF_LOOPS
        )  # fmt: skip
        if max(done.values(), default=0) > 1:
            found.add("processed twice")
        for key in INPUTS:
            for record in self.logs[key][: self.reached[key]]:
                if record is not None and record.visible and not done[record.value]:
                    found.add("unprocessed input")
        return found

    def _strikes(self, fault: str) -> bool:
        return self._fault == fault and self._random.random() < self._often

    def _transact(self) -> None:
        sends = [
            ("send", self._random.choice(INPUTS), next(self._values)) for _ in range(self._random.randint(1, 4))
        ]  # fmt: skip
        polls = self._random.random() < 0.5
        process, positions = self._processes["transactor"], self._positions[self._processes["transactor"]]
        op = self.recorder.begin(process, [*([("poll",)] if polls else []), *sends], next(self._now))
        polled = [record for key in INPUTS for record in self._poll(key, positions[key])] if polls else []
        outcome = self._random.choice(["ok"] * 5 + ["fail", "info"])
        commits = outcome == "ok" or (outcome == "info" and self._random.random() < 0.5)
        if outcome == "fail" and self._strikes("visible"):
            commits = True
        self._end(op, sends, outcome, commits, {0: polled})
        if outcome == "ok":
            positions.update({key: offset + 1 for key, offset, _ in polled})
        elif outcome == "info":
            self._processes["transactor"] = next(self._fresh)

    def _loop(self, *, may_fail: bool) -> None:
        records = [record for key in INPUTS for record in self._poll(key, self._place[key])]
        if not records:
            return
        invoke = next(self._now)
        sends = [("send", OUTPUT, next(self._copies) * VALUE_OF_LOOPS + value) for _, _, value in records]
        op = self.recorder.begin(self._processes["loop"], [("poll",), *sends], invoke, {0: records})
        outcome = self._random.choice(["ok", "ok", "fail", "info"]) if may_fail else "ok"
        commits = outcome == "ok" or (outcome == "info" and self._random.random() < 0.5)
        self._end(op, sends, outcome, commits, {})
        ends = {key: offset + 1 for key, offset, _ in records}
        if outcome == "ok":
            self.reached.update(ends)
        moves = commits
        if commits and may_fail and self._strikes("again"):
            moves = False
        if not commits and self._strikes("skip"):
            moves = True
        if moves:
            self._place.update(ends)
        if outcome == "info" or moves != (outcome == "ok"):  # what goes on elsewhere is another process
            self._processes["loop"] = next(self._fresh)

    def _end(
        self, op: int, sends: Sequence[Any], outcome: Any, commits: bool, polled: Mapping[int, Sequence[Any]]
    ) -> None:
        sent: dict[int, int] = {}
        torn = commits and outcome == "ok" and len(sends) > 1 and self._strikes("torn")
        for number, (_, key, value) in enumerate(sends):
            self.logs[key].append(Record(value, op, commits and not (torn and number == 0)))
            sent[value] = len(self.logs[key]) - 1
        for key in {key for _, key, _ in sends}:
            self.logs[key].append(None)
        self.outcomes[op] = outcome
        if outcome == "info" and self._random.random() < 0.5:
            sent = {}  # its process crashed
        self.recorder.end(op, next(self._now), outcome, sent=sent, polled=polled)

    def _close(self, key: int) -> int:
        value = next(self._values)
        op = self.recorder.begin(98, [("send", key, value)], next(self._now))
        self.logs[key].append(Record(value, op, True))
        self.outcomes[op] = "ok"
        self.recorder.end(op, next(self._now), "ok", sent={value: len(self.logs[key]) - 1})
        return value

    def _poll(self, key: int, start: int) -> list[tuple[int, int, int]]:
        return [
            (key, offset, record.value)
            for offset, record in enumerate(self.logs[key])
            if offset >= start and record is not None and record.visible
        ]
