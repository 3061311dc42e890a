"""In which order tasks of one process run that are ready at the same instant.

asyncio runs them in the order in which they became ready, which is one of many: code that is right does not depend on
it. A seeded perturbation tries others, as Shuttle and Loom do for Rust and Burckhardt et al. (ASPLOS 2010) for threads:

- `random`: what is ready is shuffled now and then, and a task may be passed over, for a while, as if the await that it
  comes from had yielded again;
- `pct` (probabilistic concurrency testing, of that paper): every task has a priority, and only the highest one of a
  process goes on; at a few steps of the run, drawn beforehand, whoever runs there falls below all others. An ordering
  bug of depth d is found with a probability that depends on the number of such steps and not on luck.

With both, awaits that need not wait (of an Event that is set, of a Lock that is free) yield at times, as they may.

Only steps of tasks are moved. Callbacks of futures, timers and what is called by call_soon() keep their order, which
asyncio promises; and so does whatever belongs to no process. Time stands still meanwhile, unless the process is
paused or waits for its disk in between: what `pct` has passed over at an earlier instant goes first, so that nothing
waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Literal, Protocol

from harness.plan.plan import TaskOrder

#: Rounds of the loop in which `random` shuffles, of all with several tasks ready; and tasks that it passes over.
SHUFFLED: Final = 0.5
PASSED_OVER: Final = 0.1
#: Steps at which `pct` lowers a priority: at most so many in a run, among the first so many.
CHANGES: Final = 12
AMONG_STEPS: Final = 60_000
#: Times that one task may go before others in one instant: one that waits for them by yielding must not wait for ever.
TURNS_AN_INSTANT: Final = 50
#: Awaits that yield though they need not wait, as parts of all. With `pct` whoever yields falls below all others, so
#: that they go on, and were this frequent nobody would keep a priority.
YIELDS: Final = 0.2
YIELDS_BY_PRIORITY: Final = 0.02


class Order(Protocol):
    def arrange(self, ready: deque[asyncio.Handle], now: float) -> int:
        """Bring what is ready into the order in which it is to run, and return how many of it are to run before
        anything is looked at again; the others stay. now: virtual seconds."""
        ...

    def yields(self) -> bool:
        """Does the task that runs now yield where it awaits what need not be waited for?"""
        ...


def make_order(kind: TaskOrder, seed: int) -> Order | None:
    """None: as asyncio does."""
    if kind == "fifo":
        return None
    random = Random(f"{seed}/task order")
    return _Shuffled(random) if kind == "random" else _ByPriority(random)


@contextmanager
def awaits_may_yield(order: Order | None) -> Iterator[None]:
    """Of every Event and Lock of this process of the system, while the context lasts."""
    if order is None:
        yield
        return
    wait, acquire = asyncio.Event.wait, asyncio.Lock.acquire

    async def wait_or_yield(self: asyncio.Event) -> Literal[True]:
        if order.yields():
            await asyncio.sleep(0)
        return await wait(self)

    async def acquire_or_yield(self: asyncio.Lock) -> Literal[True]:
        if order.yields():
            await asyncio.sleep(0)
        return await acquire(self)

    asyncio.Event.wait, asyncio.Lock.acquire = wait_or_yield, acquire_or_yield  # type: ignore[method-assign]
    try:
        yield
    finally:
        asyncio.Event.wait, asyncio.Lock.acquire = wait, acquire  # type: ignore[method-assign]


def _task_of(handle: asyncio.Handle) -> Any:
    """The task of which it is a step, if that is one of a process, and not cancelled. Else None."""
    task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return task if isinstance(task, asyncio.Task) and getattr(task, "process", None) is not None else None


class _Shuffled:
    def __init__(self, random: Random) -> None:
        self._random = random

    def arrange(self, ready: deque[asyncio.Handle], now: float) -> int:
        if len(ready) < 2:
            return len(ready)
        places = [place for place, handle in enumerate(ready) if _task_of(handle) is not None]
        if len(places) < 2:
            return len(ready)
        random = self._random
        if random.random() < SHUFFLED:
            steps = [ready[place] for place in places]
            random.shuffle(steps)
            for place, handle in zip(places, steps, strict=True):
                ready[place] = handle
        passed_over = [place for place in places if random.random() < PASSED_OVER]
        if len(passed_over) == len(ready):
            return len(ready)
        return _put_last(ready, passed_over)

    def yields(self) -> bool:
        return self._random.random() < YIELDS


class _ByPriority:
    """Priorities are drawn as tasks are first seen. lowest: what falls, falls below it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._priorities: dict[int, float] = {}  # by the task's number
        self._lowest = 0.0
        self._changes = sorted(random.sample(range(AMONG_STEPS), random.randint(1, CHANGES)), reverse=True)
        self._steps = 0
        self._turns: dict[int, int] = {}  # of tasks that went before others since anything else could
        self._passed_over: dict[int, float] = {}  # since when, by the task's number

    def arrange(self, ready: deque[asyncio.Handle], now: float) -> int:
        # By the process' number: whether the task has waited since an earlier instant, how long or its priority; task.
        highest: dict[int, tuple[tuple[bool, float], int]] = {}
        tasks: list[tuple[int, int, int]] = []  # place, process, task
        blocked: set[int] = set()  # processes of which nothing goes on now
        for place, handle in enumerate(ready):
            task = _task_of(handle)
            if task is None:
                continue
            number, process = task.number, task.process.number
            priority = self._priorities.get(number)
            if priority is None:
                priority = self._priorities[number] = self._random.random()
            tasks.append((place, process, number))
            if task.process.paused or task.process.busy_until > now:
                blocked.add(process)
            since = self._passed_over.get(number, now)
            rank = (True, now - since) if since < now else (False, priority)
            if process not in highest or rank > highest[process][0]:
                highest[process] = rank, number
        waiting = [place for place, process, number in tasks if highest[process][1] != number]
        for _, process, number in tasks:
            if highest[process][1] != number or process in blocked:
                self._passed_over.setdefault(number, now)
            else:
                self._passed_over.pop(number, None)
        if waiting:
            for _, number in highest.values():
                self._turns[number] = self._turns.get(number, 0) + 1
                if self._turns[number] > TURNS_AN_INSTANT:
                    self._lower(number)
        else:
            self._turns.clear()
        self._steps += len(highest)
        while self._changes and self._changes[-1] < self._steps:
            self._changes.pop()
            if highest:
                self._lower(self._random.choice([number for _, number in highest.values()]))
        return _put_last(ready, waiting)

    def yields(self) -> bool:
        yields = self._random.random() < YIELDS_BY_PRIORITY
        task: Any = asyncio.current_task()
        if yields and task is not None:
            self._lower(task.number)
        return yields

    def _lower(self, number: int) -> None:
        self._lowest -= 1.0
        self._priorities[number] = self._lowest
        self._turns.pop(number, None)


def _put_last(ready: deque[asyncio.Handle], places: list[int]) -> int:
    """Returns how many come before them."""
    if places:
        every, chosen = list(ready), set(places)
        ready.clear()
        ready.extend(handle for place, handle in enumerate(every) if place not in chosen)
        ready.extend(every[place] for place in places)
    return len(ready) - len(places)
