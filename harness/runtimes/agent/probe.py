"""Tries out, on a small scale, what the agent needs of this machine: for `chaos doctor`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from . import kernel, tools
from .lacks import lacks
from .machine import Volume
from .network.card import Network
from .network.shaping import Shaping, Wanted

_SIZE = 512 << 20


def probe(folder: Path, join_engine: Callable[[], None]) -> dict[str, str | None]:
    """By capability: None if it works here, else what went wrong. Leaves nothing behind."""
    tools.keep_own_namespaces()
    found: dict[str, str | None] = {"netem": lacks(["netem"]).get("netem")}
    found["nftables"] = _outcome(_filter_packets)
    found["faketime"] = lacks(["faketime"]).get("faketime")
    found["shaping"] = _outcome(_shape_links)
    volumes = {name: Volume(folder / f"{name}.img", folder / name, name) for name in ("ext4", "xfs")}
    made = {name: _outcome(lambda volume: volume.make(_SIZE)(), volume) for name, volume in volumes.items()}
    join_engine()
    found["loop devices"] = _outcome(_attach_and_detach, volumes["ext4"].image)
    found["io-limit"] = lacks(["io-limit"]).get("io-limit")  # of a loop device, which there may have been none of
    for name, volume in volumes.items():
        found[name] = made[name] or _outcome(_lose_unsynced_data, volume)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def freezer() -> str | None:
    """Why no cgroup can be frozen here, as a clause, by freezing an empty one. None: it can."""
    root = Path("/sys/fs/cgroup")
    is_v2 = (root / "cgroup.controllers").exists()
    made = (root if is_v2 else root / "freezer") / f"chaos-probe-{os.getpid()}"
    name, frozen, thawed = ("cgroup.freeze", "1", "0") if is_v2 else ("freezer.state", "FROZEN", "THAWED")
    try:
        made.mkdir()
        try:
            (made / name).write_text(frozen)
            (made / name).write_text(thawed)
        finally:
            made.rmdir()
    except OSError as error:
        return f"no cgroup can be frozen ({error.strerror or error})"
    return None


def _outcome(action: Callable[..., None], *arguments: object) -> str | None:
    try:
        action(*arguments)
    except OSError as error:
        return str(error)
    return None


def _filter_packets() -> None:
    network = Network(os.getpid())
    network.block("probe", ["192.0.2.1"], ["192.0.2.2"])
    if len(network.packets_dropped("probe")) != 2:
        raise OSError("nftables does not count what it drops")
    network.block("probe", (), ())
    network.close()


def _shape_links() -> None:
    """All that needs no netem, for what goes out and what comes in from outside."""
    network, shaping, address = Network(os.getpid()), Shaping(), "192.0.2.1"
    shaping.plug_in(network)
    shape = {"delay_ms": 0.0, "jitter_ms": 0.0, "reorder": 0.0, "loss": 0.1, "duplicate": 0.1, "rate_kbit": 100.0}
    shaping.shape("probe", Wanted([address], [address], address, shape))
    shaping.unshape("probe")
    network.close()


def _attach_and_detach(image: Path) -> None:
    _, descriptor = kernel.attach_loop_device(image)
    os.close(descriptor)


def _lose_unsynced_data(volume: Volume) -> None:
    volume.attach(owner=0)
    try:
        (volume.directory / "unsynced").write_bytes(b"lost")
        kernel.shut_down_file_system(volume.directory)
        volume.unmount()
        volume.mount()
        if (volume.directory / "unsynced").exists():
            raise OSError("unsynced data survived the shutdown of its file system")
    finally:
        kernel.unmount(volume.directory, lazily=True)
