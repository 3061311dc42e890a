"""Where Spark's own pages are shown, as the kernel tells."""

from __future__ import annotations

from pathlib import Path

LOOPBACK = {bytes((127, 0, 0, 1)), bytes.fromhex("0000000000000000FFFF00000100007F")}


def listening(port: int) -> set[bytes]:
    """Addresses, as /proc/net has them: an IPv4 one in network order, an IPv6 one in words of the host's."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for fields in map(str.split, Path(table).read_text().splitlines()[1:]):
            address, its_port = fields[1].split(":")
            if fields[3] == "0A" and int(its_port, 16) == port:
                found.add(bytes.fromhex(address)[::-1] if len(address) == 8 else bytes.fromhex(address))
    return found
