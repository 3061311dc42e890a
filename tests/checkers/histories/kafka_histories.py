"""Small histories of the kafka workload: drawn at random, written in EDN, and judged by trying everything.

The brute force follows jepsen.tests.kafka, and where checkers/transactions says that it differs, that. It shares no
code with the checker: it works on operations as they were drawn, with sets and loops over all pairs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

Record = tuple[int | None, int]  # offset, value
#: ("send", key, offset, value) or ("poll", {key: [records]}), as completed; in `told` as far as the completion says it
Micro = tuple[object, ...]


@dataclass
class Op:
    """Times are places in the history. complete: None, there is no completion."""

    process: int
    f: str
    invoke: int
    complete: int | None
    outcome: str
    asked: list[tuple[int, int] | None] = field(default_factory=list)  # (key, value) of a send; None: a poll
    reported: list[Micro] | None = None  # of a completion; None: it says nothing
    keys: list[int] = field(default_factory=list)  # of assign and subscribe
    from_start: bool = False
    rebalanced: list[int] = field(default_factory=list)

    @property
    def is_transaction(self) -> bool:
        return self.f in ("txn", "send", "poll")

    def sends(self) -> list[tuple[int, int | None, int]]:
        """Key, offset and value."""
        found: list[tuple[int, int | None, int]] = []
        for place, asked in enumerate(self.asked):
            if asked is None:
                continue
            offset = None
            if self.reported is not None and place < len(self.reported):
                offset = self.reported[place][2]  # type: ignore[assignment]
            found.append((asked[0], offset, asked[1]))
        return found

    def polls(self) -> list[tuple[int, int | None, int]]:
        found = []
        for micro in self.reported or ():
            if micro[0] == "poll":
                for key, records in micro[1].items():  # type: ignore[attr-defined]
                    found += [(key, offset, value) for offset, value in records]
        return found


# As EDN


def edn(ops: list[Op]) -> str:
    """An event a line, in the order of time."""
    events = []
    for op in ops:
        events.append((op.invoke, _event(op, op.invoke, "invoke", _asked(op))))
        if op.complete is not None:
            events.append((op.complete, _event(op, op.complete, op.outcome, _reported(op))))
    return "".join(text for _, text in sorted(events))


def _event(op: Op, time: int, type_: str, value: str) -> str:
    more = ", :seek-to-beginning? true" if op.from_start else ""
    if op.rebalanced and type_ != "invoke":
        more += f", :rebalance-log [{{:keys [{' '.join(map(str, op.rebalanced))}]}}]"
    return f"{{:process {op.process}, :time {time}, :type :{type_}, :f :{op.f}, :value {value}{more}}}\n"


def _asked(op: Op) -> str:
    if op.f in ("assign", "subscribe"):
        return f"[{' '.join(map(str, op.keys))}]"
    if not op.is_transaction:
        return "nil"
    return f"[{' '.join('[:poll]' if each is None else f'[:send {each[0]} {each[1]}]' for each in op.asked)}]"


def _reported(op: Op) -> str:
    if not op.is_transaction:
        return _asked(op)
    if op.reported is None:
        return ":timeout"
    return f"[{' '.join(map(_micro, op.reported))}]"


def _micro(micro: Micro) -> str:
    def record(offset: int | None, value: int) -> str:
        return f"[{'nil' if offset is None else offset} {value}]"

    if micro[0] == "send":
        _, key, offset, value = micro
        return f"[:send {key} {record(offset, value)}]"  # type: ignore[arg-type]
    polled = ", ".join(
        f"{key} [{' '.join(record(*each) for each in records)}]"
        for key, records in micro[1].items()  # type: ignore[attr-defined]
    )
    return f"[:poll {{{polled}}}]"


# Brute force


@dataclass(frozen=True)
class Truth:
    """names: of anomalies, G1c for all of its kinds. allowed: of those that are looked at but allowed."""

    names: frozenset[str]
    allowed: frozenset[str]
    unseen: int


def judge(ops: list[Op]) -> Truth:
    txns = [op for op in ops if op.is_transaction]
    names: set[str] = set()
    steps: set[str] = set()
    polled_ok = {(key, value) for op in txns if op.outcome == "ok" for key, _, value in op.polls()}
    sender = {(key, value): op for op in txns for key, _, value in op.sends()}

    def committed(op: Op) -> bool:
        if op.outcome == "info":
            return any((key, value) in polled_ok for key, _, value in op.sends())
        return op.outcome == "ok"

    # What stood where.
    stood: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for op in txns:
        for key, offset, value in op.polls():
            if offset is not None and offset < 0:
                names.add("negative-offset")
            elif offset is not None:
                stood[key][offset].add(value)
        for key, offset, value in op.sends() if committed(op) else ():
            if offset is not None and offset < -1:
                names.add("negative-offset")
            elif offset is not None and offset >= 0:
                stood[key][offset].add(value)
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for key, log in stood.items():
        for index, offset in enumerate(sorted(log)):
            for value in log[offset]:
                places[key, value].append(index)
            if len(log[offset]) > 1:
                names.add("inconsistent-offsets")
    if any(len(found) > 1 for found in places.values()):
        names.add("duplicate")

    # What was lost, and what may be.
    unseen = 0
    for (key, value), op in sender.items():
        if (key, value) in polled_ok or not committed(op):
            continue
        passed = [found[0] for (of, each), found in places.items() if of == key and (of, each) in polled_ok]
        if (key, value) in places and places[key, value][-1] <= max(passed, default=-1):
            names.add("lost-write")
        elif op.outcome == "ok":
            unseen += 1

    # What single transactions saw.
    for op in txns:
        mine = {(key, value) for key, _, value in op.sends()}
        for key, _, value in op.polls():
            if (key, value) not in sender:
                names.add("phantom")
            elif op.outcome == "ok" and sender[key, value].outcome == "fail":
                names.add("G1a")
            if (key, value) in mine:
                names.add("precommitted-read")
        for key in {key for key, _, _ in op.polls()} - set(op.rebalanced):
            values = [value for of, _, value in op.polls() if of == key]
            steps |= _steps(places, key, values, "int-poll-skip", "int-nonmonotonic-poll")
        for key in {key for key, _, _ in op.sends()}:
            values = [value for of, _, value in op.sends() if of == key]
            steps |= _steps(places, key, values, "int-send-skip", "int-nonmonotonic-send")

    # What processes saw, one transaction after the other.
    for process in {op.process for op in ops}:
        steps |= _process(places, sorted((op for op in ops if op.process == process), key=lambda op: op.invoke))

    # Sends in real time.
    acknowledged = [
        (key, offset, op)
        for op in txns
        if op.outcome == "ok"
        for key, offset, _ in op.sends()
        if offset is not None and offset >= 0
    ]
    for key, offset, op in acknowledged:
        for other_key, other_offset, other in acknowledged:
            if key == other_key and offset < other_offset and _before(other, op):
                names.add("real-time inversion")

    # Who must come before whom.
    edges = {(id(sender[key, value]), id(op)) for op in txns for key, _, value in op.polls() if (key, value) in sender}
    edges |= {(id(one), id(other)) for one in txns for other in txns if _before(one, other)}
    if _has_cycle({(one, other) for one, other in edges if one != other}):
        names.add("G1c")

    allowed = {"int-send-skip"}
    fs = {op.f for op in ops}
    if "subscribe" in fs or "assign" not in fs:
        allowed |= {"poll-skip", "nonmonotonic-poll"}
    return Truth(frozenset(names | steps - allowed), frozenset(steps & allowed), unseen)


def _before(one: Op, other: Op) -> bool:
    return one.complete is not None and one.complete < other.invoke


def _steps(places: dict[tuple[int, int], list[int]], key: int, values: list[int], skip: str, back: str) -> set[str]:
    found = set()
    for one, other in pairwise(values):
        if (key, one) in places and (key, other) in places:
            step = places[key, other][0] - places[key, one][0]
            if step != 1:
                found.add(skip if step > 1 else back)
    return found


def _process(places: dict[tuple[int, int], list[int]], ops: list[Op]) -> set[str]:
    found: set[str] = set()
    polled: dict[int, int] = {}  # by key, the last value that it left off with
    sent: dict[int, tuple[int, bool, bool]] = {}  # value, whether it is ok, whether another assignment came after
    for op in ops:
        if op.f in ("assign", "subscribe") and op.outcome != "fail":
            polled = {key: value for key, value in polled.items() if key in op.keys and not op.from_start}
            sent = {key: (value, ok, gone or key not in op.keys) for key, (value, ok, gone) in sent.items()}
        elif op.f in ("crash", "unsubscribe", "close") and op.outcome != "fail":
            polled = {}
        if not op.is_transaction:
            continue
        for key in op.rebalanced:
            polled.pop(key, None)
        reads: dict[int, list[int]] = defaultdict(list)
        for key, _, value in op.polls():
            reads[key].append(value)
        for key, values in reads.items():
            if key in polled:
                found |= _steps(places, key, [polled[key], values[0]], "poll-skip", "nonmonotonic-poll")
            if op.outcome == "ok":
                polled[key] = values[-1]
        for key in op.rebalanced:
            polled.pop(key, None)
        if op.outcome == "fail":
            continue
        writes: dict[int, list[int]] = defaultdict(list)
        for key, _, value in op.sends():
            writes[key].append(value)
        ok = op.outcome == "ok"
        for key, values in writes.items():
            if key in sent:
                value, before, gone = sent[key]
                if not gone or (ok and before):
                    found |= _steps(places, key, [value, values[0]], "", "nonmonotonic-send") - {""}
            sent[key] = values[-1], ok, False
    return found


def _has_cycle(edges: set[tuple[int, int]]) -> bool:
    while edges:
        sources, targets = {one for one, _ in edges}, {other for _, other in edges}
        left = {(one, other) for one, other in edges if one in targets and other in sources}
        if left == edges:
            return True
        edges = left
    return False


# At random


def draw(random: Random) -> list[Op]:
    """A cluster that does all right, and then perhaps some of its answers are changed."""
    ops = draw_right(random)
    for _ in range(random.choice([0, 0, 1, 1, 2, 3])):
        _change(random, ops)
    return ops


def draw_right(random: Random) -> list[Op]:
    """Transactions one after the other at instants, in intervals that overlap. Consumers go on where they left off; who
    loses partitions, or crashes, begins anew."""
    keys = list(range(random.randint(1, 2)))
    logs: dict[int, list[tuple[int, int]]] = {key: [] for key in keys}
    ends = dict.fromkeys(keys, 0)
    via = random.choice([("assign",), ("assign",), ("assign",), ("subscribe",), ("assign", "subscribe"), ()])
    number, width = random.randint(3, 9), random.randint(1, 3)
    free = dict.fromkeys(range(width), 0)  # by process, when it can go on
    positions: dict[int, dict[int, int]] = {process: ({} if via else dict.fromkeys(keys, 0)) for process in free}
    ops = []
    value, now, next_process = 0, 0, width
    for _ in range(number):
        process = random.choice(sorted(free))
        now = max(now + random.randint(10, 30), free[process] + 10)
        invoke = random.randint(max(free[process] + 1, now - 40), now - 1)
        complete = now + random.randint(1, 40)
        free[process] = complete
        outcome = random.choices(["ok", "info", "fail"], [7, 2, 2])[0]
        op = Op(process, "txn", invoke, complete, outcome)
        ops.append(op)
        happens = outcome == "ok" or (outcome == "info" and random.random() < 0.5)
        mine = positions[process]
        if via and (not mine or random.random() < 0.2):
            op.f = random.choice(via)
            op.keys = random.sample(keys, random.randint(1, len(keys)))
            op.from_start = op.f == "assign" and random.random() < 0.1
            if outcome != "fail":
                kept = {} if op.from_start else mine
                start = {key: random.choice([0, len(logs[key])]) for key in op.keys}
                start = dict.fromkeys(op.keys, 0) if op.from_start else start
                positions[process] = {key: kept.get(key, start[key]) for key in op.keys}
        elif random.random() < 0.05:
            op.f, op.outcome = random.choice(["crash", "debug-topic-partitions"]), "info"
            if op.f == "crash":
                positions[process] = {} if via else dict.fromkeys(keys, 0)
        else:
            value = _transaction(random, op, happens, logs, ends, mine, value)
            if via == ("subscribe",) and random.random() < 0.1:
                op.rebalanced = random.sample(keys, 1)
        if op.outcome == "info" and random.random() < 0.7:  # as Jepsen has it, another process goes on
            del free[process]
            free[next_process], positions[next_process] = complete, {} if via else dict.fromkeys(keys, 0)
            next_process += 1
            if random.random() < 0.3:
                op.complete, op.reported = None, None
    _poll_the_rest(random, ops, logs, next_process, via)
    return _at_distinct_times(ops)


def _transaction(
    random: Random,
    op: Op,
    happens: bool,
    logs: dict[int, list[tuple[int, int]]],
    ends: dict[int, int],
    positions: dict[int, int],
    value: int,
) -> int:
    reported: list[Micro] = []
    at = dict(positions)
    sent: list[tuple[int, int, int]] = []
    for _ in range(random.randint(1, 3)):
        if random.random() < 0.5:
            key = random.choice(sorted(logs))
            op.asked.append((key, value))
            sent.append((key, ends[key], value))
            reported.append(("send", key, ends[key] if random.random() < 0.9 else None, value))
            ends[key] += 1
            value += 1
        else:
            op.asked.append(None)
            polled: dict[int, list[Record]] = {}
            for key in at:
                records = logs[key][at[key] : at[key] + random.randint(0, 3)]
                at[key] += len(records)
                if records or random.random() < 0.1:
                    polled[key] = list(records)
            reported.append(("poll", polled))
    for key, offset, each in sent:
        if happens:
            logs[key].append((offset, each))
        ends[key] += 1  # a marker
    if op.outcome == "ok":
        positions.update(at)
    kinds = {each is None for each in op.asked}
    op.f = "txn" if len(kinds) > 1 or random.random() < 0.3 else "poll" if True in kinds else "send"
    op.reported = reported
    if op.outcome != "ok":
        how = random.random()
        op.reported = None if how < 0.2 else reported[: random.randint(0, len(reported))] if how < 0.4 else reported
    return value


def _poll_the_rest(
    random: Random, ops: list[Op], logs: dict[int, list[tuple[int, int]]], process: int, via: tuple[str, ...]
) -> None:
    if random.random() < 0.15:
        return
    end = max((op.complete or op.invoke) for op in ops) + 10
    if via:
        ops.append(Op(process, via[0], end, end + 5, "ok", keys=sorted(logs)))
    polled: dict[int, list[Record]] = {key: list(log) for key, log in logs.items() if log}
    ops.append(Op(process, "poll", end + 10, end + 20, "ok", [None], [("poll", polled)]))


def _at_distinct_times(ops: list[Op]) -> list[Op]:
    """The same order, every event at a time of its own: at one time, invocations first."""
    events = [(op.invoke, 0, number) for number, op in enumerate(ops)]
    events += [(op.complete, 1, number) for number, op in enumerate(ops) if op.complete is not None]
    for time, (_, end, number) in enumerate(sorted(events)):
        if end:
            ops[number].complete = time
        else:
            ops[number].invoke = time
    return ops


def _change(random: Random, ops: list[Op]) -> None:
    polls = [
        (op, place)
        for op in ops
        for place, micro in enumerate(op.reported or ())
        if micro[0] == "poll" and any(micro[1].values())  # type: ignore[attr-defined]
    ]
    how = random.randrange(11)
    if how <= 4 and polls:
        # Those of transactions that are not ok more often than there are such.
        op, place = random.choice([each for each in polls if each[0].outcome != "ok"] * 3 + polls)
        assert op.reported is not None
        _change_poll(random, op.reported[place][1], how)  # type: ignore[arg-type]
    elif how == 5:
        txns = [op for op in ops if op.is_transaction]
        if txns:
            op = random.choice(txns)
            if op.complete is not None and op.reported is not None:
                op.outcome = random.choice(["ok", "info", "fail"])
                if op.outcome == "ok" and len(op.reported) < len(op.asked):
                    op.outcome = "info"
    elif how == 6:
        _move(random, ops)
    elif how == 7:
        sends = [(op, place) for op in ops for place, micro in enumerate(op.reported or ()) if micro[0] == "send"]
        if sends:
            op, place = random.choice(sends)
            assert op.reported is not None
            _, key, offset, value = op.reported[place]
            changed = random.choice([None, -1, -2, (offset or 0) + random.choice([-2, -1, 1, 2])])  # type: ignore
            op.reported[place] = ("send", key, changed, value)
    elif how >= 9:
        _go_back_or_skip(random, ops)
    elif how == 8 and polls:  # what one transaction polled, another polls too
        op, place = random.choice(polls)
        others = [other for other in polls if other[0] is not op]
        if others:
            other, there = random.choice(others)
            assert op.reported is not None and other.reported is not None
            copied = {key: list(records) for key, records in other.reported[there][1].items()}  # type: ignore[attr-defined]
            op.reported[place] = ("poll", copied)


def _go_back_or_skip(random: Random, ops: list[Op]) -> None:
    """The first poll of a partition by a transaction begins before or after the place where its process left off."""
    polled = [
        (op, micro[1], key)
        for op in ops
        for micro in op.reported or ()
        if micro[0] == "poll"
        for key, records in micro[1].items()  # type: ignore[attr-defined]
        if records
    ]
    pairs = [
        (one[1][one[2]], other[1][other[2]])  # type: ignore[index]
        for one in polled
        for other in polled
        if one[0].process == other[0].process and one[2] == other[2] and one[0].invoke < other[0].invoke
    ]
    if pairs:
        earlier, later = random.choice(pairs)
        if random.random() < 0.4 and len(later) > 1:
            del later[0]
        else:
            later[:0] = earlier[-1:]


def _change_poll(random: Random, polled: dict[int, list[Record]], how: int) -> None:
    key = random.choice(sorted(key for key, records in polled.items() if records))
    records = polled[key]
    place = random.randrange(len(records))
    offset, value = records[place]
    if how == 0:
        records[place] = (random.choice([None, -1, -3, *range(6)]), value)
    elif how == 1:
        records[place] = (offset, random.choice([value + 1, max(value - 1, 0), 77]))
    elif how == 2:
        del records[place]
    elif how == 3:
        random.shuffle(records)
    else:
        records.insert(random.randrange(len(records) + 1), random.choice(records))


def _move(random: Random, ops: list[Op]) -> None:
    """Two operations of different processes trade times, if their processes still do one thing at a time."""
    one, other = random.choice(ops), random.choice(ops)
    if one.complete is None or other.complete is None or one.process == other.process:
        return
    one.invoke, other.invoke = other.invoke, one.invoke
    one.complete, other.complete = other.complete, one.complete
    for op in (one, other):
        mine = sorted((each for each in ops if each.process == op.process), key=lambda each: each.invoke)
        if any(a.complete is None or a.complete > b.invoke for a, b in pairwise(mine)):
            one.invoke, other.invoke = other.invoke, one.invoke
            one.complete, other.complete = other.complete, one.complete
            return
