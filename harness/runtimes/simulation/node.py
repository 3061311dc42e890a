"""A simulated machine: its disk outlives its processes, its processes live and die as the faults will."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

from cluster_image.storage.checkpoints import PARTITION_METADATA_FILE
from cluster_image.storage.disk import ProcessDied
from harness.cluster import TERMINATE_PATIENCE_S, Evidence, Node, Pausing, Role
from harness.runtimes.agent.volume.damage import nothing_to_damage
from harness.runtimes.simulation.clock import WallClock
from harness.runtimes.simulation.disk.damage import FileDamage, chosen, is_deleted
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from harness.runtimes.simulation.disk.loss import Loss
from harness.runtimes.simulation.disk.page_cache import Directory
from harness.runtimes.simulation.disk.strike import READ
from harness.runtimes.simulation.loop import Process, VirtualLoop
from harness.runtimes.simulation.network.network import SimulatedNetwork
from harness.runtimes.simulation.striking import Striking
from harness.targets.target import Simulated, SimulatedProcess

log = logging.getLogger("cluster_image")

SIGKILLED: Final = 137
#: A power cut that waits for a write comes at the latest after so many seconds.
IN_WRITE_PATIENCE_S: Final = 0.2
#: For so long before a power cut what a machine sends may be late.
LAST_MOMENTS_S: Final = 0.3
#: How long a process may take to end that a disk has refused something.
OWN_END_S: Final = 1.0
#: Now and then a machine stands still for a moment: seconds between, and how long at most.
STALL_EVERY_S: Final = 15.0
STALL_S: Final = 0.3


class Surroundings(Protocol):
    """The cluster, as a node sees it."""

    loop: VirtualLoop
    network: SimulatedNetwork
    seed: int
    simulated: Simulated
    looking: bool  # is what happens now done by who looks on, in the middle of a node's step?

    @property
    def machines(self) -> Sequence[Node]: ...

    def note(self, *what: object) -> None:
        """Make it part of the trace hash."""

    def met_error(self, name: str, error: BaseException) -> None:
        """A node's process ends by it."""

    def started(self, name: str, node: SimulatedProcess, disk: SimulatedDisk) -> None:
        """A process begins on this disk, before anything of it has run."""

    def gone(self, name: str, lossy: bool | Collection[str]) -> None:
        """See Invariants.node_gone."""

    def traced(self, node: SimulatedNode, event: str, where: str, fields: Mapping[str, object]) -> None:
        """A node tells of a change of its state."""


