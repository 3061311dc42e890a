"""The Docker runtime: each node in a container of its own, on a private network, with a volume of its own.

A node is two containers. One, which only sleeps, holds the network namespace: it is the machine's network card, so
that addresses and packet filters outlive a killed process. The other is the node's process, without privileges. A
power cut ends both. What needs privileges the agent does (harness/runtimes/agent).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import docker
import uvloop
from docker.errors import APIError
from docker.types import LogConfig, Ulimit

from harness.cluster import RuntimeUnavailable
from harness.plan.plan import Plan
from harness.record.collected import CUT_DISKS
from harness.run.threads import in_thread
from harness.runtimes.agent.clock import ENVIRONMENT, FOLDER
from harness.runtimes.nodes import sizes
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.nodes.clock import NodeClock
from harness.runtimes.nodes.cluster import AgentCluster, write_configurations
from harness.runtimes.nodes.node import AgentNode
from harness.targets.target import CONFIGURATION, DATA, SECRETS, TRACE, NodeSpec, Package, Target

from . import cleanup, engine
from .agent_client import AgentClient
from .agent_container import create_agent, run_agent
from .engine import VOLUMES
from .images.images import EngineImages, Images, ensure_agent, ensure_images
from .node import DockerNode
from .subnet import Subnet, create_network
from .trace_files import make_traces

T = TypeVar("T")

_AGENT_TIMEOUT = 30.0  # seconds
_SETTLE_TIMEOUT = 15.0
_NODE_PIDS = 1024  # processes and threads
#: Of what nodes print, the last two thirds of this at least.
_LOGS = LogConfig(type=LogConfig.types.JSON, config={"max-size": "64m", "max-file": "3"})


class DockerRuntime:
    """Implements harness.cluster.Runtime."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.tested = ""  # see Package: once the cluster is started

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return uvloop.run(main)

    async def start(
        self, plan: Plan, run_directory: Path, progress: Callable[[str], None], *, needs: Collection[str] = ()
    ) -> DockerCluster:
        """Returns when every node's process runs. Raises RuntimeUnavailable, with nothing left behind."""
        api = await asyncio.to_thread(engine.connect)
        # The base takes a minute where a machine begins empty, and so does what a target fetches: side by side.
        base = asyncio.ensure_future(in_thread(ensure_agent, api, progress))
        try:
            package = await asyncio.to_thread(self._target.package, plan, EngineImages(api), progress)
            self.tested = package.tested
            _check_memory(len(self._target.nodes(plan)) * package.resident, len(self._target.nodes(plan)))
            await base
        finally:
            base.cancel()  # nobody waits for it where there is nothing to run
        images = await asyncio.to_thread(ensure_images, api, progress, package)
        cluster = DockerCluster(api, plan, self._target, progress)
        try:
            await cluster.start(images, package, run_directory, needs)
        except BaseException as error:
            await asyncio.shield(cluster.stop())
            if isinstance(error, APIError):
                raise RuntimeUnavailable(f"Docker could not start the cluster: {engine.reason_of(error)}") from error
            if isinstance(error, AgentError):
                raise RuntimeUnavailable(f"The cluster could not be started: {error}") from error
            raise
        return cluster

    async def lacks(self, needs: Collection[str]) -> Mapping[str, str]:
        """As `chaos doctor` tries it. Raises RuntimeUnavailable."""

        def probe() -> Mapping[str, str | None]:
            api = engine.connect()
            agent = ensure_agent(api, lambda _: None)
            try:
                found: dict[str, str | None] = json.loads(run_agent(api, agent, f"probe-{os.getpid()}", "probe"))
            except (APIError, OSError) as error:
                why = engine.reason_of(error)
                raise RuntimeUnavailable(f"What this machine can do could not be tried: {why}") from error
            return found

        found = await asyncio.to_thread(probe)
        return {need: why for need in needs if (why := found.get(need)) is not None}


