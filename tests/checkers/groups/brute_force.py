"""The definitions of checkers/groups/, record by record and event by event, without any of its code."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.checkers.groups.group_history import Event, History

INFINITY = 1 << 62
Found = set[tuple[str, str, int]]


def judge(history: History) -> tuple[Found, set[str]]:
    """(group, anomaly, partition), and the groups of which something is undecided."""
    found: Found = set()
    undecided = set()
    for name in history.groups:
        mine = [event for event in history.events if event["group"] == name and event["kind"] is not None]
        if not mine:
            undecided.add(name)
            continue
        for anomaly, partition in _Group(history, name, mine).judge(undecided):
            found.add((name, anomaly, partition))
    return found, undecided


def _happened(event: Event) -> bool:
    if event["kind"] in ("revoke", "lose", "leave", "crash", "pause", "resume"):
        return True
    if event["kind"] in ("poll", "process") and None not in (event["start"], event["end"]):
        return event["outcome"] != "fail" and event["start"] < event["end"]
    if event["kind"] == "process":
        return False
    return event["outcome"] != "fail" or event["kind"] == "assign"


def _moment(event: Event) -> tuple[int, int]:
    time = event["invoke"]
    if event["kind"] in ("revoke", "lose", "poll", "process") or _fails(event):
        time = _complete(event) if event["complete"] is not None or event["kind"] not in ("poll", "process") else time
    return time, event["op"]


def _fails(event: Event) -> bool:
    return event["kind"] == "assign" and event["outcome"] == "fail"


def _complete(event: Event) -> int:
    return INFINITY if event["complete"] is None else event["complete"]


def _ok(event: Event) -> bool:
    known = event["kind"] != "poll" or None not in (event["start"], event["end"])
    return event["outcome"] == "ok" and known


class _Ownership:
    def __init__(self, assign: Event) -> None:
        self.assign = assign
        self.process: int = assign["process"]
        self.generation = assign["generation"] if (assign["generation"] or 0) > 0 else None
        self.events: list[Event] = []
        self.ended_by: Event | None = None

    @property
    def begun(self) -> int:
        return int(self.assign["invoke"])

    def begin(self) -> tuple[int | None, Event | None]:
        """Where, and the event that shows it."""
        for event in self.events:
            if event["kind"] == "reset":
                return None, None
            if event["kind"] == "poll":
                if self.assign["start"] is not None:
                    break
                return (event["start"], event) if _ok(event) else (None, None)
        start = self.assign["start"]
        return start, None if start is None else self.assign


class _Group:
    def __init__(self, history: History, name: str, events: list[Event]) -> None:
        self.history, self.name, self.settings = history, name, history.groups[name]
        self.events = [event for event in events if _happened(event)]
        self.settle = int(float(self.settings.get("settle_s") or 30.0) * 1e9)
        self.processes = sorted({event["process"] for event in self.events})

    def judge(self, undecided: set[str]) -> Iterator[tuple[str, int]]:
        auto, before = self.settings.get("mode") == "auto", self.settings.get("commit") == "before"
        for partition in sorted({event["partition"] for event in self.events if event["partition"] is not None}):
            log = _Log(self, partition)
            yield from ((name, partition) for name in log.positions(auto))
            yield from ((name, partition) for name in log.owners())
            if auto:
                yield from ((name, partition) for name in log.register_of_auto())
            elif any(event["kind"] == "commit" and event["end"] is None for event in log.events):
                undecided.add(self.name)
            else:
                yield from ((name, partition) for name in log.register())
                yield from ((name, partition) for name in (log.order_before() if before else log.order_after()))
            yield from ((name, partition) for name in log.twice(before))
        yield from self.end(before, undecided)

    def lives(self) -> dict[int, tuple[int, int, int, list[tuple[int, int]]]]:
        """Joined, ended, dead, pauses."""
        found = {}
        for process in self.processes:
            own = [event for event in self.events if event["process"] == process and event["partition"] is None]
            if not own:
                continue
            joined = min([event["invoke"] for event in own if event["kind"] == "join"], default=INFINITY)
            ends = [event for event in own if event["kind"] in ("leave", "crash")]
            pauses: list[tuple[int, int]] = []
            for event in own:
                if event["kind"] == "pause":
                    pauses.append((event["invoke"], INFINITY))
                elif event["kind"] == "resume" and pauses:
                    over = event["invoke"] if event["complete"] is None else event["complete"]
                    pauses[-1] = (pauses[-1][0], min(pauses[-1][1], over))
            found[process] = (joined, min([event["invoke"] for event in ends], default=INFINITY),
                              min([_complete(event) for event in ends], default=INFINITY), pauses)  # fmt: skip
        return found

    def end(self, before: bool, undecided: set[str]) -> Iterator[tuple[str, int]]:
        history, group = self.history, self.name
        logs = {event["partition"] for event in self.events if event["partition"] is not None}
        logs |= {partition for partition, _, _ in history.acknowledged} | set(range(history.partitions or 0))
        left = {} if before else {log: left for log in logs if (left := _Log(self, log).unprocessed())}
        if history.healed is None:
            undecided.add(group)
            return
        lives, healed = self.lives(), history.healed
        until = max(history.until, healed)
        for event in self.events:
            until = max(until, event["invoke"] if event["complete"] is None else event["complete"])
        times = {healed, until}
        for joined, ended, dead, pauses in lives.values():
            dead = ended if dead == INFINITY else dead
            times |= {time for time in (joined, ended, dead, *(t for p in pauses for t in p)) if healed < time < until}
        stretches = []
        steps = sorted(times)
        for since, to in pairwise(steps):
            there = {process for process, (joined, ended, _, pauses) in lives.items()
                     if joined <= since and ended >= to
                     and all(over <= since or start >= to for start, over in pauses)}  # fmt: skip
            if there:
                stretches.append((to - since, -since, to, there))
        if not stretches:
            undecided.add(group)
            return
        _, minus, to, there = max(stretches, key=lambda each: each[:2])
        since = -minus
        for log in left:
            written = max(complete for partition, _, complete in history.acknowledged if partition == log)
            if to - max(since, written) < self.settle or _Log(self, log).busy(to, self.settle // 4):
                undecided.add(group)
            else:
                yield "unprocessed record", log
        for log in logs:
            of_log = _Log(self, log)
            end = max([offset + 1 for partition, offset, complete in history.acknowledged
                       if partition == log and complete <= healed], default=0)  # fmt: skip

            def owners(by: int, of: set[int], of_log: _Log = of_log) -> set[int]:
                return {own.process for own in of_log.ownerships
                        if own.process in of and own.begun <= by and of_log.sure_end(own) >= by}  # fmt: skip

            def settled(by: int, of: set[int], of_log: _Log = of_log, end: int = end) -> bool:
                reached = max([event["start"] if event["kind"] == "assign" else event["end"] for event in of_log.events
                               if event["kind"] in ("assign", "poll", "reset") and _ok(event) and event["invoke"] <= by
                               and event["start" if event["kind"] == "assign" else "end"] is not None],
                              default=-1)  # fmt: skip
                return len(owners(by, of)) == 1 and reached >= end

            by = min(to, since + self.settle)
            if settled(by, there):
                continue
            slow = len(owners(by, there)) == 1 and of_log.busy(by, self.settle // 4)
            if to - since >= self.settle and not slow:
                yield "group not settled", log
            elif not any(settled(each_to, each_there) for _, _, each_to, each_there in stretches):
                undecided.add(group)


class _Log:
    """One partition as the group consumed it."""

    def __init__(self, group: _Group, partition: int) -> None:
        self.group, self.partition = group, partition
        self.events = [event for event in group.events if event["partition"] == partition]
        self.acknowledged = {offset for of, offset, _ in group.history.acknowledged if of == partition}
        self.known = set(self.acknowledged)
        for event in group.history.events:
            if event["partition"] == partition and event["kind"] == "poll" and _happened(event) and _ok(event):
                self.known |= set(range(event["start"], event["end"]))
        self.sequences: dict[int, list[Event]] = {}
        self.ownerships: list[_Ownership] = []
        self.owner: dict[int, _Ownership] = {}
        for process in group.processes:
            own = sorted((event for event in self.events if event["process"] == process), key=_moment)
            self.sequences[process] = own
            current: _Ownership | None = None
            for event in own:
                if event["kind"] in ("assign", "revoke", "lose") and current is not None:
                    current.ended_by = event
                    current = None
                if event["kind"] == "assign" and not _fails(event):
                    current = _Ownership(event)
                    self.ownerships.append(current)
                if current is not None:
                    self.owner[event["op"]] = current
                    if event is not current.assign:
                        current.events.append(event)

    def sure_end(self, own: _Ownership) -> int:
        ends = [INFINITY if own.ended_by is None else own.ended_by["invoke"]]
        ends += [life[1] for process, life in self.group.lives().items() if process == own.process]
        return int(min(ends))

    def some_known(self, low: int, high: int) -> bool:
        return any(record in self.known for record in range(max(low, 0), high))

    def commits(self) -> list[Event]:
        return [event for event in self.events if event["kind"] == "commit"]

    def busy(self, by: int, for_: int) -> bool:
        return any(event["kind"] in ("poll", "process") and _complete(event) > by - for_ and event["invoke"] <= by
                   for event in self.events)  # fmt: skip

    def committed_meanwhile(self, reset: Event | None, poll: Event, auto: bool) -> bool:
        if reset is None or reset["error"] != "nothing committed":
            return False
        return any(
            event is not poll and event["invoke"] <= _complete(poll) and (
                (event["kind"] == "commit" and event["end"] in (poll["start"], None))
                or (auto and event["kind"] == "poll" and event["end"] is not None and event["end"] >= poll["start"])
            )
            for event in self.events
        )  # fmt: skip

    def positions(self, auto: bool) -> Iterator[str]:
        for process, sequence in self.sequences.items():
            del process
            for event in sequence:
                if event["kind"] == "poll" and _ok(event) and event["op"] not in self.owner:
                    yield "handed without ownership"
        for own in self.ownerships:
            position, last = own.assign["start"], None
            for event in own.events:
                if event["kind"] == "poll":
                    if _ok(event) and position is not None:
                        skipped = self.some_known(position, event["start"])
                        if skipped and not self.committed_meanwhile(last, event, auto):
                            yield "skipped records"
                        if event["start"] < position:
                            yield "position went back"
                    position, last = event["end"] if _ok(event) else None, None
                elif event["kind"] == "reset":
                    position, last = event["end"] if _ok(event) else None, event

    def in_force(self, low: int, high: int) -> tuple[list[Event], bool]:
        sure = [event for event in self.commits() if _ok(event) and _complete(event) < low]
        possible = [
            event for event in self.commits()
            if event["invoke"] <= high
            and not (_ok(event) and any(later["invoke"] > _complete(event) for later in sure))
        ]  # fmt: skip
        return possible, not sure

    def register(self) -> Iterator[str]:
        faults, healed = self.group.history.faults, self.group.history.healed
        first_fault = min([fault["start"] for fault in faults], default=INFINITY)
        for event in self.events:
            if event["kind"] != "committed" or not _ok(event):
                continue
            possible, nothing = self.in_force(event["invoke"], _complete(event))
            if (event["end"] is None and nothing) or any(each["end"] == event["end"] for each in possible):
                continue
            asked = {each["end"] for each in self.commits() if each["invoke"] <= _complete(event)}
            late = healed is not None and event["invoke"] > healed + self.group.settle
            if event["end"] is not None and event["end"] not in asked:
                yield "phantom commit"
            elif event["process"] == -1 or _complete(event) < first_fault or late:
                yield "lost commit"
            else:
                yield "stale committed offset"
        for own in self.ownerships:
            begin, shown = own.begin()
            if begin is not None and shown is not None:
                yield from self.began(own, begin, shown)
            yield from self.went_back(own, begin, shown)
            for event in own.events:
                if event["kind"] == "reset" and event["error"] == "nothing committed":
                    _, nothing = self.in_force(own.begun, _complete(event))
                    if not nothing:
                        yield "lost commit" if self.proves_membership(own) else "stale committed offset"

    def proves_membership(self, own: _Ownership) -> bool:
        return any(event["kind"] == "commit" and _ok(event) and event["invoke"] > own.begun
                   and (event["generation"] or 0) >= 0 for event in own.events)  # fmt: skip

    def began(self, own: _Ownership, begin: int, shown: Event) -> Iterator[str]:
        possible, nothing = self.in_force(own.begun, _complete(shown))
        offsets = [event["end"] for event in possible]
        if nothing or begin in offsets:
            return
        if begin > max(offsets):
            if self.some_known(max(offsets), begin):
                yield "skipped after rebalance"
        elif begin < min(offsets) and self.proves_membership(own):
            yield "began below the committed offset"
        else:
            yield "began at no committed offset"

    def went_back(self, own: _Ownership, begin: int | None, shown: Event | None) -> Iterator[str]:
        base = begin
        if base is None:
            possible, nothing = self.in_force(own.begun, INFINITY)
            base = -1 if nothing else min(event["end"] for event in possible)
        for event in own.events:
            if event["kind"] != "commit" or not _ok(event):
                continue
            resets = [each for each in own.events if each["kind"] == "reset" and each["invoke"] <= event["invoke"]]
            for other in self.commits():
                if not _ok(other) or _complete(other) >= event["invoke"] or other["end"] <= event["end"]:
                    continue
                if any(_complete(each) >= other["invoke"] for each in resets):
                    continue
                if other["invoke"] >= own.begun or (not resets and base > event["end"]):
                    yield "committed offset went back"

    def register_of_auto(self) -> Iterator[str]:
        been = [event for event in self.events if event["kind"] in ("poll", "reset", "commit")]

        def bound(time: int, but: Event | None) -> int | None:
            ends = [event["end"] for event in been if event["invoke"] <= time and event is not but]
            everything = [event["end"] for event in been if event["invoke"] <= time]
            return None if None in everything else max(ends, default=-1)

        for event in self.events:
            if event["kind"] == "committed" and _ok(event) and event["end"] is not None:
                limit = bound(_complete(event), None)
                if limit is not None and event["end"] > max(limit, 0):
                    yield "phantom commit"
        for own in self.ownerships:
            begin, shown = own.begin()
            if begin is None or shown is None:
                continue
            limit = bound(_complete(shown), shown)
            if limit is not None and limit >= 0 and begin > limit and self.some_known(limit, begin):
                yield "skipped after rebalance"

    def order_after(self) -> Iterator[str]:
        for sequence in self.sequences.values():
            reached, known = -1, False
            done: set[int] = set()
            handed: set[int] = set()
            for event in sequence:
                if event["kind"] == "assign" and not _fails(event):
                    begin, _ = self.owner[event["op"]].begin()
                    known, handed = begin is not None, set()
                    reached = max(reached, -1 if begin is None else begin)
                elif event["kind"] == "reset":
                    known, handed = event["end"] is not None, set()
                    reached = max(reached, -1 if event["end"] is None else event["end"])
                elif event["kind"] == "poll" and _ok(event):
                    handed |= set(range(event["start"], event["end"]))
                elif event["kind"] == "process":
                    done |= set(range(event["start"], event["end"]))
                    reached = max(reached, event["end"])
                elif event["kind"] == "commit":
                    left = self.some_known(reached, event["end"]) or any(r < event["end"] for r in handed - done)
                    if known and left:
                        yield "committed before processing"

    def order_before(self) -> Iterator[str]:
        for sequence in self.sequences.values():
            begun = -1
            for event in sequence:
                if event["kind"] == "assign" and not _fails(event):
                    begin, _ = self.owner[event["op"]].begin()
                    begun = max(begun, -1 if begin is None else begin)
                elif event["kind"] == "process" and _ok(event):
                    own = [each["end"] for each in sequence if each["kind"] == "commit" and _ok(each)
                           and _complete(each) <= event["invoke"]]  # fmt: skip
                    if event["end"] > max([begun, *own]):
                        yield "processed before commit"

    def twice(self, before: bool) -> Iterator[str]:
        done = [event for event in self.events if event["kind"] == "process" and _ok(event)]
        resets = [event for event in self.events if event["kind"] == "reset"]
        for number, one in enumerate(done):
            for other in done[number + 1 :]:
                first, second = sorted((one, other), key=lambda each: (each["invoke"], each["op"]))
                both = set(range(one["start"], one["end"])) & set(range(other["start"], other["end"]))
                if not both:
                    continue
                record = min(both)
                back = [each for each in resets if (each["end"] is None or each["end"] <= record)
                        and _complete(each) >= first["invoke"] and each["invoke"] <= _complete(second)]  # fmt: skip
                wrong = before and not back and self.may_not_be_twice(first, second, record)
                yield "processed twice" if wrong else "processed again"

    def may_not_be_twice(self, first: Event, second: Event, record: int) -> bool:
        own, others = self.owner.get(first["op"]), self.owner.get(second["op"])
        if own is not None and own is others:
            return True

        def answered(event: Event) -> int:
            return min([_complete(each) for each in self.commits() if each["process"] == event["process"] and _ok(each)
                        and each["end"] is not None and each["end"] > record], default=INFINITY)  # fmt: skip

        return (others is not None and answered(first) < others.begun) or (
            own is not None and answered(second) < own.begun
        )

    def unprocessed(self) -> set[int]:
        left = set(self.acknowledged)
        for event in self.events:
            if event["kind"] == "process":
                left -= set(range(event["start"], event["end"]))
        for sequence in self.sequences.values():
            position: int | None = None
            for event in sequence:
                if event["kind"] == "reset":
                    low = 0 if position is None else position
                    high = INFINITY if event["end"] is None else event["end"]
                    left -= {record for record in left if low <= record < high}
                if event["kind"] in ("assign", "poll", "reset", "revoke", "lose"):
                    position = event["end"] if event["kind"] in ("poll", "reset") and _ok(event) else None
                    if event["kind"] == "assign":
                        position = event["start"]
                    if event["op"] not in self.owner:
                        position = None
        return left

    def owners(self) -> Iterator[str]:
        zombies = False
        commits = [event for event in self.commits() if _ok(event) and event["generation"] is not None]
        for event in commits:
            if event["generation"] > 0 and any(
                own.generation is not None and own.generation > event["generation"]
                and _complete(own.assign) < event["invoke"] for own in self.ownerships
            ):  # fmt: skip
                zombies = True
        for number, one in enumerate(self.ownerships):
            for other in self.ownerships[number + 1 :]:
                low = max(_complete(one.assign), _complete(other.assign))
                high = min(self.sure_end(one), self.sure_end(other))
                empty = any(_complete(own.assign) >= self.sure_end(own) for own in (one, other))
                if one.process == other.process or low >= high or empty:
                    continue
                for name in self.two(one, other, low, high):
                    zombies |= name == "zombie commit"
                    if name != "zombie commit":
                        yield name
        if zombies:
            yield "zombie commit"

    def two(self, one: _Ownership, other: _Ownership, low: int, high: int) -> Iterator[str]:
        known = one.generation is not None and other.generation is not None
        if known and one.generation == other.generation and not self.group.settings.get("static"):
            yield "two owners"
            return
        if known and one.generation != other.generation:
            older, newer = sorted((one, other), key=lambda own: own.generation or 0)
            for event in self.acknowledged_in(older, low, high):
                after = self.acknowledged_in(newer, _complete(newer.assign), self.sure_end(newer))
                if event["generation"] in (None, 0) and any(each["invoke"] > _complete(event) for each in after):
                    yield "zombie commit"
        elif self.acknowledged_in(one, low, high) and self.acknowledged_in(other, low, high):
            yield "two owners"
            return
        began_first = min(one, other, key=lambda own: (_complete(own.assign), own.assign["op"]))
        settings: Any = self.group.settings
        in_order = settings.get("protocol") == "consumer" or "cooperative" in settings.get("assignor", "")
        ended = began_first.ended_by
        revoked = ended is not None and ended["kind"] == "revoke" and self.sure_end(began_first) == ended["invoke"]
        leaves = [life[1] for process, life in self.group.lives().items() if process == began_first.process]
        revoked = revoked and (not leaves or leaves[0] > self.sure_end(began_first))
        if known and one.generation != other.generation:
            older = min(one, other, key=lambda own: own.generation or 0)
            ended = older.ended_by
            revoked = ended is not None and ended["kind"] == "revoke" and self.sure_end(older) == ended["invoke"]
            leaves = [life[1] for process, life in self.group.lives().items() if process == older.process]
            revoked = revoked and (not leaves or leaves[0] > self.sure_end(older))
        yield "assigned before revoked" if in_order and revoked else "overlapping ownership"

    def acknowledged_in(self, own: _Ownership, low: int, high: int) -> list[Event]:
        commits = [event for event in self.commits() if event["process"] == own.process and _ok(event)]
        commits = [event for event in commits if event["generation"] is None or event["generation"] >= 0]
        return [event for event in commits if low < event["invoke"] < high]
