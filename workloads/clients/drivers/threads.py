"""For clients whose calls block: each client of the process has a thread of its own, and is asked by no other."""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from workloads.clients.drivers.driver import Deliveries, Output, Positions, commands

Command = dict[str, Any]
#: How long a client is waited for when there is nothing else to do, in seconds.
TURN_S = 0.02


class Failure(Exception):
    """name: of the error, as the client has it."""

    def __init__(self, name: str, says: str) -> None:
        super().__init__(says)
        self.name = name


class Worker(ABC):
    """One client. Everything but `commands` is called by its own thread."""

    def __init__(self, output: Output, number: int) -> None:
        self.output = output
        self.number = number
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()

    @abstractmethod
    def open(self, settings: Mapping[str, str]) -> str:
        """Returns which client it is, with its version. Raises whatever the client raises."""

    @abstractmethod
    def turn(self) -> None:
        """Let the client work, for at most about TURN_S."""

    @abstractmethod
    def close(self, seconds: float) -> None: ...

    def carry_out(self, command: Command) -> None:
        getattr(self, f"do_{command['do']}")(command)

    def run(self, settings: Mapping[str, str]) -> None:
        try:
            says = self.open(settings)
        except Exception as error:
            traceback.print_exc()
            name, text = describe(error)
            self.output.say("failed", client=self.number, error=name, says=text)
            return
        self.output.say("opened", client=self.number, says=says)
        while True:
            while True:
                try:
                    command = self.commands.get_nowait()
                except queue.Empty:
                    break
                if command["do"] == "close":
                    self.close(command["seconds"])
                    self.output.say("closed", client=self.number)
                    return
                self.carry_out(command)
            self.turn()


class ProducerWorker(Worker):
    """first, count: of values; each is told of by self.deliveries."""

    def __init__(self, output: Output, number: int) -> None:
        super().__init__(output, number)
        self.deliveries = Deliveries(output)

    @abstractmethod
    def do_produce(self, command: Command) -> None: ...

    @abstractmethod
    def flush(self, seconds: float) -> None: ...

    def do_flush(self, command: Command) -> None:
        self.flush(command["seconds"])
        self.deliveries.tell()
        self.output.say("flushed", client=self.number)


class ConsumerWorker(Worker):
    def __init__(self, output: Output, number: int) -> None:
        super().__init__(output, number)
        self.positions = Positions(output, number)
        self.topic = ""
        self.assigned = False

    @abstractmethod
    def assign(self, positions: Mapping[int, int]) -> None: ...

    @abstractmethod
    def offsets(self, topic: str, partitions: list[int], which: str, seconds: float) -> dict[int, int]:
        """Raises Failure, or what the client raises."""

    @abstractmethod
    def poll(self) -> None:
        """At most about TURN_S, and tell self.positions."""

    def turn(self) -> None:
        if self.assigned:
            self.poll()
        else:
            time.sleep(TURN_S)

    def do_assign(self, command: Command) -> None:
        self.topic = command["topic"]
        positions = {int(partition): offset for partition, offset in command["positions"].items()}
        self.positions.assign(positions)
        self.assign(positions)
        self.assigned = True

    def do_offsets(self, command: Command) -> None:
        invoke = time.monotonic_ns()
        try:
            found = self.offsets(command["topic"], command["partitions"], command["which"], command["seconds"])
        except Exception as error:
            name, text = describe(error)
            result: dict[str, Any] = {"error": name, "says": text}
        else:
            result = {"offsets": found}
        self.output.say("offsets", id=command["id"], invoke=invoke, complete=time.monotonic_ns(), **result)


def describe(error: Exception) -> tuple[str, str]:
    """Its name, and its text."""
    return (error.name if isinstance(error, Failure) else type(error).__name__), str(error)[:500]


def serve(
    roles: Mapping[str, Callable[[Output, int], Worker]], check: Callable[[Mapping[str, str]], str | None]
) -> None:
    """Until the harness has nothing more to say. check: what is wrong with settings, as a sentence."""
    output = Output()
    workers: dict[int, Worker] = {}
    for command in commands():
        if command["do"] == "check":
            output.say("checked", problem=check(command["settings"]))
        elif command["do"] == "open":
            number = command["client"]
            worker = workers[number] = roles[command["role"]](output, number)
            threading.Thread(target=run_worker, args=(worker, command["settings"]), daemon=True).start()
        else:
            workers[command["client"]].commands.put(command)
    os._exit(0)  # whatever clients still wait for


def run_worker(worker: Worker, settings: Mapping[str, str]) -> None:
    """A client whose thread fails is a client that crashed: the process ends with it."""
    try:
        worker.run(settings)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
