"""Transactors, whatever their client: one producer with a transactional.id, and one consumer that is assigned its
partitions.

A transaction is asked for as a whole, and told as a whole: what it sent where, what it polled, and how it ended. Polls
go on where the last committed transaction left off: after one that was aborted the consumer goes back to there. After
one whose end is not known the producer is of no more use here: who has the id next begins anew.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from workloads.clients.drivers.threads import TURN_S, Command, Worker, describe

#: What the end of a transaction, and asking for offsets, may take, in seconds.
END_S: Final = 10.0
OFFSETS_S: Final = 5.0
Polled = Sequence[tuple[int, int, int]]  # partition, offset, value


class TransactorWorker(Worker):
    def __init__(self, output: Any, number: int) -> None:
        super().__init__(output, number)
        self._positions: dict[int, int] = {}  # of the last committed transaction
        self._is_initialised = False
        self.topic = ""

    @abstractmethod
    def init(self) -> None:
        """InitProducerId: older producers of the id are fenced from now on."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, partition: int, value: int, sent: dict[int, int]) -> None:
        """sent: gets the offset of the value once it is acknowledged."""

    @abstractmethod
    def flush(self) -> None:
        """Until all that was sent is acknowledged or has failed; raises if something has."""

    @abstractmethod
    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        """To be committed with the transaction, for the consumer's group."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def assign(self, positions: Mapping[int, int]) -> None: ...

    @abstractmethod
    def poll(self, seconds: float) -> Polled: ...

    @abstractmethod
    def committed(self, partitions: Sequence[int], seconds: float) -> Mapping[int, int]:
        """For the consumer's group, of transactions that have ended; of a partition without any 0."""

    def turn(self) -> None:
        time.sleep(TURN_S / 4)

    def do_start(self, command: Command) -> None:
        """Of a transactor, before its first transaction; again, if that failed. positions: null: those that its group
        has committed."""
        self.topic = command["topic"]
        result: dict[str, Any] = {}
        invoke = time.monotonic_ns()
        try:
            if not self._is_initialised:
                self.init()
                self._is_initialised = True
            positions = command["positions"]
            if positions is None:
                positions = self.committed(command["partitions"], OFFSETS_S)
            self._positions = {int(partition): offset for partition, offset in positions.items()}
            self._go_back()
        except Exception as error:
            result = _failed(error)
        self._say("started", command, invoke, **result)

    def do_poll(self, command: Command) -> None:
        """Outside of a transaction."""
        invoke = time.monotonic_ns()
        try:
            result: dict[str, Any] = {"records": self.poll(command["seconds"])}
        except Exception as error:
            result = _failed(error)
        self._say("polled", command, invoke, **result)

    def do_txn(self, command: Command) -> None:
        """offsets: to be committed with it; null: of what it polls."""
        invoke = time.monotonic_ns()
        sent: dict[int, int] = {}
        polled: list[tuple[int, Polled]] = []
        outcome, stage = "fail", "begin"
        result: dict[str, Any] = {}
        offsets: dict[int, int] = {}
        try:
            self.begin()
            for number, (what, *operands) in enumerate(command["operations"]):
                stage = what
                if what == "send":
                    partition, value = operands
                    self.send(partition, value, sent)
                else:
                    polled.append((number, self.poll(command["seconds"])))
            stage = "flush"
            self.flush()
            given = command["offsets"]
            offsets = _ends(polled) if given is None else {int(p): offset for p, offset in given.items()}
            if command["end"] == "commit":
                stage = "offsets"
                if offsets:
                    self.send_offsets(offsets)
                stage = "commit"
                self.commit()
                outcome = "ok"
            else:
                stage = "abort"
                self.abort()
        except Exception as error:
            result = _failed(error)
            outcome = "info" if stage == "commit" else "fail"  # before that it may not be committed, ever
            if stage not in ("commit", "abort"):
                result["aborted"] = self._has_aborted()
        if outcome == "ok":
            self._positions |= offsets
        elif outcome == "fail":
            self._go_back()
        self._say("txn", command, invoke, outcome=outcome, sent=sent, polled=polled, **result)

    def _has_aborted(self) -> bool:
        try:
            self.abort()
        except Exception as error:
            logging.warning("abort: %s: %s", *describe(error))
            return False
        return True

    def _go_back(self) -> None:
        if self._positions:
            self.assign(self._positions)

    def _say(self, what: str, command: Command, invoke: int, **fields: Any) -> None:
        times = {"invoke": invoke, "complete": time.monotonic_ns()}
        self.output.say(what, client=self.number, id=command["id"], **times, **fields)


def _failed(error: Exception) -> dict[str, Any]:
    name, text = describe(error)
    return {"error": name, "says": text}


def _ends(polled: Sequence[tuple[int, Polled]]) -> dict[int, int]:
    return {partition: offset + 1 for _, records in polled for partition, offset, _ in records}


def split(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Those of its producer, and those of its consumer, which begin with "consumer."."""
    of_consumer = {
        name.removeprefix(_CONSUMER): value for name, value in settings.items() if name.startswith(_CONSUMER)
    }
    return {name: value for name, value in settings.items() if not name.startswith(_CONSUMER)}, of_consumer


_CONSUMER: Final = "consumer."
