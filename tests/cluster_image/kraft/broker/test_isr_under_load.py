"""While clients write without a pause, followers that come back are in the ISR within a second of keeping up: with the
leader alone in the ISR, and with one follower farther away than the other. The invariants look; here are
the loads under which an ISR that waits for a calm moment never fills.

More seeds: ISR_SEEDS=200.
"""

from __future__ import annotations

import os
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest

from checkers.inside.kraft.simulated import Violated
from checkers.inside.kraft.simulated.liveness.expansion import LOOK_EVERY_S, Expansion
from cluster_image.kraft.broker import rules
from cluster_image.kraft.broker.leadership import FollowerState
from harness.explore.simulate import Simulated, simulate
from harness.plan.plan import Plan
from harness.plan.schedule import Fault

SEEDS: Final = int(os.environ.get("ISR_SEEDS", "3"))
TIME_LIMIT: Final = 16.0


def without_a_pause(seed: int, far: bool) -> Simulated:
    """A broker is killed, and comes back while another leads and is written to: of two, so that the leader is alone in
    the ISR, or of three, far away from the others."""
    random = Random(f"{seed}/{far}")
    brokers = 3 if far else 2
    plan = Plan(
        run=f"s{seed}", on="simulation", nemesis=("kill",), seed=seed, time_limit=TIME_LIMIT, rate=1500.0,
        concurrency=8, partitions=1, brokers=brokers, replication_factor=brokers, min_insync_replicas=1,
        latency_ms=random.choice([5.0, 10.0, 15.0]), settings={"replica.lag.time.max.ms": "1500"},
    )  # fmt: skip
    killed = f"broker-{random.randint(1, brokers)}"
    faults = [_fault(1, "kill", 4.0, random.uniform(2.0, 4.0), targets=[killed])]
    if far:
        shape = {"delay_ms": random.choice([20.0, 40.0, 80.0])}
        choice: dict[str, Any] = {"links": "node", "direction": "both", "clients": "without", "shape": shape}
        faults.insert(0, _fault(0, "network:delay", 2.0, TIME_LIMIT - 4.0, targets=[killed], **choice))
    return simulate(plan, tuple(faults))


def _fault(number: int, nemesis: str, at: float, duration: float, **choice: Any) -> Fault:
    return Fault(fault=number, nemesis=nemesis, at=at, duration=duration, choice={"node": 0.0, **choice})


@pytest.mark.parametrize("far", [False, True], ids=["one room", "one far away"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_keeps_up_is_in_the_isr_within_a_second(seed: int, far: bool) -> None:
    done = without_a_pause(seed, far)
    assert done.violation is None and not done.crash and not done.problems, (
        done.violation or done.crash or done.problems
    )


@pytest.mark.parametrize("far", [False, True], ids=["one room", "one far away"])
def test_without_the_rule_it_is_not(far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "waits_to_join_isr", lambda lags, eligible: False)
    violations = [without_a_pause(seed, far).violation for seed in range(3)]
    assert any(
        violation is not None and violation.property == "IsrExpands" and "has kept up" in violation.message
        for violation in violations
    )


class Outside:
    """A leader of one partition, and of follower 2, which is not in the ISR, what the leader knows."""

    def __init__(self) -> None:
        self.follower = FollowerState()
        self.joining: set[int] = set()
        self.brokers: dict[int, Any] = {}
        self._expansion = Expansion()
        self._now = 0.0
        partition = SimpleNamespace(
            isr=frozenset({1}), leader_epoch=0, config=_Lag(), high_watermark=5, log=SimpleNamespace(end_offset=5),
            leadership=SimpleNamespace(proposal=None, followers={2: self.follower}, joining=self.joining),
        )  # fmt: skip
        image = SimpleNamespace(brokers=self.brokers)
        self._nodes: Any = {"broker-1": SimpleNamespace(broker=SimpleNamespace(partitions={0: partition}, image=image))}

    def registered(self, epoch: int) -> None:
        self.brokers[2] = SimpleNamespace(active=True, epoch=epoch)

    def fetches(self, epoch: int) -> None:
        self.follower.fetched(epoch, 5, 5, self._now)

    def goes_on(self, seconds: float) -> None:
        until = self._now + seconds
        while self._now < until:
            self._now += LOOK_EVERY_S
            self._expansion.look(self._nodes, self._now)


class _Lag:
    def seconds(self, name: str) -> float:
        return 4.0


def test_who_fetches_and_is_not_proposed_is_seen() -> None:
    leader = Outside()
    leader.registered(88)
    with pytest.raises(Violated, match="broker 2 has kept up"):
        for _ in range(5):
            leader.fetches(88)
            leader.goes_on(0.4)


def test_who_has_fetched_once_since_a_link_was_mended_does_not_keep_up_yet() -> None:
    """What a follower sent before its link was cut arrives when that is mended, and it connects anew only later."""
    leader = Outside()
    leader.registered(88)
    leader.fetches(88)
    leader.goes_on(0.55)
    leader.fetches(88)
    leader.goes_on(2.0)


def test_what_was_before_a_restart_does_not_count() -> None:
    """The first fetch after it came before the leader heard of the new uptime session, and so proves nothing. Until the
    next one comes there is nothing to propose."""
    leader = Outside()
    leader.registered(88)
    leader.goes_on(0.4)
    leader.fetches(88)
    leader.goes_on(0.4)
    leader.fetches(105)
    leader.registered(105)
    leader.goes_on(2.0)


def test_who_may_not_join_and_is_waited_for_after_a_fetch_is_seen() -> None:
    """What it fetched before its leader heard of it counts for nothing, nor does a word that was taken back since."""
    leader = Outside()
    leader.registered(88)
    leader.joining.add(2)
    leader.fetches(88)
    leader.goes_on(0.3)
    leader.brokers[2] = SimpleNamespace(active=False, epoch=88)
    leader.goes_on(0.3)
    leader.brokers[2] = SimpleNamespace(active=True, epoch=88)
    leader.fetches(88)
    leader.brokers[2] = SimpleNamespace(active=False, epoch=88)
    leader.goes_on(0.3)
    leader.fetches(88)
    with pytest.raises(Violated, match=r"holds the high watermark of .* for broker 2, of which it has known"):
        leader.goes_on(0.1)
