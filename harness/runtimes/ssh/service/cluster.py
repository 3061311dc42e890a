"""The nodes of a cluster that is already there: their processes are found and not started, and at the end they are as
they were."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from harness.cluster import RuntimeUnavailable
from harness.errors import BadArguments, describe
from harness.plan.plan import Plan
from harness.run.threads import in_thread
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.nodes.node import AgentNode
from harness.runtimes.ssh.cluster import SshCluster, holder
from harness.runtimes.ssh.connection.sessions import HostRefused, Session
from harness.runtimes.ssh.hosts_file import Host, Hosts
from harness.runtimes.ssh.installation import pieces
from harness.runtimes.ssh.installation.install import Found
from harness.runtimes.ssh.node import HostNode
from harness.targets.security import given
from harness.targets.security.network import network_to
from harness.targets.target import NodeSpec, Package

from . import asking
from .layout import port_of

#: What a new topic has of its own, whatever the cluster's defaults: or records would go that nobody has deleted, and
#: whom an unclean election costs is not what is asked.
_TOPIC_SETTINGS: Final = {"retention.ms": "-1", "retention.bytes": "-1", "unclean.leader.election.enable": "false"}
#: Before anything is healed that may still be broken, and after it.
_DELETE_S: Final = (8.0, 15.0)
_ANSWER_S: Final = 2.0  # and for the last answer


class ServiceNode(HostNode):
    #: Of what is copied of its disk, the folder that the target looks for logs in.
    logs: str = ""

    async def leftovers(self) -> list[str]:
        return list(await self._one_at_a_time(self._agent.ask(self.name, "leftovers")))

    async def all_last_words(self) -> str:
        return str(await self._agent.ask(self.name, "last_words"))

    async def copy_disk(self, directory: Path) -> str:
        below = directory / self.logs
        below.mkdir(mode=0o700, parents=True, exist_ok=True)
        return await super().copy_disk(below)


class ServiceCluster(SshCluster):
    was_there = True
    kind: ClassVar = ServiceNode
    settle_s = 5.0
    removal_s = 25.0
    _is_our_topic = False

    @property
    def topic_settings(self) -> Mapping[str, str]:  # type: ignore[override]
        return _TOPIC_SETTINGS

    async def start(self, package: Package | None, run_directory: Path, needs: Collection[str]) -> None:
        """Raises RuntimeUnavailable: it is not there, or not as the hosts file says."""
        self._begun = True  # the agent is on the hosts
        self.security = given.resolve(self._plan.clients)
        where = f"--hosts {self._hosts.path}"
        network = network_to(self)
        try:
            self._tell("asking the cluster who its nodes are")
            said = [node.host.node_id for node in self.machines]
            for node, id_ in zip(self.machines, await asking.ids(self.machines, said, network, where), strict=True):
                node.id = node.own_id = id_
            if await asking.exists(self._plan.topic, self.brokers, network):
                raise RuntimeUnavailable(f"the cluster has a topic {self._plan.topic} already, and the run wants to "
                                         "make it; give another --run-name")  # fmt: skip
        finally:
            await network.close()
        self._is_our_topic = True
        self._tell("starting the agents")
        await self._on_all(lambda node: self._start_agent(node, self._told(node)))
        try:
            await self._begin(lambda node: node.plug_in(), needs)
        except AgentError as error:
            raise RuntimeUnavailable(f"The agents could not begin: {error}") from error

    async def _take_down(self) -> list[str]:
        """The topic, too, if that is still there."""
        ours, self._is_our_topic = self._is_our_topic, False
        why = await self._delete_topic(_DELETE_S[0]) if ours else ""
        try:
            problems = await super()._take_down()
        except Exception as error:  # whatever it is, the topic has to be told of
            problems = [describe(error)]
        if why and (why := await self._delete_topic(_DELETE_S[1])):
            problems.append(
                f"topic {self._plan.topic} could not be deleted ({why}): delete it by kafka-topics.sh --delete "
                f"--topic {shlex.quote(self._plan.topic)}, for chaos clean cannot"
            )
        return problems

    async def _delete_topic(self, patience_s: float) -> str:
        network = network_to(self)
        try:
            async with asyncio.timeout(patience_s + _ANSWER_S):
                return await asking.delete(self._plan.topic, self.brokers, network, patience_s)
        except TimeoutError:
            return f"there was no answer in {patience_s:g} s"
        finally:
            await network.close()

    async def _save_log_of(self, node: AgentNode, path: Path) -> None:
        """What its journal has; nothing where there is none."""
        assert isinstance(node, ServiceNode)
        await self._save_word_of_agent(node, path.with_suffix(".agent.txt"))
        if text := await node.all_last_words():
            await in_thread(path.write_text, text)

    def _node(self, spec: NodeSpec) -> HostNode:
        assert self._hosts.service is not None
        controller_port = None if spec.controller_port is None else self._hosts.service.controller_port
        node = super()._node(replace(spec, port=port_of(spec, self._hosts), controller_port=controller_port))
        assert isinstance(node, ServiceNode)
        node.logs = self._target.logs_folder
        return node

    def _told(self, node: HostNode) -> dict[str, Any]:
        """What its agent is told: see agent.host.service.machine."""
        found, service = self._found[node.host.name], self._hosts.service
        assert service is not None
        agent = self._wanted.agent.name
        return {
            "run": self._plan.run, "node": node.name, "holder": holder(self._plan.run),
            "data_directory": node.host.data_directory, "rescue_after_s": self._hosts.rescue_after_s,
            "own": node.address[0], "resumes": False, "may_destroy_data": node.host.may_destroy_data,
            "brought": "" if agent in found.there else f"{node.host.install_directory}/{agent}",
            "ends": {
                "nodes": [each.address[0] for each in self.machines],
                "ports": [address[1] for address in (node.address, node.controller_address) if address is not None],
                "ssh_ports": sorted({each.ssh_port for each in self._found.values()}),
            },
            "service": {
                "data_directory": service.data_directory, "port": node.address[1], "topic": self._plan.topic,
                "unit": service.unit, "start": service.start, "stop": service.stop, "pid_file": service.pid_file,
            },
        }  # fmt: skip

    def _remove(self, node: HostNode) -> None:
        super()._remove(node)
        take_back(node.session, node.host, self._found[node.host.name])


def take_back(session: Session, host: Host, found: Found) -> None:
    """The agent, unless it was there before. Blocks. Raises HostError."""
    agent = pieces.agent()
    if agent.name in found.there:
        return
    folder = shlex.quote(host.install_directory)
    there = f"{folder}/{agent.name}"
    script = f"rm -rf {there} {there}.files {there}.*.new; rmdir {folder} 2>/dev/null; test ! -e {there}"
    done = session.run(["sh", "-c", script], sudo=True)
    if done.status != 0:
        raise HostRefused(f"host {host.name}: the agent could not be removed: {done.err.strip()}")


def check(plan: Plan, hosts: Hosts) -> None:
    """Raises BadArguments: the file was another when the plan was made."""
    if plan.service != (hosts.service is not None):
        what = "has no [service] any more" if plan.service else "has a [service], which the plan was not made for"
        raise BadArguments(f"--hosts {hosts.path} {what}")
