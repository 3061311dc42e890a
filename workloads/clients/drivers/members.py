"""Members of consumer groups, whatever their client: they poll, process and commit as they are told to, and tell each
step before the next."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from workloads.clients.drivers.threads import TURN_S, Command, Worker, describe

Records = Mapping[int, list[tuple[int, int]]]  # (offset, value) by partition, as they were handed over
#: Of a commit, how long it may take, in seconds.
COMMIT_S = 5.0


class MemberWorker(Worker):
    """One member. What a record needs to be processed is nothing: it is told of."""

    def __init__(self, output: Any, number: int) -> None:
        super().__init__(output, number)
        self.topic = ""
        self.commit = self.mode = ""
        self._joined = False
        self._paused_until = 0.0
        self._commits = 0
        #: Handed over, and not yet dealt with: a callback may come in the midst of it.
        self.gathered: dict[int, list[tuple[int, int]]] = {}
        self._polling = 0
        #: One past the last that was processed, by partition, of those that it has.
        self.processed: dict[int, int] = {}

    @abstractmethod
    def subscribe(self, topic: str) -> None:
        """Callbacks lead to given(), revoked() and lost()."""

    @abstractmethod
    def gather(self) -> None:
        """Polls for at most about TURN_S, into self.gathered."""

    @abstractmethod
    def commit_now(self, offsets: Mapping[int, int]) -> None:
        """And wait. Raises what the client raises."""

    @abstractmethod
    def commit_soon(self, offsets: Mapping[int, int], number: int) -> None:
        """Leads to self.commit_ended()."""

    @abstractmethod
    def committed(self, topic: str, partitions: Iterable[int], seconds: float) -> Mapping[int, int | None]:
        """Raises what the client raises."""

    def generation(self) -> int | None:
        """None: the client does not tell."""
        return None

    def do_join(self, command: Command) -> None:
        self.topic, self.commit, self.mode = command["topic"], command["commit"], command["mode"]
        self.tell("join", time.monotonic_ns())
        self.subscribe(self.topic)
        self._joined = True

    def do_pause(self, command: Command) -> None:
        self.tell("pause", time.monotonic_ns())
        time.sleep(command["seconds"])
        self.tell("resume", time.monotonic_ns())

    def do_committed(self, command: Command) -> None:
        invoke = time.monotonic_ns()
        try:
            found = self.committed(command["topic"], command["partitions"], command["seconds"])
            result: dict[str, Any] = {"offsets": dict(found)}
        except Exception as error:
            name, text = describe(error)
            result = {"error": name, "says": text}
        self.output.say("offsets", id=command["id"], invoke=invoke, complete=time.monotonic_ns(), **result)

    def turn(self) -> None:
        if not self._joined:
            time.sleep(TURN_S)
            return
        self._polling = time.monotonic_ns()
        self.gather()
        self.deal_with_gathered()

    def deal_with_gathered(self) -> None:
        """Process and commit what was handed over, in the order that the group has."""
        records, self.gathered = self.gathered, {}
        if not records:
            return
        self._tell_polled(records)
        ends = {partition: found[-1][0] + 1 for partition, found in records.items()}
        if self.commit == "before":
            # What may not be committed is not processed: it would be twice, by whoever has the partition next.
            if self._commit_sync(ends):
                self.process(records)
            return
        self.process(records)
        if self.mode == "sync":
            self._commit_sync(ends)
        elif self.mode == "async":
            self._commits += 1
            self.tell("commit", time.monotonic_ns(), None, id=self._commits, offsets=ends)
            self.commit_soon(ends, self._commits)

    def process(self, records: Records) -> None:
        now = time.monotonic_ns()
        ranges = {partition: [found[0][0], found[-1][0] + 1] for partition, found in records.items()}
        self.processed.update((partition, end) for partition, (_, end) in ranges.items())
        self.tell("process", now, ranges=ranges)

    def _tell_polled(self, records: Records) -> None:
        for partition, found in records.items():
            for start, runs in _stretches(found):
                end = runs[-1][0] + runs[-1][2]
                self.tell("poll", self._polling, ranges={partition: [start, end]}, runs={partition: runs})

    def _commit_sync(self, offsets: Mapping[int, int]) -> bool:
        self._commits += 1
        number = self._commits
        self.tell("commit", time.monotonic_ns(), None, id=number, offsets=offsets)
        try:
            self.commit_now(offsets)
        except Exception as error:
            name, text = describe(error)
            self.commit_ended(number, name, text)
            return False
        self.commit_ended(number)
        return True

    def commit_ended(self, number: int, error: str | None = None, says: str = "") -> None:
        self.tell("commit", None, id=number, error=error, says=says)

    def given(self, partitions: Iterable[int]) -> None:
        """In the callback of an assignment, before the client asks for itself where to begin."""
        invoke = time.monotonic_ns()
        partitions = list(partitions)
        found: Mapping[int, int | None] = {}
        if partitions:
            try:
                found = self.committed(self.topic, partitions, COMMIT_S)
            except Exception as error:  # then nobody can say whether it begins at the start on purpose
                logging.warning("committed: %s: %s", *describe(error))
        self.tell_given(partitions, invoke, found)

    def tell_given(self, partitions: list[int], invoke: int, committed: Mapping[int, int | None]) -> None:
        """committed: of those that could be asked for."""
        nothing = [partition for partition in partitions if committed.get(partition, 0) is None]
        self.tell("assign", invoke, partitions=partitions)
        if nothing:
            self.tell("reset", time.monotonic_ns(), offsets=dict.fromkeys(nothing, 0), error="nothing committed")

    def revoked(self, partitions: Iterable[int]) -> None:
        """In the callback: what was handed over is dealt with, and what was processed committed."""
        invoke = time.monotonic_ns()
        partitions = list(partitions)
        self.deal_with_gathered()
        if self.commit == "after" and self.mode == "async":
            last = {p: self.processed[p] for p in partitions if p in self.processed}
            if last:
                self._commit_sync(last)
        for partition in partitions:
            self.processed.pop(partition, None)
        self.tell("revoke", invoke, partitions=partitions)

    def lost(self, partitions: Iterable[int]) -> None:
        """In the callback: others may have them by now, so nothing more is done with what was handed over."""
        partitions = list(partitions)
        for partition in partitions:
            self.gathered.pop(partition, None)
            self.processed.pop(partition, None)
        self.tell("lose", time.monotonic_ns(), partitions=partitions)

    def tell(self, kind: str, invoke: int | None, complete: int | None = -1, **fields: Any) -> None:
        """complete: -1: now."""
        complete = time.monotonic_ns() if complete == -1 else complete
        self.output.say(
            "member", client=self.number, kind=kind, invoke=invoke, complete=complete, generation=self.generation(),
            **fields,
        )  # fmt: skip


def _stretches(found: list[tuple[int, int]]) -> list[tuple[int, list[list[int]]]]:
    """Of what was handed over of a partition, each part without a gap: where it starts, and its runs."""
    parts: list[tuple[int, list[list[int]]]] = []
    following = None
    for offset, value in found:
        if offset != following:
            parts.append((offset, [[offset, value, 1]]))
        else:
            runs = parts[-1][1]
            if value == runs[-1][1] + runs[-1][2]:
                runs[-1][2] += 1
            else:
                runs.append([offset, value, 1])
        following = offset + 1
    return parts
