"""A private subnet for a run's network that nothing on this machine uses."""

from __future__ import annotations

import ipaddress
import random
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

import docker
from docker.errors import APIError
from tenacity import Retrying, retry_if_exception, stop_after_attempt

Subnet = ipaddress.IPv4Network

_POOL = Subnet("10.128.0.0/9")
_PREFIX = 24
_ATTEMPTS = 32


def create_network(api: docker.APIClient, name: str, labels: Mapping[str, str]) -> Subnet:
    """A network of that name without a way out, on a subnet of its own. Other runs, which choose at the same time,
    may take it first: then another is tried. Raises APIError."""
    for attempt in Retrying(retry=retry_if_exception(_overlaps), stop=stop_after_attempt(_ATTEMPTS), reraise=True):
        with attempt:
            subnet = _choose()
            pool = docker.types.IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))
            api.create_network(
                name, driver="bridge", internal=True, labels=dict(labels), check_duplicate=True,
                ipam=docker.types.IPAMConfig(pool_configs=[pool]),
            )  # fmt: skip
    return subnet


def _choose() -> Subnet:
    routes = _routes()
    while True:
        address = int(_POOL.network_address) + (random.SystemRandom().getrandbits(_PREFIX - _POOL.prefixlen) << 8)
        subnet = Subnet((address, _PREFIX))
        if not any(subnet.overlaps(route) for route in routes):
            return subnet


def _routes() -> list[Subnet]:
    """Where this machine has routes to, but for the default one: a VPN's subnet would swallow ours."""
    routes = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        destination, mask = (socket.inet_ntoa(struct.pack("=L", int(fields[i], 16))) for i in (1, 7))
        route = Subnet(f"{destination}/{mask}")
        if route.prefixlen > _POOL.prefixlen:
            routes.append(route)
    return routes


def _overlaps(error: BaseException) -> bool:
    return isinstance(error, APIError) and "overlap" in str(error.explanation).lower()
