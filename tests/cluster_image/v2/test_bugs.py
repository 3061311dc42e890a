"""Each bug of this generation, switched on, changes what its rule decides, and switched off leaves nothing behind."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

import pytest

from checkers.properties import HISTORY_PROPERTIES, V2_INVARIANTS, V2_PROPERTIES
from cluster_image.config import ConfigError
from cluster_image.config import v2 as config
from cluster_image.v2 import bugs, launch, rules
from cluster_image.v2.metadata.paths import Isr
from harness.plan.plan import Plan
from harness.targets.v2.target import V2

#: What is decided, without the bug and with it.
CASES: dict[str, tuple[Callable[[], object], object, object]] = {
    "M31": (lambda: rules.is_own_isr(Isr((1, 2), 4), Isr((1, 2), 4)), True, False),
    "M50": (lambda: rules.isr_of_new_leader((1, 2, 4), (2, 3, 4), {1, 2, 3, 4}), [2, 3, 4], [2, 3, 4, 1]),
    "M52": (lambda: rules.may_close(3, 4, True, True), False, True),
    "V01": (lambda: rules.may_lead(1, (2, 3), (1, 2, 3), False), False, True),
    "V02": (lambda: rules.is_committed([5, 4], 5), False, True),
    "V03": (lambda: rules.may_join_isr(4, 5), False, True),
    "V04": (lambda: rules.next_epoch(4), 5, 4),
}
PROPERTIES = "node.id=1\ncluster.id=c\nzookeeper.connect=h:1\nlisteners=h:2\nlog.dirs=/d\n"


@pytest.mark.parametrize("bug", CASES)
def test_a_bug_changes_its_rule_while_it_is_on(bug: str) -> None:
    decision, sound, broken = CASES[bug]
    assert decision() == sound
    with launch.switched_on(config.parse(f"{PROPERTIES}chaos.bug={bug}")):
        assert decision() == broken
    assert decision() == sound
    with launch.switched_on(config.parse(PROPERTIES)):
        assert decision() == sound


def test_every_bug_replaces_a_rule_that_there_is_and_fits_its_place() -> None:
    assert [bug.id for bug in bugs.all_bugs()] == sorted(CASES)
    for bug in bugs.all_bugs():
        rule = getattr(importlib.import_module(f"cluster_image.{bug.module}"), bug.rule)
        assert rule.__module__ == f"cluster_image.{bug.module}", bug.id
        assert inspect.signature(rule) == inspect.signature(bug.replacement), bug.id
        assert set(bug.properties) <= {*HISTORY_PROPERTIES, *V2_PROPERTIES, *V2_INVARIANTS}, bug.id
        assert bug.title and bug.source and bug.nemesis, bug.id


def test_a_target_has_its_own_bugs() -> None:
    assert [id_ for id_, _, _ in V2().bugs()] == sorted(CASES)
    assert all("--target v2 " in options and "v2.leader.epochs=true" in options for _, options, _ in V2().bugs())
    with pytest.raises(ConfigError, match=r"chaos\.bug=M01"):
        config.parse(f"{PROPERTIES}chaos.bug=M01")
    for target, bug, other in (("v2", "M01", "kraft"), ("kraft", "V01", "v2")):
        with pytest.raises(ValueError, match=f"--bug {bug} is of target {other}, not {target}; give --target {other}"):
            Plan(run="r", on="simulation", target=target, bug=bug)
    for target, valid in (("v2", "M31, "), ("kraft", "L01, ")):
        with pytest.raises(ValueError, match=f"--bug: unknown bug 'M99'; valid are {valid}"):
            Plan(run="r", on="simulation", target=target, bug="M99")
