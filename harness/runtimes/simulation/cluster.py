"""A simulated cluster: its machines, the network between them, and the invariants checked after each step."""

from __future__ import annotations

import asyncio
import base64
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Literal

from checkers.inside.violation import Violated, Violation
from checkers.properties import UNEXPECTED_ERROR
from harness.cluster import CLIENTS, Cluster, Evidence, Link, Shape
from harness.plan.plan import Plan
from harness.runtimes.proxy.rules import Rule
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from harness.runtimes.simulation.loop import Hang, VirtualLoop
from harness.runtimes.simulation.network import shaping
from harness.runtimes.simulation.network.network import SimulatedNetwork
from harness.runtimes.simulation.node import SimulatedNode
from harness.runtimes.simulation.output.logs import NodeLogs
from harness.runtimes.simulation.output.traces import NodeTraces
from harness.targets.admin import Admin
from harness.targets.target import NodeSpec, Simulated, SimulatedProcess, Target

#: Hosts that are no nodes: where clients run, and where the harness looks on.
OUTSIDE = ("clients", "harness")
#: Seconds of virtual time between two checks that trust nothing they were told.
CHECK_ALL_EVERY_S = 1.0
LOOK_EVERY_S = 0.1
#: Told since a later version: runs from before repeat to the same trace hash.
_NOT_HASHED = frozenset({"duplicate"})
#: What Python itself raises where code is wrong; nodes raise these on purpose nowhere.
OF_CODE = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)
#: Hears what nodes trace (cluster_image.telemetry.trace): virtual seconds, node, event, where, fields.
Observe = Callable[[float, str, str, str, Mapping[str, object]], None]


