"""Everything outside the simulation trips its wire while it is armed, works while it is not, and is put back."""

from __future__ import annotations

import _thread
import contextlib
import gc
import inspect
import linecache
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest

from harness.runtimes.simulation.tripwire import OutsideSimulation, Tripwire


@pytest.fixture
def tripwire() -> Iterator[Tripwire]:
    with Tripwire() as tripwire:
        yield tripwire


def start_a_thread() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


def open_a_socket() -> None:
    socket.socket().close()


WIRES: dict[str, Callable[[], object]] = {
    "time.time()": lambda: time.time(),
    "time.time_ns()": lambda: time.time_ns(),
    "time.monotonic()": lambda: time.monotonic(),
    "time.monotonic_ns()": lambda: time.monotonic_ns(),
    "time.perf_counter()": lambda: time.perf_counter(),
    "time.perf_counter_ns()": lambda: time.perf_counter_ns(),
    "time.clock_gettime()": lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
    "time.process_time()": lambda: time.process_time(),
    "time.sleep()": lambda: time.sleep(0),
    "random.random()": lambda: random.random(),
    "random.choice()": lambda: random.choice([1]),
    "random.shuffle()": lambda: random.shuffle([1]),
    "random.getrandbits()": lambda: random.getrandbits(1),
    "random.seed()": lambda: random.seed(1),
    "random.Random() without a seed": lambda: Random(),
    "random.Random() without a seed ": lambda: Random(1).seed(),
    "random.SystemRandom()": lambda: SystemRandom(),
    "os.urandom()": lambda: os.urandom(1),
    "os.getrandom()": lambda: os.getrandom(1),
    "uuid.uuid1()": lambda: uuid.uuid1(),
    "uuid.uuid4()": lambda: uuid.uuid4(),
    "secrets.token_bytes()": lambda: secrets.token_bytes(1),
    "secrets.token_hex()": lambda: secrets.token_hex(1),
    "secrets.randbelow()": lambda: secrets.randbelow(2),
    "secrets.randbits()": lambda: secrets.randbits(2),
    "secrets.choice()": lambda: secrets.choice([1]),
    "Thread.start()": start_a_thread,
    "_thread.start_new_thread()": lambda: _thread.start_new_thread(lambda: None, ()),
    f"open({os.devnull!r})": lambda: open(os.devnull).close(),
    f"open({os.devnull!r}) ": lambda: os.close(os.open(os.devnull, os.O_RDONLY)),
    f"open({os.devnull!r})  ": lambda: Path(os.devnull).read_bytes(),
    "os.listdir('/')": lambda: os.listdir("/"),
    "os.scandir('/')": lambda: os.scandir("/").close(),
    "socket.__new__(…)": open_a_socket,
    "socket.getaddrinfo('127.0.0.1')": lambda: socket.getaddrinfo("127.0.0.1", 80),
    "socket.gethostname()": lambda: socket.gethostname(),
    "subprocess.Popen('true')": lambda: subprocess.run(["true"], check=True),
}


@pytest.mark.parametrize(("what", "use"), WIRES.items(), ids=WIRES.keys())
def test_each_wire(what: str, use: Callable[[], object], tripwire: Tripwire) -> None:
    use()
    tripwire.armed = True
    with pytest.raises(OutsideSimulation) as error:
        use()
    tripwire.armed = False
    assert str(error.value).startswith(what.strip() + " used by ")
    first, lines = inspect.getsourcelines(use)[1], len(inspect.getsourcelines(use)[0])
    path, _, line = str(error.value).rpartition(" at ")[2].rpartition(":")
    assert (path, int(line) in range(first, first + lines)) == (__file__, True)
    assert tripwire.tripped is error.value
    use()
    tripwire.remove()
    tripwire.armed = True
    use()


def test_code_that_took_its_function_early_is_caught_below_it() -> None:
    system, token, randbits, start = SystemRandom(), secrets.token_hex, secrets.randbits, threading.Thread.start
    random_bytes = system.randbytes
    thread = threading.Thread(target=lambda: None)
    with Tripwire() as tripwire:
        for use, wire in (
            (system.random, r"random\._urandom"),
            (lambda: random_bytes(1), r"random\._urandom"),
            (lambda: randbits(8), r"random\._urandom"),
            (token, r"secrets\.token_bytes"),
            (lambda: start(thread), r"threading\._start_new_thread"),
        ):
            tripwire.armed = True
            with pytest.raises(OutsideSimulation, match=wire):
                use()
            tripwire.armed = False
    assert not thread.is_alive()


