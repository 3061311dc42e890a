"""The virtual loop: its time, the order of its callbacks, and what becomes of processes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster_image.storage.disk import ProcessDied
from harness.runtimes.simulation import loop as module
from harness.runtimes.simulation.loop import PROCESS, Hang, Process, VirtualLoop


def in_process(loop: VirtualLoop, process: Process, callback: Callable[..., Any], *arguments: Any) -> None:
    """Call it soon, as a callback of that process."""
    loop.call_soon(callback, *arguments, context=process.context)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.bury()


def run(loop: VirtualLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.wait_for(asyncio.sleep(seconds), None))


async def says(reported: list[Any], what: Any, after: float = 0.0) -> None:
    await asyncio.sleep(after)
    reported.append(what)


# -- time -----------------------------------------------------------------------------------------------------


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    async def scenario() -> list[float]:
        times = [loop.time()]
        for seconds in (0.25, 86_400.0, 0.0):
            await asyncio.sleep(seconds)
            times.append(loop.time())
        return times

    assert loop.run_until_complete(scenario()) == [0.0, 0.25, 86_400.25, 86_400.25]


def test_at_one_instant_timers_run_in_the_order_of_their_making_after_what_was_ready(loop: VirtualLoop) -> None:
    reported: list[str] = []
    for name in "bcadfe":
        loop.call_at(1.0, reported.append, name)
    loop.call_soon(reported.append, "ready")
    loop.call_at(1.0, lambda: loop.call_soon(reported.append, "after all of them"))
    loop.call_at(1.0, reported.append, "last")
    run(loop, 2.0)
    assert reported == ["ready", *"bcadfe", "last", "after all of them"]


def test_a_callback_at_several_times_has_the_places_of_timers_that_were_set_together(loop: VirtualLoop) -> None:
    reported: list[str] = []
    done = loop.create_future()
    loop.call_at(2.0, reported.append, "before")
    loop.call_in_world_until(done, [2.0, 1.0, 3.0, 4.0], lambda: reported.append(f"at {loop.time():g}"))
    loop.call_at(2.0, reported.append, "after")
    loop.call_at(3.5, done.set_result, None)
    assert len(loop._timers) == 4  # one of them at a time
    run(loop, 6.0)
    assert reported == ["at 1", "before", "at 2", "after", "at 3"]


def test_a_cancelled_timer_neither_runs_nor_moves_the_time(loop: VirtualLoop) -> None:
    reported: list[str] = []
    timers = [loop.call_at(number, reported.append, "never") for number in range(1, 3000)]
    loop.call_at(5000.0, reported.append, "kept")
    for timer in timers:
        timer.cancel()
    assert len(loop._timers) < 2000  # they are cleared away before their time comes
    loop.call_soon(lambda: loop.call_at(0.5, lambda: reported.append(str(loop.time()))))
    run(loop, 6000.0)
    assert reported == ["0.5", "kept"]


def test_timers_cancelled_after_they_have_run_do_not_count_as_cleared_away(loop: VirtualLoop) -> None:
    timers = [loop.call_at(1.0, lambda: None) for _ in range(5)]
    run(loop, 2.0)
    for timer in timers:
        timer.cancel()
    assert loop._cancelled_timers == 0


# -- processes ------------------------------------------------------------------------------------------------


def test_whatever_a_process_starts_is_its_own(loop: VirtualLoop) -> None:
    seen: list[Process | None] = []

    def note() -> None:
        assert PROCESS.get(None) is loop.current
        seen.append(loop.current)

    async def child() -> None:
        note()

    async def main() -> None:
        note()
        loop.call_soon(note)
        loop.call_later(1.0, note)
        await asyncio.create_task(child())
        async with asyncio.timeout(0.5), asyncio.TaskGroup() as group:
            group.create_task(child())
        future = loop.create_future()
        loop.call_in_world(loop.time() + 1.0, future.set_result, None)
        await future
        note()

    process, other = loop.new_process("a"), loop.new_process("b")
    loop.run_until_complete(loop.spawn(process, main()))
    assert seen == [process] * 6
    seen.clear()
    in_process(loop, other, note)
    loop.call_soon(note)
    loop.call_in_world(loop.time(), note)
    run(loop, 1.0)
    assert seen == [other, None, None]
    assert (process.name, process.number, other.number) == ("a", 1, 2)


def test_nothing_of_a_killed_process_runs_any_more_not_even_a_finally(loop: VirtualLoop) -> None:
    reported: list[str] = []

    async def works() -> None:
        try:
            while True:
                await asyncio.sleep(0.1)
                reported.append("working")
        finally:
            reported.append("cleaned up")

    async def waits() -> None:
        try:
            await loop.create_future()  # which nobody else knows
        finally:
            reported.append("collected")

    async def main() -> None:
        loop.create_task(waits())
        worker = asyncio.create_task(works())
        loop.call_later(0.55, reported.append, "timer")
        async with asyncio.timeout(0.45):
            await worker

    process = loop.new_process("a")
    task = loop.spawn(process, main())
    loop.call_in_world(0.25, loop.kill, process)
    loop.call_in_world(0.3, in_process, loop, process, reported.append, "called")
    run(loop, 2.0)
    assert reported == ["working", "working"]
    assert not task.done()
    del task
    gc.collect()
    run(loop, 1.0)
    assert reported == ["working", "working"]


def test_a_process_killed_in_the_middle_of_a_callback_ends_there(loop: VirtualLoop) -> None:
    reported: list[str] = []
    process = loop.new_process("a")

    def die() -> None:
        loop.kill(process)
        raise ProcessDied

    async def main() -> None:
        loop.call_soon(reported.append, "called")
        try:
            die()
        except Exception:
            reported.append("handled")
        reported.append("went on")

    async def watches(task: asyncio.Task[None]) -> None:
        await asyncio.wait([task])
        reported.append("saw it end")

    task = loop.spawn(process, main())
    loop.spawn(process, watches(task))
    run(loop, 1.0)
    process = loop.new_process("b")
    in_process(loop, process, die)
    in_process(loop, process, reported.append, "next")
    run(loop, 1.0)
    assert reported == []
    assert loop.errors == []  # it is no error that somebody should look at


def test_a_paused_process_goes_on_in_order_where_it_stood(loop: VirtualLoop) -> None:
    reported: list[Any] = []
    process = loop.new_process("a")

    def note(what: str) -> None:
        reported.append((what, loop.time()))

    async def main() -> None:
        for number in range(4):
            await asyncio.sleep(0.1)
            note(f"slept {number}")

    loop.spawn(process, main())
    loop.call_in_world(0.15, loop.pause, process)
    for at, name in ((0.2, "b"), (0.3, "c"), (0.4, "d")):
        loop.call_in_world(at, in_process, loop, process, note, name)
    # Even what becomes ready at the very instant of the resumption comes after what has waited.
    loop.call_in_world(1.0, loop.resume, process)
    loop.call_in_world(1.0, in_process, loop, process, note, "e")
    run(loop, 3.0)
    assert [what for what, _ in reported] == ["slept 0", "b", "c", "d", "slept 1", "e", "slept 2", "slept 3"]
    assert [at for _, at in reported] == pytest.approx([0.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1, 1.2])


def test_a_timer_that_is_due_when_a_process_goes_on_runs_after_what_has_waited(loop: VirtualLoop) -> None:
    reported: list[str] = []
    process = loop.new_process("a")
    loop.call_in_world(1.0, loop.resume, process)
    in_process(loop, process, loop.call_at, 1.0, reported.append, "timer")
    run(loop, 0.5)
    loop.pause(process)
    in_process(loop, process, reported.append, "waited")
    run(loop, 1.0)
    assert reported == ["waited", "timer"]


def test_callbacks_of_a_busy_process_wait_and_others_do_not(loop: VirtualLoop) -> None:
    reported: list[Any] = []
    busy, idle = loop.new_process("busy"), loop.new_process("idle")

    def note(what: str) -> None:
        reported.append((what, loop.time()))

    def works() -> None:
        note("before")
        loop.stall(busy, 1.0)
        loop.stall(busy, 0.5)
        assert loop.local_time() == 1.5
        loop.call_soon(note, "soon")

    in_process(loop, busy, works)
    in_process(loop, busy, note, "next")
    loop.spawn(idle, says(reported, "idle", 0.5))
    loop.call_in_world(1.2, loop.stall, busy, 0.5)
    run(loop, 5.0)
    assert reported == [("before", 0.0), "idle", ("next", 2.0), ("soon", 2.0)]
    assert loop.local_time() == loop.time()


def test_a_process_that_stalls_again_while_it_catches_up_keeps_its_order(loop: VirtualLoop) -> None:
    reported: list[Any] = []
    process = loop.new_process("a")

    def works(name: str) -> None:
        reported.append((name, loop.time()))
        loop.stall(process, 1.0)

    for name in "abcd":
        in_process(loop, process, works, name)
    run(loop, 10.0)
    assert reported == [("a", 0.0), ("b", 1.0), ("c", 2.0), ("d", 3.0)]


def test_a_timer_that_is_due_when_a_process_is_free_again_runs_after_what_has_waited(loop: VirtualLoop) -> None:
    reported: list[str] = []
    process = loop.new_process("a")
    in_process(loop, process, loop.call_at, 1.0, reported.append, "timer")
    in_process(loop, process, loop.stall, process, 1.0)
    in_process(loop, process, reported.append, "waited")
    run(loop, 2.0)
    assert reported == ["waited", "timer"]


@pytest.mark.parametrize("first", ["pause", "stall"])
def test_a_process_paused_while_busy_waits_for_both(loop: VirtualLoop, first: str) -> None:
    reported: list[float] = []
    process = loop.new_process("a")
    actions: list[Callable[[], None]] = [lambda: loop.pause(process), lambda: loop.stall(process, 1.0)]
    for action in actions if first == "pause" else reversed(actions):
        loop.call_in_world(0.1, action)
    loop.call_in_world(0.5, in_process, loop, process, lambda: reported.append(loop.time()))
    run(loop, 2.0)
    assert reported == []
    loop.resume(process)
    run(loop, 1.0)
    assert reported == [2.0]


# -- order ----------------------------------------------------------------------------------------------------

_ORDER_OF_CANCELLATION = """
import asyncio
from harness.runtimes.simulation.loop import VirtualLoop
loop, told = VirtualLoop(), []
async def child(number):
    try:
        await asyncio.sleep(100)
    finally:
        told.append(number)
