"""Whom a fault would strike, before there is a cluster: its nemesis is asked again and again, in situations that differ
in who leads, who is in an ISR and who is the active controller. Where its answer is always the same, that is who is
struck; where it follows one of these, that is told in words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from harness.cluster import Node
from harness.errors import describe
from harness.plan.plan import Plan
from harness.run.dry.recording import RecordingCluster
from nemesis import Nemesis, Situation

Thing = Literal["leaders", "isrs", "controller", "earlier faults"]
#: Nodes that are tried as leader, alone in an ISR, and active controller.
_TRIED: Final = 6


@dataclass(frozen=True)
class Whom:
    """names: who is struck, or, where that depends on something, who would be in one situation. depends_on: of the live
    cluster; (): of nothing. words: for people. why_nobody: a clause; "": somebody."""

    names: tuple[str, ...]
    words: str
    depends_on: tuple[Thing, ...] = ()
    why_nobody: str = ""

    def after_others(self) -> Whom:
        """The same, where it follows from whom earlier faults of its nemesis struck, which is not known either."""
        words = f"{self.words}, or whoever is next after those before"
        return self if self.why_nobody else replace(self, words=words, depends_on=(*self.depends_on, "earlier faults"))


@dataclass(frozen=True)
class _Live:
    """What a live cluster may be like. Ids."""

    leader: int
    alone: int | None
    active: int | None


def whom(
    nemesis: Nemesis, choice: Mapping[str, Any], cluster: RecordingCluster, plan: Plan, free: Collection[str],
    struck: Mapping[str, int],
) -> Whom:  # fmt: skip
    """free: nodes that no other fault holds. struck: by name, how often this nemesis has struck each so far."""
    brokers, controllers = [b.id for b in cluster.brokers], [c.id for c in cluster.controllers]
    base = _Live(brokers[0], None, controllers[0] if controllers else None)

    def chosen(live: _Live) -> tuple[str, ...]:
        situation = Situation(
            cluster.as_cluster(), frozenset(free), plan.strike,
            {broker: plan.partitions + 1 if broker == live.leader else 1 for broker in brokers}, live.active,
            {0: frozenset(brokers[: plan.replication_factor] if live.alone is None else [live.alone])}, struck,
        )  # fmt: skip
        if getattr(nemesis, "finished", lambda _: False)(situation):
            raise _Finished
        return tuple(node.name for node in nemesis.choose(choice, situation))

    names = {node.id: node.name for node in cast(Sequence[Node], cluster.machines)}
    try:
        varied = dict(_varied(base, brokers, controllers))
        found = {thing: {who: chosen(live) for who, live in lives} for thing, lives in varied.items()}
        usual = chosen(base)
    except _Finished:
        return Whom((), "nobody: nothing is left to do for it", why_nobody="nothing is left to do for it")
    except Exception as error:  # a user's own may ask for more than there is
        why = f"whom it strikes cannot be told without a cluster: {describe(error)}"
        return Whom((), why, why_nobody=why)
    depends = tuple(thing for thing, outcomes in found.items() if {*outcomes.values(), usual} != {usual})
    example = usual or next((each for outcomes in found.values() for each in outcomes.values() if each), ())
    if not example:
        why = "nobody whom it strikes is there and free of other faults"
        return Whom((), f"nobody: {why}", why_nobody=why)
    if not depends:
        return Whom(example, ", ".join(example))
    told = {thing: {names[who]: set(each) for who, each in found[thing].items() if each} for thing in depends}
    return Whom(example, _words(told, example), depends)


class _Finished(Exception):
    """Its nemesis has done what it is for."""


def _varied(
    base: _Live, brokers: Sequence[int], controllers: Sequence[int]
) -> Iterator[tuple[Thing, list[tuple[int, _Live]]]]:
    """By what is different, with the id of whom it is about."""
    yield "leaders", [(each, _Live(each, None, base.active)) for each in brokers[:_TRIED]]
    yield "isrs", [(each, _Live(base.leader, each, base.active)) for each in brokers[:_TRIED]]
    yield "controller", [(each, _Live(base.leader, None, each)) for each in controllers[:_TRIED]]


_ITSELF: Final[Mapping[Thing, str]] = {
    "leaders": "the broker that leads most partitions then", "isrs": "a broker that is alone in an ISR then",
    "controller": "the active controller then",
}  # fmt: skip
_ANOTHER: Final[Mapping[Thing, str]] = {
    "leaders": "a broker that leads fewer partitions than another then", "isrs": "a broker that is not alone in an ISR",
    "controller": "a controller that is not the active one then",
}  # fmt: skip


def _words(told: Mapping[Thing, Mapping[str, set[str]]], example: Sequence[str]) -> str:
    """told: by what the choice depends on, and whom that is about, who is struck."""
    everybody = [struck for outcomes in told.values() for struck in outcomes.values()]
    always = [name for name in example if all(name in struck for struck in everybody)]
    if len(always) == len(example):  # the same ones in another order
        return f"{', '.join(always)}, first of these {' and '.join(_ITSELF[thing] for thing in told)}"
    parts = [*always]
    for thing, outcomes in told.items():
        if all(who in struck for who, struck in outcomes.items()):
            parts.append(_ITSELF[thing])
        elif all(who not in struck for who, struck in outcomes.items()):
            parts.append(_ANOTHER[thing])
        else:
            may = sorted({name for struck in outcomes.values() for name in struck} - {*always})
            parts.append(f"of {', '.join(may)} whom the {thing} of the moment make it")
    if len(example) > len(parts):
        parts.append(f"{len(example) - len(parts)} more that go with it")
    return ", ".join(parts)
