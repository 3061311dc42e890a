"""Nemeses that cannot work in a cluster are refused before it starts, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import BadArguments
from harness.plan import registry
from harness.plan.feasible import check_targets
from harness.plan.plan import Plan


def every_nemesis() -> list[str]:
    names = []
    for family in registry.names(registry.NEMESES):
        kind = registry.load(registry.NEMESES, family)
        names += [family, *(f"{family}:{variant}" for variant in getattr(kind, "variants", {}))]
    return names


@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("targets", ["random", "leaders"])
def test_every_nemesis_finds_somebody_in_a_cluster_of_the_default_size(combined: bool, targets: Any) -> None:
    shape: dict[str, Any] = {"run": "r", "strike": targets, "combined": combined}
    plan = Plan(**shape)
    others = {  # than of the target kraft
        "membership:upgrade": Plan(**shape, target="kafka:3.9.1", upgrade_to="4.2.0", nemesis=("membership:upgrade",)),
        **{
            f"membership:{variant}": Plan(**shape, brokers=4, spare_brokers=1)
            for variant in ("add", "remove", "rebalance")
        },
        "choreography:reassigned-while-frozen": Plan(**shape, brokers=4),
        "membership:controller": Plan(**shape, target="kafka:4.2.0", settings={"chaos.quorum": "dynamic"}),
    }
    for name in every_nemesis():
        if combined and name in ("membership:new-id", "disk:replaced", "disk:restored"):
            continue  # voters have their ids for good, and must not forget their votes
        check_targets(registry.make_nemeses([name]), others.get(name, plan))


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("membership:reassign:how=move", {}, "every broker has a replica of every partition"),
        ("membership:reassign:how=shrink", {"min_insync_replicas": 3}, "less than min.insync.replicas"),
        ("choreography:text=kill leader; reassign follower", {}, "`reassign` needs one that has none"),
        ("choreography:reassigned-while-frozen", {"spare_brokers": 1}, "give more --brokers"),
        ("membership:upgrade", {}, "there is one release of it"),
        ("membership:controller:who=active", {}, "the voters of its quorum are those of controller.quorum.voters"),
        ("membership:upgrade", {"target": "kafka:3.9.1"}, "say which by --upgrade-to"),
        ("membership:new-id", {"combined": True}, "it finds nobody to strike"),
        ("membership:new-id", {"min_insync_replicas": 3}, "less than min.insync.replicas"),
        ("kill:minority", {"brokers": 2, "controllers": 1, "replication_factor": 2}, "it finds nobody to strike"),
        ("partition:followers", {"brokers": 1, "controllers": 1, "replication_factor": 1, "min_insync_replicas": 1},
         "it finds nobody to strike"),
        ("last-replica-standing",
         {"brokers": 1, "controllers": 1, "replication_factor": 1, "min_insync_replicas": 1},
         "(its part partition:followers) cannot work in a cluster of 1 brokers and 1 controllers"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(name: str, shape: dict[str, Any], why: str) -> None:
    with pytest.raises(BadArguments, match=r"cannot work in a cluster of") as refused:
        check_targets(registry.make_nemeses([name]), Plan(run="r", **shape))
    assert why in str(refused.value), refused.value


def test_a_spare_broker_is_enough_to_move_to() -> None:
    for name in ("membership:reassign:how=move", "choreography:reassigned-while-frozen"):
        check_targets(registry.make_nemeses([name]), Plan(run="r", brokers=4))


def test_brokers_and_controllers_are_dealt_out_to_racks() -> None:
    def racks(target: str, **changes: Any) -> list[str]:
        plan = Plan(run="r", target=target, brokers=4, controllers=3, spare_brokers=1, **changes)
        return [node.rack.removeprefix("rack-") for node in registry.make_target(target).nodes(plan)]

    for target in ("kraft", "v2"):
        assert racks(target) == ["1", "2", "3", "4", "5", "1", "2", "3"]
        assert racks(target, racks=2) == ["1", "2", "1", "2", "1", "1", "2", "1"]
    with pytest.raises(ValueError, match="--racks is 5; valid is 1 to 4, the number of brokers"):
        Plan(run="r", brokers=4, racks=5)
