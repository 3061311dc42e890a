"""What a runtime offers a run: a Cluster of Nodes that can be started, broken and mended.

A runtime (harness/runtimes/) implements these two protocols; nemeses and workloads know nothing else of it.
Every method that breaks something returns the evidence that it took effect, as a JSON-able dict: a fault
that leaves no trace does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

Evidence = dict[str, Any]
Role = Literal["controller", "broker"]


class Node(Protocol):
    """One machine of the cluster under test."""

    name: str  # "broker-1", "controller-3": Docker container and host name are made from it
    id: int  # Kafka's node.id: brokers 1.., controllers 101..
    role: Role
    rack: str  # "rack-1"; a rack is one failure domain
    address: tuple[str, int]  # host and port reachable from the harness

    async def kill(self) -> Evidence:
        """SIGKILL the process; the page cache survives. Evidence: exit_status, pid."""

    async def start(self) -> None:
        """Start the process again after kill() or restore_power()."""

    async def pause(self) -> Evidence:
        """Freeze every thread of the node (cgroup freezer). Evidence: frozen_state."""

    async def resume(self) -> Evidence:
        """Thaw. Evidence: frozen_ns, how long the node stood still."""

    async def cut_power(self) -> Evidence:
        """Network off, SIGKILL, file system shut down without flushing its journal, in that order, then
        unmount and mount again (the network stays off and the process down until restore_power()).

        Evidence: unsynced_bytes, unsynced_files, unsynced_records (lost, by comparing before and after),
        lost_by_partition {"topic-0": records}, cut_ns (request to remounted), exit_status."""

    async def restore_power(self) -> None:
        """Network on and process started: the node boots from what its disk kept."""

    async def is_running(self) -> bool: ...


class Cluster(Protocol):
    """A started cluster. `nodes` is in id order, controllers last."""

    nodes: Sequence[Node]

    @property
    def brokers(self) -> Sequence[Node]: ...

    @property
    def controllers(self) -> Sequence[Node]: ...

    async def partition(self, groups: Sequence[Sequence[Node]]) -> None:
        """Let packets pass only within each group (both directions dropped between groups).
        A node in no group talks to everyone. Clients (the harness) still reach every node."""

    async def heal(self) -> Evidence:
        """Remove every partition. Evidence: packets_dropped, by the rules' own counters, and by node."""

    async def collect(self, directory: Path) -> None:
        """After the run: each node's log to directory/logs/<node>.log, each broker's data directory
        (segments and checkpoints) to directory/disks/<node>/. Nodes may be running or dead."""

    async def stop(self) -> None:
        """Remove every container, network, mount and loop device of this run. Safe to call twice."""


class Runtime(Protocol):
    async def start(self, plan: Any, run_directory: Path, progress: Any) -> Cluster:
        """Bring up plan's cluster. Returns as soon as the containers run; the caller waits for readiness.
        progress: Callable[[str], None], one line about a slow step. Raises RuntimeUnavailable."""


class RuntimeUnavailable(Exception):
    """The machine cannot do this (no Docker, no permission, no loop devices …). The message is one sentence that
    says what is missing and what to do; the command line exits 255 with it."""

