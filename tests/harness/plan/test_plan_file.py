"""Plans as files: what a run saves can be given again, and mistakes are told in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadArguments
from harness.plan import plan_file
from harness.plan.plan import Plan


def test_what_is_saved_is_read_as_it_was(tmp_path: Path) -> None:
    plan = Plan(
        run="r", target="kafka:4.2.0", nemesis=("kill", "power:leader"), seed=7, time_limit=12.5, acks="1",
        settings={"replica.lag.time.max.ms": "5000"}, features={"eligible.leader.replicas.version": "0"},
        timeouts="kafka", interval=3.0,
    )  # fmt: skip
    plan_file.save(plan, tmp_path)
    assert Plan(run="r", **plan_file.read(tmp_path / plan_file.PLAN_FILE)) == plan


def test_a_plan_that_somebody_wrote(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('nemesis = ["kill", "pause"]\ntime_limit = "2m"\n[settings]\n"a.b" = 3\n"c" = true\n')
    assert plan_file.read(path) == {
        "nemesis": ("kill", "pause"), "time_limit": 120.0, "settings": {"a.b": "3", "c": "true"},
    }  # fmt: skip
    path.write_text('nemesis = "none"\n')
    assert plan_file.read(path) == {"nemesis": ()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeed = 1", "has 'seeed', which no plan has \\(did you mean seed\\?\\); there are nemesis"),
        ('run = "x"', "has 'run', which no plan has"),
        ('time_limit = "soon"', "time_limit: 'soon' is no time"),
        ("settings = 3", "settings: it must be a table"),
        ("seed = 'x'", "seed: 'x': input should be a valid integer"),
        ("settings = {a = [1]}", r"settings: a: \[1\] is neither a text nor a number"),
        ("nemesis = 5", "nemesis: 5 is no name, nor a list of names"),
        ("nemesis = [1]", r"nemesis: \[1\] is no name"),
        ("target = 5", "target: 5: input should be a valid string"),
        ("acks = 'some'", "acks: 'some': input should be 'all', '1' or '0'"),
        ("nemesis = ", "cannot be read"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(BadArguments, match=message):
        plan_file.read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match="does not exist"):
        plan_file.read(tmp_path / "plan.toml")
