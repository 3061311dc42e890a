"""An asyncio event loop in virtual time, whose callbacks belong to simulated processes.

When nothing is ready, time jumps to the next timer; so a run takes as long as its callbacks do, and the same
callbacks run in the same order whenever it is repeated. A callback belongs to the `Process` that is set in its
context, and asyncio hands contexts on: whatever a process starts is its own. The loop looks at the process before
each callback: a paused or busy process's callbacks wait, and a dead one's never run again, which is what SIGKILL
does: no `finally`, no goodbye.

Callbacks of no process are the world's: messages on their way, faults, the harness.

Why not a library: looptime and aiotools' virtual clock patch a real loop for tests and know nothing of processes;
MadSim, Turmoil and FoundationDB's simulator, whose idea this is, are not for Python.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import signal
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, TypeVar

from cluster_image.storage.disk import ProcessDied
from harness.runtimes.simulation.task_order import Order

T = TypeVar("T")

#: Callbacks at one instant of virtual time beyond which the run is taken to spin.
MAX_CALLBACKS_AN_INSTANT: Final = 200_000
_STEP: Final = struct.Struct("<dI")


class Hang(Exception):
    """Nothing is ready and no timer is set, or time does not move on."""


class Process:
    """One simulated process. `number` tells processes of one name (lives of one node) apart; it is never reused."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.alive = True
        self.paused = False
        self.busy_until = 0.0  # its one thread does something that takes time: its callbacks wait
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)
        self.backlog: deque[asyncio.Handle] = deque()  # callbacks that wait
        self.remains: list[Any] = []  # of a dead process: kept, so that nothing of it is finalized
        self.wake_at: float | None = None

    def __repr__(self) -> str:
        return f"<{self.name} #{self.number}{'' if self.alive else ' dead'}{' paused' if self.paused else ''}>"


