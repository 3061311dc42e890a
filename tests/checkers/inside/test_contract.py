"""The contract per partition and moment, against a naive look at every moment, and on what nodes of real runs told."""

from __future__ import annotations

import itertools
import json
from random import Random
from typing import Any

import pytest

from checkers.inside.contract import Out, check_promise, contract, sweep, weigh_losses
from checkers.inside.metadata.memberships import Memberships, Registration, Step
from checkers.inside.nodes import judge
from checkers.inside.promise import promise
from tests.checkers.histories.node_histories import simulated
from tests.checkers.histories.random_histories import HISTORIES

PLAN = {"acks": "all", "min_insync_replicas": 2}
PLACES = (("a", 0), ("a", 1), ("b", 0))


def cut(fault: int, start: int, end: int | None, evidence: dict[str, Any], **more: Any) -> dict[str, Any]:
    whole = {"nodes": evidence, **more}
    return {"fault": fault, "start": start, "end": end, "targets": list(evidence), "evidence": whole}


def lost(records: int = 10, **by_partition: int) -> dict[str, Any]:
    named = {name.replace("_", "-"): count for name, count in by_partition.items()}
    return {"unsynced_bytes": 10 * records, "unsynced_records": records, "lost_by_partition": named}


class World:
    """Partitions on random brokers: cuts, registrations, ISR changes, changes of MinISR, one moment each."""

    def __init__(self, random: Random) -> None:
        brokers = range(1, random.randint(2, 4) + 1)
        self.ids = {f"broker-{number}": number for number in brokers}
        self.now = self.offset = 0
        self.replicas = {place: random.sample(list(brokers), random.randint(1, len(brokers))) for place in PLACES}
        self.isr = {place: set(replicas) for place, replicas in self.replicas.items()}
        self.min_isr = dict.fromkeys(PLACES, 2)
        self.steps: dict[Any, list[Step]] = {place: [] for place in PLACES}
        self.registrations: list[Registration] = []
        self.faults: list[dict[str, Any]] = []
        # The naive truth, kept moment by moment: who is out of each partition, and what may be relied on.
        self.out: dict[Any, set[int]] = {place: set() for place in PLACES}
        self.registered: dict[Any, set[int]] = {place: set() for place in PLACES}
        self.least = {place: min(2, len(replicas)) for place, replicas in self.replicas.items()}
        self.seen: dict[Any, list[tuple[int, frozenset[int], int]]] = {place: [] for place in PLACES}
        for place in PLACES:
            self.state(place)
        for _ in range(random.randint(1, 14)):
            self.now += random.randint(1, 3) * 1_000_000
            random.choice((self.strike, self.strike, self.register, self.join, self.join, self.configure, self.move))(
                random
            )
            for place in PLACES:
                self.seen[place].append((self.now, frozenset(self.out[place]), self.least[place] - 1))

    def state(self, place: Any) -> None:
        self.offset += 1
        isr = tuple(sorted(self.isr[place]))
        least = min(self.min_isr[place], len(self.replicas[place]))
        self.steps[place].append(
            Step(self.now, self.offset, tuple(self.replicas[place]), isr, isr[0] if isr else -1, least)
        )
        if least <= self.least[place] or len(isr) >= least:
            self.least[place] = least

    def strike(self, random: Random) -> None:
        struck = random.sample(sorted(self.ids), random.randint(1, len(self.ids)))
        evidence = {}
        for name in struck:
            loses = {place for place in PLACES if random.random() < 0.6}
            evidence[name] = lost(**{f"{topic}_{index}": 1 for topic, index in loses})
            for place in PLACES:
                # A broker that was coming back has lost its power again: it needs another registration.
                self.registered[place].discard(self.ids[name])
                if place in loses and self.ids[name] in self.replicas[place]:
                    self.out[place].add(self.ids[name])
        self.faults.append(cut(len(self.faults), self.now, self.now, evidence))

    def register(self, random: Random) -> None:
        broker = random.choice(list(self.ids.values()))
        self.offset += 1
        self.registrations.append(Registration(self.now, self.offset, broker))
        for place in PLACES:
            self.registered[place].add(broker)
            if broker in self.isr[place]:
                self.isr[place].discard(broker)
                self.state(place)

    def join(self, random: Random) -> None:
        place = random.choice(PLACES)
        ready = [r for r in self.replicas[place] if r not in self.out[place] or r in self.registered[place]]
        for broker in ready[:1]:
            self.isr[place].add(broker)
            self.state(place)
        for broker in list(self.out[place]):
            if broker in self.registered[place] and broker in self.isr[place]:
                self.out[place].discard(broker)

    def configure(self, random: Random) -> None:
        place = random.choice(PLACES)
        self.min_isr[place] = random.randint(1, 3)
        self.state(place)
        self.out[place] -= {b for b in self.out[place] if b in self.registered[place] and b in self.isr[place]}

    def move(self, random: Random) -> None:
        place = random.choice(PLACES)
        self.replicas[place] = random.sample(list(self.ids.values()), len(self.replicas[place]))
        self.isr[place] &= set(self.replicas[place])
        self.out[place] &= set(self.replicas[place])
        self.state(place)
        self.out[place] -= {b for b in self.out[place] if b in self.registered[place] and b in self.isr[place]}

    def judged(self) -> dict[str, Any]:
        held = Memberships(self.steps, self.registrations, self.ids)
        return contract(PLAN, self.faults, Memberships.of_json(json.loads(json.dumps(held.as_json()))), 0)


