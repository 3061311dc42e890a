"""Random small histories of bank, long-fork, comments, sequential, set-full and queues, and what Jepsen's definitions
say of them, as plainly as can be: everything is compared with everything. It shares no code with the checkers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.checkers.histories.model_histories import Op
from tests.checkers.histories.random_histories import at_other_times, earlier_or_later


@dataclass
class Truth:
    """anomalies: how many of each name; word: None if it is refused."""

    anomalies: dict[str, int] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)
    word: str | None = "pass"


def ok(history: Sequence[Op], *kinds: str) -> list[Op]:
    return sorted((op for op in history if op.outcome == "ok" and op.kind in kinds), key=lambda op: op.complete or 0)


def _told(anomalies: Mapping[str, int], allowed: Mapping[str, int] | None = None, *, unknown: bool = False) -> Truth:
    anomalies = {name: count for name, count in anomalies.items() if count}
    word = "fail" if anomalies else "unknown" if unknown else "pass"
    return Truth(anomalies, {name: count for name, count in (allowed or {}).items() if count}, word)


# --- what is right ---------------------------------------------------------------------------------------------------


def bank(history: Sequence[Op], plan: Mapping[str, Any]) -> Truth:
    reads = [op.result for op in ok(history, "read")]
    whole = [read for read in reads if None not in read.values()]
    accounts = plan.get("accounts", list(reads[0]) if reads else [])
    total = plan.get("total_amount", sum(whole[0].values()) if whole else None)
    found = Counter[str]()
    for read in reads:
        if set(read) - set(map(str, accounts)):
            found["unexpected-key"] += 1
        elif None in read.values():
            found["nil-balance"] += 1
        elif sum(read.values()) != total:
            found["wrong-total"] += 1
        elif min(read.values(), default=0) < 0 and not plan.get("negative_balances"):
            found["negative-value"] += 1
    return _told(found)


def long_fork(history: Sequence[Op], plan: Mapping[str, Any]) -> Truth:
    written = [op.argument[0][1] for op in history if op.argument[0][0] == "w"]
    reads = [{key: value for _, key, value in op.result} for op in history if _reads(op)]
    if len({len(read) for read in reads} | {plan.get("group_size", len(reads[0]) if reads else 0)}) > 1:
        return Truth(word=None)
    values = {(key, value) for read in reads for key, value in read.items() if value is not None}
    if len(set(written)) < len(written) or len({key for key, _ in values}) < len(values):
        return Truth(word="unknown")
    for one in reads:
        for other in reads:
            if set(one) == set(other):
                ahead = [key for key in one if one[key] is not None and other[key] is None]
                behind = [key for key in one if one[key] is None and other[key] is not None]
                if ahead and behind:
                    return Truth({"long-fork": 1}, word="fail")
    return Truth()


def _reads(op: Op) -> bool:
    return op.outcome == "ok" and op.argument[0][0] == "r"


def comments(history: Sequence[Op], plan: Mapping[str, Any]) -> Truth:
    writes = [op for op in history if op.kind == "write"]
    if len({op.argument for op in writes}) < len(writes):
        return Truth(word="unknown")
    missing = 0
    for read in ok(history, "read"):
        due = {
            earlier.argument
            for seen in writes
            if seen.argument in read.result
            for earlier in writes
            if earlier.outcome == "ok" and earlier.complete is not None and earlier.complete < seen.invoke
        }
        missing += len(due - set(read.result))
    return _told({"missing": missing})


def sequential(history: Sequence[Op], plan: Mapping[str, Any]) -> Truth:
    bad = 0
    for read in ok(history, "read"):
        subkeys = read.result[1]
        bad += any(
            subkeys[earlier] is not None and subkeys[later] is None
            for earlier in range(len(subkeys))
            for later in range(earlier, len(subkeys))
        )
    return _told({"trailing-nil": bad})


def set_full(history: Sequence[Op], plan: Mapping[str, Any]) -> Truth:
    """What is lost or stale, by the last read that has it and the last that has not."""
    adds = [op for op in history if op.kind == "add"]
    if len({op.argument for op in adds}) < len(adds):
        return Truth(word="unknown")
    numbered = sorted(enumerate(history), key=lambda each: (each[1].invoke, each[0]))
    reads = [op for _, op in numbered if op.kind == "read" and op.outcome == "ok"]
    found, allowed, stable = Counter[str](), Counter[str](), 0
    for add in adds:
        mine = [(place, read) for place, read in enumerate(reads) if (read.complete or 0) >= add.invoke]
        present = [place for place, read in mine if add.argument in read.result]
        absent = [place for place, read in mine if add.argument not in read.result]
        times = [add.complete or 0] * (add.outcome == "ok") + [reads[place].complete or 0 for place in present]
        known = min(times, default=None)
        missed = bool(absent) and known is not None and reads[max(absent)].invoke > known
        if present and max(present) > max(absent, default=-1):
            stable += 1
            if missed and plan.get("linearizable"):
                found["stale"] += 1
            elif missed:
                allowed["stale"] += 1
        elif missed:
            found["lost"] += 1
    found["duplicated"] = sum(sum(count > 1 for count in Counter(read.result).values()) for read in reads)
    return _told(found, allowed, unknown=not stable)


def total_queue(history: Sequence[Op], plan: Mapping[str, Any]) -> Truth:
    tried = [op.argument for op in history if op.kind == "enqueue"]
    done = [op.argument for op in ok(history, "enqueue")]
    taken = [op.result for op in ok(history, "dequeue") if op.result is not None]
    taken += [each for op in ok(history, "drain") for each in op.result]
    found, allowed = Counter[str](), Counter[str]()
    for value in {*tried, *taken}:
        out, asked, known = taken.count(value), tried.count(value), done.count(value)
        if not asked:
            found["unexpected"] += out
            continue
        found["lost"] += max(known - out, 0)
        allowed["duplicated"] += max(out - asked, 0)
        allowed["recovered"] += max(min(out, asked) - known, 0)
    unknown = False
    if any(op.kind == "drain" and op.outcome == "info" for op in history):
        unknown = bool(found.pop("lost", 0))
    return _told(found, allowed, unknown=unknown)


def queue(history: Sequence[Op], plan: Mapping[str, Any]) -> Truth:
    """jepsen.checker/queue: an enqueue that did not fail is there when it is invoked, a dequeue when it completes."""
    events = [(op.invoke, 0, op) for op in history if op.kind == "enqueue" and op.outcome != "fail"]
    events += [(op.complete or 0, 1, op) for op in ok(history, "dequeue")]
    there: list[Any] = []
    for _, _, op in sorted(events, key=lambda event: event[:2]):
        if op.kind == "enqueue":
            there.append(op.argument)
        elif op.result in there:
            there.remove(op.result)
        else:
            return Truth({"wrong": 1}, word="fail")
    return Truth()


JUDGES: Final[Mapping[str, Callable[[Sequence[Op], Mapping[str, Any]], Truth]]] = {
    "bank": bank, "long-fork": long_fork, "comments": comments, "sequential": sequential, "set-full": set_full,
    "total-queue": total_queue, "queue": queue,
}  # fmt: skip


# --- at random -------------------------------------------------------------------------------------------------------


def draw(rng: random.Random, workload: str) -> tuple[list[Op], dict[str, Any]]:
    """A history and its plan: right by construction, or broken in what was done or when, or not quite."""
    history, plan = DRAWS[workload](rng)
    if rng.random() < 0.5 and history:
        history = at_other_times(rng, history)
        for _ in range(rng.choice([0, 1, 3])):
            number = rng.randrange(len(history))
            history[number] = earlier_or_later(rng, history[number])
    return history, plan


def _moments(rng: random.Random, most: int) -> list[tuple[int, int, str]]:
    """(invoke, complete, outcome) of operations that take effect one after the other, each between its ends."""
    number, slack = rng.randint(1, most), rng.choice([0, 1, 6])
    points = sorted(rng.randrange(4 * number) for _ in range(number))
    return [
        (point - rng.randint(0, slack), point + rng.randint(0, slack), rng.choice(["ok"] * 8 + ["info", "fail"]))
        for point in points
    ]


def _happens(rng: random.Random, outcome: str) -> bool:
    return outcome == "ok" or (outcome == "info" and rng.random() < 0.5)


def _op(rng: random.Random, kind: str, argument: Any, result: Any, moment: tuple[int, int, str]) -> Op:
    invoke, complete, outcome = moment
    end = None if outcome == "info" and rng.random() < 0.7 else complete
    return Op(kind, argument, result if outcome == "ok" else None, invoke, end, outcome)


def _bank(rng: random.Random) -> tuple[list[Op], dict[str, Any]]:
    names = [str(number) for number in range(rng.randint(2, 4))]
    held = {name: rng.choice([0, 5, 10]) for name in names}
    plan: dict[str, Any] = {}
    if rng.random() < 0.5:
        plan["total_amount"] = sum(held.values()) + rng.choice([0] * 9 + [1])
    if rng.random() < 0.5:
        plan["accounts"] = [int(name) for name in names] if rng.random() < 0.5 else names
    if rng.random() < 0.4:
        plan["negative_balances"] = True
    history = []
    careless, broken = rng.random() < 0.3, rng.random() < 0.6
    for moment in _moments(rng, 8):
        if rng.random() < 0.4:
            one, other = rng.sample(names, 2)
            amount = rng.randint(1, 5)
            if (careless or held[one] >= amount) and _happens(rng, moment[2]):
                held[one], held[other] = held[one] - amount, held[other] + amount
            history.append(_op(rng, "transfer", {"from": one, "to": other, "amount": amount}, None, moment))
            continue
        read: dict[str, Any] = dict(held)
        if broken and rng.random() < 0.3:
            name = rng.choice(names)
            match rng.randrange(6):
                case 0:
                    read[name] += rng.choice([-20, -1, 1])
                case 1:
                    read[name] = None
                case 2:
                    read["9"] = rng.choice([0, 3, None])
                case 3:
                    read.pop(name)
                case 4:
                    other = rng.choice(names)
                    read[name], read[other] = read[name] - 11, read[other] + 11
                case 5:
                    read = {}
        history.append(_op(rng, "read", None, read, moment))
    return history, plan


def _long_fork(rng: random.Random) -> tuple[list[Op], dict[str, Any]]:
    size, groups = rng.randint(1, 3), rng.randint(1, 2)
    keys = list(range(size * groups))
    plan = {"group_size": size + (rng.random() < 0.05)} if rng.random() < 0.3 else {}
    left, there = rng.sample(keys, len(keys)), set[int]()
    forks, odd = rng.random() < 0.7, rng.random() < 0.1
    history = []
    for moment in _moments(rng, 12):
        if left and rng.random() < 0.3:
            key = rng.choice(keys) if odd and rng.random() < 0.3 else left.pop()
            if _happens(rng, moment[2]):
                there.add(key)
            history.append(_op(rng, "txn", [["w", key, 1]], [["w", key, 1]], moment))
            continue
        group = rng.randrange(groups)
        asked = [key for key in keys if key // size == group]
        rng.shuffle(asked)
        if odd and rng.random() < 0.1 and len(asked) > 1:
            asked.pop()
        seen = {key for key in asked if rng.random() < 0.5} if forks and rng.random() < 0.7 else there
        value = 2 if odd and rng.random() < 0.1 else 1
        found = [["r", key, value if key in seen else None] for key in asked]
        history.append(_op(rng, "txn", [["r", key, None] for key in asked], found, moment))
    return history, plan


def _comments(rng: random.Random) -> tuple[list[Op], dict[str, Any]]:
    history, there, broken = list[Op](), list[int](), rng.random() < 0.6
    for number, moment in enumerate(_moments(rng, 9)):
        if rng.random() < 0.55:
            value = rng.randrange(20) if rng.random() < 0.02 else 100 + number
            if _happens(rng, moment[2]):
                there.append(value)
            history.append(_op(rng, "write", value, None, moment))
            continue
        seen = list(there)
        if broken and seen and rng.random() < 0.5:
            seen = rng.sample(seen, rng.randint(0, len(seen)))
        if rng.random() < 0.05:
            seen.append(77)
        history.append(_op(rng, "read", None, seen, moment))
    return history, {}


def _sequential(rng: random.Random) -> tuple[list[Op], dict[str, Any]]:
    count, written, broken = rng.randint(1, 4), dict[int, int](), rng.random() < 0.5
    history = []
    for moment in _moments(rng, 8):
        key = rng.randrange(2)
        if rng.random() < 0.4:
            written[key] = count if _happens(rng, moment[2]) else rng.randint(0, count)
            history.append(_op(rng, "write", key, None, moment))
            continue
        subkeys = [f"{key}_{number}" if number < written.get(key, 0) else None for number in range(count)][::-1]
        if broken and rng.random() < 0.5:
            subkeys[rng.randrange(count)] = rng.choice([None, f"{key}_x"])
        history.append(_op(rng, "read", key, [key, subkeys], moment))
    return history, {}


def _set_full(rng: random.Random) -> tuple[list[Op], dict[str, Any]]:
    history, there, broken = list[Op](), list[int](), rng.random() < 0.7
    plan = {"linearizable": True} if rng.random() < 0.5 else {}
    for number, moment in enumerate(_moments(rng, rng.choice([4, 12]))):
        if rng.random() < 0.4:
            value = rng.randrange(30) if rng.random() < 0.01 else 100 + number
            if _happens(rng, moment[2]):
                there.append(value)
            history.append(_op(rng, "add", value, None, moment))
            continue
        if broken and there and rng.random() < 0.2:
            there.remove(rng.choice(there))
        seen = list(there)
        if broken and seen and rng.random() < 0.4:
            seen = rng.sample(seen, rng.randint(0, len(seen)))
        seen += [rng.choice(seen)] if seen and rng.random() < 0.01 else []
        seen += [7] if rng.random() < 0.03 else []
        history.append(_op(rng, "read", None, seen, moment))
    return history, plan


def _total_queue(rng: random.Random) -> tuple[list[Op], dict[str, Any]]:
    history, there, distinct = list[Op](), list[int](), rng.random() < 0.6
    broken, moments = rng.random() < 0.6, _moments(rng, 9)
    for number, moment in enumerate(moments):
        last = number == len(moments) - 1
        if not last and rng.random() < 0.55:
            value = number if distinct else rng.randrange(3)
            if _happens(rng, moment[2]):
                there.append(value)
            history.append(_op(rng, "enqueue", value, None, moment))
        elif last or rng.random() < 0.2:
            taken, there = there, list[int]()
            if broken and rng.random() < 0.4:
                taken = [*taken[1:], *([rng.choice([*taken, 99])] if rng.random() < 0.5 else [])]
            history.append(_op(rng, "drain", None, taken, moment))
        else:
            taken_ = there.pop(rng.randrange(len(there))) if there and _happens(rng, moment[2]) else None
            if broken and rng.random() < 0.2:
                taken_ = rng.choice([*there, number, 98])
            history.append(_op(rng, "dequeue", None, taken_, moment))
    return history, {}


def _queue(rng: random.Random) -> tuple[list[Op], dict[str, Any]]:
    """Without drains, and no dequeue that found nothing."""
    history, _ = _total_queue(rng)
    return [op for op in history if op.kind == "enqueue" or (op.kind == "dequeue" and op.result is not None)], {}


DRAWS: Final[Mapping[str, Callable[[random.Random], tuple[list[Op], dict[str, Any]]]]] = {
    "bank": _bank, "long-fork": _long_fork, "comments": _comments, "sequential": _sequential, "set-full": _set_full,
    "total-queue": _total_queue, "queue": _queue,
}  # fmt: skip
