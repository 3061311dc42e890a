"""Where Spark's own pages are shown, as the kernel tells."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOOPBACK = {bytes((127, 0, 0, 1)), bytes.fromhex("0000000000000000FFFF00000100007F")}
_SHOW = """
import sys
from spark_history.session import start
spark = start(sys.argv[1], ui_port=int(sys.argv[2]))
print(spark.sparkContext.uiWebUrl, flush=True)
sys.stdin.read()
"""


def assert_pages_are_here_only(master: str, **variables: str) -> None:
    """By a process of its own: a process has one session. variables: of its environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = subprocess.Popen(
        [sys.executable, "-c", _SHOW, master, str(port)], cwd=ROOT, env=os.environ | variables, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert f":{port}" in running.stdout.readline()
        found = listening(port)
        assert found and found <= LOOPBACK, found
    finally:
        running.communicate("", timeout=60)


def listening(port: int) -> set[bytes]:
    """Addresses, as /proc/net has them: an IPv4 one in network order, an IPv6 one in words of the host's."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for fields in map(str.split, Path(table).read_text().splitlines()[1:]):
            address, its_port = fields[1].split(":")
            if fields[3] == "0A" and int(its_port, 16) == port:
                found.add(bytes.fromhex(address)[::-1] if len(address) == 8 else bytes.fromhex(address))
    return found
