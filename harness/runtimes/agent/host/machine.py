"""One host: its volume, its node's process, its network. What ../machine.py does to a container's machine, here."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from .. import clock, kernel, tools
from ..machine import Machine, Volume
from ..network.card import Network
from ..volume import mounts
from . import folder as run_folder
from .cgroups import Cgroup
from .itself import reboot, wall_clock
from .network import OUTSIDE, HostEnds, HostNetwork, HostQueues
from .process import note_process

_TRIED_S: Final = 3600.0
#: In the folder of a run: the node's own, and what is done to its links.
CONFIGURATION: Final = "node.properties"
_LINKS: Final = "links.json"


class AnyProcess(Protocol):
    """A node's: one of process.py, or a service's."""

    def start(self) -> int: ...
    def running(self) -> bool: ...
    def ended(self, patience: float) -> int | None: ...
    def last_words(self) -> str: ...
    def ask(self, program: str, mounts: Mapping[str, str] | None = None) -> str: ...


@dataclass(frozen=True)
class Parts:
    """What a machine is made of. folder: of the run. own: its address among the nodes. clock: the folder of its clock;
    None: it needs none. clock_start: since when that counts, in seconds since 1970. outlives: are links in force to be
    so after a reboot?"""

    folder: Path
    volume: Volume
    process: AnyProcess
    cgroup: Cgroup
    ends: HostEnds
    own: str
    clock: Path | None = None
    clock_start: int = 0
    outlives: bool = False
    trigger: str = reboot.TRIGGER  # by which this host loses its power
    may_set_clock: bool = False  # the host's own, and none of the node's
    clock_stand_in: str = ""  # in place of the host's own: see itself/wall_clock.py
    no_clock: str = ""  # why a run that was to have one has none, as a clause


class HostMachine(Machine):
    is_host: ClassVar = True
    #: Of what can be asked of a host, what this one does not do.
    refuses: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, name: str, parts: Parts) -> None:
        def make_queues(namespace: int) -> HostQueues:
            return HostQueues(namespace, parts.ends, parts.own)

        super().__init__(name, parts.volume, make_queues)
        self._parts = parts
        self._card_of_host = HostNetwork(parts.ends)
        self._links: dict[str, dict[str, Any]] = {"blocked": {}, "shaped": {}}  # by key, what is asked for
        if parts.outlives and (parts.folder / _LINKS).exists():
            self._links = json.loads((parts.folder / _LINKS).read_text())
            for key, (incoming, outgoing) in self._links["blocked"].items():
                super().block(key, incoming, outgoing)  # in force once it is plugged in
            for key, wanted in self._links["shaped"].items():
                super().shape(key, wanted)

    # What containers' engines do for theirs.

    def configure(self, text: str) -> None:
        """For the process' next start. In place: it has the file itself mounted."""
        (self._parts.folder / CONFIGURATION).write_text(text)

    def configuration(self) -> str:
        return (self._parts.folder / CONFIGURATION).read_text()

    def boot(self) -> int:
        """Starts the process. Its pid."""
        pid = self._parts.process.start()
        self.started(pid)
        return pid

    def running(self) -> bool:
        return self._parts.process.running()

    def ended(self, patience: float) -> int | None:
        return self._parts.process.ended(patience)

    def last_words(self) -> str:
        return self._parts.process.last_words()

    def freezes(self) -> bool:
        """Is there a freezer? Else a process can only be stopped by a signal."""
        return self._parts.cgroup.freezes

    def freeze(self) -> None:
        self._parts.cgroup.freeze()

    def thaw(self) -> None:
        self._parts.cgroup.thaw()

    def is_frozen(self) -> bool:
        return self._parts.cgroup.is_frozen

    def set_clock(self, offset_s: float, drift: float) -> None:
        """What the node sees is ahead of this host's time by so much now, and gains `drift` seconds a second."""
        if self._parts.may_set_clock:
            wall_clock.set_to(self._parts.folder, offset_s, drift, self._parts.clock_stand_in)
            return
        if self._parts.clock is None:
            raise OSError("the run was not started for faults of clocks")
        clock.write(self._parts.clock, offset_s - drift * (time.time() - self._parts.clock_start), drift)

    def clock_offset_s(self) -> float:
        """Of what the node's process sees, from the true time, as far as the host has that. Raises OSError."""
        if self._parts.may_set_clock:
            return wall_clock.offset_s(self._parts.folder)
        return float(self._parts.process.ask(clock.ASK_IT)) - clock.wall_minus_monotonic()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def reboot(self) -> None:
        """A moment after the answer this host has no power. Raises OSError in a container."""
        reboot.remember(self._parts.folder, self.volume.directory)
        reboot.soon(self._parts.trigger)

    def rebooted(self) -> dict[str, Any]:
        """What the volume has lost by that. The node's process does not run, and nothing of its network passes."""
        self._card_of_host.unplug()
        return reboot.lost(self._parts.folder, self.volume.directory)

    # What is otherwise on a host.

    def block(self, key: str, incoming: list[str], outgoing: list[str]) -> None:
        self._links["blocked"][key] = [incoming, outgoing]
        self._note_links()
        super().block(key, incoming, outgoing)

    def unblock(self, key: str) -> dict[str, int]:
        dropped = super().unblock(key)
        self._links["blocked"].pop(key, None)
        self._note_links()
        return dropped

    def shape(self, key: str, wanted: dict[str, Any]) -> None:
        self._links["shaped"][key] = wanted
        self._note_links()
        super().shape(key, wanted)

    def unshape(self, key: str) -> dict[str, dict[str, int]]:
        counted = super().unshape(key)
        self._links["shaped"].pop(key, None)
        self._note_links()
        return counted

    def mend_network(self) -> None:
        super().mend_network()
        for noted in self._links.values():
            noted.clear()
        self._note_links()

    def _note_links(self) -> None:
        """Before anything is put in force, and once it is not any more: for the agent that goes on after a reboot."""
        if self._parts.outlives:
            run_folder.note(self._parts.folder / _LINKS, self._links)

    def frozen(self, how: str) -> dict[str, Any]:
        seen = super().frozen("sigstop") if how == "sigstop" else {"frozen_state": self._state_of_freezer()}
        return seen | {"cpu_ns": kernel.cpu_ns(self._node.pid)}

    def _state_of_freezer(self) -> str:
        return "FROZEN" if self._parts.cgroup.is_frozen else "THAWED"

    def _kill(self) -> int:
        if self._parts.cgroup.is_frozen:
            self._parts.cgroup.thaw()  # cgroup v1 lets nothing die that is frozen
        return super()._kill()

    def started(self, pid: int) -> None:
        super().started(pid)
        note_process(self._parts.folder, pid)

    def plug_in(self, pid: int) -> None:
        self._card_of_host.plug_in()
        super().plug_in(pid)

    def round_trips(self, addresses: list[str], patience: float) -> dict[str, dict[str, Any]]:
        """Clients are not asked: what is done to their links is done to the node's ports alone."""
        return super().round_trips([address for address in addresses if address != OUTSIDE], patience)

    def lacks(self, needs: list[str]) -> dict[str, str]:
        lacking = super().lacks([need for need in needs if need != "faketime"])  # a container has that elsewhere
        if "faketime" in needs and (reason := self._lacking_clock()):
            lacking["faketime"] = reason
        if "io-limit" in needs and "io-limit" not in lacking and not self._parts.cgroup.limits:
            lacking["io-limit"] = "this host has no cgroup in which what a node reads and writes could be limited"
        return lacking

    def _lacking_clock(self) -> str:
        """Found out by a clock beside the node's, so that the node sees nothing of it."""
        if self._parts.may_set_clock:
            return wall_clock.lacking(self._parts.clock_stand_in)
        if self._parts.clock is None:
            return self._parts.no_clock or "the run was not started for faults of clocks"
        tried = self._parts.clock.with_name("tried-clock")
        start = int(time.time())
        clock.make(tried, start)
        try:
            clock.write(tried, _TRIED_S, 0.0)
            seen = float(self._parts.process.ask(clock.ASK_IT, {clock.FOLDER: str(tried)}))
        except OSError as error:
            return f"a process with libfaketime fails ({error})"
        finally:
            shutil.rmtree(tried)
        wrong = abs(seen - _TRIED_S - clock.wall_minus_monotonic())
        return "libfaketime does not set the clock" if wrong > _TRIED_S / 2 else ""

    def leftovers(self) -> list[str]:
        unplugged = ["is cut off from the network"] if self._card_of_host.is_unplugged() else []
        return [*unplugged, *super().leftovers()]

    def _card(self, pid: int) -> Network:
        return HostNetwork(self._parts.ends)

    def _switch_off(self) -> None:
        """The host is still there, and so are its rules: nothing passes until plug_in(). What other keys do is put in
        force anew then."""
        if self._network:
            for key in self._blocked:
                self._network.block(key, (), ())
            self._shaping.clear_network(self._network)
            self._network.close()
            self._network = None


