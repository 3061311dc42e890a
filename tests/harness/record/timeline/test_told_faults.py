"""How a story tells faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from harness.plan import registry
from harness.record.timeline.faults import told_faults, told_steps, words_of
from nemesis.composites import Composite

#: What others say of a family's variants as well as they do themselves.
_AS_THE_FAMILY: Final = {"kill", "pause", "power", "partition"}


def told(nemesis: str, evidence: dict[str, Any], *targets: str) -> list[tuple[float, str]]:
    """Of a fault from 2 s to 9 s, in order of time."""
    row = {
        "nemesis": nemesis, "targets": list(targets), "start": 2_000_000_000, "end": 9_000_000_000,
        "evidence": json.dumps(evidence),
    }  # fmt: skip
    return [(line.time, line.text) for line in sorted(told_faults([row], "chaos-0"), key=lambda line: line.time)]


def families() -> Iterator[tuple[str, Any]]:
    for name in registry.names(registry.NEMESES):
        kind = registry.load(registry.NEMESES, name)
        if not issubclass(kind, Composite):
            yield name, kind


def test_every_nemesis_has_words() -> None:
    for family, kind in families():
        for name in (family, *(f"{family}:{variant}" for variant in kind.variants)):
            assert " strikes " not in words_of(name)[0], name


def test_what_variants_do_is_not_told_as_what_their_family_does() -> None:
    of_choreographies = {words_of(name) for name in ("choreography", "choreography:a", "choreography:b")}
    assert len(of_choreographies) == 3
    for family, kind in families():
        if family in _AS_THE_FAMILY:
            continue
        own = {variant for variant in kind.variants if words_of(f"{family}:{variant}") != words_of(family)}
        assert len(kind.variants.keys() - own) <= 1, f"{family}: {kind.variants.keys() - own}"


@pytest.mark.parametrize(("nemesis", "evidence", "nodes", "lines"), [
    ("disk:restored", {}, ["broker-1"],
     ["FAULT broker-1 is asked to stop, and starts on a copy of its disk from some seconds before", "that is over"]),
    ("disk:full", {}, ["broker-1", "broker-2"],
     ["FAULT the disk of broker-1 and broker-2 is full", "broker-1 and broker-2 have room again and start, if it had "
      "ended"]),
    ("partition:one-way:direction=incoming", {"direction": "incoming"}, ["broker-1"],
     ["FAULT broker-1 is cut off from the other nodes (what is sent to them is lost)", "the network is whole again"]),
    ("power:node", {"nodes": {"broker-1": {"lost_by_partition": {"chaos-0": 1, "chaos-1": 4}}}}, ["broker-1"],
     ["FAULT the power of broker-1 is cut (broker-1 loses 1 record of chaos-0 that was never synced)",
      "broker-1 has power again and starts"]),
    ("kill", {"skipped": "nobody is free"}, [], []),
])  # fmt: skip
def test_whom_a_fault_struck_and_what_it_did(
    nemesis: str, evidence: dict[str, Any], nodes: list[str], lines: list[str]
) -> None:
    assert [text for _, text in told(nemesis, evidence, *nodes)] == lines


def test_a_choreography_is_told_by_its_steps_each_at_its_time() -> None:
    steps = [
        {"step": "cut leader to f=follower", "at_s": 0.0, "links": ["broker-1 > broker-2"]},
        {"step": "cut f from controllers", "at_s": 0.1, "links": ["a > c", "b > c", "c > a", "c > b", "c > d"]},
        {"step": "past session", "at_s": 0.1, "waited_s": 3.0},
        {"step": "until out-of-isr f", "at_s": 3.1, "of": ["broker-2"], "waited_s": 1.5},
        {"step": "until new-leader", "at_s": 4.6, "waited_s": 1.0, "gave_up": True},
        {"step": "kill f", "at_s": 5.6, "struck": ["broker-2"]},
        {"step": "resume", "at_s": 5.7, "skipped": "there is nobody to resume"},
    ]
    assert told("choreography:late-answers", {"steps": steps}, "broker-1", "broker-2") == [
        (2.0, "FAULT the choreography late-answers begins"),
        (2.0, "choreography: cut leader to f=follower (broker-1 > broker-2)"),
        (2.1, "choreography: cut f from controllers (c > d, a <> c, b <> c)"),
        (pytest.approx(6.6), "choreography: until out-of-isr f (broker-2)"),
        (pytest.approx(7.6), "choreography: until new-leader (in vain)"),
        (pytest.approx(7.6), "choreography: kill f (broker-2)"),
        (pytest.approx(7.7), "choreography: resume: there is nobody to resume"),
        (9.0, "what the choreography struck is whole again"),
    ]


@pytest.mark.parametrize("steps", [7, {"step": 1}, [7], [{"step": "kill", "at_s": "x"}], [{"at_s": 1, "waited_s": []}]])
def test_what_is_no_step_is_left_out(steps: Any) -> None:
    assert len(told("choreography", {"steps": steps}, "broker-1")) == 2


def test_a_step_that_strikes_nobody_does_not_outweigh_what_the_cluster_does() -> None:
    steps = [{"step": "kill leader", "at_s": 0, "struck": ["broker-1"]}, {"step": "heal", "at_s": 1, "skipped": "none"}]
    assert [step.strikes for step in told_steps({"steps": steps})] == [True, False]


def test_what_a_fault_does_outweighs_that_it_is_over() -> None:
    row = {"nemesis": "kill", "targets": ["broker-1"], "start": 0, "end": 1, "evidence": "{}"}
    assert [line.strikes for line in told_faults([row], "")] == [True, False]
