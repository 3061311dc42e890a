"""Finds out by trying which of the optional features that nemeses need (harness.cluster.NEEDS) this machine lacks.
The probe of `chaos doctor` uses it too."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from . import clock, tools
from .volume import slow

_ONE_AT_A_TIME = threading.Lock()  # what is tried changes the agent's own container, as another trial would


def lacks(needs: Collection[str], *, on_host: bool = False) -> dict[str, str]:
    """By need: why there is none of it, as a clause. Nothing of what there is. on_host: is this no container, but a
    host, whose network is not ours?"""
    with _ONE_AT_A_TIME:
        reasons = {need: _lacking(need, on_host) for need in needs if need in _TRIALS}
    return {need: reason for need, reason in reasons.items() if reason is not None}


@functools.cache
def _lacking(need: str, on_host: bool) -> str | None:
    return (_ON_HOSTS.get(need, _TRIALS[need]) if on_host else _TRIALS[need])()


def _netem(*, apart: bool = False) -> str | None:
    """apart: by a loopback that goes with the trial. A container's agent may not make namespaces."""
    try:
        tools.run(["tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms"], apart=apart)
        if not apart:
            tools.run(["tc", "qdisc", "del", "dev", "lo", "root"])
    except OSError as error:
        return f"this kernel has no netem ({error})"
    return None


_TRIALS: Final[Mapping[str, Callable[[], str | None]]] = {
    "netem": _netem, "faketime": clock.lacking, "io-limit": slow.lacking,
}  # fmt: skip
#: The loopback of a host is everybody's, with whatever queue it was given.
_ON_HOSTS: Final[Mapping[str, Callable[[], str | None]]] = {"netem": functools.partial(_netem, apart=True)}
