"""membership:controller: who is removed from the voters of the metadata quorum, and how it is added again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from harness.cluster import Cluster, Evidence, NotAvailable
from harness.errors import BadArguments
from harness.plan import registry
from harness.plan.feasible import check_targets
from harness.plan.plan import Plan, make_plan
from harness.targets.admin import Quorum
from nemesis import Situation, merge
from nemesis.membership.controller import ControllerChange
from nemesis.membership.restoration import NotRestored

ADDRESS = ("controller", 9093)


class FakeAdmin:
    """As harness.targets.admin.Admin, as far as the voters go: an addition is refused until the node has caught up."""

    def __init__(self) -> None:
        self.voters = {101: "a", 102: "b", 103: "c"}
        self.observers: dict[int, str] = {}
        self.behind = 3
        self.refusal = ""
        self.added: list[tuple[int, str, tuple[str, int]]] = []

    async def quorum(self) -> Quorum:
        return Quorum(101, dict(self.voters), dict(self.observers))

    async def remove_voter(self, node_id: int, directory: str) -> str:
        assert self.voters[node_id] == directory
        if self.refusal in ("", "VOTER_NOT_FOUND"):
            self.observers[node_id] = self.voters.pop(node_id)
        return self.refusal

    async def add_voter(self, node_id: int, directory: str, address: tuple[str, int]) -> str:
        self.added.append((node_id, directory, address))
        if self.behind:
            self.behind -= 1
            return "REQUEST_TIMED_OUT"
        self.voters[node_id] = self.observers.pop(node_id)
        return ""


class Bench:
    def __init__(self) -> None:
        self.controllers = [
            SimpleNamespace(name=f"controller-{n}", id=100 + n, quorum_address=ADDRESS) for n in (1, 2, 3)
        ]
        self.admin = FakeAdmin()
        fake = SimpleNamespace(
            controllers=self.controllers, nodes=self.controllers, machines=self.controllers, admin=self.admin
        )
        self.cluster = cast(Cluster, fake)

    def chosen(self, who: str, *held: str) -> list[str]:
        free = frozenset(node.name for node in self.controllers) - {*held}
        situation = Situation(self.cluster, free=free, active_controller=101)
        return [node.name for node in ControllerChange().choose({"who": who, "node": 0.0}, situation)]

    def struck(self, node_id: int) -> Evidence:
        nemesis, node = ControllerChange(), self.controllers[node_id - 101]

        async def both() -> Evidence:
            injected = await nemesis.inject(self.cluster, [node], {})
            return merge(injected, await nemesis.heal(self.cluster, [node]))

        return asyncio.run(both())


def test_it_strikes_the_active_controller_or_another() -> None:
    bench = Bench()
    assert bench.chosen("active") == ["controller-1"] and bench.chosen("active", "controller-1") == []
    assert bench.chosen("other") == ["controller-2"] and bench.chosen("other", "controller-2") == ["controller-3"]


def test_a_voter_is_removed_and_added_again_once_it_has_caught_up() -> None:
    bench = Bench()
    seen = bench.struck(102)
    assert seen["voters"] == {"before": [101, 102, 103], "while": [101, 103], "healed": [101, 102, 103]}
    assert not seen["was_active"] and ControllerChange().effective(seen)
    assert bench.admin.added == [(102, "b", ADDRESS)] * 4 and bench.admin.voters[102] == "b"


def test_a_removal_that_was_asked_for_twice_and_refused_the_second_time_took_effect() -> None:
    bench = Bench()
    bench.admin.refusal = "VOTER_NOT_FOUND"
    seen = bench.struck(102)
    assert ControllerChange().effective(seen) and "refused" not in seen


def test_what_the_quorum_refuses_had_no_effect_and_nothing_is_to_be_added() -> None:
    bench = Bench()
    bench.admin.refusal = "UNSUPPORTED_VERSION"
    seen = bench.struck(101)
    assert seen["refused"] == ["UNSUPPORTED_VERSION"] and seen["was_active"] and bench.admin.added == []
    assert not ControllerChange().effective(seen)


def test_one_that_is_no_voter_cannot_be_removed() -> None:
    bench = Bench()
    del bench.admin.voters[103]
    with pytest.raises(NotAvailable, match="controller-3 is no voter of the metadata quorum"):
        bench.struck(103)


def test_one_that_does_not_come_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemesis.membership.controller.ADD_PATIENCE_S", 0.3)
    bench = Bench()
    del bench.admin.voters[102]
    with pytest.raises(NotRestored, match=r"controller-2 is no voter again after 0\.3 s"):
        asyncio.run(ControllerChange().heal(bench.cluster, bench.controllers[1:2]))


def refusal(target: str, nemesis: str, **fields: object) -> str:
    try:
        plan: Plan = make_plan(run="r", target=target, nemesis=[nemesis], **fields)
        check_targets(registry.make_nemeses(plan.nemesis), plan)
    except BadArguments as error:
        return str(error)
    return ""


def test_where_voters_cannot_change_it_is_refused_before_the_start() -> None:
    dynamic = {"settings": {"chaos.quorum": "dynamic"}}
    assert refusal("kafka:4.2.0", "membership:controller", **dynamic) == ""
    assert "give --set chaos.quorum=dynamic too" in refusal("kafka:4.2.0", "membership:controller")
    assert "no dynamic quorum; 3.9 and later have" in refusal("kafka:3.8.1", "membership:controller", **dynamic)
    assert "no quorum without it" in refusal("kafka:4.2.0", "membership:controller", controllers=1, **dynamic)
    for nemesis in ("membership:controller", "membership:controller:who=active"):
        assert "the voters of its quorum are those of controller.quorum.voters" in refusal("kraft", nemesis)
