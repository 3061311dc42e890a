"""Seats of shows are booked through a log, as services do that keep their state in Kafka: an office appends what it is
asked for, reads up to its own record, and only then knows what came of it. A show is a partition of the topic."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, ClassVar

from checkers.models.objects import UNKNOWN, Model
from checkers.models.own import judge_by
from checkers.verdict.own import Findings, Given, Section
from harness.plan.plan import Plan
from harness.record.history import HistoryRecorder
from workloads.append import AppendWorkload
from workloads.clients.kio.one_by_one import LogClient
from workloads.settings import Setting, one_of

SEATS = 20  # of each show
BOOK, CANCEL, LOOK = KINDS = ("book", "cancel", "look")
BOOKED, SOLD_OUT = "booked", "sold out"
PATIENCE_NS = 5_000_000_000  # then nobody knows what came of it


def carry_out(left: int, kind: str, seats: int) -> tuple[int, Any]:
    """The rule: what is asked of a show with so many seats left leaves how many, and comes to what?"""
    if kind == LOOK:
        return left, left
    if kind == CANCEL:
        return left + seats, "cancelled"
    return (left - seats, BOOKED) if left >= seats else (left, SOLD_OUT)


class BoxOffice(AppendWorkload):
    """Books, cancels and counts the seats of shows, each of which is a partition."""

    settings: ClassVar[Mapping[str, Setting]] = {
        "decide": one_of("after", "after", "before", help="whether a booking is decided when it is in the log")
    }
    can_delete_records = can_have_short_lived_topics = False

    @staticmethod
    def impossible(plan: Plan) -> str | None:
        return None if plan.client == "kio" else "its offices append and read by kio"

    def __init__(self, plan: Plan, cluster: Any, recorder: HistoryRecorder, **given: Any) -> None:
        super().__init__(plan, cluster, recorder, **given)  # a simulation gives another network and clock
        self.plan, self.recorder = plan, recorder
        self.clock: Callable[[], int] = given.get("clock", time.monotonic_ns)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; what is in flight then comes to its end."""
        async with asyncio.TaskGroup() as group:
            for log in self.log_clients():
                group.create_task(Office(self, log).run(stop))


class Office:
    """One client: what it has read of the log is all that it knows."""

    def __init__(self, workload: BoxOffice, log: LogClient) -> None:
        self.log, self.plan, self.recorder, self.clock = log, workload.plan, workload.recorder, workload.clock
        self.early = self.plan.workload_settings.get("decide") == "before"
        self.random = Random(f"{self.plan.seed}/office/{log.process}")  # whatever is drawn, is drawn from the seed
        self.left = dict.fromkeys(range(self.plan.partitions), SEATS)
        self.done: dict[tuple[int, int], tuple[int, Any]] = {}  # by show and offset: the command, and its result
        self.mine: list[tuple[int, int]] = []  # show and seats of bookings, to be cancelled

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.sleep(self.random.expovariate(self.plan.rate / self.plan.concurrency))
            if self.mine and self.random.random() < 0.4:
                await self.ask(CANCEL, *self.mine.pop())
            elif self.random.random() < 0.2:
                await self.ask(LOOK, self.random.randrange(self.plan.partitions), 0)
            else:
                show, seats = self.random.randrange(self.plan.partitions), self.random.randint(1, 4)
                if await self.ask(BOOK, show, seats) == BOOKED:
                    self.mine.append((show, seats))
        self.log.close()

    async def ask(self, kind: str, show: int, seats: int) -> Any:
        """One operation of the history, from before anything is sent until it is known what came of it."""
        call = self.recorder.invoke_call(self.log.process, kind, self.clock(), key=show, argument=seats or None)
        command = call.op << 16 | KINDS.index(kind) << 8 | seats  # no two records have the same value
        guess = BOOKED if self.left[show] >= seats else SOLD_OUT
        answered = await self.log.append(show, command)
        outcome, result = answered.outcome, None
        if answered.offset is not None:
            result = await self.result_at(show, answered.offset, command)
            if self.early and kind == BOOK:
                result = guess  # the planted fault: others may have booked in between
            outcome = "info" if result is None else "ok"  # in the log it is, whatever came of it
        self.recorder.complete_call(call, self.clock(), outcome, result=result, error=answered.error)
        return result

    async def result_at(self, show: int, offset: int, command: int) -> Any:
        """Reads up to that offset; None: not in time, or another record stands there."""
        late = self.clock() + PATIENCE_NS
        while (show, offset) not in self.done and self.clock() < late:
            for at, read in await self.log.read_on(show):
                kind, seats = KINDS[read >> 8 & 0xFF], read & 0xFF
                self.left[show], result = carry_out(self.left[show], kind, seats)
                self.done[show, at] = read, result
        read, result = self.done.get((show, offset), (None, None))
        return result if read == command else None


def step(left: int, action: tuple[str, Any, Any]) -> Iterable[int]:
    """The model: how many seats an operation leaves; none of them if it cannot have come to that result."""
    kind, seats, result = action
    left, right = carry_out(left, kind, seats or 0)
    return (left,) if result in (UNKNOWN, right) else ()


class Seats:
    """Implements checkers.verdict.own.Checker."""

    properties: ClassVar[Mapping[str, str]] = {
        "seats linearizability": "Bookings, cancellations and looks at a show take effect one after the other, each "
        "between its invocation and its completion.",
        "no show oversold": "No show has more seats booked at its end than there are.",
    }
    tables = ("calls",)

    def applies(self, plan: Mapping[str, Any]) -> bool:
        return plan.get("workload") == "box-office"

    def check(self, given: Given) -> Findings:
        found, calls = given.anomalies(), given.tables["calls"]
        model = Model(SEATS, frozenset(KINDS), frozenset({LOOK}), step, always=frozenset({CANCEL}))
        undecided = judge_by("seats", model, calls, found, given.origin)
        taken: Counter[str] = Counter()
        results: dict[str, Counter[str]] = {}
        for row in calls.to_pylist():
            show, seats, outcome = row["key"], int(row["argument"] or 0), row["outcome"]
            results.setdefault(show, Counter())[(row["result"] or outcome).strip('"')] += row["kind"] != LOOK
            taken[show] += seats if row["kind"] == BOOK and row["result"] == f'"{BOOKED}"' else 0
            taken[show] -= seats if row["kind"] == CANCEL and outcome != "fail" else 0  # it may have been carried out
        for show in sorted(show for show, seats in taken.items() if seats > SEATS):
            said = f"show {show}: {taken[show]} of {SEATS} seats are booked"
            found.add("no show oversold", "oversold", said, count=taken[show] - SEATS)
        columns = ("show", "seats booked at the end", BOOKED, SOLD_OUT, "cancelled", "info", "fail")
        rows = [(show, taken[show], *(of[name] for name in columns[2:])) for show, of in sorted(results.items())]
        section = Section([f"Each show has {SEATS} seats."], columns, rows)
        return Findings([found], undecided, {"booked": dict(taken)}, section)