def test_a_swallowed_error_is_kept_the_first_one(tripwire: Tripwire) -> None:
    tripwire.armed = True
    for use in (time.time, os.urandom):
        with contextlib.suppress(BaseException):
            use()
    tripwire.armed = False
    assert str(tripwire.tripped).startswith("time.time()")


def test_what_the_simulation_does_is_let_through(tripwire: Tripwire, tmp_path: Path) -> None:
    module = tmp_path / "imported_while_armed.py"
    module.write_text("import xml.dom.pulldom\nVALUE = 1\n")
    sys.path.insert(0, str(tmp_path))
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("simulated")
    logger.addHandler(handler)
    linecache.clearcache()
    try:
        tripwire.armed = True
        import imported_while_armed  # type: ignore[import-not-found]

        logger.error("for a person to read")
        try:
            raise ValueError("with a traceback")
        except ValueError:
            trace = traceback.format_exc()
        generator = Random(5)
        drawn = generator.random(), Random("a").choice([1, 2]), generator.seed(3)
    finally:
        tripwire.armed = False
        sys.path.remove(str(tmp_path))
        sys.modules.pop("imported_while_armed", None)
        logger.removeHandler(handler)
    assert imported_while_armed.VALUE == 1
    assert records and 'raise ValueError("with a traceback")' in trace
    assert drawn[0] == Random(5).random()
    assert tripwire.tripped is None


def test_an_imported_module_of_ours_may_not_reach_out_either(tripwire: Tripwire, tmp_path: Path) -> None:
    (tmp_path / "reads_the_clock.py").write_text("import time\nSTARTED = time.time()\n")
    sys.path.insert(0, str(tmp_path))
    tripwire.armed = True
    try:
        with pytest.raises(OutsideSimulation, match=r"time\.time\(\) used by <module> at .*reads_the_clock\.py:2"):
            import reads_the_clock  # type: ignore[import-not-found]  # noqa: F401
    finally:
        tripwire.armed = False
        sys.path.remove(str(tmp_path))


def test_other_threads_are_none_of_its_business(tripwire: Tripwire) -> None:
    """The harness has its own: Spark's start, the progress bar."""
    go, done = threading.Event(), threading.Event()
    found: list[float] = []

    def other() -> None:
        go.wait()
        found.append(time.time())
        open(os.devnull).close()
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    tripwire.armed = True
    go.set()
    done.wait()
    tripwire.armed = False
    thread.join()
    assert found and tripwire.tripped is None


def test_garbage_of_what_came_before_is_none_of_its_business(tripwire: Tripwire) -> None:
    """Seed 2 of a run in one process may collect what the judging of seed 1 left, and this has finalizers."""
    done: list[str] = []

    class Before:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            open(os.devnull).close()
            done.append("closed")

    Before()
    tripwire.armed = True
    gc.collect()
    assert done == ["closed"] and tripwire.tripped is None and tripwire.armed
    with pytest.raises(OutsideSimulation):
        time.time()
    tripwire.armed = False


def outside() -> dict[tuple[str, str], object]:
    owners = (time, random, random.Random, random.SystemRandom, os, secrets, uuid, threading.Thread)
    return {(owner.__name__, name): value for owner in owners for name, value in vars(owner).items()}


def test_everything_is_put_back() -> None:
    before, callbacks = outside(), list(gc.callbacks)
    tripwire = Tripwire()
    tripwire.install()
    changed = {key for key, value in outside().items() if before[key] is not value}
    assert {("time", "time"), ("Thread", "start"), ("random", "random"), ("Random", "seed")} <= changed
    tripwire.remove()
    tripwire.remove()
    assert gc.callbacks == callbacks
    assert all(before[key] is value for key, value in outside().items())
    with pytest.raises(ZeroDivisionError), Tripwire():
        raise ZeroDivisionError
    assert all(before[key] is value for key, value in outside().items())


def test_only_one_at_a_time(tripwire: Tripwire) -> None:
    second = Tripwire()
    with pytest.raises(RuntimeError, match="installed already"):
        second.install()
    second.remove()
    tripwire.armed = True
    with pytest.raises(OutsideSimulation):
        time.time()
    tripwire.armed = False
