"""Whether hosts reach each other: each listens for a moment, and connects to all others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..connection.channel import Channel
from ..connection.connecting import HostRefused, HostUnreachable
from ..connection.sessions import HostError, Session, together
from . import scripts

_CONNECT_S: Final = 2.0
_PATIENCE_S: Final = 10.0


class Between(NamedTuple):
    taken: Mapping[str, Sequence[int]]  # by host, the ports at which something listened already
    failed: Sequence[tuple[str, str, int, str]]  # from, to, port and why
    errors: Mapping[str, HostError]  # of hosts where it could not be tried


def between(sessions: Sequence[Session], ports: Sequence[int]) -> Between:
    """By the address of each host's node. A port at which something listens already is tried as it is. Takes some
    seconds at most: whoever drops packets instead of refusing them is not waited for longer."""
    channels: dict[str, Channel] = {}

    def listen(session: Session) -> list[int]:
        channel = session.open([session.host.python, "-c", scripts.PORTS], what="a try of its ports")
        channels[session.name] = channel
        return list(_ask(session, channel, {"listen": list(ports)})["taken"])

    def reach(session: Session) -> dict[str, list[tuple[int, str]]]:
        others = {each.name: [(each.host.node_address, port) for port in ports]
                  for each in listening if each is not session}  # fmt: skip
        return dict(_ask(session, channels[session.name], {"connect": others, "seconds": _CONNECT_S})["failed"])

    try:
        taken = together(sessions, listen)
        listening = [each for each in sessions if not isinstance(taken[each.name], HostError)]
        found = together(listening, reach)
    finally:
        for channel in channels.values():
            channel.end_input()
            channel.close()
    errors = {name: each for name, each in (taken | found).items() if isinstance(each, HostError)}
    failed = [
        (name, other, port, why)
        for name, each in found.items()
        if not isinstance(each, HostError)
        for other, places in each.items()
        for port, why in places
    ]
    return Between(
        {name: each for name, each in taken.items() if not isinstance(each, HostError)}, sorted(failed), errors
    )


def _ask(session: Session, channel: Channel, what: Mapping[str, Any]) -> Mapping[str, Any]:
    channel.send(json.dumps(what).encode() + b"\n")
    try:
        line = channel.readline(_PATIENCE_S)
    except TimeoutError:
        raise HostUnreachable(f"host {session.name}: it does not say which ports it reaches") from None
    if not line:
        raise HostRefused(f"host {session.name}: ports could not be tried ({channel.complaints[-200:]})")
    return dict(json.loads(line))
