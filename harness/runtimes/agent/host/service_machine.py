"""A host with a service that was there before: what can be done to it, and nothing else.

Its process is killed, started, stopped and its links are cut and shaped as any node's; what is its owner's, files and
mounts and cgroups, is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from ..machine import Volume
from ..volume import copying, slow
from .cgroups import Cgroup
from .machine import HostMachine, Parts
from .network import HostEnds
from .service import Service, ServiceProcess

#: Of bytes that are copied of the run's own topic.
_MOST_COPIED: Final = 1 << 40


class ServiceMachine(HostMachine):
    refuses: ClassVar = frozenset({
        "cut_power", "lose_page_cache", "fill_disk", "free_disk", "fail_disk", "repair_disk", "drop_clean_pages",
        "slow_disk", "hasten_disk", "make_disk_read_only", "make_disk_writable", "damage_file", "restore_file",
        "put_disk_aside", "take_disk_back", "configure", "configuration", "freeze", "thaw", "set_clock",
        "clock_offset_s", "reboot", "rebooted",
    })  # fmt: skip

    def __init__(self, name: str, process: ServiceProcess, folder: Path, run: str, ends: HostEnds, own: str) -> None:
        """folder: of the run. own: the address of this host among the nodes. Raises OSError: the service does not run,
        or is not what it was said to be."""
        volume = Volume(folder / "none", Path(process.service.data_directory), "")
        cgroup = Cgroup(run)  # is never made
        super().__init__(name, Parts(volume, process, cgroup, folder / "none", ends, own, None, 0))
        self._node = self._service = process
        process.look()
        process.service.check(process.pid if process.alive else 0)
        process.note()

    def started(self, pid: int) -> None:
        self._service.look()

    def kill(self) -> dict[str, Any]:
        self._service.look()
        return super().kill()

    def frozen(self, how: str) -> dict[str, Any]:
        self._service.look()
        return super().frozen(how)

    def leftovers(self) -> list[str]:
        """But for its disk, to which nothing is done."""
        self._service.look()
        found = ["is cut off from the network"] if self._card_of_host.is_unplugged() else []
        if self._network and self._network.has_rules():
            found.append("has rules that drop packets")
        if self._network and self._make_queues(self._network.namespace).there_are():
            found.append("has queues that shape its network")
        if self._service.stopped:
            found.append("is stopped")
        return found

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
    """configuration: node, run, ends, own and service (see Service), brought (see ServiceProcess); else as of guard.
    Raises OSError."""
    process = ServiceProcess(Service(**configuration["service"]), folder, configuration["brought"])
    ends = HostEnds(**configuration["ends"])
    return ServiceMachine(configuration["node"], process, folder, configuration["run"], ends, configuration["own"])

