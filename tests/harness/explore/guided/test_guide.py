"""What a guide has simulated next depends on what came of earlier runs, and on nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from harness.errors import BadArguments
from harness.explore.guided.corpus import load, save
from harness.explore.guided.guide import LAG, Entry, Guide
from harness.explore.guided.mutation import Mutation
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
    assert [job for number, job in enumerate(first) if job != fresh(number)], "some were changed"
    assert all(first[number] == fresh(number) for number in range(LAG)), "there was nothing to change yet"


def test_a_guide_waits_for_what_it_depends_on() -> None:
    guide = Guide(fresh, range(2 * LAG))
    jobs = [next(guide) for _ in range(LAG)]
    assert None not in jobs
    assert next(guide) is None, "it depends on the first"
    assert jobs[0] is not None
    guide.take(0, outcome(jobs[0], 1, 2))
    assert next(guide) is not None and next(guide) is None


def test_what_reached_nothing_new_is_not_kept() -> None:
    guide = Guide(fresh, range(3))
    for number, states in enumerate([(1, 2), (2, 1), (2, 3)]):
        job = next(guide)
        assert job is not None
        guide.take(number, outcome(job, *states))
    assert [(entry.number, entry.new) for entry in guide.finish().entries] == [(0, 2), (2, 1)]


def test_a_changed_run_is_one_that_can_be_carried_out() -> None:
    changed = 0
    for seed in range(300):
        mutation = Mutation(fresh, Random(seed))
        parent, other = fresh(seed), fresh(seed + 1000)
        job = mutation.of(parent, other)
        assert job.schedule is not None
        Plan(**job.plan.model_dump())
        assert [fault.fault for fault in job.schedule] == list(range(len(job.schedule)))
        assert [fault.at for fault in job.schedule] == sorted(fault.at for fault in job.schedule)
        for fault in job.schedule:
            assert fault.at >= 0 and fault.duration > 0
            assert fault.at + fault.duration <= PLAN.time_limit - CALM_AT_END_S + 0.001
            assert fault.nemesis in PLAN.nemesis
        changed += job != parent
    assert changed > 250


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


def test_runs_of_a_corpus_come_first() -> None:
    begin = [Job(PLAN.model_copy(update={"seed": 77}), ())]
    guide = Guide(fresh, range(5), begin)
    assert next(guide) == begin[0] and next(guide) == fresh(1)


def test_a_corpus_loses_nothing_of_what_an_exploration_that_ends_early_has_not_run(tmp_path: Path) -> None:
    begin = [Job(PLAN.model_copy(update={"seed": seed}), fresh(seed).schedule) for seed in (70, 71, 72)]
    guide = Guide(fresh, range(5), begin)
    job = next(guide)
    assert job is not None
    guide.take(0, outcome(job, 1))
    save(guide.finish().entries, tmp_path, guide.not_run)
    assert sorted(each.plan.seed for each in load(tmp_path)) == [70, 71, 72]
