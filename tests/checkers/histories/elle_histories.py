"""Small histories of transactions on registers and lists, and Elle's anomalies of them, found by trying everything:
each cycle of each few transactions, said as plainly as can be. It shares no code with the checkers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations, product
from random import Random
from typing import Any

from tests.checkers.histories.transaction_histories import Micro, Txn

#: An edge between transactions (numbers) and what kind it is.
Edge = tuple[int, int, str]

_G1 = {"G1a", "G1b", "G1c", "G0", "future-read", "dirty-update", "incompatible-order"}
_RU = {"G0", "garbage-read", "duplicate-elements", "cyclic-versions"}
_RC = _RU | _G1
_CV = _RC | {"G-single", "lost-update"}
_ATOMIC = _RC | {"internal"}
_SI = _ATOMIC | {"lost-update", "G-single", "G-nonadjacent"}
_RR = _RC | {"lost-update", "G-single", "G-nonadjacent", "G2-item"}
_SR = _RR | {"internal"}


def _also(variant: str, *cycles: str) -> set[str]:
    return {cycle + variant for cycle in cycles}


_SI_CYCLES = ("G0", "G1c", "G-single", "G-nonadjacent")
_SSRU = _RU | _also("-process", "G0")
_SSRC = _RC | _also("-process", "G0", "G1c")
_SSSI = _SI | _also("-process", *_SI_CYCLES)
_SSSR = _SR | _also("-process", *_SI_CYCLES, "G2-item")
#: By consistency model, all anomalies that must not be there (Adya; Bailis et al.; Cerone et al.; Elle).
LEVELS: Mapping[str, set[str]] = {
    "read-uncommitted": _RU,
    "read-committed": _RC,
    "monotonic-view": _RC,
    "monotonic-snapshot-read": _RC,
    "monotonic-atomic-view": _RC,
    "cursor-stability": _RC | {"lost-update"},
    "consistent-view": _CV,
    "forward-consistent-view": _CV,
    "update-serializable": _CV,
    "read-atomic": _ATOMIC,
    "causal-cerone": _ATOMIC,
    "prefix": _ATOMIC,
    "update-atomic": _ATOMIC | {"lost-update"},
    "parallel-snapshot-isolation": _ATOMIC | {"lost-update"},
    "snapshot-isolation": _SI,
    "repeatable-read": _RR,
    "serializable": _SR,
    "strong-session-read-uncommitted": _SSRU,
    "strong-session-read-committed": _SSRC,
    "strong-session-snapshot-isolation": _SSSI,
    "strong-session-serializable": _SSSR,
    "strong-read-uncommitted": _SSRU | _also("-realtime", "G0"),
    "strong-read-committed": _SSRC | _also("-realtime", "G0", "G1c"),
    "strong-snapshot-isolation": _SSSI | _also("-realtime", *_SI_CYCLES),
    "strict-serializable": _SSSR | _also("-realtime", *_SI_CYCLES, "G2-item"),
}


def cycles(txns: Sequence[Txn], edges: set[Edge]) -> set[str]:
    """The class of every cycle of the edges, process order and real time."""
    edges = edges | set(_by_time(txns))
    kinds: dict[tuple[int, int], set[str]] = {}
    for one, other, kind in edges:
        if one != other:
            kinds.setdefault((one, other), set()).add(kind)
    found = set()
    for length in range(2, len(txns) + 1):
        for ring in permutations(range(len(txns)), length):
            if ring[0] != min(ring):
                continue
            steps = [kinds.get(pair, set()) for pair in zip(ring, (*ring[1:], ring[0]), strict=True)]
            if all(steps):
                found |= {_class(chosen) for chosen in product(*steps)}
    return found - {None}  # type: ignore[arg-type]


def _by_time(txns: Sequence[Txn]) -> Iterator[Edge]:
    for one, a in enumerate(txns):
        for other, b in enumerate(txns):
            if a.outcome == "ok" and a.complete is not None and a.complete < b.invoke:
                yield one, other, "realtime"
                if a.process is not None and a.process == b.process:
                    yield one, other, "process"


def _class(kinds: Sequence[str]) -> str | None:
    anti = [kind == "rw" for kind in kinds]
    if not set(kinds) & {"ww", "wr", "rw"}:
        return None  # times alone do not contradict themselves
    if sum(anti) == 1:
        name = "G-single"
    elif any(anti):
        adjacent = any(one and other for one, other in zip(anti, (*anti[1:], anti[0]), strict=True))
        name = "G2-item" if adjacent else "G-nonadjacent"
    else:
        name = "G1c" if "wr" in kinds else "G0"
    return name + ("-realtime" if "realtime" in kinds else "-process" if "process" in kinds else "")


# --- registers ------------------------------------------------------------------------------------------------------


def external(txn: Txn, key: int) -> tuple[Any, Any]:
    """What it read of the key before it wrote it, and what it wrote last: (kind, value), or None."""
    mine = [micro for micro in txn.micro if micro[1] == key]
    read = (mine[0][2],) if mine and mine[0][0] == "read" and txn.outcome == "ok" else None
    writes = [micro[2] for micro in mine if micro[0] == "write"]
    return read, (writes[-1],) if writes and txn.outcome != "fail" else None


def rw_anomalies(txns: Sequence[Txn], assumed: Sequence[str] = (), initial: Any = None) -> set[str]:
    """assumed: of wfr_keys, sequential_keys, linearizable_keys."""
    found = _without_cycle(txns, initial)
    edges = set[Edge]()
    for key in {micro[1] for txn in txns for micro in txn.micro}:
        order = {(initial, version) for version in _versions(txns, key) if version != initial}
        for source in ("wfr_keys", "sequential_keys", "linearizable_keys"):
            if source not in assumed:
                continue
            more = _closed(order | set(_source(txns, key, source)))
            if any(one == other for one, other in more):
                found.add("cyclic-versions")
            else:
                order |= set(_source(txns, key, source))
        edges |= set(_dependencies(txns, key, _closed(order)))
    return found | cycles(txns, edges)


def _without_cycle(txns: Sequence[Txn], initial: Any) -> set[str]:
    wrote = {(key, value): txn for txn in txns for kind, key, value in txn.micro if kind == "write"}
    found = set()
    lost: list[tuple[int, Any]] = []
    for txn in txns:
        if txn.outcome != "ok":
            continue
        for place, (kind, key, value) in enumerate(txn.micro):
            before = [each for each in txn.micro[:place] if each[1] == key]
            if kind == "write":
                continue
            if before and before[-1][2] != value:
                found.add("internal")
            writer = wrote.get((key, value))
            if writer is None:
                if value != initial:
                    found.add("garbage-read")
                continue
            if writer.outcome == "fail":
                found.add("G1a")
            if writer is txn and ("write", key, value) in txn.micro[place:]:
                found.add("future-read")
            last = [each[2] for each in writer.micro if each[0] == "write" and each[1] == key][-1]
            if writer is not txn and last != value:
                found.add("G1b")
        for key in {each[1] for each in txn.micro}:
            read, write = external(txn, key)
            if read and write:
                lost.append((key, read[0]))
    if len(set(lost)) < len(lost):
        found.add("lost-update")
    return found


def _versions(txns: Sequence[Txn], key: int) -> set[Any]:
    return {each[0] for txn in txns for each in external(txn, key) if each}


def _source(txns: Sequence[Txn], key: int, source: str) -> Iterator[tuple[Any, Any]]:
    touching = [txn for txn in txns if any(external(txn, key))]
    if source == "wfr_keys":
        for txn in touching:
            read, write = external(txn, key)
            if read and write and read != write:
                yield read[0], write[0]
        return

    def before(a: Txn, b: Txn) -> bool:
        if a.outcome != "ok" or a.complete is None or a.complete >= b.invoke:
            return False
        return source == "linearizable_keys" or (a.process is not None and a.process == b.process)

    for a in touching:
        for b in touching:
            if before(a, b) and not any(before(a, each) and before(each, b) for each in touching):
                read, write = external(a, key)
                last = (write or read)[0]  # type: ignore[index]
                read, write = external(b, key)
                first = (read or write)[0]  # type: ignore[index]
                if first != last:
                    yield last, first


def _closed(pairs: set[tuple[Any, Any]]) -> set[tuple[Any, Any]]:
    closed = set(pairs)
    while True:
        more = {(a, d) for a, b in closed for c, d in closed if b == c} - closed
        if not more:
            return closed
        closed |= more


def _dependencies(txns: Sequence[Txn], key: int, order: set[tuple[Any, Any]]) -> Iterator[Edge]:
    for one, a in enumerate(txns):
        for other, b in enumerate(txns):
            read, write = external(a, key)
            read_by, written = external(b, key)
            if write and read_by and write == read_by:
                yield one, other, "wr"
            if write and written and (write[0], written[0]) in order:
                yield one, other, "ww"
            if read and written and (read[0], written[0]) in order:
                yield one, other, "rw"


def serial_order(txns: Sequence[Txn], *, strict: bool) -> bool:
    """Does an order of the transactions that are ok, and of some indeterminate ones, explain all reads? strict: and
    real time."""
    known = [txn for txn in txns if txn.outcome == "ok"]
    unknown = [txn for txn in txns if txn.outcome == "info"]
    return any(
        _explains(order, strict=strict)
        for number in range(len(unknown) + 1)
        for some in combinations(unknown, number)
        for order in permutations([*known, *some])
    )


def _explains(order: Sequence[Txn], *, strict: bool) -> bool:
    held: dict[int, Any] = {}
    for place, txn in enumerate(order):
        if strict and any(
            later.outcome == "ok" and later.complete is not None and later.complete < txn.invoke
            for later in order[place:]
        ):
            return False
        for kind, key, value in txn.micro:
            if kind == "write":
                held[key] = value
            elif txn.outcome == "ok" and held.get(key) != value:
                return False
    return True


# --- lists ----------------------------------------------------------------------------------------------------------


def list_cycles(txns: Sequence[Txn]) -> set[str] | None:
    """None: two reads of a key do not have the same beginning, or an element twice, so that no order is known."""
    edges = set[Edge]()
    for key in {micro[1] for txn in txns for micro in txn.micro}:
        reads = [
            (number, list(value or ()))
            for number, txn in enumerate(txns)
            for kind, of, value in txn.micro
            if kind == "read" and of == key and txn.outcome == "ok"
        ]
        longest = max((elements for _, elements in reads), key=len, default=[])
        if len(set(longest)) < len(longest) or any(longest[: len(each)] != each for _, each in reads):
            return None
        writer = {
            value: number
            for number, txn in enumerate(txns)
            for kind, of, value in txn.micro
            if kind == "append" and of == key and txn.outcome != "fail"
        }

        def later(place: int, elements: Sequence[Any] = longest, of: Mapping[Any, int] = writer) -> list[int]:
            """Who appended what comes after so many elements: what nobody read comes last."""
            return [of[each] for each in [*elements[place:], *(set(of) - set(elements))] if each in of]

        for place, element in enumerate(longest):
            if element in writer:
                edges |= {(writer[element], other, "ww") for other in later(place + 1)}
        for number, elements in reads:
            edges |= {(number, other, "rw") for other in later(len(elements))}
            if elements and elements[-1] in writer:
                edges.add((writer[elements[-1]], number, "wr"))
    return cycles(txns, edges)


def draw_lists(random: Random) -> list[Txn]:
    """Each does one thing or two to a key or two; reads return any beginning of an order of all appends."""
    txns = _loose(random)
    orders: dict[int, list[Any]] = {}
    for txn in txns:
        for kind, key, value in txn.micro:
            if kind == "write" and (txn.outcome == "ok" or random.random() < 0.5):
                orders.setdefault(key, []).append(value)
    for order in orders.values():
        random.shuffle(order)
    for txn in txns:
        for place, (kind, key, value) in enumerate(txn.micro):
            order = orders.get(key, [])
            upto = random.choice([0, len(order), random.randint(0, len(order))])
            own = [value for kind, of, value in txn.micro if kind == "write" and of == key]
            upto = min([upto, *(order.index(each) for each in own if each in order)])
            found = order[:upto] if txn.outcome == "ok" else None
            txn.micro[place] = ("append", key, value) if kind == "write" else ("read", key, found)
    return txns


# --- at random ------------------------------------------------------------------------------------------------------


def draw_registers(random: Random) -> list[Txn]:
    """Two to five transactions: right ones that are then broken perhaps, or ones of which each read what it liked."""
    return _loose(random) if random.random() < 0.5 else _right_or_broken(random)


def _loose(random: Random) -> list[Txn]:
    """Each does one thing or two to a key or two; reads are of anything that was ever written to the key."""
    keys, processes, value = random.choice([1, 2, 2, 3]), random.choice([1, 2, 9]), 0
    span, txns, free = random.choice([1, 30, 90]), list[Txn](), dict.fromkeys(range(processes), 0)
    for _ in range(random.randint(2, 5)):
        micro = list[Micro]()
        for key in random.sample(range(keys), min(keys, random.choice([1, 2, 2]))):
            how = random.choice(["r", "w", "w", "rw"])
            micro += [("read", key, None)] * ("r" in how)
            if "w" in how:
                value += 1
                micro.append(("write", key, value))
        process = random.randrange(processes)
        invoke = max(free[process], random.randint(0, span))
        outcome = random.choice(["ok"] * 9 + ["info"])
        txns.append(Txn(micro, invoke, invoke + random.choice([5, 40]), outcome, process))
        free[process] = (txns[-1].complete or 0) + 1
        txns[-1].complete = txns[-1].complete if outcome == "ok" else None
    written = [(key, value) for txn in txns for kind, key, value in txn.micro if kind == "write"]
    for txn in txns:
        own = {(key, value) for kind, key, value in txn.micro if kind == "write"}
        for place, (kind, key, _) in enumerate(txn.micro):
            if kind == "read" and txn.outcome == "ok":
                there = [None, *(value for of, value in written if of == key and (of, value) not in own)]
                txn.micro[place] = ("read", key, random.choice(there))
    return sorted(txns, key=lambda txn: txn.invoke)


def _right_or_broken(random: Random) -> list[Txn]:
    """Of transactions one after the other, each at an instant of its own."""
    keys, processes = random.randint(1, 3), random.choice([1, 2, 3, 9])
    held: dict[int, Any] = dict.fromkeys(range(keys))
    free = dict.fromkeys(range(processes), 0)  # by process, from when on
    txns: list[Txn] = []
    value = 0
    for _ in range(random.randint(2, 5)):
        outcome = random.choices(["ok", "info", "fail"], [8, 1, 1])[0]
        happens = outcome == "ok" or (outcome == "info" and random.random() < 0.6)
        scratch, micro = dict(held), list[Micro]()
        for _ in range(random.choice([1, 1, 2, 2, 3])):
            key = random.randrange(keys)
            if random.random() < 0.5:
                value += 1
                scratch[key] = value
                micro.append(("write", key, value))
            else:
                micro.append(("read", key, scratch[key] if outcome == "ok" else None))
        held = scratch if happens else held
        process = random.randrange(processes)
        at = max(free.values()) + random.choice([1, 4, 9])
        invoke = max(free[process] + 1, at - random.randint(0, 25))
        end = max(at, invoke) + random.choice([0, 2, 9])
        free[process] = max(end, free[process])
        txns.append(Txn(micro, invoke, None if outcome == "info" else end, outcome, process))
    _break(random, txns)
    return sorted(txns, key=lambda txn: txn.invoke)


def _break(random: Random, txns: list[Txn]) -> None:
    """In some ways, or not at all."""
    written = [micro for txn in txns for micro in txn.micro if micro[0] == "write"]
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        txn = random.choice(txns)
        reads = [place for place, micro in enumerate(txn.micro) if micro[0] == "read" and txn.outcome == "ok"]
        how = random.randrange(8)
        if how < 5 and reads:  # of another moment, or of no moment
            place = random.choice(reads)
            key = txn.micro[place][1]
            there = [value for _, of, value in written if of == key]
            value = random.choice([None, *there, *there, *there] + [77] * (random.random() < 0.05))
            txn.micro[place] = ("read", key, value)
        elif how == 5 and txn.outcome == "ok":
            txn.outcome = random.choice(["fail", "info"])
            txn.micro = [(kind, key, value if kind == "write" else None) for kind, key, value in txn.micro]
        elif how == 6:
            random.shuffle(txn.micro)
        elif how == 7:  # of a process of its own, at another time
            txn.process = 100 + txns.index(txn)
            length = (txn.complete or txn.invoke + 5) - txn.invoke
            txn.invoke = random.randint(0, 60)
            txn.complete = None if txn.complete is None else txn.invoke + length
