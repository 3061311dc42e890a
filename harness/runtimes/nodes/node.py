"""A node that an agent (../agent) breaks and mends, wherever its process runs: in a container, on a host.

What is the same everywhere is here: which steps a fault has, in which order, and what is evidence of it. How a process
is started, frozen and waited for, a runtime's own class says.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from harness.cluster import TERMINATE_PATIENCE_S, Evidence, Node, NotAvailable, NotOffered, Pausing, Role
from harness.errors import describe
from harness.runtimes.agent.volume.damage import nothing_to_damage
from harness.targets.target import Target

from .asking import Agent, AgentError
from .calls import Calls
from .clock import Clock, wrong_clock

T = TypeVar("T")


LAST_LINES = 200  # of a log, in which one looks for why its node ended
_OWN_END_S = 0.3  # of a process that its disk has let down
_FAILURE_PATIENCE_S = 5.0  # until a process must have used its disk


class _Frozen(NamedTuple):
    how: Pausing
    since: int  # monotonic ns
    cpu_ns: int  # that the process had run by then


class AgentNode(Node):
    """clock: None unless the run needs to set it. target: says how its configuration changes."""

    clock: Clock | None = None
    #: Where copies of its disk right after power cuts go; None: nobody reads them.
    cut_disks: Path | None = None
    #: See harness.targets.target.Issued.
    blank: Callable[[Path], object] = staticmethod(lambda _: None)

    def __init__(
        self, calls: Calls, agent: Agent, target: Target,
        *, name: str, node_id: int, role: Role, rack: str, address: tuple[str, int],
    ) -> None:  # fmt: skip
        self.name = name
        self.id = self.own_id = node_id
        self.role = role
        self.rack = rack
        self.address = address
        self._call = calls
        self._agent = agent
        self._target = target
        self._lock = asyncio.Lock()
        self._frozen: _Frozen | None = None
        self._cuts = 0
        self._in_use = False  # its disk, by a process, when it was broken: one that was dead has refused nothing

    # What each runtime does in its own way.

    @abstractmethod
    async def switch_on(self) -> None:
        """The machine without its process. Needs no agent, so it need not wait for one."""

    @abstractmethod
    async def _switched_off(self) -> None:
        """Returns once the machine, whose power was cut, is seen to be off."""

    @abstractmethod
    async def _network_holder(self) -> int:
        """The process that holds the machine's network namespace; 0 if there is none (any more)."""

    @abstractmethod
    async def _start(self) -> None:
        """Its process, of which the agent is told."""

    @abstractmethod
    async def _ended(self) -> int:
        """The exit status of a process that has ended or is just about to, once it can be started again."""

    @abstractmethod
    async def _freeze(self) -> None: ...

    @abstractmethod
    async def _thaw(self) -> None: ...

    @abstractmethod
    async def _is_frozen(self) -> bool:
        """Whoever froze it."""

    async def _way_to_pause(self, asked: Pausing) -> Pausing:
        """The one that was asked for, if there is that."""
        return asked

    @abstractmethod
    async def _clock_offset_s(self) -> float | None:
        """Ahead of the true time, as a process beside the node's sees it; None if that cannot be asked now."""

    async def _tell_clock(self) -> None:
        """`clock` was set anew."""

    @abstractmethod
    async def copy_disk(self, directory: Path) -> str:
        """Every file of its disk into this folder, which is there, on the harness' machine. What was left out, as a
        clause. Raises AgentError."""

    @abstractmethod
    async def _configuration(self) -> str: ...

    @abstractmethod
    async def _configure(self, text: str) -> None:
        """From its next start on."""

    def __repr__(self) -> str:
        return self.name

    async def boot(self) -> None:
        """Plug in the network, with the partitions that are in force, and start the process."""
        await self.plug_in()
        await self._start()

    async def plug_in(self) -> None:
        await self._agent.ask(self.name, "plug_in", pid=await self._network_holder())

    async def block(self, key: str, incoming: list[str], outgoing: list[str]) -> None:
        """Let nothing arrive from, and nothing go to, these addresses. See Cluster.block."""
        asked = self._agent.ask(self.name, "block", key=key, incoming=incoming, outgoing=outgoing)
        await self._one_at_a_time(asked)

    async def unblock(self, key: str) -> dict[str, int]:
        """Packets dropped: `saddr <address>` for what would have come from there, `daddr <address>` gone there."""
        return dict(await self._one_at_a_time(self._agent.ask(self.name, "unblock", key=key)))

    async def shape(self, key: str, wanted: Mapping[str, Any]) -> None:
        """wanted: an agent.shaping.Wanted. See Cluster.shape."""
        await self._one_at_a_time(self._agent.ask(self.name, "shape", key=key, wanted=dict(wanted)))

    async def unshape(self, key: str) -> dict[str, dict[str, int]]:
        """What was counted, by end: `saddr <address>` for what came from there, `daddr <address>` gone there."""
        return dict(await self._one_at_a_time(self._agent.ask(self.name, "unshape", key=key)))

    async def mend_network(self) -> None:
        """Nothing is blocked or shaped any more, whoever began it."""
        await self._one_at_a_time(self._agent.ask(self.name, "mend_network"))

    async def round_trips(self, addresses: Sequence[str], patience: float) -> dict[str, dict[str, Any]]:
        """See agent.echo.round_trips. Whatever else is done to the node does not wait for it."""
        return dict(await self._agent.measure(self.name, "round_trips", addresses=list(addresses), patience=patience))

    async def lacks(self, need: str) -> str | None:
        """Why its machine has none of that (harness.cluster.NEEDS), as a clause."""
        answer: dict[str, str] = await self._agent.ask(self.name, "lacks", needs=[need])
        return answer.get(need)

    async def kill(self) -> Evidence:
        return await self._one_at_a_time(self._kill())

    async def terminate(self) -> Evidence:
        return await self._one_at_a_time(self._terminate())

    async def start(self) -> None:
        await self._one_at_a_time(self._start())

    async def pause(self, how: Pausing = "freezer") -> Evidence:
        return await self._one_at_a_time(self._pause(how))

    async def resume(self) -> Evidence:
        return await self._one_at_a_time(self._resume())

    async def cut_power(self, *, in_write: int = 0, late_s: float = 0.0) -> Evidence:
        return await self._one_at_a_time(self._cut_power())

    async def restore_power(self) -> None:
        await self._one_at_a_time(self._restore_power())

    async def lose_page_cache(self) -> Evidence:
        return await self._one_at_a_time(self._lose_page_cache())

    async def fill_disk(self) -> Evidence:
        return await self._one_at_a_time(self._break_disk("fill_disk"))

    async def free_disk(self) -> Evidence:
        return await self._one_at_a_time(self._free_disk())

    async def fail_disk(self) -> Evidence:
        await self._one_at_a_time(self._break_disk("fail_disk"))
        return {}

    async def repair_disk(self) -> Evidence:
        return await self._one_at_a_time(self._repair_disk())

    async def replace(self, node_id: int) -> None:
        await self._one_at_a_time(self._replace(node_id))

    async def put_back(self) -> None:
        await self._one_at_a_time(self._put_back())

    async def switch_release(self) -> Evidence:
        return await self._one_at_a_time(self._switch_release())

    async def set_clock(self, offset_s: float, drift: float = 0.0) -> Evidence:
        if (offset_s or drift) and (reason := await self.lacks("faketime")) is not None:
            raise NotAvailable(f"not available here: {reason}")
        return await self._one_at_a_time(self._set_clock(offset_s, drift))

    async def drop_clean_pages(self) -> Evidence:
        return await self._one_at_a_time(self._agent.ask(self.name, "drop_clean_pages"))

    async def slow_disk(self, bytes_per_s: int, operations_per_s: int) -> Evidence:
        return await self._one_at_a_time(self._slow_disk(bytes_per_s, operations_per_s))

    async def hasten_disk(self) -> Evidence:
        await self._one_at_a_time(self._agent.ask(self.name, "hasten_disk"))
        return {}

    async def make_disk_read_only(self) -> Evidence:
        return await self._one_at_a_time(self._make_disk_read_only())

    async def make_disk_writable(self) -> Evidence:
        return await self._one_at_a_time(self._make_disk_writable())

    async def damage_file(self, choice: Mapping[str, Any]) -> Evidence:
        return await self._one_at_a_time(self._damage_file(choice))

    async def restore_file(self) -> Evidence:
        return await self._one_at_a_time(self._agent.ask(self.name, "restore_file"))

    async def leftovers(self) -> list[str]:
        """What is still broken of it, a clause each after its name. See Cluster.leftovers."""
        frozen = await self._is_frozen()
        found: list[str] = await self._one_at_a_time(self._agent.ask(self.name, "leftovers"))
        configuration = await self._configuration()
        if configuration != self._target.renumbered(configuration, self.own_id, ""):
            found.append("is replaced by another broker")
        if self.clock and (wrong := wrong_clock(self.clock, await self._clock_offset_s())):
            found.append(wrong)
        return [*(["is frozen"] if frozen else []), *found]

    async def _one_at_a_time(self, work: Coroutine[Any, Any, T]) -> T:
        """To the end, even if the caller is cancelled: what heals a node must find it whole or broken, not halfway."""

        async def in_turn() -> T:
            async with self._lock:
                return await work

        return await self._call.finish(in_turn())

    async def _kill(self) -> Evidence:
        evidence: Evidence = await self._agent.ask(self.name, "kill")
        self._frozen = None
        return evidence | {"exit_status": await self._exit_status(evidence)}

    async def _terminate(self) -> Evidence:
        evidence: Evidence = await self._agent.ask(self.name, "terminate", patience=TERMINATE_PATIENCE_S)
        self._frozen = None
        status = await self._ended()
        return evidence | {"exit_status": None if evidence["stopped"] is None else status}

    async def _pause(self, how: Pausing) -> Evidence:
        how = await self._way_to_pause(how)
        if how == "freezer":
            await self._freeze()
        seen = await self._agent.ask(self.name, "frozen", how=how)
        self._frozen = _Frozen(how, time.monotonic_ns(), seen["cpu_ns"])
        return {"frozen_state": seen["frozen_state"]}

    async def _resume(self) -> Evidence:
        if self._frozen is None:
            return {"frozen_ns": 0}
        frozen, frozen_ns = self._frozen, time.monotonic_ns() - self._frozen.since
        cpu_ns = await self._agent.ask(self.name, "resumed", how=frozen.how)
        if frozen.how == "freezer":
            await self._thaw()
        self._frozen = None
        return {"frozen_ns": frozen_ns, "cpu_ns_while_frozen": cpu_ns - frozen.cpu_ns}

    async def _cut_power_of_machine(self) -> Evidence:
        evidence: Evidence = await self._agent.ask(self.name, "cut_power")
        await self._switched_off()
        return evidence | {"exit_status": await self._exit_status(evidence)}

    async def _cut_power(self) -> Evidence:
        evidence = await self._cut_power_of_machine()
        self._frozen = None
        if self.cut_disks is not None and evidence["exit_status"] is not None and self.id == self.own_id:
            evidence |= await self._keep_disk(self.cut_disks)
        return evidence

    async def _keep_disk(self, folder: Path) -> Evidence:
        """As the power cut left it."""
        self._cuts += 1
        directory = folder / f"{self.name}-{self._cuts}"
        try:
            await asyncio.to_thread(directory.mkdir, mode=0o700, parents=True)
            await self.copy_disk(directory)
            await asyncio.to_thread(self.blank, directory)
        except (AgentError, OSError) as error:
            return {"disk_not_kept": describe(error)}
        return {"disk_at_cut": self._cuts}

    async def _lose_page_cache(self) -> Evidence:
        evidence: Evidence = await self._agent.ask(self.name, "lose_page_cache")
        self._frozen = None
        return evidence | {"exit_status": await self._exit_status(evidence)}

    async def _break_disk(self, how: str) -> Any:
        self._in_use = await self.is_running()
        return await self._agent.ask(self.name, how)

    async def _free_disk(self) -> Evidence:
        left: int = await self._agent.ask(self.name, "free_disk")
        await asyncio.sleep(_OWN_END_S)  # a process that was refused a write just now is on its way out
        if await self.is_running():
            return {"refused_writes": 0, "free_bytes": left}
        # One is known of: the process did not outlive it.
        status = await self._ended()
        return {"refused_writes": int(self._in_use), "free_bytes": left, "exit_status": status}

    async def _repair_disk(self) -> Evidence:
        evidence: Evidence = await self._agent.ask(self.name, "repair_disk", patience=_FAILURE_PATIENCE_S)
        if not evidence:
            return {"failed_operations": 0}
        status = await self._ended()
        # As above: one that had to be killed met no error.
        ended = evidence.pop("ended") and self._in_use
        return {**evidence, "failed_operations": int(ended), "exit_status": status}

    async def _set_clock(self, offset_s: float, drift: float) -> Evidence:
        clock = self.clock
        if clock is None:
            raise NotOffered("set_clock, where the run was not started for it")
        evidence: Evidence = {}
        if clock.drift and (seen_s := await self._clock_offset_s()) is not None:
            evidence["clock_drifted_ms"] = round((seen_s - clock.was_set_to_s) * 1000)
            evidence["clock_drifting_ms"] = round((time.monotonic() - clock.was_set_at) * 1000)
        clock.set(offset_s, drift)
        await self._tell_clock()
        if (seen_s := await self._clock_offset_s()) is not None:
            evidence["clock_offset_ms"] = round(seen_s * 1000)
        return evidence

    async def _slow_disk(self, bytes_per_s: int, operations_per_s: int) -> Evidence:
        limits = {"bytes_per_s": bytes_per_s, "operations_per_s": operations_per_s}
        lacking: dict[str, str] = await self._agent.ask(self.name, "lacks", needs=["io-limit"])
        if lacking:
            raise NotAvailable(f"not available here: {lacking['io-limit']}")
        return dict(await self._agent.ask(self.name, "slow_disk", **limits)) | limits

    async def _make_disk_read_only(self) -> Evidence:
        evidence: Evidence = await self._break_disk("make_disk_read_only")
        if evidence.pop("killed"):
            await self._ended()
            await self._start()
        return evidence

    async def _make_disk_writable(self) -> Evidence:
        evidence: Evidence = await self._agent.ask(self.name, "make_disk_writable", patience=_FAILURE_PATIENCE_S)
        if not evidence:
            return {"refused_writes": 0}
        status = await self._ended()
        return {"refused_writes": int(evidence["ended"] and self._in_use), "exit_status": status}

    async def _damage_file(self, choice: Mapping[str, Any]) -> Evidence:
        evidence: Evidence = await self._agent.ask(self.name, "damage_file", choice=dict(choice))
        if evidence["killed_at"]:
            with suppress(OSError, AgentError):  # what is damaged must be told in any case
                evidence["exit_status"] = await self._exit_status(evidence)
        return evidence if "file" in evidence else {**evidence, "nothing_to_damage": nothing_to_damage(choice)}

    async def _restore_power(self) -> None:
        await self.switch_on()
        await self.boot()

    async def _replace(self, node_id: int) -> None:
        directory = await self._agent.ask(self.name, "put_disk_aside")
        await self._renumber(node_id, directory)
        self.id = node_id

    async def _put_back(self) -> None:
        await self._renumber(self.own_id, "")
        await self._agent.ask(self.name, "take_disk_back")
        self.id = self.own_id  # not before all is done: by it one sees that there is something to put back

    async def _switch_release(self) -> Evidence:
        release = "first" if self.switches % 2 else "next"
        await self._configure(self._target.of_release(await self._configuration(), release))
        self.switches += 1
        return {"software": release}

    async def _renumber(self, node_id: int, directory: str) -> None:
        """directory: on the volume."""
        await self._configure(self._target.renumbered(await self._configuration(), node_id, directory))

    async def _exit_status(self, evidence: Evidence) -> int | None:
        """Of a process just killed; None if there was none to kill. Waits until it can be started again."""
        status = await self._ended()
        return status if evidence["killed_at"] else None
