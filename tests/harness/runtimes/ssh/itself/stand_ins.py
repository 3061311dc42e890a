"""What stands, in tests, for what a host lets be done to itself: nothing here touches the kernel's trigger, nor its
clock."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tests.clusters.ssh_hosts import SshHosts

TRIGGER: Final = "/var/lib/chaos/trigger"
CLOCK: Final = "/var/lib/clock"
NEAR_S: Final = 0.05
#: Its arguments: a file for the trigger, one for the clock ("": the kernel's own), and those of chaos.
PROGRAM: Final = """
import sys
from harness.__main__ import main
from harness.runtimes.ssh.cluster import SshCluster
SshCluster.trigger, SshCluster.clock_stand_in = sys.argv.pop(1), sys.argv.pop(1)
sys.exit(main())
"""


def clocks_shown(hosts: SshHosts) -> dict[str, float]:
    """By host whose clock was ever set: how far it is ahead."""
    shown = {}
    for name in hosts.names:
        with suppress(OSError, ValueError):
            shown[name] = float(hosts.inside(name, CLOCK).read_text())
    return shown