class DockerCluster(AgentCluster):
    machines: Sequence[DockerNode]

    def __init__(
        self, api: docker.APIClient, plan: Plan, target: Target, tell: Callable[[str], object] = lambda _: None
    ) -> None:
        """tell: what is waited for, in a line, when it takes long."""
        super().__init__(plan, target)
        self.machines = ()
        self._api = api
        self._folder = VOLUMES / plan.run
        self._agent = AgentClient(self._folder / "agent.sock", tell)

    async def start(self, images: Images, package: Package, run_directory: Path, needs: Collection[str] = ()) -> None:
        network = f"chaos-{self._plan.run}"
        subnet = await self._call(create_network, self._api, network, self._labels("network"))
        nodes = self.add_nodes(subnet)
        await self._call(self._issue_secrets)
        configurations = write_configurations(self._target, self._plan, nodes, run_directory / "config")
        tracing = [node.name for node in self.machines] if package.traces else []
        traces = make_traces(tracing, run_directory / "trace", sizes.NODE_USER)
        if self._target.looks_at_cut_disks:
            for node in self.machines:
                node.cut_disks = (run_directory / CUT_DISKS).absolute()
        if "faketime" in needs:
            for node in self.machines:
                node.clock = NodeClock((run_directory / "clock" / node.name).absolute())

        async def create_and_boot(node: DockerNode) -> None:
            node.configuration = configurations[node.name]
            mounts = [f"{configurations[node.name]}:{CONFIGURATION}:ro"]
            if node.name in traces:
                mounts.append(f"{traces[node.name]}:{TRACE}")
            if (secrets := self._issued.folders.get(node.name)) is not None:
                mounts.append(f"{secrets}:{SECRETS}:ro")
            await self._call(self._create_containers, node, images, package, network, mounts)
            await node.switch_on()
            await agent_ready
            if node.member:
                await node.boot()
            else:
                await node.plug_in()

        try:
            async with asyncio.TaskGroup() as group:
                agent_ready = group.create_task(self._start_agent(images.agent))
                for node in self.machines:
                    group.create_task(create_and_boot(node))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        if "proxy" in needs:
            await self._start_proxy()
        if of_the_machine := sorted(set(needs) - {"proxy"}):
            self.lacks = await self._agent.ask(self.machines[0].name, "lacks", needs=of_the_machine)

    def add_nodes(self, subnet: Subnet) -> Sequence[DockerNode]:
        """Name them and give them addresses; nothing exists of them yet."""
        self.machines = [self._node(subnet, spec) for spec in self._target.nodes(self._plan)]
        self._outside = str(subnet[1])  # the gateway: where clients, and the harness, seem to be
        return self.machines

    async def stop(self) -> None:
        await self._stop_proxy()
        self._agent.close()
        with suppress(TimeoutError):  # what does not end by then is ended by what follows
            async with asyncio.timeout(_SETTLE_TIMEOUT):
                await self._call.settle()
        await self._call(cleanup.remove_run, self._api, self._plan.run)

    def _node(self, subnet: Subnet, spec: NodeSpec) -> DockerNode:
        host = str(subnet[10 + spec.id])  # the lowest addresses are the network's own, and the gateway's: the harness
        node = DockerNode(
            self._api, self._call, self._agent, self._target,
            name=spec.name, node_id=spec.id, role=spec.role, rack=spec.rack, address=(host, spec.port),
        )  # fmt: skip
        node.member = not spec.spare
        if spec.controller_port is not None:
            node.controller_address = (host, spec.controller_port)
        return node

    def _labels(self, kind: str) -> dict[str, str]:
        return engine.labels(self._plan.run, kind)

    async def _start_agent(self, image: str) -> None:
        """Returns when it can be asked."""
        configuration = {
            "folder": str(self._folder),
            "nodes": [node.name for node in self.machines],
            "file_system": self._plan.file_system,
            "size": sizes.VOLUME,
            "node_user": sizes.NODE_USER,
            "harness_user": os.getuid(),
            "harness_group": os.getgid(),
        }
        container = await self._call(
            create_agent, self._api, image, self._plan.run, self._labels("agent"),
            ["serve", json.dumps(configuration)],
        )  # fmt: skip
        await self._call(self._api.start, container)
        try:
            async with asyncio.timeout(_AGENT_TIMEOUT):
                while not (self._folder / "agent.sock").exists():
                    state = (await self._call(self._api.inspect_container, container))["State"]
                    if not state["Running"]:
                        output = (await self._call(self._api.logs, container)).decode(errors="replace")
                        raise AgentError(f"the agent stopped: {output.strip() or 'without a word'}")
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise AgentError(f"the agent did not come up within {_AGENT_TIMEOUT:g} s") from error

    def _create_containers(
        self, node: DockerNode, images: Images, package: Package, network: str, mounts: Sequence[str]
    ) -> None:
        name = f"chaos-{self._plan.run}-{node.name}"
        endpoint = self._api.create_endpoint_config(ipv4_address=node.address[0])
        no_privileges = {
            "cap_drop": ["ALL"], "security_opt": ["no-new-privileges", "label=disable"],
            # Nothing of the host is theirs to fill: no layer of an image, no log without an end, no table of processes.
            "read_only": True, "log_config": _LOGS, "pids_limit": _NODE_PIDS,
            "ulimits": [Ulimit(name="fsize", soft=sizes.LARGEST_FILE, hard=sizes.LARGEST_FILE)],
        }  # fmt: skip
        node.network = self._api.create_container(
            images.agent, name=f"{name}-network", hostname=node.name, user=str(sizes.NODE_USER), entrypoint=["sleep"],
            command=["infinity"], labels=self._labels("network"),
            networking_config=self._api.create_networking_config({network: endpoint}),
            host_config=self._api.create_host_config(**no_privileges),
        )["Id"]  # fmt: skip
        node.process = self._api.create_container(
            images.node, name=name, labels=self._labels("node"), environment=ENVIRONMENT if node.clock else None,
            host_config=self._api.create_host_config(
                **no_privileges, network_mode=f"container:{node.network}", mem_limit=package.memory,
                tmpfs={"/tmp": f"size={package.tmp}"},
                binds=[
                    f"{self._folder / node.name}:{DATA}", *mounts,
                    *([f"{node.clock.folder}:{FOLDER}"] if node.clock else []),
                ],
            ),
        )["Id"]  # fmt: skip

    async def _save_log_of(self, node: AgentNode, path: Path) -> None:
        assert isinstance(node, DockerNode)
        try:
            await self._call(self._write_log, node, path)
        except APIError as error:
            raise OSError(engine.reason_of(error)) from error

    def _write_log(self, node: DockerNode, path: Path) -> None:
        with open(path, "wb") as file:
            for chunk in self._api.logs(node.process, stream=True, follow=False):
                file.write(chunk)


def _check_memory(needed: int, nodes: int) -> None:
    """Raises RuntimeUnavailable: what the kernel ends for want of memory would look like a fault of the target."""
    available = memory_available()
    if needed > available:
        raise RuntimeUnavailable(
            f"{nodes} nodes take about {needed / 2**30:.1f} GiB of memory, and this machine has "
            f"{available / 2**30:.1f} GiB left: give fewer --brokers and --controllers, or --combined."
        )


def memory_available() -> int:
    """Bytes that processes may take before the machine swaps (proc(5), /proc/meminfo)."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return next(int(words[1]) << 10 for words in lines if words[0] == "MemAvailable:")