def make_clock(folder: Path, start: int) -> Mapping[str, str]:
    """A clock that is right: the environment of whoever is to see it."""
    clock.make(folder, start)
    return clock.ENVIRONMENT


def loop_devices_of(folder: Path) -> list[str]:
    """Names of devices over files of this folder. By the files themselves, and not by their names: hosts that are
    containers see each other's devices."""
    found = []
    for block in Path("/sys/block").glob("loop*"):
        with suppress(OSError):
            path = Path((block / "loop/backing_file").read_text().strip())
            there = path.stat()
            if path.is_relative_to(folder) and kernel.loop_inode(Path("/dev", block.name)) == there.st_ino:
                found.append(block.name)
    return sorted(found)


def prepare() -> None:
    """What a process needs once, before it asks for anything."""
    tools.keep_own_namespaces()
    os.umask(0o077)
    with suppress(OSError):  # told when it is needed
        from ..network import card

        card.load_library()


def unmount_all(folder: Path) -> list[str]:
    """Everything under this folder, without writing out what nobody reads. What was unmounted."""
    points = [Path(each.point) for each in mounts.own()]
    done = []
    for mount in sorted((point for point in points if point.is_relative_to(folder)), reverse=True):
        with suppress(OSError):
            kernel.shut_down_file_system(mount)
        kernel.unmount(mount, lazily=True)
        done.append(str(mount))
    return done