def test_every_moment_of_random_histories_is_as_a_naive_look_at_it() -> None:
    beyond = 0
    for seed in range(HISTORIES):
        world = World(Random(seed))
        result = world.judged()
        for place in PLACES:
            name = f"{place[0]}-{place[1]}"
            exceeded = [entry for entry in world.seen[place] if len(entry[1]) > entry[2]]
            of = result["partitions"][name]
            assert of["within"] == (not exceeded), (seed, name)
            # Furthest beyond first; where that is equal, the most brokers.
            naive = max(((len(out) - limit, len(out)) for _, out, limit in world.seen[place] if out), default=(0, 0))
            assert of["worst"] == naive[1] and (not of["worst"] or of["worst"] - of["limit"] == naive[0]), (seed, name)
            intervals = [m for m in result["moments"] if m["partition"] == name]
            for time, out, limit in world.seen[place]:
                inside = [
                    m for m in intervals
                    if round(m["at_s"] * 1e9) <= time and (m["until_s"] is None or time < round(m["until_s"] * 1e9))
                ]  # fmt: skip
                assert bool(inside) == (len(out) > limit), (seed, name, time)
        assert result["within"] == all(of["within"] for of in result["partitions"].values())
        beyond += not result["within"]
    assert HISTORIES / 10 < beyond < HISTORIES * 0.95


def test_two_losses_at_a_time_of_partitions_that_share_no_broker_are_within() -> None:
    steps = {("a", 0): [Step(0, 1, (1, 2), (1, 2), 1, 2)], ("a", 1): [Step(0, 2, (3, 4), (3, 4), 3, 2)]}
    held = Memberships(steps, (), {f"broker-{n}": n for n in range(1, 5)})
    both = {"broker-1": lost(), "broker-3": lost()}
    for own in both.values():
        del own["lost_by_partition"]
    result = contract(PLAN, [cut(0, 10, 20, both)], held)
    assert (result["within"], result["worst"], result["isr_by"]) == (True, 1, "metadata log")
    assert contract(PLAN, [cut(0, 10, 20, both)])["within"] is False, "nothing tells who holds what"


def test_what_a_broker_lost_of_one_partition_does_not_count_against_another() -> None:
    evidence = {"broker-1": lost(a_0=5), "broker-2": lost(a_1=5), "broker-3": lost(a_1=2)}
    result = contract(PLAN, [cut(7, 10, 20, evidence, in_sync_at=40_000_000_010)], origin=10)
    assert {name: of["worst"] for name, of in result["partitions"].items()} == {"a-0": 1, "a-1": 2}
    assert (result["within"], result["worst"], result["limit"], result["isr_by"]) == (False, 2, 1, "harness")
    assert result["moments"] == [
        {
            "partition": "a-1",
            "at_s": 0.0,
            "until_s": 40.0,
            "brokers": ["broker-2", "broker-3"],
            "limit": 1,
            "faults": [7],
        }
    ]
    assert "(broker-2, broker-3) had lost unsynced data of a-1" in result["explanation"]
    assert "1 of 2 partitions were beyond" in result["explanation"]


def test_a_registration_alone_brings_nobody_back() -> None:
    steps = [Step(0, 1, (1, 2, 3), (1, 2, 3), 1, 2), Step(30, 5, (1, 2, 3), (2, 3), 2, 2)]
    held = Memberships({("a", 0): steps}, [Registration(29, 4, 1)], {"broker-1": 1, "broker-2": 2})
    first, second = cut(0, 10, 20, {"broker-1": lost(a_0=1)}), cut(1, 50, 60, {"broker-2": lost(a_0=1)})
    assert contract(PLAN, [first, second], held)["worst"] == 2
    back = [*steps, Step(49, 6, (1, 2, 3), (1, 2, 3), 2, 2)]
    held = Memberships({("a", 0): back}, held.registrations, held.ids)
    assert contract(PLAN, [first, second], held)["worst"] == 1


def test_membership_of_before_its_new_registration_is_not_being_back() -> None:
    """The controller does not know yet that it lost its power."""
    steps = [Step(0, 1, (1, 2, 3), (1, 2, 3), 1, 2), Step(20, 2, (1, 2, 3), (1, 2), 1, 2)]
    held = Memberships({("a", 0): steps}, [], {"broker-1": 1})
    (moment,) = contract(PLAN | {"min_insync_replicas": 1}, [cut(0, 10, 15, {"broker-1": lost(a_0=1)})], held)[
        "partitions"
    ].values()
    assert moment["until_s"] is None


def test_raising_min_insync_replicas_helps_only_once_that_many_are_in_sync() -> None:
    low = Step(0, 1, (1, 2, 3), (1,), 1, 1)
    raised = Step(5, 2, (1, 2, 3), (1,), 1, 2)
    enough = Step(8, 3, (1, 2, 3), (1, 2), 1, 2)
    fault = cut(0, 10, 20, {"broker-1": lost(a_0=1)})
    for steps, within in (([low, raised], False), ([low, raised, enough], True)):
        assert contract(PLAN, [fault], Memberships({("a", 0): steps}, [], {"broker-1": 1}))["within"] is within


@pytest.mark.parametrize(
    ("plan", "promised", "said"),
    [
        ({}, True, "no broker lost"),
        ({"acks": "1"}, False, "acks=1"),
        ({"settings": {"unclean.recovery.strategy": "aggressive"}}, False, "strategy=aggressive"),
        ({"settings": {"eligible.leader.replicas.version": "0"}}, False, "without ELR"),
    ],
)
def test_settings_that_the_contract_does_not_cover(plan: dict[str, Any], promised: bool, said: str) -> None:
    result = contract(PLAN | plan, [])
    assert result["promised"] is promised and said in result["explanation"]
    assert weigh_losses(result, ["a-0"]) == ("; the faults stayed within the contract, so this is a bug" * promised)


def test_losses_are_weighed_where_they_are() -> None:
    evidence = {"broker-1": lost(a_0=5), "broker-2": lost(a_0=5), "broker-3": lost(a_1=2)}
    result = contract(PLAN, [cut(0, 10, 20, evidence)])
    assert weigh_losses(result, ["a-0"]) == "; beyond the contract"
    assert weigh_losses(result, ["a-1"]).endswith("within the contract there, so this is a bug")
    assert "within the contract on a-1, so that is a bug" in weigh_losses(result, ["a-0", "a-1"])


def test_intervals_of_one_broker_do_not_add_up() -> None:
    outs = [Out("broker-1", 0, 10, 0, True), Out("broker-1", 5, 20, 1, True), Out("broker-2", 20, 30, 2, True)]
    of = sweep(outs, [(0, 1)])
    assert (of.worst, of.within) == (1, True)


@pytest.mark.parametrize("nemesis", ["power-outage", "power-outage-cluster"])
def test_metadata_of_a_real_run_tells_when_brokers_were_back(nemesis: str) -> None:
    history = simulated((nemesis,), 8)
    faults = history.faults
    of_nodes = judge("r", history.tables(), history.options)
    held = of_nodes.who_held_what
    assert held is not None and set(held.steps) == {("chaos", 0), ("chaos", 1)} and not held.trimmed
    assert set(held.ids) >= {"broker-1", "broker-2", "broker-3"}
    assert all(a.time <= b.time for steps in held.steps.values() for a, b in itertools.pairwise(steps))
    assert len(held.registrations) > 3
    result = contract(PLAN, faults, held)
    assert result["isr_by"] == "metadata log"
    assert result["within"] is (nemesis == "power-outage")
    # The harness looks now and then at all partitions; the metadata tells of each, so it is never later.
    by_harness = contract(PLAN, faults)
    assert result["worst"] <= by_harness["worst"] and by_harness["isr_by"] == "harness"


@pytest.mark.parametrize(
    "found", ["all", {}, {**promise({}), "lossy_shutdowns": "1"}, {**promise({}), "exceptions": None}]
)
def test_a_promise_that_no_target_makes_is_not_believed(found: Any) -> None:
    with pytest.raises(ValueError, match="not what a target promises"):
        check_promise(found)


def test_a_run_is_held_to_what_its_target_promises() -> None:
    of = contract({**PLAN, "promise": {**promise({}), "sentence": "Nothing", "lossy_shutdowns": 0, "bound": ""}}, [])
    assert of["limit"] == 0 and of["promise"]["sentence"] == "Nothing" and of["promised"]
    check_promise(None)
