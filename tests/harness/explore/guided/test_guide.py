"""What a guide has simulated next depends on what came of earlier runs, and on nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from harness.cli.simulated.explore import read_options
from harness.cli.simulated.guiding import guide_of, make_corpus
from harness.cli.simulated.planning import planned
from harness.errors import BadArguments
from harness.explore.guided.corpus import load, save
from harness.explore.guided.guide import LAG, Entry, Guide, lag
from harness.explore.guided.mutation import SCHEDULES, Mutation, of_schedules
from harness.explore.guided.traits import Traits, of_plan
from harness.explore.simulate import Simulated
from harness.explore.workers import Job, Outcome
from harness.plan import registry
from harness.plan import schedule as schedules
from harness.plan.plan import Plan
from harness.plan.schedule import CALM_AT_END_S

PLAN = Plan(run="guided", on="simulation", nemesis=("kill", "pause"), time_limit=60)
NEMESES = registry.make_nemeses(PLAN.nemesis, PLAN.acks, PLAN.timing)


def fresh(seed: int) -> Job:
    plan = PLAN.model_copy(update={"seed": seed, "settings": {"num.replica.fetchers": "2"} if seed % 2 else {}})
    return Job(plan, schedules.build(NEMESES, seed, plan.time_limit, plan.pace))


def outcome(job: Job, *states: int) -> Outcome:
    """Of a run that was in these states."""
    assert job.schedule is not None
    reached = frozenset(states)
    return Outcome(job.plan, "judged", simulated=Simulated(
        job.plan, job.schedule, {}, None, (), (), "", 1, 60.0, 1.0, states=reached, under_faults=reached
    ))  # fmt: skip


def states_of(job: Job) -> set[int]:
    """As good as any: what of it there is."""
    assert job.schedule is not None
    return {round(fault.at) * 1000 + len(fault.nemesis) for fault in job.schedule}


def unnamed(job: Job | None) -> Job | None:
    """As fresh() has it: a guide gives each run a name of its own."""
    return job and job._replace(plan=job.plan.model_copy(update={"run": PLAN.run}))


def met(*jobs: Job) -> Traits:
    """Those of these runs, of a fresh one, and of all schedules that are made of others."""
    traits = of_schedules()
    for job in (fresh(0), *jobs):
        traits.meet(of_plan(job.plan))
    return traits


def explored(order: int, runs: int = 40) -> list[Job]:
    """order: seed of the order in which outcomes come back, of at most three runs at a time."""
    guide, random = Guide(fresh, range(runs)), Random(order)
    flying: dict[int, Job] = {}
    jobs: list[Job] = []
    while len(jobs) < runs or flying:
        job = next(guide, None) if len(flying) < 3 else None
        if job is not None:
            flying[len(jobs)] = job
            jobs.append(job)
        if flying and (job is None or random.random() < 0.5):
            number = random.choice(sorted(flying))
            done = flying.pop(number)
            guide.take(number, outcome(done, *states_of(done)))
    return jobs


def test_the_same_seeds_make_the_same_exploration_whichever_runs_come_back_first() -> None:
    first = explored(1)
    assert explored(2) == first
    assert unnamed(first[0]) == fresh(0), "there was nothing to change yet"
    changed = [number for number, job in enumerate(first[:LAG]) if unnamed(job) != fresh(number)]
    assert changed, "the first tell something already"
    assert len({job.plan.run for job in first}) == len(first), "seeds may come more than once, names do not"


def test_a_guide_waits_for_what_it_depends_on() -> None:
    guide = Guide(fresh, range(10 * LAG))
    jobs: list[Job] = []
    for number in range(8 * LAG):
        while (job := next(guide)) is None:
            done = len(jobs) - lag(number)
            guide.take(done, outcome(jobs[done], done))
        jobs.append(job)
    assert lag(1) == 1 and lag(8 * LAG) == LAG
    ahead = [next(guide) for _ in range(LAG + 1)]
    assert ahead[-1] is None


def test_runs_are_made_of_what_gained_most() -> None:
    guide = Guide(fresh, range(120))
    rich = 0
    for number in range(120):
        job = next(guide)
        assert job is not None and job.schedule is not None
        gains = job.plan.settings.get("num.replica.fetchers") == "2"  # as half of the fresh runs have it
        rich += gains and number >= 60
        guide.take(number, outcome(job, *range(10 * number, 10 * number + (9 if gains else 1))))
    assert rich > 40, "most have it in the end"


def test_a_run_of_others_has_settings_that_are_drawn_together_together() -> None:
    """A heartbeat that comes less often than a session lasts makes no cluster."""
    both = ("broker.session.timeout.ms", "broker.heartbeat.interval.ms")
    values = (("1200", "200"), ("9000", "2000"))
    traits = met()
    for each in values:
        traits.meet(of_plan(PLAN.model_copy(update={"settings": dict(zip(both, each, strict=True))})))
    found = set()
    for seed in range(100):
        job = Mutation(fresh(seed), Random(seed)).of(fresh(1), lambda: fresh(2), traits)
        found.add(tuple(job.plan.settings.get(name) for name in both))
    assert found == {*values, (None, None)}


def test_what_reached_nothing_new_is_not_kept() -> None:
    guide = Guide(fresh, range(3))
    for number, states in enumerate([(1, 2), (2, 1), (2, 3)]):
        job = next(guide)
        assert job is not None
        guide.take(number, outcome(job, *states))
    assert [entry.number for entry in guide.finish().entries] == [0, 2]


def test_a_changed_run_is_one_that_can_be_carried_out() -> None:
    changed = 0
    for seed in range(80):
        parent, other = fresh(seed), fresh(seed + 1000)
        own = fresh(seed + 2000)
        job = Mutation(own, Random(seed)).of(parent, lambda other=other: other, met(own, parent))  # type: ignore[misc]
        assert job.schedule is not None
        Plan(**job.plan.model_dump())
        assert [fault.fault for fault in job.schedule] == list(range(len(job.schedule)))
        assert [fault.at for fault in job.schedule] == sorted(fault.at for fault in job.schedule)
        for fault in job.schedule:
            assert fault.at >= 0 and fault.duration > 0
            assert fault.at + fault.duration <= PLAN.time_limit - CALM_AT_END_S + 0.001
            assert fault.nemesis in PLAN.nemesis
        changed += job != parent
    assert changed > 70


def test_a_corpus_has_so_few_runs_that_all_is_reached_and_is_read_back(tmp_path: Path) -> None:
    entries = [
        Entry(0, fresh(0), frozenset({1, 2}), 2), Entry(1, fresh(1), frozenset({1, 2, 3}), 1),
        Entry(2, fresh(2), frozenset({4}), 1),
    ]  # fmt: skip
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "0000.json").write_text("of an exploration before, which these begin with")
    assert save(entries, tmp_path / "corpus") == 2
    kept = load(tmp_path / "corpus")
    assert sorted(job.plan.seed for job in kept) == [1, 2]
    assert {job.plan.seed: job.schedule for job in kept} == {1: fresh(1).schedule, 2: fresh(2).schedule}
    assert {job.plan.seed: dict(job.plan.settings) for job in kept}[1] == fresh(1).plan.settings
    assert load(tmp_path / "none") == []


def test_a_file_that_is_no_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"plan": {"seed": -1}, "schedule": []}')
    with pytest.raises(BadArguments, match=r"x\.json is no run of a corpus"):
        load(tmp_path)
    (tmp_path / "x.json").unlink()
    (tmp_path / "x.json").mkdir()
    with pytest.raises(BadArguments, match=r"x\.json cannot be read: Is a directory"):
        load(tmp_path)
    with pytest.raises(BadArguments, match=r"nothing can be kept in --corpus .*: Not a directory"):
        make_corpus(Path("/dev/null/corpus"))
    with pytest.raises(BadArguments, match=r"nothing can be kept in --corpus /proc: "):
        make_corpus(Path("/proc"))


def test_a_corpus_keeps_what_it_had_where_a_run_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save([Entry(0, fresh(0), frozenset({1}), 1)], tmp_path)
    write = Path.write_text

    def full(self: Path, text: str) -> int:
        write(self, text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        save([Entry(1, fresh(1), frozenset({2}), 1)], tmp_path)
    assert [job.plan.seed for job in load(tmp_path)] == [0], "and no half of a file, which would be refused"


def test_runs_of_a_corpus_are_run_again_beside_those_that_are_made_of_them() -> None:
    begin = [Job(PLAN.model_copy(update={"seed": seed}), fresh(seed).schedule) for seed in (70, 71)]
    guide = Guide(fresh, range(30), begin)
    jobs = []
    for number in range(30):
        job = next(guide)
        assert job is not None
        guide.take(number, outcome(job, number))
        jobs.append(unnamed(job))
    assert [job for job in jobs if job in begin] == begin, "in their order, once each"
    made = [number for number, job in enumerate(jobs) if job not in begin and job != fresh(number)]
    assert made[0] < max(map(jobs.index, begin)), "none waits until all of them were run"


def test_what_a_run_of_a_corpus_gains_says_nothing_of_how_schedules_are_made() -> None:
    begin = [Job(PLAN.model_copy(update={"seed": 70}), fresh(70).schedule)]
    guide = Guide(fresh, range(20), begin)
    job, number = next(guide), 0
    while job is not None and unnamed(job) != begin[0]:
        guide.take(number, Outcome(job.plan, "crashed"))  # which teaches nothing
        job, number = next(guide), number + 1
    assert job is not None
    guide.take(number, outcome(job, 1))
    known = guide.finish()._traits._known
    assert {value.runs for name in SCHEDULES for value in known[name].values()} == {0.0}
    assert guide.entries[-1].number == number


def test_a_corpus_loses_nothing_of_what_an_exploration_that_ends_early_has_not_run(tmp_path: Path) -> None:
    begin = [Job(PLAN.model_copy(update={"seed": seed}), fresh(seed).schedule) for seed in (70, 71, 72)]
    guide = Guide(fresh, range(20), begin)
    job, number = next(guide), 0
    while job is not None and unnamed(job) != begin[0]:
        guide.take(number, outcome(job))
        job, number = next(guide), number + 1
    assert job is not None
    guide.take(number, outcome(job, 1))
    save(guide.finish().entries, tmp_path, guide.not_run)
    assert sorted(each.plan.seed for each in load(tmp_path)) == [70, 71, 72]


def test_runs_of_a_corpus_get_the_bug_that_is_searched_for() -> None:
    plan, plan_of = planned(read_options("--nemesis kill --bug M01"))
    begin = [Job(fresh(seed).plan, fresh(seed).schedule) for seed in (70, 71)]
    guide = guide_of(plan, plan_of, range(10), begin)
    jobs = [next(guide)]
    while (job := next(guide)) is not None:
        jobs.append(job)
    assert {job.plan.bug for job in jobs if job is not None} == {"M01"} and begin[0].plan.bug is None
