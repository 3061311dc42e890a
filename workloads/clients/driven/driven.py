"""Clients of others, each in processes of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import ClassVar

from harness.errors import RuntimeUnavailable
from workloads.clients.client import Access, Session
from workloads.clients.driven.access import DrivenAccess
from workloads.clients.driven.kind import Kind


class Driven(Kind):
    """A client whose processes are told what to do by workloads/clients/driven/access.py."""

    def access(self, session: Session) -> Access:
        return DrivenAccess(session, self)


class DrivenInPython(Driven):
    """Its driver is a program of workloads/clients/drivers."""

    package: ClassVar[str]  # on PyPI
    module: ClassVar[str]
    driver: ClassVar[str]

    def prepare(self, tell: Callable[[str], object]) -> None:
        if find_spec(self.module) is None:
            raise RuntimeUnavailable(
                f"--client {self.name} needs the package {self.package}, which is not installed: pip install "
                f"{self.package}"
            )

    def command(self, python: str) -> Sequence[str]:
        return [python, "-m", f"workloads.clients.drivers.{self.driver}"]