class SimulatedCluster(Cluster):
    """Implements harness.cluster.Cluster."""

    machines: Sequence[SimulatedNode]

    def __init__(self, loop: VirtualLoop, plan: Plan, target: Target, simulated: Simulated, logs: NodeLogs) -> None:
        self.loop = loop
        self.seed = plan.seed
        self.network = SimulatedNetwork(loop, plan.seed, latency=plan.latency_ms / 1000, encode=plan.encode_messages)
        self.network.on_error = loop.on_error = self.met_error
        self.network.on_request = self._asks
        self.network.on_answer = self._answers
        self.violated: asyncio.Future[Violation] = loop.create_future()
        self._logs = logs
        self._plan = plan
        self._target = target
        self.simulated = simulated
        self.invariants = simulated.invariants()
        self._shaped: dict[str, Sequence[Link]] = {}  # by key, links of hosts
        self._violation: Violated | None = None  # found in the middle of a step
        self._look_at = 0.0  # when what changes by time alone is looked at next, and all of it
        self._check_all_at = CHECK_ALL_EVERY_S
        self._told = False  # the invariants, of anything since they were last checked
        self.looking = False
        self.observe: Observe | None = None
        self.traces: NodeTraces | None = None
        self._event = ("", "", "")  # the last one traced: node, event, partition
        self.machines = [self._node(spec) for spec in target.nodes(plan)]
        cluster_id = base64.urlsafe_b64encode(sha256(f"{plan.seed}".encode()).digest()[:16]).decode().rstrip("=")
        for name, text in target.configurations(plan, self.machines, cluster_id, trusted=True).items():
            self.node(name).configuration = text

    def _node(self, spec: NodeSpec) -> SimulatedNode:
        node = SimulatedNode(
            self, self._target.renumbered,
            name=spec.name, node_id=spec.id, role=spec.role, rack=spec.rack, address=(spec.name, spec.port),
        )  # fmt: skip
        node.member = not spec.spare
        if spec.controller_port is not None:
            node.controller_address = (spec.name, spec.controller_port)
        return node

    @cached_property
    def admin(self) -> Admin:  # type: ignore[override]
        network = self.network.endpoint(self.loop.new_process("operator"), "harness")
        return self._target.admin(self, network, self._plan)

    def node(self, name: str) -> SimulatedNode:
        return next(node for node in self.machines if node.name == name)

    def start(self) -> None:
        for node in self.machines:
            if node.member:
                node.boot()
        self.loop.after_step = self._after_step

    # -- what is observed -------------------------------------------------------------------------------------

    def traced(self, node: SimulatedNode, event: str, where: str, fields: Mapping[str, object]) -> None:
        """A node tells of a change of its state."""
        self._event = (node.name, event, where)
        if self.observe is not None:
            self.observe(self.loop.time(), node.name, event, where, fields)
        if self.traces is not None:
            self.traces.trace(node.name, node.id, event, where, fields)
        if event not in _NOT_HASHED:
            self.note(node.name, event, where, *fields.values())
        self._tell(self.invariants.changed, node.name, event, where, fields)

    def started(self, name: str, node: SimulatedProcess, disk: SimulatedDisk) -> None:
        self._tell(self.invariants.node_started, name, node, disk)

    def gone(self, name: str, lossy: bool | Collection[str]) -> None:
        """See Invariants.node_gone."""
        self._tell(self.invariants.node_gone, name, lossy)

    def _asks(self, name: str, request: object) -> None:
        self.invariants.asks(name, request, self.loop.time())

    def _answers(self, name: str, request: object, response: object, since: float) -> None:
        try:
            self.invariants.answers(name, request, response, since, self.loop.time())
        except Violated as violation:
            self._violation = self._violation or violation

    def _tell(self, hear: Callable[..., None], *what: object) -> None:
        self.looking = self._told = True
        try:
            hear(*what)
        except Violated as violation:  # whoever changed something must not handle it
            self._violation = self._violation or violation
        finally:
            self.looking = False

    def met_error(self, name: str, error: BaseException) -> None:
        """A node's code has raised this where it has no use for it. What disks, networks and peers bring about is no
        fault of its own."""
        is_of_node = isinstance(error, OF_CODE) and any(node.name == name for node in self.machines)
        if is_of_node and self._violation is None:
            self._violation = Violated(UNEXPECTED_ERROR, f"{name}: {error!r}", nodes=(name,))

    def note(self, *what: object) -> None:
        """Make it part of the trace hash."""
        self.loop.record(*what)

    def _after_step(self) -> None:
        if self._violation is not None:
            raise self._violation
        if self.loop.tripwire.tripped is not None:
            raise self.loop.tripwire.tripped
        now = self.loop.time()
        if not self._told and now < self._look_at:
            return
        self._told = False
        failing = [node.disk for node in self.machines if node.disk.failing]
        for disk in failing:  # for the node alone: what is read from outside is no evidence of a fault
            disk.failing = False
        try:
            self.invariants.check()
            if now >= self._look_at:
                self._look_at = now + LOOK_EVERY_S
                self.invariants.check_liveness(now)
            if now >= self._check_all_at:
                self._check_all_at = now + CHECK_ALL_EVERY_S
                self.invariants.check_all()
        finally:
            for disk in failing:
                disk.failing = True

    def faults_in_force(self) -> tuple[int, ...]:
        """How many members do not run, are frozen, have a disk with something wrong; and of links, whether some are
        cut, and whether some are slow or lossy."""
        down = paused = disks = 0
        for node in self.machines:
            if node.member:
                down += not node.running
                paused += node.paused
                disks += node.disk.troubled
        return down, paused, disks, *self.network.troubled

    def stop_at(self, error: Violated | Hang) -> None:
        """Stop every process where it stands, for good."""
        self._stop_all()
        if not self.violated.done():
            self.violated.set_result(self._describe(error))

    def give_up(self, error: Exception) -> None:
        """As stop_at(), where nothing can be said of the cluster."""
        self._stop_all()
        self.violated.set_exception(error)

    def _stop_all(self) -> None:
        for node in self.machines:
            if node.process is not None:
                self.loop.kill(node.process)
        self.loop.after_step = lambda: None

    def _describe(self, error: Violated | Hang) -> Violation:
        if not isinstance(error, Violated):
            error = Violated(type(error).__name__, str(error))
        return Violation(
            property=error.property,
            message=error.message,
            where=error.where,
            nodes=error.nodes,
            time_ns=self.clock_ns(),
            step=self.loop.step,
            event=" ".join(filter(None, self._event)),
        )

    def clock_ns(self) -> int:
        return round(self.loop.time() * 1e9)

    def unsettled(self) -> str | None:
        return self.invariants.unsettled(self._processes())

    def not_recovered(self, reason: str) -> None:
        self.stop_at(Violated(self.invariants.not_recovered(self._processes()), reason))

    def _processes(self) -> dict[str, SimulatedProcess | None]:
        return {node.name: node.running for node in self.machines if node.member}

    # -- faults of the network --------------------------------------------------------------------------------

    async def block(self, key: str, links: Sequence[Link]) -> None:
        self.network.cut(key, _between_hosts(links))

    async def unblock(self, key: str) -> Evidence:
        by_link: dict[str, int] = {}
        for ends, packets in self.network.mend(key).items():
            link = " > ".join(CLIENTS if end in OUTSIDE else end for end in ends)
            by_link[link] = by_link.get(link, 0) + packets
        return {"packets_dropped": sum(by_link.values()), "packets_dropped_by_link": by_link}

    async def shape(self, key: str, links: Sequence[Link], shape: Shape) -> Evidence:
        hosts = _between_hosts(links)
        before = self._round_trip_ms(hosts)
        self.network.shape(key, hosts, shape)
        self._shaped[key] = hosts
        return {"round_trip_ms": {"before": before, "while": self._round_trip_ms(hosts)}} if hosts else {}

    async def unshape(self, key: str) -> Evidence:
        hosts = self._shaped.pop(key, ())
        during = {"round_trip_ms": {"while": self._round_trip_ms(hosts)}} if hosts else {}
        counted = self.network.unshape(key)
        return shaping.evidence(counted, lambda host: CLIENTS if host in OUTSIDE else host) | during

    async def hold_requests(
        self, key: str, api: str, action: Literal["delay", "repeat"], seconds: tuple[float, float], share: float,
        random: Random,
    ) -> Evidence:  # fmt: skip
        self.network.rules[key] = Rule(api, action, seconds, share, random)
        return {}

    async def release_requests(self, key: str) -> Evidence:
        rule = self.network.rules.pop(key, None)
        return {} if rule is None else dict(rule.evidence())

    def _round_trip_ms(self, links: Sequence[Link]) -> float:
        return round(statistics.median(self.network.round_trip(*link) for link in links) * 1e3, 3)

    async def heal(self) -> None:
        self.network.mend_all()
        self.network.rules.clear()
        self._shaped.clear()

    async def leftovers(self) -> Sequence[str]:
        of_nodes = [f"{node.name} {what}" for node in self.machines for what in node.leftovers()]
        return [*self.network.leftovers(), *of_nodes]

    # -- the end ----------------------------------------------------------------------------------------------

    async def collect(self, directory: Path) -> None:
        self._logs.save(directory / "logs")
        for node in self.machines:
            node.disk.save(directory / "disks" / node.name)

    async def stop(self) -> None:
        self._stop_all()


def _between_hosts(links: Sequence[Link]) -> list[Link]:
    hosts = {CLIENTS: OUTSIDE}
    return [(a, b) for s, t in links for a in hosts.get(s, (s,)) for b in hosts.get(t, (t,))]
