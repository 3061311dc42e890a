"""ISR, ELR, LastKnownELR, reassignment and unclean recovery in any order, with the logs of the replicas beside them:
who may be elected has every committed record, and recovery finds one that has if there is one (002, 5.2, 5.3)."""

from __future__ import annotations

from random import Random

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller import rules
from cluster_image.kraft.controller.controller import Controller
from cluster_image.kraft.controller.rules import LogInfo
from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import PartitionRegistration
from tests.cluster_image.kraft.controller.test_reassignment import ALL, reassign
from tests.cluster_image.kraft.controller_quorum import SESSION, unfenced

Log = list[tuple[int, int]]  # leader epoch and value of each record


class History:
    """Replicas do at once what they decide: of the data plane only what the controller's choices rest on. Power is cut
    only where the controller then sees an unclean return."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.min_isr = self.random.choice((1, 2, 2, 3))
        strategy = self.random.choice(("balanced", "balanced", "proactive", "manual"))
        self.quorum = unfenced(*ALL, min_insync_replicas=str(self.min_isr), unclean_recovery_strategy=strategy)
        replicas = self.random.sample(ALL, self.random.choice((1, 2, 3)))
        assert self.quorum.create_on(replicas) is ErrorCode.none
        self.logs: dict[int, Log] = {broker: [] for broker in ALL}
        self.committed: Log = []
        self.now = 0.0
        self.epoch = self.epoch_start = 0
        self.fetched: dict[int, None] = {}  # in this leader epoch

    @property
    def partition(self) -> PartitionRegistration:
        return self.quorum.partition()

    def run(self) -> None:
        actions = (
            *(self.produce, self.produce, self.fetch, self.fetch, self.fetch, self.join, self.join, self.shrink),
            *(self.fence, self.heartbeat, self.restart, self.restart, self.reassign, self.recover, self.recover),
            self.failover,
        )
        for _ in range(self.random.randint(5, 60)):
            self.random.choice(actions)()
            self.follow()
            for replica in (*self.partition.isr, *self.partition.elr):
                assert self.is_complete(replica), "Leader Candidate Completeness"
            known = (*self.partition.isr, *self.partition.elr, *self.partition.last_known_elr)
            assert known, "there is somebody to be waited for, or to be asked"

    def is_complete(self, replica: int) -> bool:
        return self.logs[replica][: len(self.committed)] == self.committed

    def follow(self) -> None:
        """What replicas do when they learn of the controller's decision."""
        partition = self.partition
        for broker in ALL:
            if broker not in partition.replicas:
                self.logs[broker] = []
        if partition.leader_epoch != self.epoch:
            self.epoch = partition.leader_epoch
            self.epoch_start = len(self.logs[partition.leader]) if partition.leader >= 0 else 0
            self.fetched.clear()
        if partition.leader >= 0 and len(partition.isr) >= min(self.min_isr, len(partition.replicas)):
            heard = (partition.leader, *self.fetched)
            end = min(len(self.logs[r]) if r in heard else 0 for r in partition.isr)
            if end > len(self.committed):
                self.committed = self.logs[partition.leader][:end]

    # -- what happens -----------------------------------------------------------------------------------------

    def produce(self) -> None:
        if self.partition.leader >= 0:
            self.logs[self.partition.leader].append((self.epoch, self.random.getrandbits(32)))

    def fetch(self) -> None:
        leader, broker = self.partition.leader, self.random.choice(ALL)
        if leader >= 0 and broker in self.partition.replicas and broker != leader:
            log = self.logs[leader]
            end = self.random.randint(_common(self.logs[broker], log), len(log))
            self.logs[broker] = log[: self.random.choice((end, len(log)))]
            self.fetched[broker] = None

    def join(self) -> None:
        reached = max(self.epoch_start, len(self.committed))
        ready = [r for r in self.fetched if r not in self.partition.isr and len(self.logs[r]) >= reached]
        if self.partition.leader >= 0 and ready:
            self.quorum.join(self.random.choice(ready))

    def shrink(self) -> None:
        leader = self.partition.leader
        if leader >= 0:
            stay = [r for r in self.partition.isr if r == leader or self.random.random() < 0.5]
            self.quorum.alter(leader, {r: self.quorum.epochs[r] for r in stay})

    def fence(self) -> None:
        self.now += SESSION
        self.quorum.fence(self.random.choice(ALL), self.now)

    def heartbeat(self) -> None:
        self.quorum.heartbeat(self.random.choice(ALL), self.now)

    def restart(self) -> None:
        broker, clean = self.random.choice(ALL), self.random.random() < 0.5
        self.now += SESSION
        self.quorum.fence(broker, self.now)
        if not clean:
            del self.logs[broker][self.random.randint(0, len(self.logs[broker])) :]
        self.fetched.pop(broker, None)
        self.quorum.comes_back(broker, self.now, clean)

    def failover(self) -> None:
        """The next controller knows the metadata log and nothing else: sessions and answers are forgotten."""
        settings = self.quorum.controller._term.config
        self.quorum.controller = Controller(self.quorum.image.copy(), settings, "test", Random(0), self.now - 60)

    def reassign(self) -> None:
        target = tuple(self.random.sample(ALL, self.random.randint(1, 4)))
        reassign(self.quorum, target if self.random.random() < 0.7 else None)

    def recover(self) -> None:
        before, recovery, brokers = self.partition, self.quorum.controller.unclean_recovery, self.quorum.image.brokers
        if self.random.random() < 0.2:
            recovery.request(before)
        recovery.look()
        for broker, question in recovery.questions(self.now).items():
            log = self.logs[broker]
            info = LogInfo(self.quorum.epochs[broker], before.leader_epoch, log[-1][0] if log else -1, len(log))
            recovery.hear(broker, question, dict.fromkeys(question, info))
        for each in self.quorum.controller.recover(self.now + self.random.choice((0, 60))):
            self.quorum.do(Step([each.record]))
            reported = (
                before.last_known_elr
                if each.strategy == rules.BALANCED
                else [r for r in each.logs if brokers[r].active]
            )
            if not self.is_complete(each.leader):
                assert not any(map(self.is_complete, reported)), "recovery passes over who has lost nothing"
                del self.committed[_common(self.committed, self.logs[each.leader]) :]


def _common(one: Log, other: Log) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_candidates_are_complete_and_recovery_finds_who_is() -> None:
    for seed in range(400):
        History(seed).run()


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("may_drop_replicas", lambda *_: True),
        ("last_known_eligible", lambda *_: ()),
        ("is_unclean", lambda *_: False),
        ("needs_elr", lambda isr_size, min_isr, elr_enabled: elr_enabled),
    ],
)
def test_without_the_rule_they_are_not(rule: str, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, rule, broken)
    with pytest.raises(AssertionError):
        test_candidates_are_complete_and_recovery_finds_who_is()