class SimulatedNode(Node):
    """Implements harness.cluster.Node. renumbered: see harness.targets.target.Target."""

    def __init__(
        self, cluster: Surroundings, renumbered: Callable[[str, int, str], str],
        *, name: str, node_id: int, role: Role, rack: str, address: tuple[str, int],
    ) -> None:  # fmt: skip
        self.name = name
        self.id = self.own_id = node_id
        self.role = role
        self.rack = rack
        self.address = address
        self.configuration = ""
        self._renumbered = renumbered
        self.disk = self._own_disk = SimulatedDisk(Random(f"{cluster.seed}/disk/{name}"))
        self._replaced = 0  # times
        self.running: SimulatedProcess | None = None  # the cluster's own code, while its process lives
        self._cluster = cluster
        self._loop = cluster.loop
        self._process: Process | None = None
        self._exit_status: int | None = None
        self._stop = asyncio.Event()
        self._boots = 0
        self._wall_clock = WallClock(self._loop.time)
        self._paused_at: float | None = None
        self._cut: asyncio.Future[Evidence] | None = None  # a power cut that waits for a write
        self._operations_left = 0
        self._damage: FileDamage | None = None
        self._copy: Directory | None = None
        self._striking: Striking | None = None
        self._stalls = Random(f"{cluster.seed}/scheduling/{name}")
        self._loop.call_in_world(self._stalls.expovariate(1 / STALL_EVERY_S), self._stall)

    # -- the process ------------------------------------------------------------------------------------------

    @property
    def process(self) -> Process | None:
        return self._process

    def boot(self) -> None:
        """Start the process, on what the disk holds."""
        if self._process is not None:
            return
        loop, cluster = self._loop, self._cluster
        self._boots += 1
        process = self._process = loop.new_process(self.name)
        stop = self._stop = asyncio.Event()
        self.running = cluster.simulated.process(
            self.configuration,
            self.disk.mount(lambda: process.alive, self._before, lambda seconds: loop.stall(process, seconds)),
            cluster.network.endpoint(process, self.name),
            Random(f"{cluster.seed}/node/{self.name}/{self._boots}"),
            lambda error: self._failed(process, error),
            trace=lambda event, where="", **fields: cluster.traced(self, event, where, fields),
            wall_clock=self._wall_clock,
        )
        cluster.note(self.name, "boot", self._boots)
        cluster.started(self.name, self.running, self.disk)
        self.disk.deceptive = self.disk.damaged = self.disk.altered = False
        loop.spawn(process, self._run(process, self.running, stop))

    async def _run(self, process: Process, node: SimulatedProcess, stop: asyncio.Event) -> None:
        try:
            await node.run(stop)
        except Exception as error:  # it cannot start
            self._failed(process, error)
        self._end(exit_status=0)
        raise ProcessDied

    def _failed(self, process: Process, error: BaseException) -> None:
        """As a real process does (cluster_image.__main__): exit at once."""
        if process.alive:
            log.critical("cannot go on: %r", error)
            self._cluster.met_error(self.name, error)
            self._end(exit_status=1)
        raise ProcessDied

    def _end(self, exit_status: int, *, power: bool = False) -> None:
        """No process any more."""
        process = self._process
        if process is None:
            return
        self._cluster.note(self.name, "power off" if power else "exit", exit_status)
        self._loop.kill(process)
        if not power:
            self._cluster.network.process_ended(process)
        self._process = self.running = None
        self._exit_status = exit_status
        self._paused_at = None
        if not power:
            self._cluster.gone(self.name, lossy=False)

    def _stall(self) -> None:
        seconds = min(self._stalls.expovariate(20.0), STALL_S)
        if self._process is not None:
            self._loop.stall(self._process, seconds)
        self._loop.call_in_world(self._loop.time() + self._stalls.expovariate(1 / STALL_EVERY_S), self._stall)

    # -- kill and pause ---------------------------------------------------------------------------------------

    async def kill(self) -> Evidence:
        return self.end()

    def end(self) -> Evidence:
        """SIGKILL."""
        process = self._process
        if process is None:
            return {"exit_status": None, "pid": 0}
        self._end(SIGKILLED)
        return {"exit_status": SIGKILLED, "pid": process.number}

    async def terminate(self) -> Evidence:
        process, asked_at = self._process, self._loop.time()
        if process is None:
            return {"exit_status": None, "pid": 0}
        self._stop.set()
        while self._process is process:
            if self._loop.time() > asked_at + TERMINATE_PATIENCE_S:
                await self.kill()
            await asyncio.sleep(0.01)
        stopping_ns = round((self._loop.time() - asked_at) * 1e9)
        return {"exit_status": self._exit_status, "pid": process.number, "stopping_ns": stopping_ns}

    async def start(self) -> None:
        self.boot()

    async def pause(self, how: Pausing = "freezer") -> Evidence:
        if self._process is None:
            return {"frozen_state": "no process"}
        self._loop.pause(self._process)
        self._paused_at = self._loop.time()
        return {"frozen_state": "frozen"}

    async def resume(self) -> Evidence:
        if self._process is None or self._paused_at is None:
            return {"frozen_ns": 0}
        frozen_ns = round((self._loop.time() - self._paused_at) * 1e9)
        self._paused_at = None
        self._loop.resume(self._process)
        return {"frozen_ns": frozen_ns, "cpu_ns_while_frozen": 0}

    async def is_running(self) -> bool:
        return self._process is not None

    @property
    def paused(self) -> bool:
        return self._process is not None and self._process.paused

    def leftovers(self) -> list[str]:
        """What is still broken of it, a clause each after its name."""
        there = {
            "is replaced by another broker": self.id != self.own_id,
            "has no power": not self._cluster.network.has_power(self.name),
            "is frozen": self.paused,
        }
        found = [what for what, is_so in there.items() if is_so]
        return [*found, *self.disk.leftovers(), *self._wall_clock.leftovers()]

    # -- another in its place -----------------------------------------------------------------------------------

    async def replace(self, node_id: int) -> None:
        assert self._process is None, f"{self.name} runs"
        self._replaced += 1
        self.disk = SimulatedDisk(Random(f"{self._cluster.seed}/disk/{self.name}/{self._replaced}"))
        self._become(node_id)

    async def put_back(self) -> None:
        if self.id != self.own_id:
            assert self._process is None, f"{self.name} runs"
            self.disk = self._own_disk
            self._become(self.own_id)

    def _become(self, node_id: int) -> None:
        self.id = node_id
        self.configuration = self._renumbered(self.configuration, node_id, "")
        self._cluster.note(self.name, "node id", node_id)

    # -- power ------------------------------------------------------------------------------------------------

    async def cut_power(self, *, in_write: int = 0, late_s: float = 0.0) -> Evidence:
        links = [(self.name, other.name) for other in self._cluster.machines if other is not self]
        if late_s and self._process is not None:
            self._cluster.network.slow(links, late_s)
            await asyncio.sleep(LAST_MOMENTS_S)
        try:
            return await self._cut_power(in_write)
        finally:
            self._cluster.network.slow(links, 0.0)

    async def _cut_power(self, in_write: int) -> Evidence:
        if in_write and self._process is not None:
            self._operations_left = in_write
            self._cut = self._loop.create_future()
            await asyncio.wait((self._cut,), timeout=IN_WRITE_PATIENCE_S)
            cut, self._cut = self._cut, None
            if cut.done():
                return cut.result()
        return self.lose_power()

    def _before(self, operation: str, path: str) -> None:
        """Called before each operation on the disk."""
        if self._striking is not None and self._loop.current is self._process and not self._cluster.looking:
            self._striking.before(operation, path)
        if self._cut is not None and not self._cut.done() and operation != READ:
            self._operations_left -= 1
            if self._operations_left <= 0:
                self._cut.set_result(self.lose_power())
                raise ProcessDied

    def lose_power(self) -> Evidence:
        running = self._process is not None
        self._end(SIGKILLED, power=True)
        self._cluster.network.power_off(self.name)
        return self._lose_unsynced() | {"exit_status": SIGKILLED if running else None}

    async def lose_page_cache(self) -> Evidence:
        running = self._process is not None
        self._end(SIGKILLED)
        return self._lose_unsynced() | {"exit_status": SIGKILLED if running else None}

    def _lose_unsynced(self) -> Evidence:
        loss = self.disk.lose_power()
        self._cluster.gone(self.name, lossy=_directories(loss))
        self._cluster.note(self.name, "lost", loss.unsynced_bytes, loss.unsynced_files)
        return loss.evidence()

    async def restore_power(self) -> None:
        self._cluster.network.power_on(self.name)
        self.boot()

    # -- clock and disk ---------------------------------------------------------------------------------------

    async def set_clock(self, offset_s: float, drift: float = 0.0) -> Evidence:
        return self._wall_clock.set(offset_s, drift)

    async def fill_disk(self) -> Evidence:
        self.disk.full = True
        return {}

    async def free_disk(self) -> Evidence:
        self.disk.full = False
        refused, self.disk.refused = self.disk.refused, 0
        return {"refused_writes": refused, **await self._own_end(refused)}

    async def fail_disk(self) -> Evidence:
        self.disk.failing = True
        return {}

    async def repair_disk(self) -> Evidence:
        self.disk.failing = False
        failed, self.disk.failed = self.disk.failed, 0
        evidence = {"failed_operations": failed, **await self._own_end(failed)}
        if self._process is not None:
            return evidence
        return evidence | self._lost(self.disk.evict())

    def _lost(self, loss: Loss) -> Evidence:
        if not loss.files:
            return {}
        self._cluster.gone(self.name, lossy=_directories(loss))
        return loss.evidence()

    async def lose_files(self, what: str, which: float) -> Evidence:
        assert self._process is None, f"{self.name} runs"
        left = self.disk.root.copy() if what == "log" else Directory({})
        partitions = [name for name in left.entries if f"{name}/{PARTITION_METADATA_FILE}" in self.disk.files()]
        if partitions:
            del left.entries[partitions[int(which * len(partitions))]]
        return self._put(Directory(left.entries), f"lost {what}")

    async def snapshot_disk(self) -> None:
        self._copy = self.disk.copy(running=self._process is not None)

    async def restore_disk(self) -> Evidence:
        assert self._process is None and self._copy is not None, f"{self.name} runs, or there is no copy"
        evidence = self._put(self._copy, "restored")
        self._copy, self.disk.deceptive = None, True
        return evidence

    def _put(self, root: Directory, why: str) -> Evidence:
        lost = self._lost(self.disk.put(root))
        self.disk.altered = True
        self._cluster.note(self.name, why, lost.get("unsynced_bytes", 0))
        return lost | {"lost_at": self.now_ns(), "did": why}

    def now_ns(self) -> int:
        return round(self._loop.time() * 1e9)

    async def strike_operation(
        self, choice: Mapping[str, Any], within_s: float, *, starting: bool = False
    ) -> Evidence:
        striking = self._striking = Striking(self, choice, starting=starting)
        at_message = self._cluster.network.at_message
        if striking.of_messages:
            at_message[self.name] = striking
        if starting:
            await self.restore_power()
        try:
            evidence = await striking.wait(within_s)
        finally:
            self._striking = None
            at_message.pop(self.name, None)
        if striking.failed:
            evidence |= await self._own_end(1)
            if self._process is None:  # what was dropped is lost, though whoever reads it may not see that yet
                evidence |= self._lost(self.disk.dropped())
                if striking.pages == "evicted":
                    self.disk.evict()
        return evidence

    async def slow_disk(self, bytes_per_s: int, operations_per_s: int) -> Evidence:
        self.disk.limit = bytes_per_s, operations_per_s
        return {"bytes_per_s": bytes_per_s, "operations_per_s": operations_per_s}

    async def hasten_disk(self) -> Evidence:
        self.disk.limit = None
        slowed, self.disk.slowed = self.disk.slowed, []
        return {"slowed_syncs": len(slowed), "slowed_ms": round(sum(slowed) * 1000, 1)}

    async def make_disk_read_only(self) -> Evidence:
        self.disk.read_only = True
        return {"write_error": "EROFS"}

    async def make_disk_writable(self) -> Evidence:
        self.disk.read_only = False
        refused, self.disk.refused = self.disk.refused, 0
        return {"refused_writes": refused, **await self._own_end(refused)}

    async def damage_file(self, choice: Mapping[str, Any]) -> Evidence:
        path = chosen(self.disk, choice)
        if path is None:
            return {"nothing_to_damage": nothing_to_damage(choice)}
        killed = await self.kill()
        self._damage = FileDamage.do(self.disk, path, choice)
        done = self._damage.done
        self.disk.altered = True
        self.disk.damaged = done.is_of_records and bool(done.after)
        if done.is_of_records and not is_deleted(self.disk, done.path):
            self._cluster.gone(self.name, lossy=[done.path.partition("/")[0]])
            self.disk.deceptive = bool(done.after)
        self._cluster.note(self.name, "damaged", done.path, done.position)
        return killed | done.evidence()

    async def restore_file(self) -> Evidence:
        damage, self._damage = self._damage, None
        if damage is None:
            return {}
        restored = damage.undo(self.disk)
        self.disk.altered = True
        return {"restored_bytes": len(damage.done.before) if restored else 0, "mended_by_node": not restored}

    async def _own_end(self, errors: int) -> dict[str, Any]:
        """How the process ended that its disk has let down. It may be stalled on its way there."""
        deadline = self._loop.time() + OWN_END_S
        while errors and self._process is not None and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        return {} if self._process is not None else {"exit_status": self._exit_status}


def _directories(loss: Loss) -> list[str]:
    """In which something is lost: "topic-0", or the metadata log's."""
    return list(dict.fromkeys(path.partition("/")[0] for path in loss.files))
