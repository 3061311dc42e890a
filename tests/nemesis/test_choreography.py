"""Choreographies: the language, what is drawn, shrunk and changed, and what becomes of them in runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadArguments
from harness.explore.guided.mutation import Mutation, of_schedules
from harness.explore.guided.traits import of_plan
from harness.explore.shrinking import candidates, shrink
from harness.explore.shrinking.candidates import Candidate
from harness.explore.shrinking.witness import Broken, Witness
from harness.explore.simulate import Simulated, simulate
from harness.explore.workers import Job
from harness.plan import registry, schedule_file
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from harness.report import words
from nemesis.choreography import BEYOND, LIBRARY, MOVES, Choreography, composing, language
from nemesis.choreography.language import Elect, For, Link, Past, Reassign, Role, Strike, Until
from tests import ROOT

LATENCY_MS: Final = 5.0


def run(
    text: str, seed: int = 3, *, bug: str | None = None, duration: float = 40.0, brokers: int = 3, **choice: Any
) -> Simulated:
    plan = Plan(
        run=f"s{seed}", on="simulation", nemesis=("choreography",), seed=seed, rate=20.0, concurrency=2, partitions=1,
        time_limit=duration + 6.0, latency_ms=LATENCY_MS, bug=bug, producers="plain", brokers=brokers,
    )  # fmt: skip
    whole = {"steps": text, "partition": 0.0, "node": 0.4, **choice}
    return simulate(plan, (Fault(fault=0, nemesis="choreography", at=3.0, duration=duration, choice=whole),))


def evidence(done: Simulated) -> dict[str, Any]:
    (row,) = done.tables["faults"].to_pylist()
    found: dict[str, Any] = {**json.loads(row["evidence"]), "effective": row["effective"], "targets": row["targets"]}
    return found


def taken(done: Simulated) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in evidence(done)["steps"]}


# The language.

ROLE: Final = st.builds(
    Role, st.sampled_from(list(language.ROLES)), st.sampled_from(["", "", "second", "the-one-before"])
)
SECONDS: Final = st.integers(1, 60_000).map(lambda ms: ms / 1000)
ALONE: Final = [name for name, each in language.CONDITIONS.items() if not each.of]
ROLES: Final = st.lists(ROLE, min_size=1, max_size=3).map(tuple)
WHOM: Final = ROLES | st.sampled_from(list(language.GROUPS))
SENDERS: Final = st.sampled_from([name for name in language.GROUPS if name != language.CLIENTS])
STEP: Final = st.one_of(
    st.builds(Strike, st.sampled_from(["pause", "kill", "stop", "start", "resume"]), ROLE),
    st.builds(Strike, st.sampled_from(language.ENDINGS)),
    st.builds(Strike, st.just("power-off"), ROLE, SECONDS | st.just(0.0)),
    st.builds(Link, st.sampled_from(["cut", "heal"]), ROLES, WHOM, st.booleans()),
    st.builds(Link, st.sampled_from(["cut", "heal"]), SENDERS, ROLES, st.booleans()),
    st.builds(Link, st.just("delay"), ROLES, WHOM, st.just(True), SECONDS),
    st.builds(Link, st.just("heal")),
    st.builds(Until, st.sampled_from([name for name in language.CONDITIONS if name not in ALONE]), ROLE, SECONDS),
    st.builds(Until, st.sampled_from(ALONE), st.none(), SECONDS),
    st.builds(For, SECONDS),
    st.builds(Past, st.sampled_from(list(language.PAST))),
    st.just(Elect()),
    st.builds(Reassign, st.none() | ROLE),
)  # fmt: skip


@given(st.lists(STEP, min_size=1, max_size=12).map(tuple))
def test_what_is_written_is_read_as_it_was_meant(steps: language.Steps) -> None:
    written = language.text(steps)
    assert language.parse(written) == steps
    assert "," not in written and ":" not in written and '"' not in written


@pytest.mark.parametrize("name", [*LIBRARY, *MOVES, *BEYOND])
def test_the_library_is_written_as_it_is_formatted(name: str) -> None:
    written = {**LIBRARY, **MOVES, **BEYOND}[name].steps
    assert language.text(language.parse(written)) == written


WRONG: Final = {
    "kill leader; paus leader": "step 2, 'paus leader': there is no verb 'paus' (did you mean pause?); valid: pause, ",
    "kill": "step 1, 'kill': it lacks a role",
    "until in-isr": "it lacks a role",
    "until quiet": "there is no condition 'quiet'; valid: new-leader, ",
    "cut leader with follower": "there is no direction 'with'; valid: from, to",
    "delay leader from follower by 1s": "there is no direction 'from'; valid: to",
    "delay leader to follower": "it lacks a word",
    "cut clients from leader": "clients can only stand at its end: cut leader from clients",
    "cut brokers to controllers": "one of brokers and controllers must be a role",
    "for 0s": "'0s' is no time; valid: from above 0 to 60s, as 2s or 250ms",
    "for 2": "'2' is no time",
    "for 61s": "'61s' is no time",
    "kill second": "there is no role 'second'; valid: leader, ",
    "kill leader; kill a=follower; kill b": "step 3, 'kill b': there is no role 'b'; valid: leader, ",
    "kill clients=leader": "clients has a meaning already",
    "kill 2nd=leader": "'2nd' is no name",
    "kill leader now": "nothing may follow where it has 'now'",
    "reassign": "it lacks a role",
    "reassign back leader": "nothing may follow where it has 'leader'",
    "reassign back=leader": "back has a meaning already",
    "past midnight": "there is no limit 'midnight'; valid: session, lag",
    "": "step 1, '': it lacks a verb",
    "; ".join(["for 1s"] * 41): "it has 41 steps, more than 40",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_makes_no_sense_is_said_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        language.parse(text)
    assert WRONG[text] in str(raised.value)


def test_a_text_is_given_on_the_command_line_or_in_a_schedule(tmp_path: Path) -> None:
    text = "kill leader; until new-leader; start"
    (asked,) = registry.make_nemeses([f"choreography:text={text}"]).values()
    assert asked.draw(Random(1)).choice["steps"] == text
    with pytest.raises(BadArguments, match="nemesis choreography:text=kil leader: step 1, 'kil leader': there is no"):
        registry.make_nemeses(["choreography:text=kil leader"])
    with pytest.raises(BadArguments, match=r"no variant 'zombie-leadr' .*\(did you mean zombie-leader\?\)"):
        registry.make_nemeses(["choreography:zombie-leadr"])
    path = tmp_path / "schedule.toml"
    for steps, wrong in ((text, None), ("kil leader", "there is no verb 'kil'")):
        fault = f'nemesis = "choreography"\nat = 3\nduration = 9\nchoice = {{ steps = "{steps}" }}'
        path.write_text(f"[[fault]]\n{fault}\n")
        nemeses = registry.make_nemeses(["choreography"])
        if wrong is None:
            (planned,) = schedule_file.read(path, nemeses, 1, 30.0, ())
            assert planned.choice["steps"] == text and 0 <= planned.choice["node"] < 1
        else:
            with pytest.raises(BadArguments, match=wrong):
                schedule_file.read(path, nemeses, 1, 30.0, ())


def test_the_docs_have_every_word_of_the_language_and_the_whole_library() -> None:
    told = (ROOT / "docs" / "choreographies.md").read_text()
    for word in (*language.VERBS, *language.ROLES, *language.GROUPS, *language.CONDITIONS):
        assert f"`{word}" in told, word
    for name, named in {**LIBRARY, **MOVES, **BEYOND}.items():
        assert f"| `{name}` | {named.summary} |" in told, name


# What is drawn, shrunk and changed.


def test_half_of_those_drawn_have_a_name_and_none_is_beyond_the_contract() -> None:
    drawn = [Choreography().draw(Random(n)).choice["steps"] for n in range(400)]
    named = {each.steps: name for name, each in LIBRARY.items()}
    assert 140 < sum(text in named for text in drawn) < 260
    assert {named[text] for text in drawn if text in named} == set(LIBRARY)
    for text in drawn:
        steps = language.parse(text)
        assert sum(isinstance(step, Strike) and step.verb == "power-off" for step in steps) <= 1
        assert text in named or 3 <= len(steps) <= 7
        assert any(isinstance(step, Strike | Link) for step in steps)


def test_one_that_outlasts_its_waits_is_planned_long_enough() -> None:
    for n in range(100):
        drawn = Choreography().draw(Random(n))
        assert drawn.duration > composing.expected_s(language.parse(drawn.choice["steps"]), Choreography.timing)


def test_what_is_smaller_lacks_one_thing_and_can_be_read() -> None:
    text = "kill a=leader; until new-leader; power-off new-leader late 4s; for 2s; cut follower and other from clients"
    found = list(composing.smaller(text))
    assert "kill a=leader; power-off new-leader late 4s; for 2s; cut follower and other from clients" in found
    assert text.replace(" late 4s", "") in found and text.replace("for 2s", "for 200ms") in found
    assert text.replace("follower and other", "other") in found
    assert text not in found and len(set(found)) == len(found)
    assert list(composing.smaller("kill leader")) == []
    # A name is not taken away from those who use it.
    assert list(composing.smaller("kill a=leader; start a")) == ["kill a=leader"]


@given(st.integers(0, 10_000), st.sampled_from([each.steps for each in LIBRARY.values()]))
def test_what_is_changed_can_be_read_and_loses_power_once_at_most(seed: int, text: str) -> None:
    changed = composing.changed(text, Random(seed))
    steps = language.parse(changed)
    assert sum(isinstance(step, Strike) and step.verb == "power-off" for step in steps) <= 1
    assert language.text(steps) == changed


def test_a_guided_exploration_changes_steps() -> None:
    plan = Plan(run="s1", on="simulation", nemesis=("choreography",), seed=1, time_limit=60.0)
    choice = {"steps": LIBRARY["zombie-leader"].steps, "partition": 0.0, "node": 0.0}
    parent = Job(plan, (Fault(fault=0, nemesis="choreography", at=3.0, duration=20.0, choice=choice),))
    mutation = Mutation(parent, Random(5))
    traits = of_schedules()
    traits.meet(of_plan(plan))
    made = [fault for _ in range(40) for fault in mutation.of(parent, lambda: parent, traits).schedule or ()]
    texts = {fault.choice["steps"] for fault in made}
    assert len(texts) > 5
    for text in texts:
        language.parse(text)
    assert sum(fault.duration == 20.0 for fault in made) > len(made) / 2, "steps are seldom cut short"


def test_shrinking_drops_the_steps_that_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(run="s1", on="simulation", nemesis=("choreography",), seed=1)
    choice = {"steps": "pause other; kill leader; until new-leader; resume; start", "targets": ["broker-1"]}
    whole = Candidate(plan, (Fault(fault=0, nemesis="choreography", at=3.0, duration=20.0, choice=choice),))
    broken = Broken("LeaderCompleteness", "violation", within=True)

    def attempt(candidate: Candidate, sought: Broken, may_hide: bool, at_work: bool) -> Witness | None:
        steps = [fault.choice["steps"] for fault in candidate.schedule]
        fails = any("kill leader" in text and "start" in text for text in steps)
        return Witness(broken, 9.0, {}) if fails else None

    monkeypatch.setattr(shrink, "attempt", attempt)
    shrinker = shrink._Shrinker(whole, Witness(broken, 9.0, {}), 500, 1, lambda line: None)
    for _ in range(3):
        shrinker._exhaust(candidates.smaller_faults)
    assert [fault.choice["steps"] for fault in shrinker.best.schedule] == ["kill leader; start"]


# In runs.


@pytest.mark.parametrize("name", LIBRARY)
def test_each_of_the_library_is_effective_and_harmless(name: str) -> None:
    done = run(LIBRARY[name].steps)
    assert done.violation is None and not done.crash and not done.doubts, done.violation or done.crash or done.doubts
    verdict = done.judge()
    assert verdict["verdict"] == "pass" and verdict["contract"]["within"], verdict["reason"]
    seen = evidence(done)
    assert seen["effective"] and seen["place"] == "chaos-0" and "cut_short" not in seen
    wrong = {step["step"]: step for step in seen["steps"] if "failed" in step or "skipped" in step}
    assert wrong == {}


def test_those_that_move_replicas_leave_them_where_they_were() -> None:
    done = run(MOVES["reassigned-while-frozen"].steps, brokers=4)
    assert done.violation is None and not done.crash and not done.doubts, done.violation or done.crash or done.doubts
    assert done.judge()["verdict"] == "pass"
    seen, steps = evidence(done), taken(done)
    assert not [step for step in seen["steps"] if {"failed", "skipped", "gave_up"} & step.keys()], seen["steps"]
    healed = seen["metadata"]["healed"]["partitions"]["chaos-0"]
    (frozen,) = steps["pause follower"]["struck"]
    assert steps["reassign back"]["replicas"] == healed["replicas"]
    assert int(frozen.removeprefix("broker-")) in set(healed["replicas"]) - set(steps["reassign follower"]["replicas"])
    moved = ", ".join(map(str, steps["reassign follower"]["replicas"]))
    assert f"reassign follower (to {moved})" in words.evidence(seen)


def test_what_was_moved_is_moved_back_when_the_time_is_over() -> None:
    seen = evidence(run("reassign follower; until no-replica follower; for 40s", duration=8.0, brokers=4))
    moved, healed = (seen["metadata"][when]["partitions"]["chaos-0"]["replicas"] for when in ("while", "healed"))
    assert moved == taken_replicas(seen) and sorted(healed) != sorted(moved) and seen["effective"]


def taken_replicas(seen: dict[str, Any]) -> list[int]:
    (found,) = [step["replicas"] for step in seen["steps"] if "replicas" in step]
    return list(found)


def test_a_move_that_cannot_be_is_skipped_and_says_why() -> None:
    done = run("reassign back; reassign follower; for 1s")
    said = [step.get("skipped") for step in evidence(done)["steps"]]
    assert said[:2] == ["it has the replicas that it had", "there is no spare broker that it could go to"]


def test_no_two_faults_move_replicas_at_a_time() -> None:
    cluster = SimpleNamespace(brokers=[], nodes=[], admin=SimpleNamespace(movers={"membership:reassign": ()}))
    situation: Any = SimpleNamespace(cluster=cluster)
    assert Choreography().choose({"steps": "reassign leader", "partition": 0.0, "node": 0.0}, situation) == []


def test_steps_are_taken_by_what_is_seen_and_say_so() -> None:
    done = run("kill leader; until new-leader; pause second=new-leader; until new-leader within 500ms; resume; start; "
               "until in-isr leader")  # fmt: skip
    steps = taken(done)
    (dead,), (frozen,) = steps["kill leader"]["struck"], steps["pause second=new-leader"]["struck"]
    assert dead != frozen and steps["start"]["struck"] == [dead] and steps["resume"]["struck"] == [frozen]
    waited = steps["until new-leader"]
    # It went on as soon as there was another leader, and gave up where there was none in time.
    assert "gave_up" not in waited and 0 < waited["waited_s"] < 4.0
    assert steps["pause second=new-leader"]["at_s"] - waited["at_s"] - waited["waited_s"] < 0.2
    assert steps["until new-leader within 500ms"]["gave_up"]
    assert steps["until in-isr leader"]["of"] == [dead] and "gave_up" not in steps["until in-isr leader"]
    said = words.evidence(evidence(done))
    assert f"kill leader ({dead})" in said and "after 5" in said and "in vain" in said


def test_isrs_and_ends_of_logs_are_waited_for() -> None:
    done = run(
        "until caught-up follower; cut follower from brokers; until behind follower; until out-of-isr follower; heal; "
        "until in-isr follower; kill other; until fenced other; start other; until unfenced other"
    )
    steps = taken(done)
    assert not [step for step in steps.values() if "gave_up" in step or "skipped" in step]
    assert steps["until behind follower"]["waited_s"] < 2.0 < steps["until out-of-isr follower"]["waited_s"]
    assert steps["heal"]["packets_dropped"] > 0


def test_of_a_group_all_are_meant_that_the_step_does_not_name() -> None:
    done = run(
        "cut controllers to leader; cut brokers to leader; heal brokers to leader; heal; cut leader from brokers"
    )
    links = [step.get("links") for step in evidence(done)["steps"]]
    leader = links[0][0].rpartition(" > ")[2]
    others = [f"broker-{n}" for n in (1, 2, 3) if f"broker-{n}" != leader]
    assert links[0] == [f"controller-{n} > {leader}" for n in (1, 2, 3)]
    assert links[1] == links[2] == [f"{other} > {leader}" for other in others]
    assert set(links[4]) == {link for o in others for link in (f"{o} > {leader}", f"{leader} > {o}")}


def test_a_step_that_strikes_nobody_is_skipped_and_says_why() -> None:
    done = run(
        "resume; pause leader; pause leader; kill leader; start; start; heal; power-off follower; start follower; "
        "power-off follower; cut leader from leader",
        duration=20.0,
    )
    seen = [(step["step"], step.get("skipped", "").removeprefix("broker-")) for step in evidence(done)["steps"]]
    skipped = [(step, why[1:].strip() if why[:1].isdigit() else why) for step, why in seen if why]
    assert skipped == [
        ("resume", "there is nobody to resume"), ("pause leader", "is paused"), ("start", "there is nobody to start"),
        ("heal", "there is nothing to heal"), ("power-off follower", "has lost its power before"),
        ("cut leader from leader", "there is nobody at the other end"),
    ]  # fmt: skip


def test_what_is_left_in_force_is_healed_when_its_time_is_over() -> None:
    done = run("cut follower from everybody; delay leader to other by 100ms; pause other; for 40s", duration=8.0)
    seen = evidence(done)
    assert seen["cut_short"] and seen["effective"] and "heal_failed" not in seen
    assert seen["packets_dropped"] > 0 and not done.problems and done.judge()["verdict"] == "pass"


def test_what_loses_its_power_counts_against_the_contract_from_that_step_on() -> None:
    done = run("for 1s; power-off follower; for 1s; start follower; until in-isr follower")
    seen = evidence(done)
    (name,) = seen["nodes"]
    assert seen["nodes"][name]["unsynced_records"] > 0 and name in seen["targets"]
    (row,) = done.tables["faults"].to_pylist()
    assert 1.0 <= (seen["nodes"][name]["lost_at"] - row["start"]) / 1e9 < 2.0
    contract = done.judge()["contract"]
    assert contract["within"] and contract["worst"] == 1 == contract["limit"]


def test_more_of_them_at_a_time_are_beyond_it() -> None:
    done = run("for 2s; power-off follower; power-off leader; for 1s; start")
    assert not done.judge()["contract"]["within"]


def test_a_run_is_the_same_again() -> None:
    text = LIBRARY["diverging-tails"].steps.replace("kill leader", "pause follower; kill leader")
    assert run(text).trace_hash == run(text).trace_hash != run(text, node=0.1).trace_hash


#: Bugs, each with a choreography that makes the moment in which it matters.
MOMENTS: Final = {"M02": "tails-of-two-leaders", "M24": "watermark-of-a-successor", "M27": "late-proposals"}


@pytest.mark.parametrize("bug", MOMENTS)
def test_a_bug_whose_moment_takes_an_order_is_found(bug: str) -> None:
    done = [run(LIBRARY[MOMENTS[bug]].steps, seed, bug=bug) for seed in range(3)]
    assert any(each.violation is not None for each in done)


@pytest.mark.parametrize("nemesis", ["choreography:reassigned-while-frozen", "choreography:text=reassign leader"])
def test_target_v2_must_look_at_idle_partitions_where_replicas_are_moved(nemesis: str) -> None:
    plan = {"run": "s1", "on": "simulation", "target": "v2", "nemesis": (nemesis,)}
    name = re.escape(nemesis.partition(":text=")[0])
    with pytest.raises(ValueError, match=f"--nemesis {name} on target v2 needs --set v2.idle.checks=true"):
        Plan.model_validate(plan)
    Plan.model_validate({**plan, "settings": {"v2.idle.checks": "true"}})
