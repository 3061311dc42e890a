"""A host with a service that was there before: what can be done to it, and nothing else.

Its process is killed, started, stopped and its links are cut and shaped as any node's. What is its owner's, files and
mounts, is struck only where the owner lets it be (may_destroy_data), by volumes/given.py; cgroups never are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from ...volume import copying, slow
from ..cgroups import Cgroup
from ..machine import HostMachine, Parts
from ..network import HostEnds
from ..volumes import given
from ..volumes.given import GivenVolume
from .process import Service, ServiceProcess

#: Of bytes that are copied of the run's own topic.
_MOST_COPIED: Final = 1 << 40


class ServiceMachine(HostMachine):
    refuses: ClassVar = frozenset({
        "slow_disk", "hasten_disk", "make_disk_read_only", "make_disk_writable", "put_disk_aside", "take_disk_back",
        "configure", "configuration", "freeze", "thaw", "set_clock", "clock_offset_s", "reboot", "rebooted",
    })  # fmt: skip

    def __init__(
        self, name: str, process: ServiceProcess, folder: Path, run: str, ends: HostEnds, own: str,
        *, may_destroy_data: bool = False,
    ) -> None:  # fmt: skip
        """folder: of the run. own: the address of this host among the nodes. Raises OSError: the service does not run,
        or is not what it was said to be."""
        self._folder = folder
        self._may_destroy_data = may_destroy_data
        self._given = volume = GivenVolume(Path(process.service.data_directory), process.service.topic, folder)
        cgroup = Cgroup(run)  # is never made
        super().__init__(
            name, Parts(folder=folder, volume=volume, process=process, cgroup=cgroup, ends=ends, own=own)
        )  # fmt: skip
        self._node = self._service = process
        process.look()
        process.service.check(process.pid if process.alive else 0)
        process.note()

    def boot(self) -> int:
        given.bring_back(self._folder, self._service.kill_for_good)  # else it would start on what is below its data
        return super().boot()

    def started(self, pid: int) -> None:
        self._service.look()

    def kill(self) -> dict[str, Any]:
        self._service.look()
        return super().kill()

    def frozen(self, how: str) -> dict[str, Any]:
        self._service.look()
        return super().frozen(how)

    def leftovers(self) -> list[str]:
        self._service.look()
        found = ["is cut off from the network"] if self._card_of_host.is_unplugged() else []
        if self._network and self._network.has_rules():
            found.append("has rules that drop packets")
        if self._network and self._make_queues(self._network.namespace).there_are():
            found.append("has queues that shape its network")
        if self._service.stopped:
            found.append("is stopped")
        return [*found, *(f"has data to which something is done: {each}" for each in given.amiss(self._folder))]

    def cut_power(self) -> dict[str, Any]:
        return self._losing(super().cut_power)

    def lose_page_cache(self) -> dict[str, Any]:
        return self._losing(super().lose_page_cache)

    def _losing(self, lose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self._begin("lost")
        try:
            return lose()
        except BaseException:
            with suppress(OSError):  # boot() tries again, and tells
                given.bring_back(self._folder, self._service.kill_for_good)
            raise

    def fill_disk(self) -> dict[str, Any]:
        self._begin("full")
        return super().fill_disk()

    def free_disk(self) -> int:
        left = super().free_disk()
        self._given.end()
        if self._service.running():  # it has outlived it
            self._service.note()
        return left

    def fail_disk(self) -> None:
        if self._before_failure is None:
            self._begin("failing")
            super().fail_disk()

    def damage_file(self, choice: dict[str, Any]) -> dict[str, Any]:
        self._check_may_destroy()
        self._service.look()
        return super().damage_file(choice)

    def _begin(self, what: str) -> None:
        self._check_may_destroy()
        self._given.begin(what, self._service.processes())
        self._service.note_struck()

    def _check_may_destroy(self) -> None:
        if not self._may_destroy_data:
            raise PermissionError("the hosts file does not say may_destroy_data = true of this host")

    def _kill_to_lose(self) -> int:
        return self._service.kill_for_good()

    def copy_disk(self, directory: str, owner: int, group: int) -> dict[str, Any]:
        """Of the data only the logs of the run's own topic: the rest is its owner's, and may be huge."""
        topic = self._service.service.topic
        given = copying.Owner(owner, group)
        files = copied = 0
        left_out = []
        for log in sorted(self.volume.directory.glob(f"{topic}-*")):
            if not log.is_dir() or log.is_symlink() or not log.name.removeprefix(f"{topic}-").isdecimal():
                continue
            target = Path(directory, log.name)
            target.mkdir(mode=0o700)
            done = copying.copy(log, target, given, _MOST_COPIED)
            files, copied = files + done["files"], copied + done["bytes"]
            left_out += [f"{log.name}: {done['left_out']}"] if done["left_out"] else []
        return {"files": files, "bytes": copied, "left_out": "; ".join(left_out)}

    def _kill(self) -> int:
        return self._service.kill()

    def _set_limit(self, limit: slow.Limit | None) -> None:
        """Its cgroup is not ours."""


def service_machine(configuration: Mapping[str, Any], folder: Path) -> ServiceMachine:
    """configuration: node, run, ends, own and service (see Service), brought (see ServiceProcess), may_destroy_data;
    else as of guard. Raises OSError."""
    process = ServiceProcess(Service(**configuration["service"]), folder, configuration["brought"])
    ends = HostEnds(**configuration["ends"])
    return ServiceMachine(
        configuration["node"], process, folder, configuration["run"], ends, configuration["own"],
        may_destroy_data=configuration["may_destroy_data"],
    )  # fmt: skip

