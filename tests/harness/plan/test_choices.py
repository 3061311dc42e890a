"""What somebody may write into a schedule by hand is told before the run, in a sentence."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.errors import BadArguments
from harness.plan import choices, registry, schedule_file
from nemesis.composites import Composite

NODES = [f"{role}-{number}" for role in ("broker", "controller") for number in (1, 2, 3)]


def every_nemesis() -> list[str]:
    names = []
    for family in registry.names(registry.NEMESES):
        kind = registry.load(registry.NEMESES, family)
        if not issubclass(kind, Composite):
            names += [family, *(f"{family}:{variant}" for variant in kind.variants)]
    return names


@pytest.mark.parametrize("name", every_nemesis())
def test_whatever_a_nemesis_draws_may_be_written(name: str) -> None:
    nemesis = registry.make_nemeses([name])[name]
    for seed in range(50):
        drawn = nemesis.draw(Random(seed)).choice
        assert choices.problem(nemesis, drawn, ()) is None, drawn


@pytest.mark.parametrize(
    ("name", "choice", "targets", "said"),
    [
        ("network:loss", {"shape": {"loss": "0.5"}}, (), "loss of its shape is '0.5'; valid: a number from 0 to 1"),
        ("network:rate", {"shape": {"rate_kbit": -5}}, (), "rate_kbit of its shape is -5"),
        ("network:rate", {"shape": {"speed": 5}}, (), "its shape has 'speed'; there are delay_ms"),
        ("network:rate", {"shape": 5}, (), "its shape is 5; valid: a table"),
        ("network", {"links": "bogus"}, (), "its links is 'bogus'; valid: all, between, controller, leader, node"),
        ("network", {"direction": "sideways"}, (), "its direction is 'sideways'; valid: both, incoming, outgoing"),
        ("network", {"links": "between"}, ["broker-1"], "two targets"),
        ("partition:between", {}, ["broker-1"], "two targets"),
        ("membership", {"variant": "rolling"}, (), "its variant is 'rolling'; valid: controlled-shutdown, new-id"),
        ("membership:reassign", {"node": 1.0}, (), "its node is 1.0; valid: a number from 0 to below 1"),
        ("membership:new-id", {}, ["controller-1"], "it strikes one broker, and its targets are controller-1"),
        ("membership:reassign", {}, ["broker-1", "broker-2"], "it strikes one broker"),
        ("disk:corrupt", {"what": "segment"}, (), "its what is 'segment'; valid: a list of checkpoint, index, segment"),
        ("disk:corrupt", {"what": ["heart"]}, (), "its what is ['heart']; valid: a list of"),
        ("disk:slow", {"iops": 0}, (), "its iops is 0; valid: a number above 0"),
        ("clock:jump", {"offset_s": "abc"}, (), "its offset_s is 'abc'; valid: a number"),
        ("clock:drift", {"drift": -2}, (), "its drift is -2; valid: a number from -0.9 to 0.9"),
        ("power", {"in_write": -1}, (), "its in_write is -1; valid: no number below 0"),
        ("kill", {"hammer": 1}, (), "it has a choice 'hammer'; there are"),
    ],
)
def test_what_makes_no_sense_is_told(name: str, choice: dict[str, Any], targets: list[str], said: str) -> None:
    nemesis = registry.make_nemeses([name])[name]
    assert said in str(choices.problem(nemesis, choice, targets))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('nemesis = "network:loss"\nchoice = {shape = {loss = 2}}', "the fault network:loss at 1 s: loss of its shape"),
        ('nemesis = "last-replica-standing"', "stands for several faults; write them"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_before_the_run(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "schedule.toml"
    path.write_text(f"[[fault]]\nat = 1\nduration = 2\n{text}\n")
    nemeses = registry.make_nemeses(schedule_file.names_in(path))
    with pytest.raises(BadArguments, match=said):
        schedule_file.read(path, nemeses, 1, 30.0, NODES)