async def main():
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(child(number))
        await asyncio.sleep(1)
        raise ValueError
try:
    loop.run_until_complete(loop.spawn(loop.new_process("a"), main()))
except* ValueError:
    pass
print(told, loop.trace_hash)
loop.bury()
"""


def test_a_task_group_cancels_in_an_order_that_no_hash_or_address_decides() -> None:
    outputs = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONMALLOC": "malloc" if seed == "1" else "pymalloc"}
        outputs.add(subprocess.check_output([sys.executable, "-c", _ORDER_OF_CANCELLATION], env=environment, text=True))
    (output,) = outputs
    assert sorted(eval(output.rpartition("]")[0] + "]")) == list(range(40))


def trace_hash(order: str, *, number_of_a: int = 1, delay: float = 1.0, note: object = "x") -> str:
    loop = VirtualLoop()
    processes = {name: loop.new_process(name) for name in ("ab" if number_of_a == 1 else "ba")}
    for name in order:
        loop.spawn(processes[name], asyncio.sleep(delay))
    loop.record(note)
    run(loop, 3.0)
    loop.bury()
    return loop.trace_hash


def test_equal_runs_have_equal_trace_hashes_and_others_have_not() -> None:
    original = trace_hash("aba")
    assert trace_hash("aba") == original
    others = [trace_hash("aab"), trace_hash("ab"), trace_hash("aba", delay=1.5), trace_hash("aba", note="y")]
    others.append(trace_hash("aba", number_of_a=2))
    assert len({original, *others}) == 6


# -- what ends a run ------------------------------------------------------------------------------------------


def test_nothing_ready_and_no_timer_is_a_hang_that_tells_who_waits_where(loop: VirtualLoop) -> None:
    async def waits_for_ever() -> None:
        await loop.create_future()

    loop.spawn(loop.new_process("broker-1"), waits_for_ever())
    with pytest.raises(Hang, match=r"at 1\.000000 s nothing is ready .* broker-1: .*waits_for_ever line \d+; harness:"):
        loop.run_until_complete(asyncio.wait([loop.create_task(asyncio.sleep(1.0)), loop.create_future()]))  # type: ignore[type-var]


@pytest.mark.parametrize("in_process", [True, False])
def test_a_spinning_process_or_harness_is_a_hang_and_the_loop_goes_on_after_it(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, in_process: bool
) -> None:
    monkeypatch.setattr(module, "MAX_CALLBACKS_AN_INSTANT", 500)

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    process = loop.new_process("broker-1")
    task = loop.spawn(process, spins()) if in_process else loop.create_task(spins())
    main = loop.create_task(asyncio.sleep(1.0, "done"))
    with pytest.raises(Hang, match="time does not move on"):
        loop.run_until_complete(main)
    if in_process:
        loop.kill(process)
    else:
        task.cancel()
    assert loop.run_until_complete(main) == "done"


def test_many_callbacks_are_no_hang_as_long_as_time_moves_on(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CALLBACKS_AN_INSTANT", 50)

    async def works() -> None:
        for _ in range(200):
            await asyncio.sleep(0.001)

    loop.run_until_complete(loop.spawn(loop.new_process("a"), works()))
    assert loop.step > 200


def test_what_after_step_raises_ends_the_run_at_that_step_and_the_loop_can_go_on(loop: VirtualLoop) -> None:
    reported: list[Any] = []
    process = loop.new_process("a")

    class Violation(Exception): ...

    def after_step() -> None:
        if reported and reported[-1] == "wrong":
            reported.append(f"noticed in step {loop.step}")
            raise Violation

    loop.after_step = after_step
    for what in ("right", "wrong", "later"):
        in_process(loop, process, reported.append, what)
    main = loop.create_task(says(reported, "main", 1.0))
    with pytest.raises(Violation):
        loop.run_until_complete(main)
    assert reported == ["right", "wrong", "noticed in step 2"]
    assert loop.current is None and loop.tripwire.armed is False
    loop.run_until_complete(main)
    assert reported[3:] == ["later", "main"]


def test_after_step_and_the_tripwire_are_for_processes_alone(loop: VirtualLoop) -> None:
    armed: list[bool] = []
    steps: list[int] = []
    loop.after_step = lambda: steps.append(loop.step)

    def look() -> None:
        armed.append(loop.tripwire.armed)

    loop.call_soon(look)
    in_process(loop, loop.new_process("a"), look)
    loop.call_in_world(0.5, look)
    run(loop, 1.0)
    assert (armed, steps) == ([False, True, False], [1])


def test_an_exception_that_no_code_handles_is_noted_with_its_process(loop: VirtualLoop) -> None:
    def fails() -> None:
        raise ValueError("bad")

    loop.call_in_world(0.5, in_process, loop, loop.new_process("broker-2"), fails)
    run(loop, 1.0)
    ((at, who, what),) = loop.errors
    assert (at, who) == (0.5, "broker-2") and "ValueError('bad')" in what


# -- outside of virtual time ----------------------------------------------------------------------------------


def test_what_blocks_takes_no_virtual_time_and_a_second_signal_ends_it(loop: VirtualLoop) -> None:
    reported: list[str] = []
    before = signal.getsignal(signal.SIGUSR1)
    loop.add_signal_handler(signal.SIGUSR1, reported.append, "signalled")

    def blocks(signals: int) -> str:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGUSR1)
        return "done"

    async def scenario() -> None:
        assert loop.stand_still(blocks, 1) == "done"
        assert loop.stand_still(blocks, signals=1) == "done"
        with pytest.raises(KeyboardInterrupt):
            loop.stand_still(blocks, 2)
        assert (loop.time(), reported) == (0.0, [])
        await asyncio.sleep(0)
        assert reported == ["signalled"] * 3
        blocks(2)  # while the loop runs, signals are its callbacks' business
        await asyncio.sleep(0)
        assert reported == ["signalled"] * 5

    loop.run_until_complete(scenario())
    loop.bury()
    assert signal.getsignal(signal.SIGUSR1) == before


def test_at_the_end_every_task_is_closed_and_nothing_runs() -> None:
    loop = VirtualLoop()
    reported: list[str] = []

    async def works() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            reported.append("closed")
            await asyncio.sleep(1)  # what waits while it is closed is an error, and nobody's any more
            reported.append("never")

    def start(name: str) -> Process:
        process = loop.new_process(name)
        loop.spawn(process, works())
        return process

    start("a")
    dead = start("b")
    run(loop, 1.0)
    loop.kill(dead)
    run(loop, 1.0)
    assert reported == []
    loop.bury()
    gc.collect()
    assert reported == ["closed", "closed"]
    assert loop.errors == []  # nobody complains of tasks that were pending
