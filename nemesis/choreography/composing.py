"""Choreographies drawn at random, and changed a little: what makes them smaller, and what makes them others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from harness.targets.timing import Timing
from nemesis.choreography.language import (
    CONDITIONS,
    Elect,
    For,
    Link,
    Past,
    Role,
    Step,
    Steps,
    Strike,
    Until,
    parse,
    roles_of,
    text,
)  # fmt: skip

BROKERS: Final = ("leader", "follower", "other", "new-leader")
CONTROLLERS: Final = ("controller", "standby")
_GROUPS: Final = ("brokers", "brokers", "controllers", "everybody")
_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
#: What a step takes where all goes well, in seconds: the rest of it is waiting.
_DONE_S: Final = 0.2
#: Of a condition: session, lag, or neither of them has to pass.
_TAKES: Final = {"new-leader": "session", "fenced": "session", "new-epoch": "session", "out-of-isr": "lag"}
_SOON_S: Final = 2.0


def compose(random: Random) -> Steps:
    """Three to seven steps that break something or wait for it; what was broken is mended by one of those after it, or
    at the end. At most one node loses its power."""
    broken: list[Step] = []  # what mends it
    steps: list[Step] = []
    lost = False
    for _ in range(random.randint(3, 7)):
        begun = bool(steps)
        weights = (6, 5, 5 * begun, 4 * bool(broken), begun)
        kind = random.choices(("strike", "link", "wait", "mend", "elect"), weights)[0]
        if steps and not isinstance(steps[-1], Until | For | Past) and random.random() < 0.4:
            kind = "wait"
        match kind:
            case "strike":
                step, mend, lost = _strike(random, lost)
                steps.append(step)
                broken.append(mend)
            case "link":
                steps.append(_link(random))
                broken.append(Link("heal"))
            case "wait":
                steps.append(_wait(random, steps))
            case "mend":
                steps.append(broken.pop(random.randrange(len(broken))))
            case _:
                steps.append(Elect())
    return tuple(steps)


def _strike(random: Random, lost: bool) -> tuple[Strike, Strike, bool]:
    verb = random.choices(("pause", "kill", "stop", "power-off"), (4, 4, 1, 0 if lost else 2))[0]
    whom = Role(random.choice(BROKERS) if random.random() < 0.85 else random.choice(CONTROLLERS))
    late = random.choice((0.0, 0.0, 2.0, 4.0)) if verb == "power-off" else 0.0
    return Strike(verb, whom, late), Strike("resume" if verb == "pause" else "start"), lost or verb == "power-off"


def _link(random: Random) -> Link:
    some = Role(random.choice(BROKERS) if random.random() < 0.85 else random.choice(CONTROLLERS))
    others = [role for role in BROKERS if role != some.word]
    whom = random.choice(_GROUPS) if random.random() < 0.6 else (Role(random.choice(others)),)
    if random.random() < 0.3:
        return Link("delay", (some,), whom, one_way=True, by=random.choice((0.5, 1.5, 3.0)))
    if random.random() < 0.15:  # what all of them send to that one is lost
        return Link("cut", random.choice(_GROUPS), (some,), one_way=True)
    return Link("cut", (some,), whom, one_way=random.random() < 0.3)


def _wait(random: Random, steps: Sequence[Step]) -> Step:
    """Mostly for what the step before it may bring about."""
    if random.random() < 0.35:
        return For(random.choice(_SECONDS)) if random.random() < 0.7 else Past(random.choice(("session", "lag")))
    before = [(step, role) for step in steps for role in roles_of(step) if role.word in BROKERS]
    if not before:
        return For(random.choice(_SECONDS))
    step, role = before[-1]
    leads = role.word in ("leader", "new-leader")
    conditions: tuple[str, ...]
    match step:
        case Strike(verb="pause" | "kill" | "stop" | "power-off"):
            conditions = ("new-leader", "new-leader", "new-epoch", "fenced") if leads else ("fenced", "out-of-isr")
        case Link(verb="cut", whom=whom) if leads:
            conditions = ("out-of-isr", "behind") if whom == "brokers" else ("new-leader", "new-epoch")
        case Link():
            conditions = ("behind", "out-of-isr", "out-of-isr")
        case _:
            conditions = ("in-isr", "caught-up", "unfenced", "new-leader")
    if steps[-1] is not step:  # mended meanwhile, or waited for already
        conditions = ("in-isr", "in-isr", "caught-up", "unfenced")
    condition = random.choice(conditions)
    if condition in ("out-of-isr", "behind") and leads:
        role = Role("follower")
    return Until(condition, Role(role.word.removeprefix("new-")) if CONDITIONS[condition].of else None)


def expected_s(steps: Steps, timing: Timing) -> float:
    """Seconds that it takes where nothing is waited for in vain."""
    passed = {"session": timing.session + 1.0, "lag": 1.6 * timing.lag}
    total = 0.0
    for step in steps:
        match step:
            case For():
                total += step.seconds
            case Past():
                total += passed[step.what]
            case Until():
                takes = passed.get(_TAKES.get(step.condition, ""), _SOON_S + timing.start)
                total += min(step.within, takes)
            case _:
                total += _DONE_S + (step.late if isinstance(step, Strike) else 0.0)
    return total


def smaller(written: str) -> Iterator[str]:
    """With one step less each, and then with one role less in a link or a shorter time."""
    steps = parse(written)
    candidates = [(*steps[:place], *steps[place + 1 :]) for place in range(len(steps)) if len(steps) > 1]
    for place, step in enumerate(steps):
        candidates += [(*steps[:place], less, *steps[place + 1 :]) for less in _less(step)]
    for candidate in candidates:
        if _stands(candidate, _power_cuts(steps)):
            yield text(candidate)


def _less(step: Step) -> Iterator[Step]:
    match step:
        case For(seconds):
            yield from (For(shorter) for shorter in _SECONDS if shorter < seconds)
        case Link(some=(_, _, *_) as some):
            yield from (replace(step, some=tuple(each for each in some if each is not one)) for one in some)
        case Strike(late=late) if late:
            yield replace(step, late=0.0)


def changed(written: str, random: Random) -> str:
    """A step added, dropped, exchanged with another, or one of its own with something else in it."""
    steps = parse(written)
    for _ in range(_ATTEMPTS):
        place = random.randrange(len(steps))
        kind = random.choice(("add", "drop", "swap", "replace", "replace"))
        new = random.choice(compose(random))
        match kind:
            case "add":
                candidate = (*steps[:place], new, *steps[place:])
            case "drop":
                candidate = (*steps[:place], *steps[place + 1 :])
            case "swap":
                moved = list(steps)
                other = random.randrange(len(steps))
                moved[place], moved[other] = moved[other], moved[place]
                candidate = tuple(moved)
            case _:
                candidate = (*steps[:place], _replaced(steps[place], new, random), *steps[place + 1 :])
        if candidate and candidate != steps and _stands(candidate, max(_power_cuts(steps), 1)):
            return text(candidate)
    return written


_ATTEMPTS: Final = 10


def _replaced(step: Step, new: Step, random: Random) -> Step:
    match step:
        case For():
            return For(random.choice(_SECONDS))
        case Strike(whom=Role()) | Until(whom=Role()):
            return replace(step, whom=Role(random.choice(BROKERS)))
        case Link(verb="cut") if random.random() < 0.5:
            return replace(step, one_way=not step.one_way)
        case Link(verb="delay"):
            return replace(step, by=random.choice(_SECONDS))
    return new


def _stands(steps: Steps, power_cuts: int) -> bool:
    """Can it still be read (a name may be gone), and is power cut no more often than so?"""
    try:
        return _power_cuts(parse(text(steps))) <= power_cuts
    except ValueError:
        return False


def _power_cuts(steps: Steps) -> int:
    return sum(isinstance(step, Strike) and step.verb == "power-off" for step in steps)
