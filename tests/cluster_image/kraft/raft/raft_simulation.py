"""A metadata quorum in virtual time: simulated links and disks, faults from a seed, invariants after every step.

Nodes are bare `Quorum`s. Links delay, lose and cut; a lost message is noticed by its sender after the request
timeout, as on a real connection. Nodes are killed (the page cache survives), lose power (it does not), also in the
middle of a write, and stand still. Properties are those of the Raft paper, figure 3; that members answer each other as
they must, and wait as long (QuorumAnswered, ElectionTimeouts); and a snapshot holds exactly what is committed below its
end. Its state is a list of all values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from checkers.inside.kraft.simulated.answering.voters import VotersOracle, Watch
from cluster_image.kraft.raft import rules
from cluster_image.kraft.raft.config import QuorumConfig
from cluster_image.kraft.raft.leader import WaitingFetch
from cluster_image.kraft.raft.outbox import Send
from cluster_image.kraft.raft.quorum import NotLeader, Quorum, Role
from cluster_image.kraft.raft.snapshots import SnapshotId, open_log
from cluster_image.kraft.raft.state import QuorumStateStore
from cluster_image.network import Address
from cluster_image.storage.log import Log, LogConfig
from cluster_image.storage.records import decode_values, iter_batches
from tests.cluster_image.storage.simulated_disk import PowerLoss, simulated_disk

#: Ten times as fast as a real quorum, so that a few virtual seconds see many elections.
CONFIG = QuorumConfig(
    election_timeout=0.1,
    fetch_timeout=0.2,
    election_backoff_max=0.1,
    request_timeout=0.2,
    retry_backoff=0.005,
    fetch_wait_ms=50,
)
DIRECTORY = "__cluster_metadata-0"
CLUSTER = "test"

Entry = tuple[int, bytes]  # of each offset: leader epoch, and the batch that it lies in


class Violation(AssertionError):
    """A property does not hold."""


class Node:
    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.disk = simulated_disk()
        self.quorum: Quorum | None = None  # None: down
        self.watch: Watch  # of its present life
        self.life = 0  # counts processes
        self.paused_until = 0.0
        self.high_watermark = 0  # highest seen in this life
        self.snapshot: SnapshotId | None = None  # the last that was looked into
        self.wake: float | None = None
        self.waiting: dict[WaitingFetch, Callable[[Any], None]] = {}
        self.writes: list[tuple[int, int, bytes]] = []  # (epoch, offset, value) that this leader has not acknowledged


class Simulation:
    def __init__(
        self,
        seed: int,
        voters: int = 3,
        observers: int = 1,
        config: QuorumConfig = CONFIG,
        snapshot_every: int | None = None,
    ) -> None:
        """snapshot_every: so many offsets, each node writes a snapshot; its log's segments are tiny then, and so is
        what is fetched at a time."""
        self.now = 0.0
        self.snapshot_every = snapshot_every
        self.config = config if snapshot_every is None else replace(config, fetch_bytes=700)
        self.log_config = LogConfig() if snapshot_every is None else LogConfig(segment_bytes=400)
        self.snapshots_written = self.snapshots_installed = 0
        self.voters = {node: Address(f"node-{node}", 9093) for node in range(1, voters + 1)}
        self.nodes = {node: Node(node) for node in range(1, voters + observers + 1)}
        self.loss = 0.0  # share of messages lost
        self.slow = 0.0  # share of messages delayed, some for longer than anybody waits
        self.cut: set[tuple[int, int]] = set()  # (from, to): nothing passes
        self.leaders: dict[int, int] = {}  # epoch: who led it
        self.committed: list[Entry] = []  # by offset
        self.committed_in: list[int] = []  # by offset: the epoch in which it was, or a later one
        self.acknowledged: dict[int, bytes] = {}  # offset: value
        self.judge = VotersOracle()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._network = Random(f"{seed} network")
        self._disks = Random(f"{seed} disks")
        self._faults = Random(f"{seed} faults")
        self._nodes = Random(f"{seed} nodes")
        self._written = 0

    # -- running ----------------------------------------------------------------------------------------------

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, action))

    def run(self, duration: float) -> None:
        end = self.now + duration
        while self._events and self._events[0][0] <= end:
            time, _, action = heapq.heappop(self._events)
            self.now = max(self.now, time)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float, what: str) -> None:
        end = self.now + limit
        while not condition():
            if self.now >= end:
                raise Violation(f"not within {limit} s: {what}")
            self.run(0.01)

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.quorum is not None:
            return
        node.life += 1
        node.high_watermark = 0
        node.snapshot = None
        node.waiting, node.writes, node.wake = {}, [], None
        node.watch = self.judge.watch(f"node {node_id}")

        def boot() -> None:
            log, snapshots = open_log(node.disk, DIRECTORY, self.log_config)
            store = QuorumStateStore(node.disk, DIRECTORY)
            random = Random(self._nodes.random())
            node.quorum = Quorum(
                node_id,
                self.voters,
                CLUSTER,
                log,
                store,
                random,
                self.config,
                self.now,
                wall_clock=lambda: self.now,
                snapshots=snapshots,
            )

        self._enter(node, boot)

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node)

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].quorum = None

    def cut_power(self, node_id: int) -> None:
        self.kill(node_id)
        self.nodes[node_id].disk.lose_power(self._disks)

    def cut_power_in_a_write(self, node_id: int) -> None:
        """At one of its next few writes or syncs."""
        countdown = self._faults.randint(1, 8)

        def before(operation: str, path: str) -> None:
            nonlocal countdown
            countdown -= operation != "read"
            if countdown == 0:
                raise PowerLoss(operation)

        self.nodes[node_id].disk.before = before

    def pause(self, node_id: int, duration: float) -> None:
        self.nodes[node_id].paused_until = self.now + duration

    def isolate(self, *nodes: int) -> None:
        """Nothing passes between these and the others."""
        others = [node for node in self.nodes if node not in nodes]
        self.cut |= {pair for a in nodes for b in others for pair in ((a, b), (b, a))}

    def heal(self) -> None:
        self.cut.clear()
        self.loss = self.slow = 0.0
        for node in self.nodes.values():
            node.disk.before = lambda operation, path: None
            node.paused_until = 0.0

    # -- what a node does -------------------------------------------------------------------------------------

    def _enter(self, node: Node, action: Callable[[], Any]) -> Any:
        """Let something happen in a node, and then what follows from it."""
        try:
            result = action()
            self._poll(node)
        except PowerLoss:
            node.disk.before = lambda operation, path: None
            self.cut_power(node.id)
            return None
        return result

    def _poll(self, node: Node) -> None:
        quorum = node.quorum
        if quorum is None:
            return
        node.watch.enters(quorum, self.now)
        output = quorum.poll(self.now)
        node.watch.expired()
        self.judge.raise_found()
        self._check(node)
        self._write_snapshot(node)
        for waiting, answer in output.answers:
            node.waiting.pop(waiting)(answer)
        for send in output.requests:
            if quorum.is_voter and quorum.replica.log.flushed_offset < quorum.replica.log.end_offset:
                raise Violation(f"node {node.id} speaks before its log is on disk")
            self._send(node, send)
        if output.wake_at != float("inf") and (node.wake is None or output.wake_at < node.wake):
            node.wake = output.wake_at
            life = node.life

            def wake() -> None:
                if node.life == life:
                    node.wake = None
                    self._when_running(node, life, lambda: None)

            self.at(output.wake_at, wake)

    def _when_running(self, node: Node, life: int, action: Callable[[], Any]) -> None:
        if node.quorum is None or node.life != life:
            return
        if self.now < node.paused_until:
            self.at(node.paused_until, lambda: self._when_running(node, life, action))
        else:
            self._enter(node, action)

    def _send(self, sender: Node, send: Send) -> None:
        receiver = self.nodes[send.receiver]
        life = sender.life
        settled = False

        def settle(action: Callable[[Quorum], None]) -> None:
            nonlocal settled
            if not settled and sender.quorum is not None and sender.life == life:
                settled = True
                quorum = sender.quorum
                self._when_running(sender, life, lambda: action(quorum))

        def failed() -> None:
            settle(lambda quorum: quorum.fail(send.receiver, send.request, self.now))

        def answered(response: Any) -> None:
            def respond(quorum: Quorum) -> None:
                sender.watch.enters(quorum, self.now)
                quorum.respond(send.receiver, send.request, response, self.now)
                sender.watch.responded(send.receiver, send.request, response)

            settle(respond)

        def arrived() -> None:
            if receiver.quorum is None:
                self._pass(receiver.id, sender.id, failed)  # connection refused
                return
            quorum, receiver_life = receiver.quorum, receiver.life

            def receive() -> None:
                receiver.watch.enters(quorum, self.now)
                answer = quorum.receive(send.request, self.now)
                receiver.watch.received(send.request, answer)
                if isinstance(answer, WaitingFetch):
                    receiver.waiting[answer] = reply
                else:
                    reply(answer)

            def reply(answer: Any) -> None:
                self._pass(receiver.id, sender.id, lambda: answered(answer))

            self._when_running(receiver, receiver_life, receive)

        self._pass(sender.id, receiver.id, arrived)
        self.at(self.now + self.config.request_timeout, failed)

    def _pass(self, sender: int, receiver: int, arrive: Callable[[], None]) -> None:
        delay = self._network.uniform(0.0002, 0.002)
        if self._network.random() < self.slow:
            delay += self._network.uniform(0, 2 * self.config.request_timeout)
        lost = self._network.random() < self.loss

        def deliver() -> None:
            if (sender, receiver) not in self.cut:
                arrive()

        if not lost:
            self.at(self.now + delay, deliver)

    # -- clients ----------------------------------------------------------------------------------------------

    def write(self, records: int = 1) -> None:
        """To every node that takes itself for the leader, one batch."""
        for node in self.nodes.values():
            quorum = node.quorum
            if quorum is None or quorum.role is not Role.LEADER or self.now < node.paused_until:
                continue
            values = [b"%d" % (self._written + n) for n in range(records)]
            self._written += records
            self._enter(node, lambda node=node, quorum=quorum, values=values: self._append(node, quorum, values))  # type: ignore[misc]

    def _append(self, node: Node, quorum: Quorum, values: list[bytes]) -> None:
        try:
            last = quorum.append(values, self.now)
        except NotLeader:
            return
        first = last - len(values) + 1
        node.writes += [(quorum.epoch, offset, value) for offset, value in enumerate(values, first)]

    # -- properties -------------------------------------------------------------------------------------------

    def _check(self, node: Node) -> None:
        quorum = node.quorum
        assert quorum is not None
        log, high_watermark = quorum.replica.log, quorum.replica.high_watermark
        if high_watermark < node.high_watermark:
            raise Violation(f"high watermark of node {node.id} fell from {node.high_watermark} to {high_watermark}")
        if high_watermark > log.end_offset:
            raise Violation(f"high watermark {high_watermark} of node {node.id} is past its log's end")
        self._check_snapshot(node)
        if high_watermark > node.high_watermark:
            self._check_committed(node, entries(log, node.high_watermark, high_watermark))
            node.high_watermark = high_watermark
        if quorum.role is Role.LEADER:
            self._check_leader(node, quorum)
        self._acknowledge(node, quorum)

    def _write_snapshot(self, node: Node) -> None:
        assert node.quorum is not None
        replica = node.quorum.replica
        done = 0 if replica.snapshots.latest is None else replica.snapshots.latest.end_offset
        if self.snapshot_every is not None and node.high_watermark >= done + self.snapshot_every:
            replica.make_snapshot(node.high_watermark, self._state(node.high_watermark), 0)
            self.snapshots_written += 1
            self._check_snapshot(node)

    def _check_snapshot(self, node: Node) -> None:
        """It holds what is committed below its end, and the log goes on from the earlier one that is kept."""
        assert node.quorum is not None
        replica = node.quorum.replica
        latest, earliest = replica.snapshots.latest, replica.snapshots.earliest
        if replica.log.start_offset not in (0, earliest.end_offset if earliest else 0):
            raise Violation(f"the log of node {node.id} starts at {replica.log.start_offset}, not after {earliest}")
        if latest is None or latest == node.snapshot:
            return
        end = latest.end_offset
        if end > len(self.committed) or self.committed[end - 1][0] != latest.epoch:
            raise Violation(f"snapshot {latest} of node {node.id} is not of what is committed")
        if replica.snapshots.read(latest) != self._state(end):
            raise Violation(f"snapshot {latest} of node {node.id} does not hold what is committed")
        if not rules.continues_snapshot(replica.log, *latest):
            raise Violation(f"the log of node {node.id} does not go on from {latest}")
        node.snapshot = latest
        if end > node.high_watermark:
            self.snapshots_installed += node.high_watermark > 0
            node.high_watermark = end

    def _state(self, end: int) -> list[bytes]:
        """All values committed below `end`."""
        batches = dict.fromkeys(self.committed[:end])
        return [value for batch in batches for _, _, value in decode_values(batch[1])]

    def _check_committed(self, node: Node, found: list[Entry]) -> None:
        """State Machine Safety: all nodes commit the same."""
        first = node.high_watermark
        known = self.committed[first : first + len(found)]
        if found[: len(known)] != known:
            raise Violation(f"node {node.id} has committed something else from offset {first} on")
        assert node.quorum is not None
        self.committed += found[len(known) :]
        self.committed_in += [node.quorum.epoch] * (len(found) - len(known))

    def _check_leader(self, node: Node, quorum: Quorum) -> None:
        """Election Safety: one leader an epoch. Leader Completeness: it has everything committed."""
        if quorum.epoch in self.leaders:
            if self.leaders[quorum.epoch] != node.id:
                raise Violation(f"nodes {self.leaders[quorum.epoch]} and {node.id} both lead epoch {quorum.epoch}")
            return
        self.leaders[quorum.epoch] = node.id
        # In an earlier epoch: votes may be late.
        end = max((o + 1 for o, epoch in enumerate(self.committed_in) if epoch < quorum.epoch), default=0)
        start = quorum.replica.log.start_offset
        if entries_of(quorum.replica.log)[: max(end - start, 0)] != self.committed[start:end]:
            raise Violation(f"node {node.id} leads epoch {quorum.epoch} without everything committed")

    def _acknowledge(self, node: Node, quorum: Quorum) -> None:
        unsettled = []
        for epoch, offset, value in node.writes:
            if quorum.role is not Role.LEADER or quorum.epoch != epoch:
                continue
            if offset < quorum.replica.high_watermark:
                self.acknowledged[offset] = value
            else:
                unsettled.append((epoch, offset, value))
        node.writes = unsettled

    def check_log_matching(self) -> None:
        """If two logs hold a record of the same offset and epoch, they are the same up to it."""
        logs = [
            (node.id, node.quorum.replica.log.start_offset, entries_of(node.quorum.replica.log))
            for node in self.nodes.values()
            if node.quorum is not None
        ]
        for index, (a, start_a, all_of_a) in enumerate(logs):
            for b, start_b, all_of_b in logs[:index]:
                start = max(start_a, start_b)
                log_a, log_b = all_of_a[start - start_a :], all_of_b[start - start_b :]
                common = min(len(log_a), len(log_b))
                last = next((o for o in reversed(range(common)) if log_a[o][0] == log_b[o][0]), -1)
                if log_a[: last + 1] != log_b[: last + 1]:
                    raise Violation(f"the logs of nodes {a} and {b} differ below offset {last}, where they agree")

    @property
    def leader(self) -> Quorum | None:
        """The one leader that every node follows, with everything committed everywhere; else None."""
        running = [node.quorum for node in self.nodes.values() if node.quorum is not None]
        leaders = [quorum for quorum in running if quorum.role is Role.LEADER]
        if len(leaders) != 1:
            return None
        leader = leaders[0]
        same = all(q.epoch == leader.epoch and q.leader_id == leader.id for q in running)
        done = all(q.replica.high_watermark == leader.replica.log.end_offset for q in running)
        return leader if same and done else None

    def settle(self, limit: float = 5.0) -> None:
        """Heal everything: within `limit` the quorum must work again, and have all that it ever acknowledged."""
        self.heal()
        self.start_all()
        self.run_until(lambda: self.leader is not None, limit, "one leader, followed by all, everything committed")
        self.check_log_matching()
        committed = {
            offset: value for batch in dict.fromkeys(self.committed) for offset, _, value in decode_values(batch[1])
        }
        for offset, value in self.acknowledged.items():
            if committed.get(offset) != value:
                raise Violation(f"acknowledged {value!r} at offset {offset} is lost")

    # -- faults -----------------------------------------------------------------------------------------------

    def torment(self, duration: float, *, power_only: bool = False) -> None:
        """Writes, and faults from the seed; Log Matching is checked now and then."""
        faults = self._faults
        self.slow = 0.02
        end = self.now + duration
        next_fault = self.now
        while self.now < end:
            self.write(faults.randint(1, 3))
            self.run(faults.uniform(0.001, 0.02))
            if self.now < next_fault:
                continue
            next_fault = self.now + faults.expovariate(10)
            self.check_log_matching()
            node = faults.choice(list(self.nodes))
            kind = faults.choice(("power", "power", "power in a write") if power_only else KINDS)
            if kind == "kill":
                self.kill(node)
            elif kind == "power":
                self.cut_power(node)
            elif kind == "power in a write":
                self.cut_power_in_a_write(node)
            elif kind == "power everywhere":
                for victim in self.nodes:
                    self.cut_power(victim)
            elif kind == "pause":
                self.pause(node, faults.uniform(0, 0.5))
            elif kind == "isolate":
                self.isolate(*faults.sample(list(self.nodes), faults.randint(1, 2)))
            elif kind == "one way":
                others = [other for other in self.nodes if other != node]
                self.cut |= {(node, other) for other in others if faults.random() < 0.7}
            elif kind == "loss":
                self.loss, self.slow = faults.choice(((0.0, 0.02), (0.1, 0.1), (0.4, 0.0)))
            else:
                self.heal()
            for down in [n.id for n in self.nodes.values() if n.quorum is None and faults.random() < 0.6]:
                self.at(self.now + faults.uniform(0, 0.3), lambda down=down: self.start(down))  # type: ignore[misc]


KINDS = ("kill", "power", "power in a write", "power everywhere", "pause", "isolate", "one way", "loss", "heal", "heal")


def entries_of(log: Log) -> list[Entry]:
    return entries(log, log.start_offset, log.end_offset)


def entries(log: Log, start: int, end: int) -> list[Entry]:
    """What a log holds from `start`, the begin of a batch, to `end` or its own end."""
    found: list[Entry] = []
    offset, end = start, min(end, log.end_offset)
    while offset < end:
        data = log.read(offset, 1 << 20, end)
        for position, stop, header in iter_batches(data):
            found += [(header.leader_epoch, data[position:stop])] * (header.next_offset - header.base_offset)
            offset = header.next_offset
        if not data:
            raise Violation(f"{end} lies in the middle of a batch")
    return found
