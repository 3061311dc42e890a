"""Explorations in parts: which seeds each has, which are left, and what is told where parts do not make up a whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.cli.histories.check import _judge_together
from harness.errors import BadArguments, ExitCode
from harness.explore.parts import join, left, part, read
from harness.plan.plan import Plan
from harness.record.judging import Outcome
from harness.report.terminal import Terminal
from spark_history.dataset import DatasetWriter
from spark_history.schema import TABLES

PLAN = Plan(run="explore", on="simulation", nemesis=("kill",))


def simulated(
    directory: Path, asked: Sequence[int], done: Sequence[int], of: Sequence[int], plan: Plan = PLAN,
    failing: Sequence[tuple[int, str]] = (), guided: bool = False, drawn: Sequence[str] = ("settings",),
) -> Path:  # fmt: skip
    directory.mkdir()
    part(directory, plan, asked, of, guided, drawn).write()
    empty = {name: schema.empty_table() for name, schema in TABLES.items()}
    with DatasetWriter(directory / "dataset", 0) as writer:
        for seed in done:
            writer.add(plan.model_copy(update={"run": f"s{seed}", "seed": seed}).model_dump(mode="json"), empty)
    if failing:
        told = {"failing": [{"seed": seed, "result": result} for seed, result in failing]}
        (directory / "explore.json").write_text(json.dumps(told))
    return directory


def test_parts_that_make_up_a_whole_have_nothing_to_say(tmp_path: Path) -> None:
    a = simulated(tmp_path / "a", [0, 2], [0, 2], range(4))
    b = simulated(tmp_path / "b", [1, 3], [3, 1], range(4))
    joined = join([read(a), read(b)])
    assert (list(joined.lines), joined.complete, joined.lost) == ([], True, 0)


@pytest.mark.parametrize(("done", "of", "said"), [
    ([[0, 2], [1]], range(4), "not simulated: 1 of 4 seeds: 3"),
    ([[0, 2], [1, 2, 3]], range(4), "simulated more than once: seeds 2"),
    ([[0, 2]], range(6), "not simulated: 4 of 6 seeds: 1, 3..5"),
    ([range(0, 60, 2)], range(60), f"not simulated: 30 of 60 seeds: {', '.join(map(str, range(1, 40, 2)))}, …"),
])  # fmt: skip
def test_seeds_that_lack_or_come_twice_are_named(
    tmp_path: Path, done: Sequence[Sequence[int]], of: Sequence[int], said: str
) -> None:
    parts = [read(simulated(tmp_path / str(n), seeds, seeds, of)) for n, seeds in enumerate(done)]
    joined = join(parts)
    assert list(joined.lines) == [said] and not joined.complete


def test_parts_of_two_explorations_are_told_apart(tmp_path: Path) -> None:
    a = simulated(tmp_path / "a", [0], [0], [0, 1])
    b = simulated(tmp_path / "b", [1], [1], [0, 1], PLAN.model_copy(update={"rate": 7.0}))
    joined = join([read(a), read(b)])
    assert not joined.complete
    assert list(joined.lines) == [f"{b} is of another exploration than {a}: its rate is 7.0, not {PLAN.rate}"]


def test_parts_whose_seeds_draw_other_things_are_of_two_explorations(tmp_path: Path) -> None:
    a = simulated(tmp_path / "a", [0], [0], [0, 1])
    b = simulated(tmp_path / "b", [1], [1], [0, 1], drawn=())
    (line,) = join([read(a), read(b)]).lines
    assert line == f"{b} is of another exploration than {a}: its settings is not drawn by each seed"
    told = json.loads((b / "seeds.json").read_text())
    del told["drawn"]
    (b / "seeds.json").write_text(json.dumps(told))
    (line,) = join([read(a), read(b)]).lines
    assert "is of an older version" in line


def test_a_part_that_does_not_say_what_it_is_is_named(tmp_path: Path) -> None:
    a = simulated(tmp_path / "a", [0, 1], [0, 1], [0, 1])
    joined = join([read(a)], [tmp_path / "b"])
    assert not joined.complete
    assert list(joined.lines) == [f"{tmp_path / 'b'} does not say of which exploration it is: it has no seeds.json"]


def test_a_run_that_left_no_history_is_counted(tmp_path: Path) -> None:
    """It was simulated, and nothing of it is judged again."""
    joined = join([read(simulated(tmp_path / "a", [0, 1], [1], [0, 1], failing=[(1, "fail"), (0, "hang")]))])
    assert (list(joined.lines), joined.complete, joined.lost) == (["left no history: 1 hang"], True, 1)


def test_a_run_that_was_lost_and_made_again_is_there(tmp_path: Path) -> None:
    a = read(simulated(tmp_path / "a", [0, 1, 2], [1], [0, 1, 2], failing=[(0, "hang")]))
    again = read(simulated(tmp_path / "b", [0], [0], [0, 1, 2]))
    joined = join([a, again])
    assert (list(joined.lines), joined.lost) == (["not simulated: 1 of 3 seeds: 2"], 0)


def test_of_a_guided_exploration_runs_are_counted_and_not_seeds(tmp_path: Path) -> None:
    whole = read(simulated(tmp_path / "a", [0, 1], [0, 0], [0, 1], guided=True))
    short = read(simulated(tmp_path / "b", [0, 1], [5], [0, 1], guided=True))
    assert join([whole]).complete
    assert list(join([short]).lines) == [f"{short.directory} was cut short: 1 of 2 runs"]


def test_what_is_left_is_what_none_has_simulated(tmp_path: Path) -> None:
    a = simulated(tmp_path / "a", range(5), [0, 3], range(5))
    b = simulated(tmp_path / "b", [4], [4], range(5))
    assert left([a, b], PLAN.model_copy(update={"seed": 1, "run": "explore"}), range(6), ["settings"]) == [1, 2, 5]


def test_what_cannot_be_gone_on_from_is_refused(tmp_path: Path) -> None:
    other = simulated(tmp_path / "other", [0], [0], [0], PLAN.model_copy(update={"acks": "1"}))
    with pytest.raises(BadArguments, match="is another exploration: its acks is 1, not all"):
        left([other], PLAN, [0, 1], ["settings"])
    varied = simulated(tmp_path / "varied", [0], [0], [0], drawn=["producers", "settings"])
    with pytest.raises(BadArguments, match="its producers is drawn by each seed"):
        left([varied], PLAN, [0, 1], ["settings"])
    guided = simulated(tmp_path / "guided", [0], [0], [0], guided=True)
    with pytest.raises(BadArguments, match="is guided; give its --corpus"):
        left([guided], PLAN, [0, 1], ["settings"])
    with pytest.raises(BadArguments, match=r"is no exploration: it has no seeds\.json"):
        left([tmp_path], PLAN, [0, 1], ["settings"])
    (other / "seeds.json").write_text('{"plan": 5}')
    with pytest.raises(BadArguments, match="is not what chaos explore writes"):
        left([other], PLAN, [0, 1], ["settings"])


@pytest.mark.parametrize(("verdicts", "done", "code"), [
    (["pass", "unknown: vacuous: nothing struck"], [0, 1], ExitCode.PASS),
    (["pass", "unknown: a final read is missing"], [0, 1], ExitCode.UNKNOWN),
    (["unknown: vacuous: nothing struck"] * 2, [0, 1], ExitCode.UNKNOWN),
    (["pass"], [0], ExitCode.UNKNOWN),
    (["pass", "fail: a lost append"], [0, 1], ExitCode.FAIL),
])  # fmt: skip
def test_parts_are_judged_together_as_an_exploration_is(
    tmp_path: Path, verdicts: Sequence[str], done: Sequence[int], code: ExitCode
) -> None:
    codes = {"pass": ExitCode.PASS, "fail": ExitCode.FAIL, "unknown": ExitCode.UNKNOWN}
    outcomes = []
    for text in verdicts:
        verdict, _, reason = text.partition(": ")
        outcomes.append(Outcome(text, {"verdict": verdict, "reason": reason, "exit_code": codes[verdict]}))
    explored = [read(simulated(tmp_path / "a", [0, 1], done, [0, 1]))]
    assert _judge_together(explored, outcomes, Terminal(), []) == code


def test_a_run_without_a_history_is_a_failure_of_the_harness(tmp_path: Path) -> None:
    explored = [read(simulated(tmp_path / "a", [0, 1], [0], [0, 1], failing=[(1, "hang")]))]
    passed = Outcome("a", {"verdict": "pass", "reason": "", "exit_code": ExitCode.PASS})
    assert _judge_together(explored, [passed], Terminal(), []) == ExitCode.HARNESS_FAILURE
