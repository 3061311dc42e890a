"""`chaos run --dry-run` says what the run would do, and that is what the run then does."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from harness.cli import app as cli
from harness.cluster import Cluster, Node
from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from harness.run.dry.preview import Preview, preview
from harness.run.dry.recording import Call, RecordingCluster, _bound, methods
from harness.run.dry.showing import as_json, choice_words
from harness.run.injector import Injector
from harness.run.order import Order
from harness.runtimes import how_in
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.node import SimulatedNode
from nemesis import Common, Draw
from tests import ROOT

SMALL: dict[str, Any] = {"on": "simulation", "rate": 20.0, "partitions": 2}


def previewed(**fields: Any) -> Preview:
    return preview(Order({**SMALL, **fields}, Path("results"), quiet=True, starts=False).prepared())


def whom(found: Preview) -> list[str]:
    return [each.whom.words for each in found.faults]


#: The fault, by its number, and the step that is at work.
STEP: ContextVar[tuple[int, str] | None] = ContextVar("step", default=None)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, str], list[Call]]:
    """What simulated runs ask of their clusters and nodes, in order, by fault and step."""
    calls: dict[tuple[int, str], list[Call]] = defaultdict(list)

    def listen(kind: type, protocol: type, method: str) -> None:
        real = getattr(kind, method)

        async def heard(self: Any, *arguments: Any, **named: Any) -> Any:
            step = STEP.get()
            if step is not None:
                bound = _bound(getattr(protocol, method), arguments, named)
                calls[step].append(Call(getattr(self, "name", ""), method, bound))
            token = STEP.set(None)  # one may call another of its kind
            try:
                return await real(self, *arguments, **named)
            finally:
                STEP.reset(token)

        monkeypatch.setattr(kind, method, heard)

    for kind, protocol in ((SimulatedNode, Node), (SimulatedCluster, Cluster)):
        for method in methods(protocol) & vars(kind).keys():
            listen(kind, protocol, method)
    observe = Injector._observe

    async def noted(self: Any, injected: Any, step: str, action: Any, **options: Any) -> None:
        token = STEP.set((injected.fault, step))
        try:
            await observe(self, injected, step, action, **options)
        finally:
            STEP.reset(token)

    monkeypatch.setattr(Injector, "_observe", noted)
    return calls


SCHEDULE = """
[[fault]]
nemesis = "{nemesis}"
at = {at}
duration = "{duration}"
"""


@pytest.mark.parametrize(
    ("nemesis", "strike"),
    [
        ("kill", "random"), ("kill:term", "random"), ("kill:minority", "random"), ("kill:storm:times=2", "random"),
        ("pause", "random"), ("pause:how=sigstop", "random"), ("power:node", "random"), ("power-outage", "random"),
        ("power-outage-cluster", "random"), ("power:during-recovery", "random"), ("partition", "random"),
        ("partition:halves", "random"), ("partition:one-way", "random"), ("partition:bridge", "random"),
        ("partition:clients", "random"), ("network:rate", "random"), ("network:loss:links=node", "random"),
        ("disk:full", "random"), ("disk:error", "random"), ("disk:read-only", "random"), ("disk:slow", "random"),
        ("disk:corrupt", "random"), ("page-cache", "random"), ("clock:jump", "random"), ("clock:drift", "random"),
        ("kill", "leaders"), ("partition:leader", "random"), ("kill:controller", "random"), ("hw-truncation", "random"),
        ("power:leader", "random"), ("kill:follower", "random"),
    ],
)  # fmt: skip
def test_what_is_told_is_what_happens(
    nemesis: str, strike: str, tmp_path: Path, called: Mapping[tuple[int, str], list[Call]]
) -> None:
    at = 8.0 if nemesis == "disk:corrupt" else 1.5  # a checkpoint is written by then
    (tmp_path / "one.toml").write_text(SCHEDULE.format(nemesis=nemesis, at=at, duration="2s"))
    found = previewed(schedule=str(tmp_path / "one.toml"), time_limit=at + 5.5, strike=strike, seed=5)
    (planned,) = found.faults
    run = simulate(found.plan.model_copy(update={"run": "r"}), tuple(each.fault for each in found.faults))
    (row,) = run.tables["faults"].to_pylist()
    assert not run.crash and "skipped" not in row["evidence"]
    example, real = planned.whom.names, tuple(row["targets"])
    if planned.whom.depends_on:  # the same, done to somebody else
        assert len(example) == len(real)
    else:
        assert real == example
        start_s = (row["start"] - run.facts["workload_start_ns"]) / 1e9
        assert planned.fault.at <= start_s < planned.fault.at + 0.3
    for step, told in (("inject", planned.done.inject), ("heal", planned.done.heal)):
        done = called[planned.fault.fault, step]
        if step == "heal" and planned.done.if_ended and len(done) > len(told):
            told = [*told, *planned.done.if_ended]
        if planned.whom.depends_on:
            assert [call.method for call in done] == [call.method for call in told], step
        else:
            assert _set(done) == _set(told), step
    assert planned.done.inject and planned.done.heal and not planned.done.not_told


def _set(calls: Sequence[Call]) -> list[str]:
    """At one moment several nodes are struck side by side."""
    return sorted(f"{call.on} {call.method} {call.arguments}" for call in calls)


@pytest.mark.parametrize("nemesis", ["kill,pause,partition", "power-outage,disk", "all", "last-replica-standing"])
def test_its_schedule_is_the_runs(nemesis: str) -> None:
    wanted = registry.parse_names(nemesis)
    found = previewed(nemesis=wanted, time_limit=30.0, seed=11)
    run = simulate(Plan(run="r", nemesis=wanted, time_limit=30.0, seed=11, strike=found.plan.strike, **SMALL))
    assert tuple(each.fault for each in found.faults) == run.schedule and run.schedule


@pytest.mark.parametrize("nemesis", ["kill,pause", "power-outage,disk", "partition,clock,kill"])
def test_who_is_named_for_certain_is_struck_among_many_faults(nemesis: str) -> None:
    """Those that another fault may hold are marked; whom the live cluster decides is told in words."""
    found = previewed(nemesis=registry.parse_names(nemesis), time_limit=30.0, seed=4, strike="random")
    run = simulate(found.plan.model_copy(update={"run": "r"}))
    rows = {row["fault"]: row for row in run.tables["faults"].to_pylist()}
    certain = [each for each in found.faults if not each.overlaps and not each.whom.depends_on]
    assert certain and all(tuple(rows[each.fault.fault]["targets"]) == each.whom.names for each in certain)
    marked = [each for each in found.faults if each.overlaps]
    assert marked and not any(each.whom.why_nobody for each in marked), "who waits strikes later, and is no nobody"


def test_whom_in_words() -> None:
    def of(nemesis: str, **fields: Any) -> set[str]:
        planned = previewed(nemesis=(nemesis,), seed=1, **fields).faults
        return {each.whom.words for each in planned}

    leader = "the broker that leads most partitions then"
    assert of("kill") == {leader} and of("partition:leader") == {leader} and of("power:leader") == {leader}
    assert of("partition:controller") == {"the active controller then"}
    assert of("kill:follower") == {"a broker that leads fewer partitions than another then"}
    assert of("power:last-in-isr") == {"a broker that is alone in an ISR then"}
    assert of("power-outage-cluster") == {"broker-1, broker-2, broker-3"}
    assert of("hw-truncation") == {f"broker-1, broker-2, broker-3, first of these {leader}"}
    rolling = whom(previewed(nemesis=("power:rolling",), seed=1, time_limit=60.0))
    assert rolling[:4] == ["broker-1", "broker-2", "broker-3", "broker-1"]
    assert of("kill", strike="random") <= {f"{role}-{n}" for role in ("broker", "controller") for n in (1, 2, 3)}


def test_pinned_victims_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pinned.toml"
    path.write_text(SCHEDULE.format(nemesis="partition:leader", at=2, duration="3s") + 'targets = ["broker-3"]\n')
    (planned,) = previewed(schedule=str(path), time_limit=10.0).faults
    assert (planned.whom.words, planned.whom.depends_on) == ("broker-3", ())
    links = planned.done.inject[0].arguments["links"]
    assert ("broker-3", "broker-1") in links and all("broker-3" in link for link in links)


def test_every_kind_of_fault_can_be_told_and_every_runtime_says_how() -> None:
    """Whatever a nemesis asks of a cluster, its runtime says how it does that."""
    there_are = methods(Node) | methods(Cluster)
    for place in ("docker", "simulation"):
        assert how_in(place).methods.keys() <= there_are
    special = {"membership:upgrade": {"upgrade_to": "4.2.0", "target": "kafka:4.1.0", "time_limit": 120.0},
               "membership:controller": {"target": "kafka:4.2.0", "settings": {"chaos.quorum": "dynamic"}}}  # fmt: skip
    names = [
        name for family in registry.names(registry.NEMESES)
        for name in (family, *(f"{family}:{each}" for each in registry.load(registry.NEMESES, family).variants))
    ]  # fmt: skip
    assert len(names) > 60
    for name in names:
        (nemesis,) = registry.make_nemeses([name]).values()
        for place in ("docker", "simulation"):
            if place not in nemesis.runtimes:
                continue
            fields = {
                "on": place, "nemesis": (name,), "time_limit": 60.0, "brokers": 4, "spare_brokers": 1, "seed": 2,
                "must_take_effect": "none", **special.get(name, {}),
            }  # fmt: skip
            if place == "docker":
                fields["target"] = fields.get("target", "kafka:4.2.0")
            found = previewed(**fields)
            assert [each for each in found.faults if not each.whom.why_nobody], name
            for planned in found.faults:
                assert not planned.done.not_told, (name, planned.done.not_told)
                assert planned.whom.why_nobody or (planned.done.inject and planned.fault.nemesis), name
                for call in (*planned.done.inject, *planned.done.heal, *planned.done.if_ended):
                    assert found.by(call) != ("not offered here",), (name, place, call.method)


class _Strange(Common):
    """A user's own, that needs more than there is before a run."""

    name, summary = "strange", "asks for what nobody knows"

    def draw(self, random: Any) -> Draw:
        return Draw(1.0, 1.0, {})

    def choose(self, choice: Mapping[str, Any], situation: Any) -> Any:
        return [situation.cluster.brokers[0]]

    async def inject(self, cluster: Any, nodes: Any, choice: Any) -> Any:
        evidence = await nodes[0].kill()
        return {"lost": evidence["unsynced_bytes"]}

    async def heal(self, cluster: Any, nodes: Any) -> Any:
        await nodes[0].start()
        return {}

    def effective(self, evidence: Any) -> bool:
        return True


def test_what_cannot_be_told_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = registry.make_nemeses
    monkeypatch.setattr(
        registry, "make_nemeses",
        lambda wanted, *rest: {n: cast(Any, _Strange()) if n == "strange" else made([n], *rest)[n] for n in wanted},
    )  # fmt: skip
    planned = previewed(nemesis=("strange",), time_limit=10.0).faults[0]
    assert [call.method for call in planned.done.inject] == ["kill"] and "unsynced_bytes" in planned.done.not_told
    assert [call.method for call in planned.done.heal] == ["start"] and planned.whom.words == "broker-1"


def test_it_starts_nothing_writes_nothing_and_repeats_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.runtimes.simulation.runtime.SimulationRuntime.start", lambda *_, **__: 1 / 0)
    schema = json.loads((ROOT / "docs" / "schemas" / "dryrun.json").read_text())

    def said(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", "--dry-run", *arguments])
        assert ended.value.code == 0
        return capsys.readouterr().out

    options = ("--on", "simulation", "--nemesis", "kill,all", "--abort-if", "unavailable > 60s")
    text = said(*options)
    command = text.splitlines()[0].split()
    assert command[:2] == ["chaos", "run"] and "--seed" in command  # drawn, and shown
    seed = command[command.index("--seed") + 1]
    again = said(*options, "--seed", seed)
    assert again == text and "Nothing was started." in text
    assert "All is healed and the run ends early if unavailable > 60s." in text
    (found,) = [json.loads(line) for line in said(*options, "--seed", seed, "--json").splitlines()]
    jsonschema.validate(found, schema)
    assert found["seed"] == int(seed) and found["nodes"][0]["address"] == "broker-1:9092" and found["how"]["kill"]
    of_seeds = [json.loads(line) for line in said(*options, "--seeds", "1..3", "--json").splitlines()]
    assert [each["seed"] for each in of_seeds] == [1, 2, 3]
    assert list(tmp_path.iterdir()) == []


def test_choices_in_words() -> None:
    choice = {"role": "broker", "node": 0.4, "ahead_s": 0.4, "in_write": 3, "late_s": 0.0, "direction": "outgoing",
              "shape": {"loss": 0.1}, "what": ["segment", "checkpoint"], "mine": 7}  # fmt: skip
    assert choice_words(choice, "docker") == (
        "followers kept from fetching for 0.4 s before, what it sends, loss 0.1, segment or else checkpoint, mine 7"
    )
    assert "in the middle of operation 3 of its disk" in choice_words(choice, "simulation")


def test_a_plan_that_makes_no_sense_is_refused_as_the_run_would_be() -> None:
    with pytest.raises(BadArguments, match="no fault of power-outage fits"):
        previewed(nemesis=("power-outage",), time_limit=3.0)


def test_the_stand_in_offers_what_clusters_do_and_no_more() -> None:
    cluster = RecordingCluster(Plan(run="r"))
    with pytest.raises(AttributeError):
        _ = cluster.machines[0].explode
    with pytest.raises(AttributeError):
        _ = cluster.explode
    assert as_json(previewed(nemesis=(), time_limit=10.0))["faults"] == []
