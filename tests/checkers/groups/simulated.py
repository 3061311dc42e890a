"""Histories of a group whose coordinator and members do all right, whatever happens to them: members join, leave, are
killed, paused and replaced; commits are lost, refused, answered late and out of order; callbacks run late.

The coordinator takes a commit if its member and generation are the group's, in order; the commit is in force, and
answered, some time later, when it is replicated. Until then who asks is told the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from spark_history.schema import NOTHING_COMMITTED
from tests.checkers.groups.group_history import GROUP, Event, History, events

SETTLE: Final = 4000


@dataclass
class Request:
    """A commit on its way: row None: one that nobody has on record. state: sent, taken, answered, gone."""

    row: Event | None
    member: Member
    generation: int
    partition: int
    offset: int
    state: str = "sent"


@dataclass(eq=False)
class Member:
    process: int
    tells: bool
    generation: int = 0
    positions: dict[int, int | None] = field(default_factory=dict)  # by partition; None: not known yet
    handed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # and not processed
    done: dict[int, int] = field(default_factory=dict)
    given: dict[int, int] | None = None  # an assignment that its callback has not told yet: partition to generation
    takes: set[int] | None = None  # partitions that it is to give up
    asks: Request | None = None  # a synchronous commit that it waits for
    after_commit: tuple[int, int, int] | None = None  # partition and records to be processed once `asks` is answered
    joined: bool = False  # again, in the rebalance that goes on
    paused: bool = False
    alive: bool = True


class Group:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.settings: dict[str, Any] = {
            "commit": random.choice(("after", "after", "before")), "mode": random.choice(("sync", "async", "auto")),
            "protocol": random.choice(("classic", "classic", "consumer")),
            "assignor": random.choice(("range", "cooperative-sticky")), "static": random.random() < 0.25,
            "settle_s": SETTLE / 1e9,
        }  # fmt: skip
        self.before = self.settings["commit"] == "before"
        self.gradual = self.settings["protocol"] == "consumer" or self.settings["assignor"] != "range"
        self.partitions = random.choice((1, 2, 3))
        self.now, self.processes, self.generation = 100, 0, 0
        self.rows: list[Event] = []
        self.acknowledged: list[tuple[int, int, int]] = []
        self.ends = dict.fromkeys(range(self.partitions), 0)
        self.members: list[Member] = []  # all that live
        self.known: list[Member] = []  # to the coordinator
        self.owner: dict[int, Member] = {}
        self.free: set[int] = set(self.ends)
        self.rebalancing = False
        self.wire: list[Request] = []
        self.log: dict[int, list[Request]] = {partition: [] for partition in self.ends}  # taken, and not in force
        self.in_force: dict[int, list[int]] = {partition: [] for partition in self.ends}
        self.tells = random.choice((True, True, False, None))
        self.all_tell = random.random() < 0.7  # of commits, too, of which generation they are
        self.slow = random.random() < 0.4  # replication, by which commits come into force
        self.faults: list[dict[str, Any]] = []

    # What is on record

    def tick(self) -> int:
        self.now += self.random.choice((1, 1, 2, 7, 30))
        return self.now

    def row(self, kind: str, member: Member | None, partition: int | None = None, **of: Any) -> Event:
        process = -1 if member is None else member.process
        event = {"kind": kind, "process": process, "partition": partition, "invoke": self.tick(), "complete": None}
        event |= of
        if member is not None and member.tells and kind in ("assign", "poll", *(("commit",) if self.all_tell else ())):
            event.setdefault("generation", member.generation)
        self.rows.append(event)
        return event

    def over(self, event: Event, outcome: str = "ok") -> None:
        event["complete"], event["outcome"] = self.tick(), outcome

    # The coordinator

    def takes(self, request: Request) -> bool:
        return request.member in self.known and request.generation == self.generation_of(request.member)

    def generation_of(self, member: Member) -> int:
        return member.generation

    def deliver(self, request: Request) -> None:
        self.wire.remove(request)
        if self.takes(request):
            request.state = "taken"
            self.log[request.partition].append(request)
        else:
            self.answer(request, "fail")

    def replicate(self, partition: int) -> None:
        request = self.log[partition].pop(0)
        self.in_force[partition].append(request.offset)
        self.answer(request, "ok")

    def answer(self, request: Request, outcome: str) -> None:
        request.state = "answered"
        member, row = request.member, request.row
        if row is not None and row["outcome"] == "ok" and row["complete"] is None:
            if not member.alive or member.paused or self.random.random() < 0.1:  # nobody hears it
                row["outcome"] = "info"
                if self.random.random() < 0.5:
                    row["complete"] = self.tick()
            else:
                self.over(row, outcome)
        if member.asks is request:
            member.asks = None
            if member.after_commit is not None and row is not None and row["outcome"] == "ok":
                partition, start, end = member.after_commit
                if partition in member.positions or self.random.random() < 0.5:
                    self.over(self.row("process", member, partition, start=start, end=end))
            member.after_commit = None

    def committed(self, partition: int) -> int | None:
        return self.in_force[partition][-1] if self.in_force[partition] else None

    def rebalance(self) -> None:
        """Begins anew."""
        self.rebalancing = True
        for member in self.known:
            member.joined, member.takes = False, None

    def forget(self, member: Member) -> None:
        if member in self.known:
            self.known.remove(member)
            self.free |= {partition for partition, owner in self.owner.items() if owner is member}
            self.owner = {partition: owner for partition, owner in self.owner.items() if owner is not member}
            self.rebalance()

    def complete(self) -> None:
        """Once all have joined again."""
        if not self.rebalancing or not self.known or not all(member.joined for member in self.known):
            return
        self.generation += 1
        self.rebalancing = False
        order = list(self.known)
        self.random.shuffle(order)
        target = {partition: order[number % len(order)] for number, partition in enumerate(sorted(self.ends))}
        if not self.gradual:
            self.owner, self.free = target, set()
            for member in self.known:
                member.generation = self.generation
                member.given = {p: self.generation for p, owner in target.items() if owner is member}
            return
        again = False
        for member in self.known:
            own = {partition for partition, owner in self.owner.items() if owner is member}
            excess = {partition for partition in own if target[partition] is not member}
            new = {partition for partition in self.free if target[partition] is member}
            member.given = {**(member.given or {}), **dict.fromkeys(new, self.generation)}
            member.takes = excess or None
            again |= bool(excess)
            lags = self.settings["protocol"] == "consumer" and not excess and not new and member.generation > 0
            if not lags or self.random.random() < 0.5:  # KIP-848: each member has an epoch of its own
                member.generation = self.generation
            for partition in new:
                self.owner[partition] = member
            self.free -= new
        if again:
            self.rebalancing = True
            for member in self.known:
                member.joined = False

    # Members

    def join(self, replaces: Member | None = None) -> Member:
        member = Member(self.processes, self.random.random() < 0.5 if self.tells is None else self.tells)
        self.processes += 1
        self.members.append(member)
        self.over(self.row("join", member))
        if replaces is not None and replaces in self.known:  # a static member: the same assignment and generation
            self.known[self.known.index(replaces)] = member
            member.generation, member.joined = replaces.generation, replaces.joined
            own = {partition for partition, owner in self.owner.items() if owner is replaces}
            self.owner.update(dict.fromkeys(own, member))
            member.given = dict.fromkeys(own, member.generation)
            if replaces.takes:
                member.takes = set(replaces.takes)
            return member
        self.known.append(member)
        self.rebalance()
        return member

    def poll(self, member: Member) -> None:
        waits = member.asks is not None and (self.settings["mode"] == "sync" or not self.rebalancing)
        if member.paused or waits:
            return
        if self.settings["mode"] == "auto" and not self.before:  # what was handed before is what is committed
            for partition, handed in member.handed.items():
                while handed:
                    self.process(member, partition)
        poll_began = self.tick()
        if member not in self.known:
            if member.given is not None and self.random.random() < 0.5:
                self.assign(member)  # it is told late what it had been given
            self.lose(member)
            self.known.append(member)
            member.generation = 0
            self.rebalance()
            return
        if self.rebalancing and not member.joined:
            if self.gradual:
                self.assign(member)
                self.revoke(member, member.takes or set())
                member.takes = None
            else:
                member.given = None
                self.revoke(member, set(member.positions))
            member.joined = True
            self.complete()
            return
        if not self.rebalancing:
            self.assign(member)
        ready = [p for p, position in member.positions.items() if self.where(member, p) < self.ends[p]]
        if not ready or (self.rebalancing and not self.gradual):
            return
        partition = self.random.choice(ready)
        position = self.where(member, partition)
        end = min(position + self.random.randint(1, 4), self.ends[partition])
        event = self.row("poll", member, partition, start=position, end=end)
        event["invoke"] = poll_began
        self.over(event)
        if self.settings["mode"] == "auto" and self.random.random() < 0.6:  # of what was handed before
            self.send(member, partition, position, None)
        member.positions[partition] = end
        member.handed.setdefault(partition, []).append((position, end))

    def where(self, member: Member, partition: int) -> int:
        position = member.positions[partition]
        if position is None:  # not before now does it ask what is committed
            position = self.fetch(member, partition)
            member.positions[partition] = member.done[partition] = position
        return position

    def fetch(self, member: Member, partition: int) -> int:
        told = self.committed(partition)
        if member not in self.known and self.in_force[partition] and self.random.random() < 0.3:
            told = self.random.choice(self.in_force[partition])  # by a coordinator that was deposed
        if told is None:
            event = self.row("reset", member, partition, end=0, error=NOTHING_COMMITTED)
            self.over(event)
            return 0
        return told

    def assign(self, member: Member) -> None:
        given, member.given = member.given or {}, None
        for partition, generation in sorted(given.items()):
            if self.gradual and partition in member.positions:
                continue
            event = self.row("assign", member, partition, start=None)
            if member.tells:
                event["generation"] = generation
            member.handed[partition], member.positions[partition] = [], None
            if self.random.random() < 0.5:
                position = self.fetch(member, partition)
                member.positions[partition] = member.done[partition] = position
                if self.random.random() < 0.8:
                    event["start"] = position
            self.over(event)

    def revoke(self, member: Member, partitions: set[int]) -> None:
        for partition in sorted(partitions):
            if partition not in member.positions:
                self.give_up(member, partition)
                continue
            position, began = member.positions[partition], self.tick()
            event = self.row("revoke", member, partition)
            commits = self.random.random() < (0.1 if self.slow else 0.6)
            if commits and member.positions[partition] is not None and member.asks is None:
                if not self.before:
                    while member.handed.get(partition) and self.random.random() < 0.7:
                        self.process(member, partition)
                    self.commit(member, partition)
                    self.settle(member)
                elif member.handed.get(partition):
                    self.process(member, partition)
                    self.settle(member)
            if self.settings["mode"] == "auto" and member.positions[partition] is not None:
                self.send(member, partition, member.positions[partition] or 0, None)
            self.over(event)
            more = not self.before and position is not None and position < self.ends[partition]
            if more and self.random.random() < 0.1:
                self.hand_out_late(member, partition, began)
            member.positions.pop(partition)
            member.handed.pop(partition, None)
            self.give_up(member, partition)

    def hand_out_late(self, member: Member, partition: int, began: int) -> None:
        """A poll that was under way hands out what the member owns no longer."""
        position = member.positions[partition] or 0
        late = self.row("poll", member, partition, start=position, end=position + 1)
        late["invoke"] = began
        self.over(late)
        self.over(self.row("process", member, partition, start=position, end=position + 1))

    def give_up(self, member: Member, partition: int) -> None:
        if self.owner.get(partition) is member:
            del self.owner[partition]
            self.free.add(partition)

    def lose(self, member: Member) -> None:
        for partition in sorted(member.positions):
            self.over(self.row("lose", member, partition))
        member.positions.clear()
        member.handed.clear()
        member.given = member.takes = None

    def process(self, member: Member, partition: int) -> None:
        """What it was handed first; in a group that commits before, it is asked to be committed, and that is waited
        for."""
        start, end = member.handed[partition].pop(0)
        if not self.before:
            self.over(self.row("process", member, partition, start=start, end=end))
            member.done[partition] = end
        elif self.settings["mode"] == "auto":
            self.over(self.row("process", member, partition, start=start, end=end))
        else:
            row = self.row("commit", member, partition, end=end)
            member.asks, member.after_commit = self.send(member, partition, end, row), (partition, start, end)

    def commit(self, member: Member, partition: int) -> None:
        offset = member.done.get(partition)
        if offset is None or member.positions[partition] is None or self.before or self.settings["mode"] == "auto":
            return
        request = self.send(member, partition, offset, self.row("commit", member, partition, end=offset))
        if self.settings["mode"] == "sync":
            member.asks = request

    def send(self, member: Member, partition: int, offset: int, row: Event | None) -> Request:
        if row is not None:
            row["outcome"] = "ok"
        request = Request(row, member, member.generation, partition, offset)
        if self.random.random() < 0.08 and row is not None:  # it never arrives
            row["outcome"], request.state = "info", "gone"
        else:
            self.wire.append(request)
        return request

    def settle(self, member: Member) -> None:
        """Wait for the answer of a synchronous commit, or give it up."""
        request = member.asks
        if request is None:
            return
        if self.random.random() < 0.8:
            while request.state == "sent":
                self.deliver(next(each for each in self.wire if each.member is member))
            while request.state == "taken":
                self.replicate(request.partition)
        if member.asks is request:
            if request.row is not None and request.row["complete"] is None:
                request.row["outcome"], request.row["complete"] = "info", self.tick()
            member.asks = member.after_commit = None

    def end(self, member: Member, kind: str) -> None:
        event = self.row(kind, member)
        if kind == "leave" and not member.paused:
            if member in self.known and member.asks is None:
                self.revoke(member, set(member.positions))
            self.members.remove(member)
            self.forget(member)
        else:
            self.members.remove(member)
            member.alive = False
            if self.settings["static"] and self.random.random() < 0.7:
                self.over(event)
                self.join(member)
                return
        self.over(event)
        member.alive = False

    # What happens

    def step(self) -> None:
        random = self.random
        what = random.random()
        member = random.choice(self.members) if self.members else None
        if what < 0.15:
            self.append()
        elif what < 0.62:
            if member is not None:
                self.act(member)
                if self.rebalancing and self.slow and not member.paused:
                    self.poll(member)
        elif what < 0.87:
            self.network()
        elif what < 0.90:
            if len(self.members) < 3:
                self.join()
        elif member is None:
            pass
        elif what < 0.92:
            if not member.paused:
                self.end(member, random.choice(("leave", "crash")))
        elif what < 0.95:
            member.paused = not member.paused
            if member.paused and random.random() < 0.5:
                self.over(self.row("pause", member))
            elif not member.paused:
                self.over(self.row("resume", member))
        elif what < 0.98:
            gone = [each for each in self.known if each.paused or not each.alive]
            if gone:
                self.forget(random.choice(gone))
        elif self.settings["static"] and member.paused:
            self.join(member)
        else:
            self.ask(member)

    def append(self) -> None:
        partition = self.random.randrange(self.partitions)
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.9:
                self.acknowledged.append((partition, self.ends[partition], self.tick()))
            self.ends[partition] += 1

    def act(self, member: Member) -> None:
        if member.paused:
            return
        if member.asks is not None:
            if self.random.random() < 0.4:
                self.settle(member)
            return
        ready = [partition for partition, handed in member.handed.items() if handed]
        held = [partition for partition in member.positions if member.positions[partition] is not None]
        what = self.random.random()
        if what < 0.5 and ready:
            self.process(member, self.random.choice(ready))
        elif what < 0.7 and held:
            self.commit(member, self.random.choice(held))
        elif what < 0.73 and held:
            self.seek(member, self.random.choice(held))
        else:
            self.poll(member)

    def seek(self, member: Member, partition: int) -> None:
        to = self.random.randint(0, self.ends[partition])
        ahead = to > (member.positions[partition] or 0)
        if self.settings["mode"] == "auto" or member.handed[partition] or (ahead and self.random.random() < 0.7):
            return
        self.over(self.row("reset", member, partition, end=to))
        member.positions[partition] = member.done[partition] = to

    def network(self) -> None:
        ways = [partition for partition, log in self.log.items() if log]
        if self.wire and (not ways or self.random.random() < 0.5):
            first = {each.member.process: each for each in reversed(self.wire)}
            self.deliver(self.random.choice(list(first.values())))
        elif ways and (not self.slow or self.random.random() < 0.2):
            self.replicate(self.random.choice(ways))

    def ask(self, member: Member | None) -> None:
        for partition in self.ends:
            event = self.row("committed", member, partition)
            event["end"] = self.committed(partition)
            if member is not None and self.faults and self.in_force[partition] and self.random.random() < 0.3:
                event["end"] = self.random.choice(self.in_force[partition])  # by a coordinator that was deposed
            self.over(event)


def draw(random: Random, steps: int | None = None) -> History:
    group = Group(random)
    for _ in range(random.randint(1, 2)):
        group.join()
    steps = random.randint(20, 160) if steps is None else steps
    struck = random.randrange(steps)
    for number in range(steps):
        if number == struck:
            group.faults.append({"fault": 0, "nemesis": "kill", "targets": ["broker-1"], "start": group.now,
                                 "end": None, "effective": True, "evidence": {}})  # fmt: skip
        group.step()
    return _come_to_an_end(group)


def _come_to_an_end(group: Group) -> History:
    """All is healed; the group settles, and goes on to the end of each log."""
    for member in [each for each in group.known if not each.alive]:
        group.forget(member)
    for member in group.members:
        if member.paused:
            member.paused = False
            group.over(group.row("resume", member))
    if not group.members:
        group.join()
    healed, group.slow = group.tick(), False
    while group.wire or any(group.log.values()):
        group.network()
    for _ in range(400):
        for member in list(group.members):
            if member.asks is not None:
                group.settle(member)
            for partition, handed in list(member.handed.items()):
                while handed and member.asks is None and partition in member.positions:
                    group.process(member, partition)
                    group.settle(member)
            for partition in list(member.positions):
                if member.asks is None:
                    group.commit(member, partition)
                    group.settle(member)
            while group.wire or any(group.log.values()):
                group.network()
            group.poll(member)
        if _is_done(group):
            break
    else:
        raise AssertionError("the group does not settle")
    group.now += SETTLE + 500
    group.ask(None)
    for member in list(group.members):
        group.over(group.row("leave", member))
    return History(
        events(group.rows), group.acknowledged, {GROUP: group.settings}, group.faults, healed, group.now,
        group.partitions,
    )  # fmt: skip


def _is_done(group: Group) -> bool:
    owners = [partition for member in group.members for partition in member.positions]
    return (
        not group.rebalancing
        and sorted(owners) == sorted(group.ends)
        and all(member.positions[p] == group.ends[p] for member in group.members for p in member.positions)
        and not any(handed for member in group.members for handed in member.handed.values())
        and all(member.given in (None, {}) and member.asks is None for member in group.members)
    )
