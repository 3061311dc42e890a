"""The nodes of a run on hosts: starts an agent on each, and the nodes; removes all of it again."""

from __future__ import annotations

import asyncio
import base64
import getpass
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from harness.cluster import RuntimeUnavailable
from harness.plan.plan import Plan
from harness.run.threads import in_thread
from harness.runtimes.agent.host.itself.reboot import TRIGGER
from harness.runtimes.agent.host.network import OUTSIDE
from harness.runtimes.nodes import sizes
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.nodes.clock import Clock
from harness.runtimes.nodes.cluster import AgentCluster, new_cluster_id
from harness.runtimes.nodes.node import AgentNode
from harness.targets.target import CONFIGURATION, DATA, SECRETS, TRACE, TRACE_SUFFIX, NodeSpec, Package, Target

from . import reboot
from .agents import HostAgents
from .connection.sessions import HostError, HostRefused, Session, on_all, together
from .host_clock import HostClock
from .hosts_file import Host, Hosts
from .installation import install
from .installation.install import Found
from .installation.pieces import PYTHON_PACKAGES
from .installation.wanted import Wanted
from .node import HostNode
from .traces import on_our_clock

_START_S: Final = 60.0
_LOOK_S: Final = 0.5  # from one look at an agent that is just being started to the next
_HELD: Final = 3  # exit status of `agent.host serve`
_SIZES: Final = {"k": 10, "m": 20, "g": 30}


