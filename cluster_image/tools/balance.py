"""rebalance, add-brokers, remove-broker: a cluster that grows and shrinks (003), with the least data moved.

An assignment is planned from where replicas are going to be: what another plan has begun goes on, and is not undone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ..placement.online import OnlinePlan, plan_online
from ..placement.rebalance import Plan
from ..placement.spread import Spread, warnings
from ..telemetry.printable import say
from .cluster import NOT_REGISTERED, Cluster, Place, State, state_once
from .moves import Moves
from .output import ToolError, plural, print_json, size, table

_EVERY_S: Final = 0.5
#: Of moving a broker's partitions away, while it gets new ones.
_ROUNDS: Final = 3


async def rebalance(
    cluster: Cluster,
    brokers: Collection[int] | None,
    throttle: int | None,
    *,
    dry_run: bool = False,
    as_json: bool = False,
) -> int:
    """Over these brokers, or all that are alive."""
    state = await cluster.state()
    over = set(state.brokers) if brokers is None else set(brokers)
    if unknown := sorted(over - state.brokers.keys()):
        raise ToolError(f"there is no broker {unknown[0]} alive")
    if brokers is None:
        _check_holders(state)
    await _balance(cluster, state, over, throttle, dry_run=dry_run, as_json=as_json)
    return 0


async def add_brokers(
    cluster: Cluster,
    ids: Collection[int],
    wait: float,
    throttle: int | None,
    *,
    balance: bool,
    as_json: bool = False,
) -> int:
    """Brokers join by starting: these are waited for, and then get their share of what there is."""
    state = await state_once(cluster, lambda state: set(ids) <= state.brokers.keys(), wait)
    if missing := sorted(set(ids) - state.brokers.keys()):
        raise ToolError(f"broker {missing[0]} has not joined the cluster in {wait:g} s: start it with the cluster's id")
    if not balance:
        _told({"brokers": sorted(state.brokers)}, f"brokers {_listed(sorted(state.brokers))} are alive", as_json)
        return 0
    _check_holders(state)
    await _balance(cluster, state, set(state.brokers), throttle, dry_run=False, as_json=as_json)
    return 0


async def remove_broker(
    cluster: Cluster, broker: int, wait: float, throttle: int | None, *, as_json: bool = False
) -> int:
    """Its partitions move to the others; once it has stopped it is unregistered. wait: seconds for it to stop. 1: it
    has not stopped by then."""
    state = await cluster.state()
    if broker not in state.brokers and not _held(state, broker):
        if reason := await cluster.unregister(broker):
            raise ToolError(f"broker {broker}: {reason}")
        _told({"broker": broker, "unregistered": True}, f"broker {broker} is not registered any more", as_json)
        return 0
    if not state.brokers.keys() - {broker}:
        raise ToolError(f"broker {broker} is the only one alive")
    moved: list[dict[str, Any]] = []
    while not moved or (_held(state, broker) and len(moved) < _ROUNDS):  # it may have got some of a new topic
        others = state.brokers.keys() - {broker}
        _check_holders(state, {broker})
        moved.append(await _balance(cluster, state, set(others), throttle, dry_run=False, quiet=as_json, told=False))
        state = await cluster.state()
    _check_empty(state, broker)
    if broker in state.brokers:
        say(f"broker {broker} holds nothing any more: stop it now (waiting {wait:g} s)", file=sys.stderr)
    state = await state_once(cluster, lambda state: broker not in state.brokers, wait)
    reason = f"broker {broker} is running"
    if broker not in state.brokers:
        reason = await _unregistered(cluster, broker)
    if reason:
        _check_empty(await cluster.state(), broker)
    done = moved[0] | {"replicas_moved": sum(each["replicas_moved"] for each in moved)}
    done |= {"broker": broker, "unregistered": not reason}
    told = f"broker {broker} is not registered any more"
    if reason:
        told = f"broker {broker} holds nothing, and is registered ({reason}): run this again once it has stopped"
    _told(done, told, as_json)
    return 1 if reason else 0


def _check_empty(state: State, broker: int) -> None:
    if held := _held(state, broker):
        number = plural(len(held), "partition")
        raise ToolError(f"somebody has put {number} on broker {broker} meanwhile: run this again, and no rebalance")


def _held(state: State, broker: int) -> list[Place]:
    return [place for place, replicas in state.replicas.items() if broker in replicas]


async def _unregistered(cluster: Cluster, broker: int) -> str:
    """ "": it is. Else why not: its session takes some seconds to end."""
    reason = ""
    for _ in range(20):
        reason = await cluster.unregister(broker)
        if reason in ("", NOT_REGISTERED):  # an answer may have been lost
            return ""
        await asyncio.sleep(_EVERY_S)
    return reason


def _check_holders(state: State, leaving: Collection[int] = ()) -> None:
    for (topic, index), replicas in state.replicas.items():
        gone = [broker for broker in replicas if broker not in state.brokers and broker not in leaving]
        if gone:
            instead = "" if leaving else ", or name the brokers that are to hold partitions with rebalance --brokers"
            raise ToolError(
                f"broker {gone[0]} is not alive and holds {topic}-{index} among others: wait for it, or remove it "
                f"first{instead}"
            )


async def _balance(
    cluster: Cluster,
    state: State,
    brokers: set[int],
    throttle: int | None,
    *,
    dry_run: bool,
    as_json: bool = False,
    quiet: bool = False,
    told: bool = True,
) -> dict[str, Any]:
    """quiet: no plan is shown; told: what was done is."""
    sizes = await cluster.sizes(state.brokers)
    racks = {broker: rack for broker, rack in state.racks().items() if broker in brokers}
    removing = {place: moving.removing for place, moving in state.moving.items()}
    try:
        online = plan_online(state.replicas, removing, racks, sizes)
    except ValueError as error:
        raise ToolError(str(error)) from None
    made = online.plan
    found = _described(online, racks)
    if online.untold:
        silent = ", ".join(str(broker) for broker, of in sizes.items() if of is None)
        found["warnings"].append(f"the sizes of {len(online.untold)} partitions are not known (brokers {silent})")
    if not quiet and not as_json:
        if state.moving:
            say(f"{plural(len(state.moving), 'reassignment')} under way already, planned from where these lead:")
        say(_shown(made, sorted({*racks, *state.brokers}), found["warnings"]))
    if not dry_run:
        after = dict(online.assignment) | {move.partition: move.after for move in made.moves}
        changes = {place for place in after if after[place] != state.replicas[place]}
        wanted = {place: after[place] for place in after if place in changes | state.moving.keys()}
        found |= await Moves(cluster, wanted, throttle, also_led=online.assignment).carry_out()
    found["carried_out"] = not dry_run
    if not told:
        return found
    if as_json:
        print_json(found)
    elif not dry_run and (made.moves or found["replicas_moved"]):
        say(f"balanced: {plural(found['replicas_moved'], 'replica')} moved in {found['seconds']:g} s")
    return found


def _described(online: OnlinePlan[Place], racks: Mapping[int, str | None]) -> dict[str, Any]:
    """Also a plan for `reassign --plan`, and for kafka-reassign-partitions."""
    made = online.plan

    def loads(spread: Spread) -> dict[int, dict[str, int]]:
        held = online.loads(spread, racks)
        return {broker: {"replicas": replicas, "leaders": led} for broker, (replicas, led) in held.items()}

    return {
        "version": 1,
        "partitions": [
            {"topic": move.partition[0], "partition": move.partition[1], "replicas": list(move.after)}
            for move in made.moves
        ],
        "replicas_moved": made.replicas_moved,
        "bytes_moved": made.bytes_moved,
        "least": made.is_least,
        "before": loads(made.before),
        "after": loads(made.after),
        "warnings": warnings(made.after, racks),
    }


def _shown(made: Plan[Place], brokers: Sequence[int], warned: Sequence[str]) -> str:
    if not made.moves:
        return "\n".join(["nothing is to be moved" if warned else "the cluster is balanced", *_notes(warned)])
    least = ", the least possible" if made.is_least else ""
    lines = [
        f"{plural(made.replicas_moved, 'replica')} to move, {size(made.bytes_moved)}{least}; partitions that change:",
        table(
            ("PARTITION", "REPLICAS", "REPLICAS AFTER"),
            [(f"{move.partition[0]}-{move.partition[1]}", move.before, move.after) for move in made.moves],
            indent="  ",
        ),
        table(
            ("BROKER", "REPLICAS", "REPLICAS AFTER", "LEADERS", "LEADERS AFTER"),
            [
                (b, made.before.replicas[b], made.after.replicas[b], made.before.leaders[b], made.after.leaders[b])
                for b in brokers
            ],
            indent="  ",
        ),
        *_notes(warned),
    ]
    return "\n".join(lines)


def _notes(warned: Iterable[str]) -> list[str]:
    return [f"note: {warning}" for warning in warned]


def _told(found: Mapping[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        say(sentence)


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
