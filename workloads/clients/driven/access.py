"""Access to a topic by a client of others, whose producers run in one process, its readers in another, and its final
read in a third."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from harness.targets.security import PLAINTEXT
from workloads.clients.client import Access, Producer, Session
from workloads.clients.driven.kind import Kind
from workloads.clients.driven.process import Driver, beside
from workloads.clients.driven.producing import DrivenProducers
from workloads.clients.driven.reading import DrivenReader
from workloads.pacing import Pacer

#: In a run's directory: what the clients' processes printed.
FOLDER: Final = "clients"


class DrivenAccess(Access):
    def __init__(self, session: Session, kind: Kind) -> None:
        self._session = session
        self._kind = kind
        self._drivers: list[Driver] = []

    def producers(self, pacer: Pacer) -> Sequence[Producer]:
        session, kind, plan = self._session, self._kind, self._session.plan
        settings = self.settings("producer")
        opening = [
            {"do": "open", "client": number, "role": "producer", "settings": settings}
            for number in range(plan.concurrency)
        ]
        driver = self.driver("producers", lambda: opening)
        return [DrivenProducers(session, kind, driver, pacer)]

    def readers(self, random: Random) -> Sequence[Coroutine[Any, Any, None]]:
        readers = [
            DrivenReader(self._session, lambda: driver, self._session.first_reader + number, 2 * number, "read")
            for number in range(self._session.readers)
        ]
        driver = self._driver_of("readers", readers)
        loops = [reader.watch_ends(Random(random.random())) for reader in readers]
        return [beside(driver, [*loops, *(reader.go_on() for reader in readers)])]

    async def read_all(self) -> None:
        process = self._session.first_reader + self._session.readers
        reader = DrivenReader(self._session, lambda: driver, process, 0, "final_read")
        driver = self._driver_of("final-read", [reader])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(driver.run()), group.create_task(reader.go_on())]
            await reader.read_to_the_ends()
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Each process ends with what it was for."""

    def facts(self) -> Mapping[str, Any]:
        """client: which that was, in words; client_processes: by name, how often it was started, and how those ended
        that were not asked to."""
        if not self._drivers:
            return {}
        versions = sorted(set().union(*(driver.versions for driver in self._drivers)))
        processes = {driver.name: {"starts": driver.starts, "ended": driver.ends} for driver in self._drivers}
        return {"client": "; ".join(versions), "client_processes": processes}

    def settings(self, role: str) -> Mapping[str, str]:
        """Of a client of the role "producer", "consumer" or "member". There may be secrets among them: its process is
        told them, and nobody else."""
        plan = self._session.plan
        bootstrap = ",".join(map(str, self._session.brokers))
        security = self._session.security
        secured = {} if security == PLAINTEXT else self._kind.secured(security)
        return {**self._kind.defaults(role, bootstrap, plan.acks), **secured, **plan.client_settings}

    def _driver_of(self, name: str, readers: Sequence[DrivenReader]) -> Driver:
        settings = self.settings("consumer")

        def opening() -> list[Mapping[str, Any]]:
            commands: list[Mapping[str, Any]] = []
            for reader in readers:
                for number in (reader.number, reader.number + 1):
                    commands.append({"do": "open", "client": number, "role": "consumer", "settings": settings})
                commands.append(reader.assignment())
            return commands

        by_number = {number: reader for reader in readers for number in (reader.number, reader.number + 1)}

        def heard(said: Mapping[str, Any]) -> None:
            if said["is"] == "failed":
                driver.cannot_start(self._kind.unusable(said["error"], said["says"]))
            if "client" in said:
                by_number[said["client"]].heard(said)

        driver = self.driver(name, opening)
        driver.heard = heard
        return driver

    def driver(self, name: str, opening: Callable[[], Sequence[Mapping[str, Any]]]) -> Driver:
        """Whose output is kept. opening: what each of its processes is told first."""
        directory = self._session.recorder.directory
        log: Path | None = None
        if directory is not None:
            (directory / FOLDER).mkdir(exist_ok=True)
            log = directory / FOLDER / f"{name}.log"
        command = self._kind.command(sys.executable)
        driver = Driver(name, command, log, environment=self._kind.environment(), opening=opening)
        self._drivers.append(driver)
        return driver