class SshCluster(AgentCluster):
    """trigger: by which hosts that may be rebooted are. clock_stand_in: a file there that is set in place of the
    clock of hosts whose clock may be; "": the clock is."""

    machines: Sequence[HostNode]
    trigger: ClassVar[str] = TRIGGER
    clock_stand_in: ClassVar[str] = ""
    kind: ClassVar[type[HostNode]] = HostNode
    #: How long stop() waits for what is under way, and then for all hosts to be as they were. All of it has to be
    #: within harness.run.run.TEAR_DOWN_TIMEOUT_S.
    settle_s: ClassVar[float] = 10.0
    removal_s: ClassVar[float] = 45.0

    def __init__(
        self, plan: Plan, target: Target, hosts: Hosts, chosen: Mapping[str, Host], sessions: Mapping[str, Session],
        found: Mapping[str, Found], wanted: Wanted, tell: Callable[[str], object] = lambda _: None,
    ) -> None:  # fmt: skip
        """chosen: hosts by node. sessions, found: by host."""
        super().__init__(plan, target)
        self._hosts = hosts
        self._chosen = chosen
        self._sessions = sessions
        self._found = found
        self._wanted = wanted
        self._tell = tell
        commands = {
            node: [*install.agent_command(host, wanted.agent), "connect"] for node, host in chosen.items()
        }  # fmt: skip
        self._agents = HostAgents(
            {node: sessions[host.name] for node, host in chosen.items()}, commands, hosts.rescue_after_s, tell
        )
        self._outside = OUTSIDE
        self._begun = False
        self._traces = False  # do nodes write any?
        self.machines = [self._node(spec) for spec in target.nodes(plan)]

    async def start(self, package: Package | None, run_directory: Path, needs: Collection[str]) -> None:
        """package: None: only of a cluster that is already there (service/)."""
        assert package is not None
        await self._call(self._issue_secrets)
        texts = self._target.configurations(self._plan, self.machines, new_cluster_id())
        if self._target.looks_at_cut_disks:
            from harness.record.collected import CUT_DISKS

            for node in self.machines:
                node.cut_disks = (run_directory / CUT_DISKS).absolute()
        for node in self.machines:
            if "faketime" in needs:
                node.clock = Clock()
        self._traces = package.traces
        self._begun = True
        self._tell("starting the agents")
        asked = {node.name: self._serve(node, package, texts[node.name]) for node in self.machines}
        await self._on_all(lambda node: self._start_agent(node, asked[node.name]))
        for node in self.machines:
            if node.host.may_reboot:
                again = partial(self._start_agent, node, {**asked[node.name], "resumes": True})
                node.reboots = partial(reboot.cut_power, node, self._agents, again)
        try:
            await self._begin(lambda node: node.boot() if node.member else node.plug_in(), needs)
        except AgentError as error:
            raise RuntimeUnavailable(f"The cluster could not be started: {error}") from error

    async def _begin(self, work: Callable[[HostNode], Awaitable[None]], needs: Collection[str]) -> None:
        """The agents are there. work: with which each node begins. Raises AgentError."""
        await in_thread(self._agents.wait_until_measured)
        for session in self._sessions.values():
            session.patience_s = 0.0  # from now on the agents' end has that
        await asyncio.gather(*map(work, self.machines))
        if of_the_hosts := sorted(set(needs) - {"proxy"}):
            self.lacks = await self._what_hosts_lack(of_the_hosts)
        if "proxy" in needs:
            await self._start_proxy()

    async def _what_hosts_lack(self, needs: Sequence[str]) -> Mapping[str, str]:
        """A fault may strike any of them: what one lacks is not there, and the reason names it, unless all lack it for
        the same reason."""
        told = await asyncio.gather(*(self._agents.ask(node.name, "lacks", needs=needs) for node in self.machines))
        lacking = {}
        for need in needs:
            answered = zip(self.machines, told, strict=True)
            reasons = {node.host.name: each[need] for node, each in answered if need in each}
            if len(set(reasons.values())) == 1 and len(reasons) == len(self.machines):
                lacking[need] = f"no host has it: {next(iter(reasons.values()))}"
            elif reasons:
                lacking[need] = "; ".join(f"host {name}: {reason}" for name, reason in reasons.items())
        return lacking

    def facts(self) -> Mapping[str, Any]:
        """host_clocks: by node, how its clock was brought onto ours: see _told_of(). lost_hosts: see HostAgents."""
        clocks = {node: told for node, clock in self._agents.clocks.items() if (told := _told_of(clock)) is not None}
        lost = {node: times for node, times in self._agents.lost.items() if times}
        return {**super().facts(), "host_clocks": clocks, **({"lost_hosts": lost} if lost else {})}

    async def gather(self, directory: Path) -> None:
        """The nodes' traces, on our clock."""
        await asyncio.gather(*(self._gather(node, directory / f"{node.name}{TRACE_SUFFIX}") for node in self.machines))

    async def _gather(self, node: HostNode, path: Path) -> None:
        with suppress(AgentError, OSError):  # whoever misses it says so
            if self._traces:
                await node.fetch_file("trace.jsonl", path)
                await in_thread(on_our_clock, path, self._agents.clocks[node.name])

    async def _save_log_of(self, node: AgentNode, path: Path) -> None:
        """And beside it what its agent said, if it did: of an error of its own, say."""
        assert isinstance(node, HostNode)
        await self._save_word_of_agent(node, path.with_suffix(".agent.txt"))
        await node.fetch_file("output.log", path)

    async def _save_word_of_agent(self, node: HostNode, path: Path) -> None:
        with suppress(AgentError, OSError):  # nobody misses it
            await node.fetch_file("agent.log", path)
            if not path.stat().st_size:
                path.unlink()

    async def stop(self) -> None:
        """Nothing of the run is left on any host that answers. Raises RuntimeUnavailable that names the others."""
        if problems := await self._take_down():
            raise RuntimeUnavailable("; ".join(problems))

    async def _take_down(self) -> list[str]:
        """What stays, a sentence each."""
        await self._stop_proxy()
        self._agents.close()
        try:
            with suppress(TimeoutError):  # what does not end by then is ended by what follows
                async with asyncio.timeout(self.settle_s):
                    await self._call.settle()
            if not self._begun:
                return []
            self._begun = False
            return await self._remove_everywhere()
        finally:
            for session in self._sessions.values():
                session.close()
            from harness.runtimes import private

            private.remove(self._plan.run)

    async def _remove_everywhere(self) -> list[str]:
        late = f"not everything could be removed: it has not ended within {self.removal_s:g} s"
        why = {node.name: f"host {node.host.name}: {late}" for node in self.machines}

        def work(node: HostNode) -> None:
            try:
                self._remove(node)
                del why[node.name]
            except HostError as error:
                why[node.name] = str(error)

        with suppress(TimeoutError):
            async with asyncio.timeout(self.removal_s):
                await in_thread(together, self.machines, work)
        return list(why.values())

    async def _on_all(self, work: Callable[[HostNode], object]) -> None:
        """To its end, whatever becomes of whoever waits for it: stop() does. Raises RuntimeUnavailable."""
        await self._call.finish(in_thread(on_all, self.machines, work))

    def _node(self, spec: NodeSpec) -> HostNode:
        host = self._chosen[spec.name]
        try:
            address = socket.getaddrinfo(host.node_address, None, socket.AF_INET)[0][4][0]
        except OSError as error:
            raise RuntimeUnavailable(
                f"host {host.name}: {host.node_address} is no IPv4 address, and no name of one ({error.strerror})"
            ) from error
        node = self.kind(
            self._call, self._agents, self._target, name=spec.name, node_id=spec.id, role=spec.role,
            rack=host.rack or spec.rack, address=(str(address), spec.port),
        )  # fmt: skip
        node.member = not spec.spare
        if spec.controller_port is not None:
            node.controller_address = (str(address), spec.controller_port)
        node.host, node.session = host, self._sessions[host.name]
        node.folder = f"{host.data_directory}/run-{self._plan.run}"
        node.agent_command = install.agent_command(host, self._wanted.agent)
        return node

    def _serve(self, node: HostNode, package: Package, text: str) -> dict[str, Any]:
        """What its agent is told: see agent.host.guard."""
        found, host = self._found[node.host.name], node.host
        files = self._secrets_of(node)
        mounts = {DATA: "volume", CONFIGURATION: "node.properties"}
        if package.traces:
            files["trace.jsonl"] = ""
            mounts[TRACE] = "trace.jsonl"
        if node.name in self._issued.folders:
            mounts[SECRETS] = "secrets"
        assert self._wanted.package is not None
        mounts |= install.mounts(host, self._wanted.package, package.places)
        if (python := self._wanted.python_of(found)) is not None:
            mounts[PYTHON_PACKAGES] = f"{host.install_directory}/{python.name}"
        command = [found.executable if word == "python3" else word for word in package.command]
        return {
            "run": self._plan.run, "node": node.name, "holder": holder(self._plan.run),
            "data_directory": host.data_directory, "file_system": self._plan.file_system, "size": sizes.VOLUME,
            "device": host.device, "node_user": sizes.NODE_USER, "rescue_after_s": self._hosts.rescue_after_s,
            "own": node.address[0], "files": files, "configuration": text, "mounts": mounts,
            "clock": node.clock is not None, "may_reboot": host.may_reboot, "trigger": self.trigger, "resumes": False,
            "may_set_clock": host.may_set_clock, "clock_stand_in": self.clock_stand_in,
            "ends": {
                "nodes": [each.address[0] for each in self.machines],
                "ports": [address[1] for address in (node.address, node.controller_address) if address is not None],
                "ssh_ports": sorted({each.ssh_port for each in self._found.values()}),
            },
            "launch": {
                "command": command, "tmp_bytes": _bytes(package.tmp), "largest_file": sizes.LARGEST_FILE,
                "environment": {
                    "PATH": f"{os.path.dirname(found.executable)}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                    "PYTHONPATH": f"{PYTHON_PACKAGES}:/opt/chaos", "PYTHONUNBUFFERED": "1", "HOME": "/tmp",
                    "LANG": "C.UTF-8",
                },
            },
        }  # fmt: skip

    def _secrets_of(self, node: HostNode) -> dict[str, str]:
        """By name in the run's folder there, their content in base64."""
        folder = self._issued.folders.get(node.name)
        if folder is None:
            return {}
        return {
            f"secrets/{path.relative_to(folder)}": base64.b64encode(path.read_bytes()).decode()
            for path in sorted(folder.rglob("*")) if path.is_file()
        }  # fmt: skip

    def _start_agent(self, node: HostNode, configuration: Mapping[str, Any]) -> str:
        """Which boot of its host it is in. From now on it is asked. Blocks. Raises HostError."""
        boot = self._serve_on(node, configuration)
        self._agents.started(node.name, boot)
        return boot

    def _serve_on(self, node: HostNode, configuration: Mapping[str, Any]) -> str:
        command = [*node.agent_command, "serve"]
        until = time.monotonic() + _START_S
        while True:
            done = node.session.run(command, input=json.dumps(configuration).encode(), sudo=True, timeout_s=_START_S)
            if done.status == 0:
                return str(json.loads(done.out)["boot"])
            if done.status != _HELD:
                raise HostRefused(f"host {node.host.name}: the agent could not be started: {done.why}")
            theirs = json.loads(done.err or "{}")
            if not theirs.items() >= configuration["holder"].items() or time.monotonic() > until:
                raise HostRefused(f"host {node.host.name} is held by {_in_words(theirs)}")
            # It is ours: it was started by an attempt whose connection was lost, and is there or just about to be.
            if self._is_there(node):
                return node.session.run([*node.agent_command, "boot"], sudo=True).text.strip()
            time.sleep(_LOOK_S)

    def _is_there(self, node: HostNode) -> bool:
        """Can the agent that holds this host be asked?"""
        return node.session.run([*node.agent_command, "connect"], sudo=True).status == 0

    def _remove(self, node: HostNode) -> None:
        """Blocks. Raises HostError."""
        command = [*node.agent_command, "remove", node.host.data_directory, self._plan.run]
        done = node.session.run(command, sudo=True, timeout_s=self.removal_s)
        if done.status != 0:
            raise HostRefused(f"host {node.host.name}: not everything could be removed: {done.why}")


def holder(run: str) -> dict[str, str]:
    who = f"{getpass.getuser()} at {socket.gethostname()}, process {os.getpid()}"
    return {"run": run, "who": who, "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")}


def _in_words(holder: Mapping[str, Any]) -> str:
    if not holder:
        return "a run that is just beginning or ending"
    return f"run {holder.get('run')} of {holder.get('who')} since {holder.get('since')}"


def _told_of(clock: HostClock) -> dict[str, Any] | None:
    """offset_ns: how far its clock is ahead of ours, by the last that was measured. uncertainty_ns: of times brought
    onto ours, either way."""
    samples = clock.samples
    best = clock.sample_for(samples[-1].at) if samples else None
    return None if best is None else {"offset_ns": best.offset, "uncertainty_ns": clock.uncertainty}


def _bytes(size: str) -> int:
    """As Docker writes sizes."""
    number, unit = size.rstrip("kmg"), size[-1]
    return int(number) << _SIZES.get(unit, 0)
