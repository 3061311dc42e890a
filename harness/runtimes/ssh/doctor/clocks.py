"""How far a host's clocks are from this machine's, and how sure that is.

As NTP does: the host's clock is asked between two looks at ours, and was read at some time between them. Half of the
round trip is the most that the middle of the two can be wrong by; the shortest of some is taken.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..connection.channel import Channel
from ..connection.connecting import HostRefused, HostUnreachable
from ..connection.sessions import Session
from ..hosts_file import Host
from . import scripts

_TIMES = 8
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Offset:
    """Of a host's clock: what it shows minus what ours shows, in ns, give or take uncertainty_ns."""

    ns: int
    uncertainty_ns: int
    at_ns: int  # our CLOCK_MONOTONIC, when it was measured


@dataclass(frozen=True)
class Offsets:
    wall: Offset  # of CLOCK_REALTIME
    monotonic: Offset  # of CLOCK_MONOTONIC


def measure(session: Session, times: int = _TIMES) -> Offsets:
    """Raises HostUnreachable; HostRefused also if the host has no Python."""
    channel = session.open([session.host.python, "-c", scripts.CLOCKS], what="a look at its clocks")
    try:
        _ask(session.host, channel)  # the interpreter starts
        return min((_ask(session.host, channel) for _ in range(times)), key=lambda each: each.wall.uncertainty_ns)
    finally:
        channel.close()


def _ask(host: Host, channel: Channel) -> Offsets:
    wall, before = time.time_ns(), time.monotonic_ns()
    channel.send(b"\n")
    try:
        words = channel.readline(_PATIENCE_S).split()
    except TimeoutError:
        raise HostUnreachable(f"host {host.name}: it does not say what its clocks show") from None
    after = time.monotonic_ns()
    if len(words) != 2:
        raise HostRefused(f"host {host.name}: {host.python} does not run there ({channel.complaints[-200:]})")
    half = (after - before + 1) // 2
    theirs_wall, theirs_monotonic = map(int, words)
    return Offsets(
        Offset(theirs_wall - (wall + half), half, before + half),
        Offset(theirs_monotonic - (before + half), half, before + half),
    )
