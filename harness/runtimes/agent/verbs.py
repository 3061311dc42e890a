"""The requests that the agent accepts, with a check for each of their arguments. Nothing else can be called.

Each verb is a method of machine.Machine, which the table names itself: no attribute is looked up by a name that comes
from outside. What arguments go into commands (nftables, /proc, paths) is checked here, by type and by form.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from .machine import Machine

Check = Callable[[Any], bool]

_KEY: Final = re.compile(r"[A-Za-z0-9-]{1,4096}")
_MOST_PIDS: Final = 1 << 22  # the kernel's own bound
_MOST_PATIENCE_S: Final = 3600.0


class BadRequest(ValueError):
    """It asks for what there is not, or with arguments that are none."""


class Verb(NamedTuple):
    call: Callable[..., Any]  # of a Machine
    arguments: Mapping[str, Check]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_pid(value: Any) -> bool:
    """0: of a process that is gone."""
    return _is_count(value) and value <= _MOST_PIDS


def is_seconds(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 <= value <= _MOST_PATIENCE_S


def _is_key(value: Any) -> bool:
    """It is part of the names of chains."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def _is_address(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(ipaddress.IPv4Address(value)) == value
    except ValueError:
        return False


def _is_addresses(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_address, value))


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_way_to_freeze(value: Any) -> bool:
    return value in ("freezer", "sigstop")


def _is_path(value: Any) -> bool:
    """Of the host, given by the harness."""
    return isinstance(value, str) and value.startswith("/") and "\0" not in value and ".." not in value.split("/")


def _is_wanted(value: Any) -> bool:
    """A shaping.Wanted."""
    return (
        isinstance(value, dict) and value.keys() == {"outgoing", "incoming", "outside", "shape"}
        and _is_addresses(value["outgoing"]) and _is_addresses(value["incoming"]) and _is_address(value["outside"])
        and isinstance(value["shape"], dict) and all(map(_is_amount, value["shape"].values()))
    )  # fmt: skip


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_share(value: Any) -> bool:
    """In [0, 1)."""
    return _is_amount(value) and value < 1


def _is_choice(value: Any) -> bool:
    """See harness.cluster.Node.damage_file."""
    return (
        isinstance(value, dict) and value.keys() >= {"what", "which", "how", "where", "bit"}
        and isinstance(value["what"], list) and bool(value["what"])
        and all(what in ("segment", "index", "checkpoint") for what in value["what"])
        and value["how"] in ("flip", "truncate") and all(_is_share(value[name]) for name in ("which", "where", "bit"))
    )  # fmt: skip


VERBS: Final[Mapping[str, Verb]] = {
    "plug_in": Verb(Machine.plug_in, {"pid": _is_pid}),
    "started": Verb(Machine.started, {"pid": _is_pid}),
    "block": Verb(Machine.block, {"key": _is_key, "incoming": _is_addresses, "outgoing": _is_addresses}),
    "unblock": Verb(Machine.unblock, {"key": _is_key}),
    "shape": Verb(Machine.shape, {"key": _is_key, "wanted": _is_wanted}),
    "unshape": Verb(Machine.unshape, {"key": _is_key}),
    "mend_network": Verb(Machine.mend_network, {}),
    "round_trips": Verb(Machine.round_trips, {"addresses": _is_addresses, "patience": is_seconds}),
    "lacks": Verb(Machine.lacks, {"needs": _is_names}),
    "leftovers": Verb(Machine.leftovers, {}),
    "kill": Verb(Machine.kill, {}),
    "terminate": Verb(Machine.terminate, {"patience": is_seconds}),
    "frozen": Verb(Machine.frozen, {"how": _is_way_to_freeze}),
    "resumed": Verb(Machine.resumed, {"how": _is_way_to_freeze}),
    "cut_power": Verb(Machine.cut_power, {}),
    "lose_page_cache": Verb(Machine.lose_page_cache, {}),
    "fill_disk": Verb(Machine.fill_disk, {}),
    "free_disk": Verb(Machine.free_disk, {}),
    "fail_disk": Verb(Machine.fail_disk, {}),
    "repair_disk": Verb(Machine.repair_disk, {"patience": is_seconds}),
    "drop_clean_pages": Verb(Machine.drop_clean_pages, {}),
    "slow_disk": Verb(Machine.slow_disk, {"bytes_per_s": _is_count, "operations_per_s": _is_count}),
    "hasten_disk": Verb(Machine.hasten_disk, {}),
    "make_disk_read_only": Verb(Machine.make_disk_read_only, {}),
    "make_disk_writable": Verb(Machine.make_disk_writable, {"patience": is_seconds}),
    "damage_file": Verb(Machine.damage_file, {"choice": _is_choice}),
    "restore_file": Verb(Machine.restore_file, {}),
    "put_disk_aside": Verb(Machine.put_disk_aside, {}),
    "take_disk_back": Verb(Machine.take_disk_back, {}),
    "copy_disk": Verb(Machine.copy_disk, {"directory": _is_path, "owner": _is_count, "group": _is_count}),
}


def answer(machines: Mapping[str, Machine], request: Any, verbs: Mapping[str, Verb] = VERBS) -> Any:
    """request: {"node": …, "do": …, argument: value, …}. What the verb returns. Raises BadRequest,
    or what it raises."""
    if not isinstance(request, dict):
        raise BadRequest("a request is one JSON object")
    node, do = request.get("node"), request.get("do")
    given = {name: value for name, value in request.items() if name not in ("node", "do")}
    if not isinstance(node, str) or node not in machines:
        raise BadRequest(f"there is no node {node!r}")
    verb = verbs.get(do) if isinstance(do, str) else None
    if verb is None:
        raise BadRequest(f"nobody can be asked to {do!r}")
    if given.keys() != verb.arguments.keys():
        raise BadRequest(f"{do} takes {sorted(verb.arguments)}, not {sorted(given)}")
    for name, check in verb.arguments.items():
        if not check(given[name]):
            raise BadRequest(f"{do} does not take {given[name]!r} as {name}")
    return verb.call(machines[node], **given)
