"""What faults that resize or rebalance a cluster plan, and from what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkers import balance
from harness.report import words
from harness.targets.admin import Metadata
from nemesis.membership import Membership
from nemesis.membership.mover import Mover

from .test_nemesis_membership import ONE_OF, Bench


def test_what_is_not_seen_to_be_piled_up_is_not_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan would be made of replicas in their old order, which is the balanced one, and judged by the new."""

    async def scenario(bench: Bench) -> None:
        admin, nemesis = bench.admin, Membership.variants["rebalance"]()
        assert isinstance(nemesis, Mover)
        old = await admin.metadata()

        async def lagging() -> Metadata:
            return old

        monkeypatch.setattr(admin, "metadata", lagging)
        evidence = await nemesis.move(bench.cluster, bench.cluster.brokers[0], ONE_OF, old)
        assert evidence == {"piled_up_on": 1, "not_planned": "not all brokers show what there is in 3 s"}
        assert not nemesis.effective(evidence)
        told = words.sentence(words.evidence(evidence))
        assert "broker 1 first; nothing was planned: not all brokers show what there is in 3 s" in told

    Bench(brokers=4).run(scenario)


@pytest.mark.parametrize("first", [0, 1])
def test_a_rebalancing_is_planned_from_no_older_view_than_what_was_seen(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which broker is asked first changes from one time to the next, and one of two lags."""

    async def scenario(bench: Bench) -> None:
        admin, nemesis = bench.admin, Membership.variants["rebalance"]()
        assert isinstance(nemesis, Mover)
        old, metadata, reassign, asked = await admin.metadata(), admin.metadata, admin.reassign, [0]

        async def in_turn() -> Metadata:
            asked[0] += 1
            return await metadata() if asked[0] % 2 else old

        async def reassigned(targets: Any) -> Any:
            refused = await reassign(targets)
            if asked[0] == 0:
                asked[0] = first
                monkeypatch.setattr(admin, "metadata", in_turn)
            return refused

        monkeypatch.setattr(admin, "reassign", reassigned)
        evidence = await nemesis.move(bench.cluster, bench.cluster.brokers[0], ONE_OF, old)
        plan = evidence["rebalanced"]
        assert plan["load"]["before"]["1"]["leaders"] == len(old.partitions)
        assert all(plan["assignment"][move["partition"]] == move["from"] for move in plan["moves"]) and plan["moves"]

    Bench(brokers=4).run(scenario)


def test_a_rebalancing_is_planned_from_what_brokers_show_once_all_is_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that lags tells the replicas in their old order for another while, which is the balanced one."""

    async def scenario(bench: Bench) -> None:
        admin, nemesis = bench.admin, Membership.variants["rebalance"]()
        assert isinstance(nemesis, Mover)
        old, metadata, reassign, stale = await admin.metadata(), admin.metadata, admin.reassign, [0]

        async def lagging() -> Metadata:
            newest = await metadata()
            stale[0] -= 1
            return old if stale[0] >= 0 else newest

        async def reassigned(targets: Any) -> Any:
            refused = await reassign(targets)
            stale[0] = 2
            return refused

        monkeypatch.setattr(admin, "metadata", lagging)
        monkeypatch.setattr(admin, "reassign", reassigned)
        evidence = await nemesis.move(bench.cluster, bench.cluster.brokers[0], ONE_OF, old)
        fault = {"fault": 0, "nemesis": nemesis.name, "start": 0, "evidence": json.loads(json.dumps(evidence))}
        assert evidence["rebalanced"]["unfinished"] == 0
        assert evidence["rebalanced"]["load"]["before"]["1"]["leaders"] == len(old.partitions)
        assert balance.check("r", [fault], 0).rows == []

    Bench(brokers=4).run(scenario)