PROCESS: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("process")


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: asyncio.TaskGroup keeps its tasks in one."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self.number = number  # first: asyncio hashes a task as soon as it is made
        self.process = PROCESS.get(None) if context is None else context.get(PROCESS)
        super().__init__(coro, loop=loop, name=str(number), context=context)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """run_until_complete() raises Hang, and whatever `after_step` raises.

    tripwire: its `armed` is True while a callback of a process runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.current: Process | None = None
        self.after_step: Callable[[], None] = lambda: None
        self.order: Order | None = None  # None: tasks run in the order in which they became ready
        self.tripwire: Any = type("NoTripwire", (), {"armed": False})()
        #: No code of that process has handled this.
        self.on_error: Callable[[str, BaseException], None] = lambda who, error: None
        self.errors: list[tuple[float, str, str]] = []  # (time, process, what): exceptions that no code handled
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0  # of timers and tasks, in the order of their making
        self._processes = 0
        self._dead: list[Process] = []  # kept, so that nothing of them is finalized before the end
        self._cancelled_timers = 0
        self._world = contextvars.Context()
        self._hash = blake2b(digest_size=16)
        self._instant_callbacks = 0
        self._standing_still = False
        self._signals = 0
        self._handlers: dict[int, Any] = {}  # those before ours
        self.set_exception_handler(self._note_error)

    # -- time -------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        # A heap of tuples: TimerHandle compares itself in Python, and equal times must keep their order.
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_in_world(self, when: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """A callback of no process."""
        return self.call_at(when, callback, *args, context=self._world)

    def call_in_world_until(
        self, done: asyncio.Future[Any], times: Iterable[float], callback: Callable[[], Any]
    ) -> None:
        """A callback of no process at each of these times, none once `done` is done. There is one timer after the
        other; among others of the same time each has the place that it would have if all were set now."""
        calls = sorted(zip(times, itertools.count(self._numbers + 1), strict=False), reverse=True)
        self._numbers += len(calls)
        self._call_next_until(done, calls, callback)

    def _call_next_until(
        self, done: asyncio.Future[Any], calls: list[tuple[float, int]], callback: Callable[[], Any]
    ) -> None:
        """calls: times and places, the next one last."""
        if calls:
            when, number = calls.pop()
            timer = asyncio.TimerHandle(when, self._call_until, (done, calls, callback), self, self._world)
            heapq.heappush(self._timers, (when, number, timer))
            timer._scheduled = True  # type: ignore[attr-defined]

    def _call_until(
        self, done: asyncio.Future[Any], calls: list[tuple[float, int]], callback: Callable[[], Any]
    ) -> None:
        if not done.done():
            self._call_next_until(done, calls, callback)
            callback()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if not handle._scheduled:  # type: ignore[attr-defined]
            return  # it has run already
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and 2 * self._cancelled_timers > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 1  # this one, which is marked only now

    # -- processes --------------------------------------------------------------------------------------------

    def new_process(self, name: str) -> Process:
        self._processes += 1
        return Process(name, self._processes)

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it in that process."""
        return self.create_task(coroutine, context=process.context.copy())

    def local_time(self) -> float:
        """The time at which what the current callback does now happens: later than time() once it was busy."""
        return self._now if self.current is None else max(self._now, self.current.busy_until)

    def stall(self, process: Process, seconds: float) -> None:
        """Its thread is busy for so much longer."""
        process.busy_until = max(self._now, process.busy_until) + seconds

    def pause(self, process: Process) -> None:
        process.paused = True

    def resume(self, process: Process) -> None:
        process.paused = False
        self._release(process)

    def kill(self, process: Process) -> None:
        """As SIGKILL: none of its callbacks runs any more, in the middle of one at the latest with its next use of
        disk or network."""
        process.alive = False
        self._dead.append(process)
        process.remains += [task for task in self._tasks() if task.process is process]
        process.remains += process.backlog
        process.backlog.clear()

    def bury(self) -> None:
        """The end: every task is closed without a word, and nothing runs any more."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
        tasks = self._tasks()
        self._timers.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        self.close()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]

    def _tasks(self) -> list[_Task]:
        """Those that have not ended, in the order of their making."""
        return sorted((t for t in asyncio.all_tasks(self) if isinstance(t, _Task)), key=lambda t: t.number)

    def _release(self, process: Process) -> None:
        """Let a process go on with what has waited, if it can."""
        if not process.alive or process.paused or not process.backlog:
            return
        if process.busy_until > self._now:
            self._wake_when_free(process)
        else:
            # Before whatever of it is ready now: that came later.
            self._ready.extendleft(reversed(process.backlog))  # type: ignore[attr-defined]
            process.backlog.clear()

    def _wake_when_free(self, process: Process) -> None:
        if process.wake_at is None:
            process.wake_at = process.busy_until

            def wake() -> None:
                process.wake_at = None
                self._release(process)

            self.call_in_world(process.busy_until, wake)

    # -- tasks ------------------------------------------------------------------------------------------------

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._numbers += 1
        return _Task(coro, number=self._numbers, loop=self, context=context)

    # -- running ----------------------------------------------------------------------------------------------

    @property
    def trace_hash(self) -> str:
        """Of everything that has happened: which process ran when, and what was noted by record()."""
        return self._hash.hexdigest()

    def record(self, *what: object) -> None:
        """Make it part of the trace hash. Only of what compares by value: numbers, strings, tuples of these."""
        self._hash.update(repr(what).encode())

    def _run_once(self) -> None:
        """One round: what is ready now, in order; first, if there is nothing, on to the next timer."""
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self._next_timers(ready)
        tripwire = self.tripwire
        for _ in range(len(ready) if self.order is None else self.order.arrange(ready, self._now)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            self._instant_callbacks += 1
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process is None:
                handle._run()
                continue
            if not process.alive:
                process.remains.append(handle)
                continue
            if process.paused or process.busy_until > self._now or process.backlog:
                process.backlog.append(handle)
                self._release(process)
                continue
            self.step += 1
            self._hash.update(_STEP.pack(self._now, process.number))
            self.current = process
            tripwire.armed = True
            handle._run()
            tripwire.armed = False
            self.current = None
            self.after_step()
        if self._instant_callbacks > MAX_CALLBACKS_AN_INSTANT:
            self._instant_callbacks = 0  # whoever spins may be stopped now
            raise Hang(
                f"more than {MAX_CALLBACKS_AN_INSTANT} callbacks ran at {self._now:.6f} s: time does not move on"
            )

    def _next_timers(self, ready: deque[asyncio.Handle]) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)[2]._scheduled = False  # type: ignore[attr-defined]
            self._cancelled_timers -= 1
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Hang(f"at {self._now:.6f} s nothing is ready and no timer is set: {self.waiting()}")
            if timers[0][0] > self._now:
                self._now = timers[0][0]
                self._instant_callbacks = 0
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._cancelled_timers -= 1
            else:
                ready.append(timer)

    def waiting(self) -> str:
        """Who waits where, for the message about a hang."""
        places = []
        for task in self._tasks():
            stack = task.get_stack(limit=1)
            where = f"{stack[0].f_code.co_qualname} line {stack[0].f_lineno}" if stack else "nowhere"
            places.append(f"{task.process.name if task.process else 'harness'}: {where}")
        return "; ".join(places[:50])

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, ProcessDied):
            who = self.current.name if self.current is not None else "harness"
            self.errors.append((self._now, who, f"{context['message']}: {error!r}"))
            if error is not None:
                self.on_error(who, error)

    def stand_still(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call what blocks, outside of virtual time (harness.run.threads). A second signal meanwhile ends it."""
        self._signals = 0
        self._standing_still = True
        try:
            return function(*args, **kwargs)
        finally:
            self._standing_still = False

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        def signalled(number: int, frame: object) -> None:
            self._signals += 1
            if self._standing_still and self._signals > 1:
                raise KeyboardInterrupt
            self.call_soon(callback, *args, context=self._world)

        self._handlers[sig] = signal.signal(sig, signalled)

    # -- what a loop without sockets does without ---------------------------------------------------------------

    def _write_to_self(self) -> None:
        """call_soon_threadsafe() wakes a selector by it; this loop has none and no threads."""

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError
