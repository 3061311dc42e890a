"""Faults against a fake cluster, in virtual time: a minute of faults takes milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from harness.errors import HarnessFailure, HistoryLost
from harness.plan import schedule, schedule_file
from harness.plan.schedule import Fault
from harness.run.calm import Calm
from harness.run.injector import Injector
from harness.targets.timing import Timing
from nemesis import Nemesis
from nemesis.clock import ClockJump
from nemesis.disk import DiskError, DiskFull
from nemesis.kill import Kill
from nemesis.partition import Partition
from nemesis.pause import Pause
from nemesis.power import PowerOutage, PowerOutageCluster
from tests.harness.run.fakes import FakeCluster, FakeObserver, FaultLog

ALL = (PowerOutage, PowerOutageCluster, Kill, Pause, Partition, ClockJump, DiskFull, DiskError)


class _NoWaiting(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Instead of waiting for the next timer, make it be then."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def in_virtual_time(work: Coroutine[Any, Any, None]) -> float:
    """Run `work`; the virtual seconds that it took."""
    selector = _NoWaiting()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()
    return selector.now


class Bench:
    """One injector with everything around it. Times are virtual nanoseconds."""

    def __init__(self, *nemeses: Nemesis, seed: int = 1, time_limit: float = 60.0, targets: Any = "random") -> None:
        self.nemeses = {nemesis.name: nemesis for nemesis in nemeses}
        self.schedule = schedule.build(self.nemeses, seed, time_limit)
        self.time_limit = time_limit
        self.targets = targets
        self.cluster = FakeCluster(recovery_s=2.0)
        self.log = FaultLog()
        self.restart_the_dead: Any = None
        self.calm: Calm | None = None
        self.view_s = 0.0  # that it takes to learn what nodes say

    async def _run(self, stop_at: float | None) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        loop.call_later(self.time_limit if stop_at is None else stop_at, stop.set)
        self.injector = Injector(
            self.cluster, self.nemeses, self.schedule, strike=self.targets, time_limit=self.time_limit,
            observer=FakeObserver(self.cluster, takes_s=self.view_s), recorder=self.log, stop=stop,
            now_ns=lambda: int(loop.time() * 1e9),
            restart_the_dead=self.restart_the_dead, calm=self.calm,
        )  # type: ignore[arg-type]  # fmt: skip
        await self.injector.run()

    def run(self, stop_at: float | None = None) -> float:
        return in_virtual_time(self._run(stop_at))

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [self.log.rows[number] for number in sorted(self.log.rows)]


@pytest.mark.parametrize("seed", range(20))
def test_power_outages_come_one_rack_at_a_time_and_never_while_one_is_being_recovered_from(seed: int) -> None:
    bench = Bench(PowerOutage(), seed=seed)
    bench.run()
    assert len(bench.rows) >= 4
    for row in bench.rows:
        assert row["effective"] and not row["evidence"].get("deferred_s")
        assert {name.split("-")[1] for name in row["targets"]} == {row["targets"][0].split("-")[1]}
        assert {name.split("-")[0] for name in row["targets"]} == {"broker", "controller"}
        assert row["evidence"]["unsynced_records"] == 3 * len(row["targets"])
        assert 1.5e9 < row["end"] - row["start"] < 3.5e9
        assert row["end"] + 2e9 <= row["evidence"]["in_sync_at"] < row["end"] + 3e9
    for earlier, later in pairwise(bench.rows):
        assert earlier["evidence"]["in_sync_at"] < later["start"]
    assert all(sum("broker" in name for name in lost) <= 1 for lost in bench.cluster.lossy_cuts)


@pytest.mark.parametrize("into_outages", [False, True])
def test_clients_are_waited_for_unless_the_schedule_says_not_to(into_outages: bool) -> None:
    bench = Bench(Kill())
    bench.calm = Calm(Timing(start=6.0), lambda: {"t-0": (5.0, 0.1)})  # who are never served
    fault = Fault(fault=0, nemesis="kill", at=5.0, duration=2.0, choice=Kill().draw(Random(1)).choice)
    bench.schedule = (fault.model_copy(update={"into_outages": into_outages}),)
    bench.run()
    assert bench.rows[0]["effective"] is into_outages


def test_a_cut_waits_for_a_slow_recovery_and_says_for_how_long() -> None:
    bench = Bench(PowerOutage())
    bench.cluster.recovery_s = 14.0
    bench.run()
    second = bench.rows[1]
    assert second["evidence"]["deferred_s"] > 1
    assert second["start"] >= bench.rows[0]["evidence"]["in_sync_at"]


def test_a_cut_that_cannot_be_in_time_is_skipped_with_the_reason() -> None:
    bench = Bench(PowerOutage(), DiskError())
    bench.cluster.recovery_s = 1e6
    bench.run()
    cut, *later = [row for row in bench.rows if row["nemesis"] == "power-outage" or row["targets"] == []]
    assert cut["effective"]
    assert later and all(row["targets"] == [] and not row["effective"] for row in later)
    assert "is not in the ISR of partition" in later[0]["evidence"]["skipped"]


def test_a_replica_that_never_comes_back_ends_the_run_all_the_same() -> None:
    bench = Bench(PowerOutage())
    bench.cluster.recovery_s = 1e6
    assert bench.run() < 60 + 40
    first = bench.rows[0]["evidence"]
    assert "in_sync_at" not in first and "is not in the ISR" in first["not_in_sync"]


def test_power_outage_cluster_cuts_all_brokers_together() -> None:
    bench = Bench(PowerOutageCluster())
    bench.run()
    assert len(bench.rows) >= 3
    assert all(row["targets"] == ["broker-1", "broker-2", "broker-3"] for row in bench.rows)
    assert set(bench.cluster.lossy_cuts[2]) == {"broker-1", "broker-2", "broker-3"}


@pytest.mark.parametrize("seed", range(20))
def test_all_nemeses_together_never_fight_over_a_node_and_leave_the_cluster_whole(seed: int) -> None:
    bench = Bench(*(make() for make in ALL), seed=seed)
    bench.run()  # FakeNode and FakeCluster object to a node struck twice
    for row in bench.rows:
        assert not [key for key in row["evidence"] if key.endswith("_failed")]
        assert row["end"] is not None
        assert row["effective"] or "skipped" in row["evidence"]
    assert {row["nemesis"] for row in bench.rows if row["effective"]} >= {"kill", "pause", "partition"}
    assert all(node.state == "running" for node in bench.cluster.nodes) and not bench.cluster.blocked
    assert max(row["end"] for row in bench.rows if row["targets"]) <= 58.3e9


@pytest.mark.parametrize("seed", range(10))
def test_what_is_left_of_a_schedule_can_be_carried_out_in_any_order(seed: int) -> None:
    """As when it is shrunk: faults taken away, moved, shortened."""
    bench = Bench(*(make() for make in ALL), seed=seed)
    random = Random(seed)
    kept = random.sample(bench.schedule, len(bench.schedule) // 2)  # shuffled, too
    bench.schedule = tuple(
        fault.model_copy(update={"at": fault.at * random.uniform(0.2, 1), "duration": fault.duration / 3})
        for fault in kept
    )
    bench.run()
    planned = {fault.fault: fault for fault in bench.schedule}
    assert sorted(bench.log.rows) == sorted(planned), "each is on record under the number it always had"
    by_nemesis: dict[str, list[dict[str, Any]]] = {}
    for number, row in bench.log.rows.items():
        assert not [key for key in row["evidence"] if key.endswith("_failed")]
        assert row["effective"] or "skipped" in row["evidence"]
        if row["effective"]:
            assert row["start"] >= int(planned[number].at * 1e9)
            assert row["end"] - row["start"] == pytest.approx(planned[number].duration * 1e9, abs=1e7)
        by_nemesis.setdefault(row["nemesis"], []).append(row | {"at": planned[number].at})
    assert sum(row["effective"] for row in bench.rows) > len(bench.rows) / 2
    for rows in by_nemesis.values():
        in_order = sorted(rows, key=lambda row: row["at"])
        assert all(earlier["end"] <= later["start"] for earlier, later in pairwise(in_order))
    assert all(node.state == "running" for node in bench.cluster.nodes) and not bench.cluster.blocked


def test_a_fault_moved_to_where_it_cannot_be_healed_in_time_is_skipped_and_says_so() -> None:
    bench = Bench(Kill())
    first = bench.schedule[0]
    bench.schedule = (first.model_copy(update={"at": 57.5, "duration": 1.0}), first.model_copy(update={"fault": 9}))
    bench.run()
    assert "planned too late" in bench.log.rows[0]["evidence"]["skipped"]
    assert bench.log.rows[9]["effective"]


def test_a_fault_that_was_planned_in_time_strikes_though_the_harness_had_to_wait_for_what_nodes_say() -> None:
    bench = Bench(Kill())
    first = bench.schedule[0]
    bench.schedule = (first.model_copy(update={"at": 53.0, "duration": 5.0}),)
    bench.view_s = 1.5
    bench.run()
    assert bench.rows[0]["effective"]


def test_an_empty_schedule_is_done_at_once() -> None:
    bench = Bench(Kill())
    bench.schedule = ()
    assert bench.run() == 0 and not bench.rows


def test_leaders_are_killed_when_they_are_the_targets() -> None:
    bench = Bench(Kill(), targets="leaders")
    bench.run()
    assert len(bench.rows) >= 6
    assert all(row["targets"] == ["broker-2"] for row in bench.rows)


def test_partitions_come_in_every_variant() -> None:
    groups = set()
    for seed in range(10):
        bench = Bench(Partition(), seed=seed)
        bench.run()
        groups |= {tuple(row["evidence"]["groups"][0]) for row in bench.rows}
    assert ("broker-2",) in groups and ("controller-2",) in groups
    assert any(len(group) == 3 for group in groups)
    assert any(group not in {("broker-2",), ("controller-2",)} for group in groups if len(group) == 1)


def test_stop_heals_at_once_and_begins_nothing_more() -> None:
    bench = Bench(Pause())
    first = bench.schedule[0]
    bench.run(stop_at=first.at + 0.1)
    (row,) = bench.rows
    assert row["end"] == pytest.approx((first.at + 0.1) * 1e9, abs=2e8)
    assert row["evidence"]["frozen_ns"] == 5


class Unhealable(Kill):
    """Fails to heal so often."""

    name = "kill"
    failures = 2

    async def heal(self, cluster: Any, nodes: Any) -> Any:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("no way to start it")
        return await super().heal(cluster, nodes)


def test_what_fails_to_heal_is_tried_again() -> None:
    bench = Bench(Unhealable())
    bench.run()
    assert all(row["end"] is not None and "heal_failed" not in row["evidence"] for row in bench.rows)
    assert all(node.state == "running" for node in bench.cluster.nodes)


def test_what_cannot_be_healed_stays_in_force_and_keeps_its_node() -> None:
    nemesis = Unhealable()
    nemesis.failures = 3
    bench = Bench(nemesis)
    bench.run()
    first, *others = bench.rows
    assert first["end"] is None and first["evidence"]["heal_failed"] == "OSError: no way to start it"
    assert others and all(first["targets"] != row["targets"] for row in others)
    asyncio.run(bench.injector.heal_all())
    assert bench.log.rows[0]["end"] is not None and "heal_failed" not in bench.log.rows[0]["evidence"]
    assert not bench.injector.in_force


def test_a_healing_that_hangs_keeps_no_other_fault_in_force() -> None:
    nemesis = Unhealable()
    nemesis.failures = 1000
    bench = Bench(nemesis)
    bench.run()
    last = bench.injector.in_force[-1]
    nemesis.failures = 0
    heal = nemesis.heal

    async def hang(cluster: Any, nodes: Any) -> Any:
        if [node.name for node in nodes] == last.targets:
            await asyncio.Event().wait()  # a host that is just being rebooted, say
        return await heal(cluster, nodes)

    nemesis.heal = hang  # type: ignore[method-assign]
    whose = f"{last.nemesis} on {last.targets[0]}: it did not end within 90 s"

    async def heal_all() -> None:
        with pytest.raises(HarnessFailure, match=f"^{whose}$"):
            await bench.injector.heal_all()

    in_virtual_time(heal_all())
    assert bench.injector.in_force == [last]
    assert bench.log.rows[last.fault]["evidence"]["heal_failed"] == "it did not end within 90 s"


def test_every_fault_is_healed_though_nothing_can_be_recorded_any_more() -> None:
    nemesis = Unhealable()
    nemesis.failures = 1000
    bench = Bench(nemesis)
    bench.run()
    assert len(bench.injector.in_force) > 1
    nemesis.failures = 0

    def full(*_: Any, **__: Any) -> None:
        raise HistoryLost("the history cannot be written to results/r/journal: no space left")

    bench.log.record_fault = full  # type: ignore[method-assign]
    asyncio.run(bench.injector.heal_all())
    assert not bench.injector.in_force and all(node.state == "running" for node in bench.cluster.nodes)


def test_a_nemesis_that_cannot_tell_whom_to_strike_costs_its_own_faults_only() -> None:
    class Lost(Pause):
        name = "lost"

        def choose(self, choice: Any, situation: Any) -> Any:
            raise KeyError("variant")

    bench = Bench(Lost(), Kill())
    bench.run()
    lost = [row for row in bench.rows if row["nemesis"] == "lost"]
    reasons = {row["evidence"]["skipped"] for row in lost}
    assert reasons == {"whom it strikes cannot be told: KeyError: 'variant'"}
    assert any(row["effective"] for row in bench.rows)


def test_a_nemesis_that_has_done_what_it_is_for_has_no_more_faults_and_skips_none() -> None:
    class Twice(Pause):
        name = "twice"

        def finished(self, situation: Any) -> bool:
            return sum(situation.struck.values()) >= 2

    bench = Bench(Twice(), Kill())
    bench.run()
    assert len([fault for fault in bench.schedule if fault.nemesis == "twice"]) > 2
    rows = [row for row in bench.rows if row["nemesis"] == "twice"]
    assert len(rows) == 2 and all(row["effective"] and row["end"] for row in rows)
    assert len([row for row in bench.rows if row["nemesis"] == "kill"]) > 2, "the others go on"


def test_why_the_schedule_ended_can_be_read() -> None:
    class Broken(Pause):
        def effective(self, evidence: Any) -> bool:
            raise TypeError("evidence of another kind")

    with pytest.raises(TypeError, match="evidence of another kind"):
        Bench(Broken()).run()


def test_nodes_that_ended_by_themselves_are_started_before_what_needs_the_cluster_is_healed() -> None:
    class Asking(Pause):
        heals_last = True

        async def heal(self, cluster: Any, nodes: Any) -> Any:
            order.append("heal")
            return await super().heal(cluster, nodes)

    async def restart() -> None:
        order.append("restart")

    order: list[str] = []
    bench = Bench(Asking())
    bench.restart_the_dead = restart
    bench.run(stop_at=bench.schedule[0].at + 0.1)
    assert order == ["restart", "heal"]


def test_at_the_end_faults_are_healed_in_reverse_order_and_what_needs_the_cluster_last() -> None:
    healed = []

    def kind(name: str, last: bool) -> Nemesis:
        class Kind(Partition):
            heals_last = last

            async def heal(self, cluster: Any, nodes: Any) -> Any:
                await asyncio.sleep(0.1)
                healed.append(name)
                return {}

        Kind.name = name
        return Kind()

    bench = Bench(kind("a", True), kind("b", False), kind("c", True), kind("d", False))
    bench.schedule = tuple(
        Fault(fault=number, nemesis=name, at=1.0 + number, duration=50.0, choice=bench.schedule[0].choice)
        for number, name in enumerate("abcd")
    )
    for nemesis in bench.nemeses.values():
        type(nemesis).exclusive = False
    bench.run(stop_at=10)
    assert healed == ["d", "b", "c", "a"]


def test_a_fault_that_fails_is_on_record_as_without_effect_and_is_healed() -> None:
    bench = Bench(PowerOutage())
    bench.cluster.fail_cuts = True
    bench.run()
    assert all(row["evidence"]["inject_failed"] == "OSError: the agent is gone" for row in bench.rows)
    assert all(row["end"] is not None and not row["effective"] for row in bench.rows)


def test_a_fault_is_on_record_from_the_moment_it_strikes() -> None:
    bench = Bench(Pause())
    seen = []

    class Watch(FaultLog):
        def record_fault(self, fault: int, *args: Any, **kwargs: Any) -> None:
            super().record_fault(fault, *args, **kwargs)
            seen.append((fault, self.rows[fault]["end"]))

    bench.log = Watch()
    bench.run()
    assert seen[0] == (0, None)


def test_a_partition_without_dropped_packets_had_no_effect() -> None:
    assert not Partition().effective({"packets_dropped": 0})
    assert not PowerOutage().effective({"unsynced_bytes": 0, "nodes": {"broker-1": {"exit_status": 137}}})
    assert not Kill().effective({"nodes": {"broker-1": {}}})
    assert not Pause().effective({"nodes": {}})


@pytest.mark.parametrize("time_limit", [2.0, 5.0, 10.0, 60.0, 600.0])
@pytest.mark.parametrize("make", ALL)
def test_every_fault_is_over_before_the_time_limit(make: type[Any], time_limit: float) -> None:
    for seed in range(50):
        faults = schedule.build({"x": make()}, seed, time_limit)
        assert all(fault.at > 0 and fault.at + fault.duration <= time_limit - 2.0 for fault in faults)
        assert all(a.at + a.duration < b.at for a, b in pairwise(faults))
        if make is PowerOutage and time_limit == 60.0:
            assert len(faults) >= 4 and 4.0 < faults[0].at < 6.5


def test_the_schedule_follows_from_the_seed_alone_and_streams_do_not_touch(tmp_path: Any) -> None:
    nemeses: dict[str, Nemesis] = {"pause": Pause(), "partition": Partition()}
    both = schedule.build(nemeses, 7, 60.0)
    assert both == schedule.build(nemeses, 7, 60.0) != schedule.build(nemeses, 8, 60.0)
    alone = schedule.build({"pause": Pause()}, 7, 60.0)
    assert [f.model_copy(update={"fault": 0}) for f in both if f.nemesis == "pause"] == [
        f.model_copy(update={"fault": 0}) for f in alone
    ]
    longer = schedule.build({"pause": Pause()}, 7, 600.0)
    assert longer[: len(alone)] == alone
    schedule_file.save(both, tmp_path)
    assert schedule_file.load(tmp_path) == both
    assert all(isinstance(fault, Fault) for fault in both)


class Unfolding(Kill):
    """A step a second: `steps` of them, of which one may fail."""

    name = "kill"

    def __init__(self, steps: int, fails_at: int = -1) -> None:
        self.steps_, self.fails_at = steps, fails_at

    async def unfold(self, cluster: Any, nodes: Any, choice: Any) -> Any:
        for step in range(self.steps_):
            if step == self.fails_at:
                raise OSError("the agent is gone")
            killed = {} if step else {"nodes": {nodes[0].name: await nodes[0].kill()}}
            yield {"steps": list(range(step + 1)), **killed}
            await asyncio.sleep(1.0)
            yield {}


@pytest.mark.parametrize(
    ("steps", "duration", "stop_at", "taken", "lasted"),
    [(3, 20.0, None, 3, 3.0), (30, 4.5, None, 5, 5.0), (30, 40.0, 8.0, 3, 3.0)],
    ids=["to its last step", "as long as it may last", "to the end of the run"],
)
def test_a_fault_of_several_steps_is_healed_after_the_last_one_that_it_took(
    steps: int, duration: float, stop_at: float | None, taken: int, lasted: float
) -> None:
    bench = Bench(Unfolding(steps))
    choice = Kill().draw(Random(1)).choice
    bench.schedule = (Fault(fault=0, nemesis="kill", at=5.0, duration=duration, choice=choice),)
    bench.run(stop_at)
    (row,) = bench.rows
    assert row["evidence"]["steps"] == list(range(taken)) and row["effective"]
    assert (row["end"] - row["start"]) / 1e9 == pytest.approx(lasted, abs=0.3)
    assert ("cut_short" in row["evidence"]) == (taken < steps)
    assert all(node.state == "running" for node in bench.cluster.nodes)


def test_a_step_that_cannot_be_done_ends_the_fault_and_is_on_record() -> None:
    bench = Bench(Unfolding(5, fails_at=2))
    bench.schedule = (Fault(fault=0, nemesis="kill", at=5.0, duration=20.0, choice=Kill().draw(Random(1)).choice),)
    bench.run()
    (row,) = bench.rows
    assert row["evidence"]["steps"] == [0, 1] and row["evidence"]["inject_failed"] == "OSError: the agent is gone"
    assert row["end"] is not None and all(node.state == "running" for node in bench.cluster.nodes)
