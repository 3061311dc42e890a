"""Faults asked for on the command line and in files: variants, knobs, pace, and schedules edited by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.errors import BadArguments
from harness.plan import registry, schedule, schedule_file
from harness.plan.plan import Plan
from harness.plan.schedule import Pace

NODES = ("broker-1", "broker-2", "controller-1")
BY_HAND = """
[[fault]]
nemesis = "pause"
at = "12s"
duration = 3
targets = ["broker-2"]

[[fault]]
nemesis = "partition:one-way"
at = 2.5
duration = "1500ms"
choice = { direction = "incoming" }
"""


def read(text: str, directory: Path, seed: int = 1, time_limit: float = 60.0) -> schedule.Schedule:
    path = directory / "faults.toml"
    path.write_text(text)
    nemeses = registry.make_nemeses(schedule_file.names_in(path))
    return schedule_file.read(path, nemeses, seed, time_limit, NODES)


def test_a_schedule_by_hand_is_put_in_order_and_what_it_leaves_open_is_drawn(tmp_path: Path) -> None:
    first, second = faults = read(BY_HAND, tmp_path)
    assert (first.nemesis, first.at, first.duration) == ("partition:one-way", 2.5, 1.5)
    assert first.choice["direction"] == "incoming" and 0 <= first.choice["node"] < 1
    assert (second.nemesis, second.at, second.choice["targets"]) == ("pause", 12.0, ["broker-2"])
    assert faults == read(BY_HAND, tmp_path) != read(BY_HAND, tmp_path, seed=2)


def test_what_a_run_saves_reads_back_as_it_was_and_as_a_file_by_hand(tmp_path: Path) -> None:
    nemeses = registry.make_nemeses(["power-outage", "partition:bridge", "partition:one-way:direction=outgoing"])
    drawn = schedule.build(nemeses, 3, 120.0)
    assert {fault.nemesis for fault in drawn} == nemeses.keys()
    schedule_file.save(drawn, tmp_path)
    assert schedule_file.load(tmp_path) == drawn
    assert schedule_file.read(tmp_path / "schedule.toml", nemeses, 99, 120.0, NODES) == drawn
    hard = (drawn[0].model_copy(update={"into_outages": True}), *drawn[1:])
    schedule_file.save(hard, tmp_path)
    assert schedule_file.load(tmp_path) == hard
    schedule_file.save((), tmp_path)
    assert schedule_file.load(tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[fault]", "is not TOML"),
        ("[[faults]]\n", "faults"),
        ('[[fault]]\nnemesis = "kill"\nat = 1\n', "fault 1, duration: field required"),
        ('[[fault]]\nnemesis = "kill"\nat = "soon"\nduration = 1\n', "fault 1, at: 'soon' is no time"),
        ('[[fault]]\nnemesis = "kill"\nat = 1\nduration = 0\n', "fault 1, duration: "),
        ('[[fault]]\nnemesis = "kill"\nat = 59\nduration = 5\n', "lasts until 64 s and is to end 2 s before"),
        ('[[fault]]\nnemesis = "kill"\nat = 54\nduration = 5\n', "lasts until 59 s and is to end 2 s before"),
        ('[[fault]]\nnemesis = "kill"\natt = 1\nduration = 5\n', "fault 1, att: there is no such thing; there are"),
        ('[[fault]]\nnemesis = "kill"\nat = 1\nduration = 5\ntargets = []\n', "fault 1, targets: "),
        ("# nothing\n", "holds no fault"),
        ('[[fault]]\nnemesis = "kil"\nat = 1\nduration = 5\n', "there is no nemesis 'kil'"),
        ('[[fault]]\nnemesis = "kill"\nat = 1\nduration = 5\ntargets = ["broker-9"]\n', "'broker-9', which is no node"),
        ('[[fault]]\nnemesis = "kill"\nat = 1\nduration = 5\nchoice = { rack = 1 }\n', "has a choice 'rack'"),
        ('[[fault]]\nfault = 1\nnemesis = "kill"\nat = 1\nduration = 5\n' * 2, "a number to two faults"),
    ],
)
def test_a_file_that_makes_no_sense_is_answered_in_a_sentence(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match=message):
        read(text, tmp_path)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("partition:brige", "no variant 'brige' of nemesis partition \\(did you mean bridge\\?\\); valid: one, halves"),
        ("kill:term:x=1", "sets 'x', which is no knob of it; it has none"),
        ("partition:one-way:direction=up", "direction cannot be 'up'; valid: drawn, outgoing, incoming"),
        ("partition:one-way:way=incoming", "sets 'way', which is no knob of it; valid: direction"),
        ("partition:one-way:direction=incoming:direction=incoming", "sets direction twice"),
    ],
)
def test_a_nemesis_that_is_not_there_is_answered_in_a_sentence(wanted: str, message: str) -> None:
    with pytest.raises(BadArguments, match=message):
        registry.make_nemeses([wanted])


def test_a_knob_is_set_for_every_fault_that_is_drawn() -> None:
    for direction in ("incoming", "outgoing"):
        nemeses = registry.make_nemeses([f"partition:one-way:direction={direction}"])
        assert {fault.choice["direction"] for fault in schedule.build(nemeses, 1, 300.0)} == {direction}


def test_interval_and_recovery_set_the_pace_of_each_nemesis() -> None:
    nemeses = registry.make_nemeses(["pause", "partition"])
    faults = schedule.build(nemeses, 5, 300.0, Pace(interval=10.0, recovery=6.0))
    for name in nemeses:
        mine = [fault for fault in faults if fault.nemesis == name]
        assert len(mine) >= 28
        for one, other in pairwise(mine):
            assert other.at - one.at == pytest.approx(10.0, abs=0.01)
            assert other.at - (one.at + one.duration) >= 6.0 - 0.01
    calm = schedule.build({"pause": nemeses["pause"]}, 5, 300.0, Pace(recovery=6.0))
    as_drawn = schedule.build({"pause": nemeses["pause"]}, 5, 300.0)
    assert [f.duration for f in calm] == [f.duration for f in as_drawn[: len(calm)]]
    assert all(b.at - (a.at + a.duration) >= 5.99 for a, b in pairwise(calm))


def test_a_composite_is_never_cut_short_and_ends_in_time() -> None:
    nemeses = registry.make_nemeses(["rolling-restart"])
    faults = schedule.build(nemeses, 5, 60.0, Pace(interval=5.0, recovery=2.0))
    as_drawn = schedule.build(nemeses, 5, 60.0)
    assert [f.duration for f in faults[:3]] == [f.duration for f in as_drawn[:3]] and len(faults) % 3 == 0
    assert max(fault.at + fault.duration for fault in faults) <= 60.0 - schedule.CALM_AT_END_S
    for one, other in pairwise(faults):
        assert other.at - (one.at + one.duration) >= 1.99


def test_the_pace_is_part_of_the_command(tmp_path: Path) -> None:
    plan = Plan(run="r", nemesis=("pause",), interval=10.0, recovery=5.0)
    assert "--nemesis pause --interval 10 --recovery 5" in plan.command()
    assert "--schedule a.toml" in Plan(run="r", schedule="a.toml").command()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run --interval 5s --recovery 5s", "--recovery 5s leaves nothing of --interval 5s"),
        ("run --interval soon", "--interval: 'soon' is no time"),
        ("run --interval 0", "--interval is 0; it must be a time above 0"),
        ("run --schedule missing.toml", "missing.toml cannot be read: No such file"),
        ("run --schedule x.toml --nemesis kill", "--schedule says which faults there are"),
        ("explore --recovery 1x", "--recovery: '1x' is no time"),
    ],
)
def test_bad_arguments(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    assert ended.value.code == 254
    assert message in capsys.readouterr().err


def test_a_schedule_by_hand_is_carried_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[fault]]\nnemesis = "partition:clients"\nat = 2\nduration = 3\ntargets = ["broker-1"]\n'
        '[[fault]]\nnemesis = "partition:majorities-ring"\nat = 3\nduration = 4\n'
    )
    with pytest.raises(SystemExit) as ended:
        where = f"--schedule {file} --results {tmp_path / 'results'}"
        cli.main(f"run --on simulation --time-limit 12 --seed 4 --rate 50 {where}".split())
    output = capsys.readouterr().out
    assert ended.value.code == 0, output
    (directory,) = (tmp_path / "results").iterdir()
    assert [fault.nemesis for fault in schedule_file.load(directory)] == [
        "partition:clients",
        "partition:majorities-ring",
    ]
    assert "partition:clients" in output and "clients > broker-1" in output, "overlapping, each with its own evidence"
