"""A clock that is asked and does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.runtimes.ssh.connection.sessions import HostError, together
from harness.runtimes.ssh.doctor import clocks


class Silent:
    name = "a"
    host = SimpleNamespace(name="a", python="python3")
    complaints = ""

    def open(self, command: list[str], *, what: str) -> Silent:
        return self

    def send(self, data: bytes) -> None: ...

    def readline(self, timeout_s: float) -> bytes:
        raise TimeoutError

    def close(self) -> None: ...


def test_a_host_whose_clocks_say_nothing_is_a_finding_of_that_host() -> None:
    session: Any = Silent()
    found = together([session], clocks.measure)["a"]
    assert isinstance(found, HostError)
    assert str(found) == "host a: it does not say what its clocks show"
    with pytest.raises(HostError):
        clocks.measure(session)
