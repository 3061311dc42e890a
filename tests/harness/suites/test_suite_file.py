"""A suite's file: what its plans are, and each mistake in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadArguments
from harness.suites.suite_file import read

FILE = """
name = "short one"
seeds = "1..2"
[all]
time_limit = "20s"
settings = { "replica.lag.time.max.ms" = 5000 }
[plans.kill]
nemesis = "kill"
expect = ["p99 < 2s"]
[plans.control]
nemesis = "power-outage-cluster"
seeds = "9"
expect = ["fail", "p99 < 3s"]
[plans.sizes]
seeds = "7"
expect = "fail"
[plans.sizes.matrix]
nemesis = ["pause", ["kill", "pause"]]
"settings.log.segment.bytes" = [1048576, 2097152]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def test_plans_have_what_all_have_their_seeds_and_what_is_expected(file: Path) -> None:
    suite = read(file)
    assert suite.name == "short one"
    assert [(run.name, run.seed, run.expect) for run in suite.runs[:3]] == [
        ("kill", 1, "pass"), ("kill", 2, "pass"), ("control", 9, "fail"),
    ]  # fmt: skip
    kill, _, control = suite.runs[:3]
    assert kill.fields == {"time_limit": 20.0, "settings": {"replica.lag.time.max.ms": "5000"}, "nemesis": ("kill",),
                           "expect": ("p99 < 2s",)}  # fmt: skip
    assert control.fields["expect"] == ("p99 < 3s",)
    assert len({run.key for run in suite.runs}) == len(suite.runs)


def test_a_matrix_makes_a_plan_of_each_combination(file: Path) -> None:
    sizes = read(file).runs[3:]
    assert [run.name for run in sizes] == [
        f"sizes[nemesis={nemesis}, settings.log.segment.bytes={size}]"
        for nemesis in ("pause", "kill,pause") for size in (1048576, 2097152)
    ]  # fmt: skip
    assert all(run.expect == "fail" and run.seed == 7 for run in sizes)
    assert sizes[3].fields["nemesis"] == ("kill", "pause")
    assert sizes[3].fields["settings"] == {"replica.lag.time.max.ms": "5000", "log.segment.bytes": "2097152"}


def test_without_a_name_it_is_called_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "nightly.toml").write_text("[plans.kill]\nnemesis = 'kill'\n")
    suite = read(tmp_path / "nightly.toml")
    assert (suite.name, [run.seed for run in suite.runs]) == ("nightly", [1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no plans: tables such as"),
        ("plans = 3", "has no plans"),
        ("[plan.kill]", "has 'plan', which no suite has; there are name, seeds, all, plans"),
        ("name = 'a/b'\n[plans.a]", "name 'a/b' must be letters"),
        ("name = 7\n[plans.a]", "name 7 must be letters"),
        ("[plans.a]\nnemsis = 'kill'", r"\[plans.a\] has 'nemsis', which no plan has"),
        ("[plans.a]\nseed = 3", r"\[plans.a\] has 'seed'; the file has seeds"),
        ("[plans.a]\nseeds = '3..1'", "runs backwards"),
        ("[plans.a]\nexpect = ['pass', 'fail']", "expect names two verdicts, pass and fail"),
        ("[plans.a]\nexpect = 'fial'", r"expect names 'fial' \(did you mean fail\?\); it is pass, fail, or"),
        ("[plans.a]\nexpect = 3", "expect: "),
        ("[plans.a.matrix]\n'nemesis.x' = [1]", "matrix has 'nemesis.x'; only settings, features, clients have"),
        ("[plans.a]\nsettings = 3\n[plans.a.matrix]\n'settings.x' = [1]", "matrix has 'settings.x'; only"),
        ("[plans.a]\nmatrix = 3", "matrix must be a table of lists"),
        ("[plans.a.matrix]\nnemesis = 'kill'", "matrix must be a table of lists"),
        ("[plans.a.matrix]\nnemesis = []", "matrix must be a table of lists"),
        ("[plans.a.matrix]\nnemsis = ['kill']", "has 'nemsis', which no plan has"),
        ("all = 3\n[plans.a]", r"\[all\] is 3; it must be a table"),
        ("seeds = '1..20000'\n[plans.a]", "asks for more than 10,000 runs"),
        ("[plans", "the suite .* cannot be read"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(BadArguments, match=message):
        read(tmp_path / "mine.toml")
