"""What stands, in tests, for what a host lets be done to itself: nothing here touches the kernel's trigger, nor its
clock."""

from __future__ import annotations

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
    told = {name: hosts.execute(name, "sh", "-c", f"cat {CLOCK} 2>/dev/null") for name in hosts.names}
    # Of a container that is just being stopped Docker may tell nothing, and no error.
    return {name: float(out) for name, (status, out) in told.items() if status == 0 and out}
