"""What tests of clusters on hosts have in common. Their nodes run docker_stand_in."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harness.plan.plan import Plan
from harness.runtimes.nodes.node import AgentNode
from harness.runtimes.ssh.cluster import SshCluster
from harness.runtimes.ssh.runtime import SshRuntime
from tests.clusters.ssh_hosts import SshHosts
from tests.clusters.stand_in import STAND_IN

#: Of each host, by root: what faults and runs could leave there. Counters, ages and pids say nothing, nor whether a
#: process has something to do at this moment (R) or waits for it (S), as all do but frozen ones; table `ip nat` is
#: Docker's own, which makes it a moment after a container has started.
_LOOKS = """
nft list tables | grep -v 'ip nat$' | while read -r _ family name; do nft list table $family $name; done
tc qdisc; tc filter show dev eth0; ip -o link | cut -d: -f2; cut -d' ' -f5- /proc/self/mountinfo
ls -d /run/chaos /run/chaos/* /var/lib/chaos/* /var/lib/chaos; find /sys/fs/cgroup -type d -name 'chaos-*'
for each in /sys/block/loop*/loop/backing_file; do
    [ "$(stat -c %i "$(cat $each)" 2>/dev/null)" ] && echo "loop device of $(cat $each)"
done
for each in /proc/[0-9]*; do
    case "$(tr '\\0' ' ' <$each/cmdline)" in
        *"nft list"*) ;;  # this look itself
        *agent.host*|*stand_in*|*cluster_image*) echo "$(tr '\\0' ' ' <$each/cmdline) $(cut -d' ' -f3 $each/stat)";;
    esac
done
"""
_SOON_S = 10.0
_POLL_S = 0.5  # each look is half a second of CPU


def state(containers: SshHosts, names: Collection[str] | None = None) -> dict[str, list[str]]:
    """By host."""
    return {name: _state_of(containers, name) for name in (containers.names if names is None else names)}


def _state_of(containers: SshHosts, name: str) -> list[str]:
    told = containers.look(name, _LOOKS)
    varies = re.compile(r"(packets|bytes|direct_packets_stat) \d+|(?<= )[RS]$")
    return sorted(varies.sub("", line) for line in told.splitlines())


def differences(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"{sign} {name}: {line}"
        for name in before
        for sign, these, others in (("new", now[name], before[name]), ("gone", before[name], now[name]))
        for line in these
        if line not in others
    ]


def differences_soon(containers: SshHosts, before: Mapping[str, Sequence[str]], within_s: float = _SOON_S) -> list[str]:
    """What stays different until then."""
    until = time.monotonic() + within_s
    while (found := differences(before, state(containers, before))) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return found


def with_rescue(containers: SshHosts, seconds: float, folder: Path) -> Path:
    """A hosts file like the set's own, but for the time after which hosts help themselves."""
    file = folder / "hosts.toml"
    file.write_text(f"rescue_after_s = {seconds:g}\n{containers.file.read_text()}")
    return file


def plan(name: str, hosts: Path, brokers: int = 5, **others: Any) -> Plan:
    """With a controller."""
    return Plan(
        run=f"test-{name}-{os.getpid()}", on="ssh", hosts=str(hosts), brokers=brokers, controllers=1,
        replication_factor=1, min_insync_replicas=1, **others,
    )  # fmt: skip


@asynccontextmanager
async def started(wanted: Plan, folder: Path, needs: Collection[str] = ()) -> AsyncIterator[SshCluster]:
    cluster = await SshRuntime(STAND_IN).start(wanted, folder, str, needs=needs)
    try:
        yield cluster
    finally:
        await cluster.stop()


async def ask(node: AgentNode, *command: object, timeout: float = 10) -> str:
    """The stand-in's answer, once it listens."""
    async with asyncio.timeout(timeout):
        while True:
            try:
                reader, writer = await asyncio.open_connection(*node.address)
                try:
                    writer.write(" ".join(map(str, command)).encode() + b"\n")
                    return (await reader.readline()).decode().strip()
                finally:
                    writer.close()
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
