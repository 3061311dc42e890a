"""A cluster of nodes that an agent breaks and mends (node.py): what is done to links, collection, secrets."""

from __future__ import annotations

import asyncio
import base64
import uuid
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Literal

from harness.cluster import CLIENTS, Cluster, ClusterLost, Evidence, Link, Shape
from harness.errors import describe
from harness.plan.plan import Plan
from harness.runtimes import private
from harness.runtimes.proxy.proxy import Proxy
from harness.runtimes.proxy.rules import Rule
from harness.targets.admin import Admin
from harness.targets.security import PLAINTEXT
from harness.targets.security.network import network_to
from harness.targets.target import Issued, Target

from .asking import AgentError
from .by_key import ByKey, each
from .calls import Calls
from .links import Links, rules_of
from .node import AgentNode


class AgentCluster(Cluster):
    """Implements harness.cluster.Cluster, but for start and stop."""

    machines: Sequence[AgentNode]

    def __init__(self, plan: Plan, target: Target) -> None:
        self._call = Calls()
        self._plan = plan
        self._target = target
        self._proxy: Proxy | None = None
        self._outside = ""  # the address of all who are no nodes, as agents take it
        self._issued = Issued(PLAINTEXT)
        self._blocked: ByKey[dict[str, int]] = ByKey()

    @cached_property
    def admin(self) -> Admin:  # type: ignore[override]
        return self._target.admin(self, network_to(self), self._plan)

    @property
    def bootstrap(self) -> Sequence[tuple[str, int]]:
        if self._proxy is None:
            return super().bootstrap
        return [self._proxy.addresses[node.id] for node in self.brokers]

    def facts(self) -> Mapping[str, Any]:
        """late_requests: what brokers got late by hold_requests(): see harness.runtimes.proxy.proxy.Late."""
        late = [] if self._proxy is None else self._proxy.late
        return {"late_requests": [each._asdict() for each in late]} if late else {}

    async def hold_requests(
        self, key: str, api: str, action: Literal["delay", "repeat"], seconds: tuple[float, float], share: float,
        random: Random,
    ) -> Evidence:  # fmt: skip
        assert self._proxy is not None, "its nemesis says that it needs one"
        self._proxy.strike(key, Rule(api, action, seconds, share, random))
        return {}

    async def release_requests(self, key: str) -> Evidence:
        return {} if self._proxy is None else dict(self._proxy.end(key))

    async def block(self, key: str, links: Sequence[Link]) -> None:
        """At the receiver; what goes to clients is dropped where it sets out, for their host is not ours to change."""
        addresses = {node.name: node.address[0] for node in self.machines} | {CLIENTS: self._outside}
        incoming: dict[str, list[str]] = defaultdict(list)
        outgoing: dict[str, list[str]] = defaultdict(list)
        for source, target in links:
            if target == CLIENTS:
                outgoing[source].append(addresses[target])
            else:
                incoming[target].append(addresses[source])
        rules = rules_of("block", key)
        ends = [node for node in self.machines if node.name in incoming or node.name in outgoing]
        asked = self._blocked.begin(key, ends)
        await each(asked, lambda node: node.block(rules, incoming[node.name], outgoing[node.name]))

    async def unblock(self, key: str) -> Evidence:
        names = {node.address[0]: node.name for node in self.machines} | {self._outside: CLIENTS}
        dropped = await self._blocked.undo(key, lambda node: node.unblock(rules_of("block", key)))
        by_link = {}
        for name, packets in dropped.items():
            for end, count in packets.items():
                field, other = end.split()
                link = (names[other], name) if field == "saddr" else (name, names[other])
                by_link[" > ".join(link)] = count
        return {"packets_dropped": sum(by_link.values()), "packets_dropped_by_link": by_link}

    @cached_property
    def _links(self) -> Links:
        return Links(self.machines, self._outside)

    async def shape(self, key: str, links: Sequence[Link], shape: Shape) -> Evidence:
        return await self._links.shape(key, links, shape)

    async def unshape(self, key: str) -> Evidence:
        return await self._links.unshape(key)

    async def heal(self) -> None:
        async def mend(node: AgentNode) -> None:
            await node.mend_network()
            self._blocked.forget(node)
            self._links.forget(node)

        await each(self.machines, mend)

    async def leftovers(self) -> Sequence[str]:
        """What a node that cannot be looked at may still have is told as well."""

        async def of(node: AgentNode) -> Sequence[str]:
            try:
                return await node.leftovers()
            except ClusterLost:
                raise
            except AgentError as error:
                return [f"cannot be looked at: {error}"]

        found = await each(self.machines, of)
        return [f"{node.name} {what}" for node, left in zip(self.machines, found, strict=True) for what in left]

    async def collect(self, directory: Path) -> Mapping[str, str]:
        logs = directory / "logs"
        disks = {node.name: (directory / "disks" / node.name).absolute() for node in self.machines}
        for folder in (logs, directory / "disks", *disks.values()):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        problems: dict[str, str] = {}
        await asyncio.gather(
            *(self._save_log(node, logs / f"{node.name}.log", problems) for node in self.machines),
            *(self._save_disk(node, disks[node.name], problems) for node in self.machines),
        )
        return problems

    async def _save_log(self, node: AgentNode, path: Path, problems: dict[str, str]) -> None:
        try:
            await self._save_log_of(node, path)
        except (AgentError, OSError) as error:
            _add(problems, node.name, f"the output of {node.name} could not be saved: {describe(error)}")

    async def _save_disk(self, node: AgentNode, disk: Path, problems: dict[str, str]) -> None:
        """One that cannot be copied is no reason to be without the others."""
        try:
            strange = await node.copy_disk(disk)
        except AgentError as error:
            _add(problems, node.name, f"the disk of {node.name} could not be copied: {describe(error)}")
            return
        await asyncio.to_thread(self._issued.blank, disk)
        if strange:
            _add(problems, node.name, f"the disk of {node.name} was not copied whole, for there was on it: {strange}")

    @abstractmethod
    async def _save_log_of(self, node: AgentNode, path: Path) -> None:
        """What its process printed, into this file. Raises AgentError, OSError."""

    async def _start_proxy(self) -> None:
        self._proxy = Proxy({node.id: node.address for node in self.machines if node.role == "broker"})
        await self._proxy.start()

    async def _stop_proxy(self) -> None:
        if self._proxy is not None:
            await self._proxy.close()

    def _issue_secrets(self) -> None:
        if not self._plan.is_secured:
            return
        self._issued = self._target.issue(self._plan, self.machines, private.make(self._plan.run))
        self.security = self._issued.clients
        for node in self.machines:
            node.blank = self._issued.blank


def _add(problems: dict[str, str], node: str, sentence: str) -> None:
    problems[node] = f"{problems[node]}; {sentence}" if node in problems else sentence


def new_cluster_id() -> str:
    """As Kafka makes them (Uuid.randomUuid): none begins with a dash, which its own tools would take for an option."""
    while True:
        given = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not given.startswith("-"):
            return given


def write_configurations(target: Target, plan: Plan, nodes: Sequence[AgentNode], directory: Path) -> dict[str, Path]:
    """A configuration file a node. Returns them by node name."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)  # the files say what nodes prove to each other by
    written = {}
    for name, text in target.configurations(plan, nodes, new_cluster_id()).items():
        path = (directory / f"{name}.properties").absolute()
        path.write_text(text)
        path.chmod(0o644)  # the node's user reads it, whatever the umask here
        written[name] = path
    return written
