"""Round trips of ICMP echoes, sent from within a node's network namespace: answered by kernels, not by processes."""

from __future__ import annotations

import os
import select
import socket
import statistics
import struct
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from .card import Network

ECHOES = 10
_APART = 0.004  # seconds from one echo to the next
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_HEADER = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence number


def round_trips(network: Network, addresses: Collection[str], patience: float) -> dict[str, dict[str, Any]]:
    """By address: `ms`, the median round trip (None: no answer within `patience` seconds), and of ECHOES echoes how
    many were `answered`, and how many answers came after one to a later echo: `overtaken`."""
    network.enter()
    identifier = int.from_bytes(os.urandom(2), "big")
    sent: dict[tuple[str, int], float] = {}
    found: dict[str, dict[int, float]] = {address: {} for address in addresses}
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
        icmp.setblocking(False)
        for number in range(ECHOES):
            for address in addresses:
                sent[address, number] = time.monotonic()
                with suppress(OSError):  # no route, or a rule forbids it: as good as lost
                    icmp.sendto(_echo(identifier, number), (address, 0))
            _receive(icmp, identifier, sent, found, time.monotonic() + _APART)
        _receive(icmp, identifier, sent, found, time.monotonic() + patience)
    return {address: _summary(times) for address, times in found.items()}


def _receive(
    icmp: socket.socket,
    identifier: int,
    sent: dict[tuple[str, int], float],
    found: dict[str, dict[int, float]],
    deadline: float,
) -> None:
    while sum(map(len, found.values())) < len(found) * ECHOES and (left := deadline - time.monotonic()) > 0:
        if not select.select([icmp], [], [], left)[0]:
            return
        packet, (address, _) = icmp.recvfrom(1 << 11)
        now = time.monotonic()
        header = packet[4 * (packet[0] & 0xF) :][: _HEADER.size]
        kind, _, _, whose, number = _HEADER.unpack(header)
        if (kind, whose) == (_ECHO_REPLY, identifier) and (address, number) in sent:
            found[address].setdefault(number, now - sent[address, number])


def _summary(times: dict[int, float]) -> dict[str, Any]:
    """times: seconds by number, in the order in which they came."""
    return {
        "ms": round(statistics.median(times.values()) * 1e3, 3) if times else None,
        "answered": len(times),
        "overtaken": _overtaken(list(times)),
    }


def _overtaken(numbers: Sequence[int]) -> int:
    return sum(number < max(numbers[:place]) for place, number in enumerate(numbers) if place)


def _echo(identifier: int, number: int) -> bytes:
    checksum = sum(struct.unpack("!4H", _HEADER.pack(_ECHO_REQUEST, 0, 0, identifier, number)))
    checksum = (checksum & 0xFFFF) + (checksum >> 16)
    checksum = ~(checksum + (checksum >> 16)) & 0xFFFF
    return _HEADER.pack(_ECHO_REQUEST, 0, checksum, identifier, number)
