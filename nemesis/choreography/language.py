"""The language of choreographies: steps, parted by semicolons, that are taken one after the other.

    cut follower from brokers; kill leader; until new-leader; heal; start; until in-isr leader

    step      = strike | move | link | wait
    strike    = ("pause" | "kill" | "stop") role
              | "power-off" role ["late" time]
              | ("resume" | "start") [role]
    move      = "elect preferred" | "reassign" role | "reassign back"
    link      = "cut" some "from" whom | "cut" some "to" whom
              | "delay" some "to" whom "by" time
              | "heal" [some ("from" | "to") whom]
    wait      = "until" condition [role] ["within" time] | "for" time | "past session" | "past lag"
    roles     = role {"and" role}
    some      = roles | "everybody" | "brokers" | "controllers"
    whom      = some | "clients", and roles if some is none
    role      = [name "="] (one of ROLES, or a name that was given before)
    time      = number ("s" | "ms")

A role is bound to a node when it is first named, and stays bound; those that begin with new- are looked up whenever
they are named, and `name=new-leader` keeps one. No character of it means anything to --nemesis or to TOML strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from harness.cluster import CLIENTS
from harness.errors import did_you_mean

ROLES: Final[Mapping[str, str]] = {
    "leader": "the broker that leads the partition when the role is first named",
    "new-leader": "the broker that leads the partition at this step",
    "follower": "a broker in the partition's ISR that does not lead it, when the role is first named",
    "other": "another replica's broker, whom no role names yet",
    "controller": "the active controller when the role is first named",
    "new-controller": "the active controller at this step",
    "standby": "another controller, whom no role names yet",
}
CONTROLLERS: Final = frozenset({"controller", "new-controller", "standby"})  # of the roles, those of controllers
#: Whose links are cut or slow, beside those of roles: all of them but those nodes that the step names.
GROUPS: Final[Mapping[str, str]] = {
    "everybody": "all other nodes", "brokers": "all other brokers", "controllers": "all other controllers",
    CLIENTS: "everybody who is no node",
}  # fmt: skip


class Condition(NamedTuple):
    of: bool  # of a role, or of the partition alone
    means: str


CONDITIONS: Final[Mapping[str, Condition]] = {
    "new-leader": Condition(False, "another broker leads the partition than when its leader was last named"),
    "new-epoch": Condition(False, "its leader epoch is higher than when its leader was last named"),
    "new-controller": Condition(False, "another controller is active than when it was last named"),
    "leads": Condition(True, "it leads the partition"),
    "in-isr": Condition(True, "it is in the partition's ISR"),
    "out-of-isr": Condition(True, "it is not"),
    "has-replica": Condition(True, "it is among the partition's replicas"),
    "no-replica": Condition(True, "it is not"),
    "fenced": Condition(True, "the controller has fenced it"),
    "unfenced": Condition(True, "the controller has not"),
    "behind": Condition(True, "its log of the partition is shorter than the leader's"),
    "caught-up": Condition(True, "its log of the partition is as long as the leader's"),
}
#: What is struck. Those of ENDINGS take nobody, for everybody who is struck so.
STRIKES: Final = ("pause", "resume", "kill", "stop", "power-off", "start")
ENDINGS: Final = ("resume", "start")
PAST: Final[Mapping[str, str]] = {
    "session": "longer than broker.session.timeout.ms", "lag": "longer than replica.lag.time.max.ms",
}  # fmt: skip
#: Seconds that a condition is waited for, if nothing is said.
WITHIN_S: Final = 10.0
#: No time in a choreography is longer, and there are no more steps in one.
MOST_S: Final = 60.0
MOST_STEPS: Final = 40


@dataclass(frozen=True)
class Role:
    """word: one of ROLES, or a name; name: that it is given."""

    word: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.word}" if self.name else self.word


Roles = tuple[Role, ...]


@dataclass(frozen=True)
class Strike:
    """late: seconds that the last words of who loses power are under way."""

    verb: str
    whom: Role | None = None
    late: float = 0.0

    def __str__(self) -> str:
        late = f"late {_time(self.late)}" if self.late else ""
        return " ".join(filter(None, (self.verb, str(self.whom or ""), late)))


@dataclass(frozen=True)
class Link:
    """verb: cut, delay or heal. some, whom: at least one of them roles, the other roles or one of GROUPS; `some` are
    nodes. one_way: only what `some` send to them. by: seconds."""

    verb: str
    some: Roles | str = ()
    whom: Roles | str = ()
    one_way: bool = False
    by: float = 0.0

    def __str__(self) -> str:
        if not self.some:
            return self.verb
        late = f" by {_time(self.by)}" if self.by else ""
        return f"{self.verb} {_all(self.some)} {'to' if self.one_way else 'from'} {_all(self.whom)}{late}"


@dataclass(frozen=True)
class Until:
    condition: str
    whom: Role | None = None
    within: float = WITHIN_S

    def __str__(self) -> str:
        within = "" if self.within == WITHIN_S else f"within {_time(self.within)}"
        return " ".join(filter(None, ("until", self.condition, str(self.whom or ""), within)))


@dataclass(frozen=True)
class For:
    seconds: float

    def __str__(self) -> str:
        return f"for {_time(self.seconds)}"


@dataclass(frozen=True)
class Past:
    what: str

    def __str__(self) -> str:
        return f"past {self.what}"


@dataclass(frozen=True)
class Elect:
    """The preferred leader of every partition, by an operator."""

    def __str__(self) -> str:
        return "elect preferred"


@dataclass(frozen=True)
class Reassign:
    """The partition, by an operator: to another broker instead of this one, if there is a spare one. whom: None for the
    replicas that it had at first."""

    whom: Role | None = None

    def __str__(self) -> str:
        return f"reassign {self.whom or 'back'}"


Step = Strike | Link | Until | For | Past | Elect | Reassign
Steps = tuple[Step, ...]


def text(steps: Sequence[Step]) -> str:
    """As parse() reads it."""
    return "; ".join(map(str, steps))


def parse(written: str) -> Steps:
    """Raises ValueError with a clause that names the step and what is valid."""
    steps: list[Step] = []
    names: set[str] = set()
    for number, part in enumerate(re.split(r"[;\n]", written.strip().rstrip(";")), 1):
        words = _Words(part)
        try:
            step = words.step()
            for role in roles_of(step):
                if role.word not in ROLES and role.word not in names:
                    raise ValueError(f"there is no role {role.word!r}{did_you_mean(role.word, [*ROLES, *names])}; "
                                     f"valid: {', '.join([*ROLES, *sorted(names)])}")  # fmt: skip
                names |= {role.name} - {""}
        except ValueError as error:
            raise ValueError(f"step {number}, {' '.join(part.split())!r}: {error}") from None
        steps.append(step)
    if len(steps) > MOST_STEPS:
        raise ValueError(f"it has {len(steps)} steps, more than {MOST_STEPS}")
    return tuple(steps)


def roles_of(step: Step) -> Iterator[Role]:
    match step:
        case Strike(whom=Role() as whom) | Until(whom=Role() as whom) | Reassign(whom=Role() as whom):
            yield whom
        case Link(some=some, whom=whom):
            for roles in (some, whom):
                yield from () if isinstance(roles, str) else roles


class _Words:
    """Of one step, taken from the left."""

    def __init__(self, part: str) -> None:
        self._left = part.split()

    def step(self) -> Step:
        verb = self._one_of(VERBS, "verb")
        step = VERBS[verb](self, verb)
        if self._left:
            raise ValueError(f"nothing may follow where it has {' '.join(self._left)!r}")
        return step

    def _next(self, what: str) -> str:
        if not self._left:
            raise ValueError(f"it lacks {what}")
        return self._left.pop(0)

    def _one_of(self, valid: Mapping[str, object], what: str) -> str:
        word = self._next(f"a {what}")
        if word not in valid:
            raise ValueError(f"there is no {what} {word!r}{did_you_mean(word, valid)}; valid: {', '.join(valid)}")
        return word

    def _took(self, word: str) -> bool:
        found = bool(self._left) and self._left[0] == word
        if found:
            self._left.pop(0)
        return found

    def _role(self) -> Role:
        given, equals, word = self._next("a role").rpartition("=")
        if equals and not _NAME.fullmatch(given):
            raise ValueError(f"{given!r} is no name; valid: a word of letters, digits and -")
        if equals and given in (*ROLES, *GROUPS, "back"):
            raise ValueError(f"{given} has a meaning already, and can be no name of a role")
        return Role(word, given)

    def _roles(self) -> Roles:
        roles = [self._role()]
        while self._took("and"):
            roles.append(self._role())
        return tuple(roles)

    def _whom(self) -> Roles | str:
        if self._left and self._left[0] in GROUPS:
            return self._left.pop(0)
        return self._roles()

    def _time(self, what: str) -> float:
        word = self._next(what)
        found = _TIME.fullmatch(word)
        seconds = round(float(found[1]) / (1000 if found[2] == "ms" else 1), 3) if found else 0.0
        if not 0 < seconds <= MOST_S:
            raise ValueError(f"{word!r} is no time; valid: from above 0 to {_time(MOST_S)}, as 2s or 250ms")
        return seconds

    def _strike(self, verb: str) -> Step:
        if not self._left and verb in ENDINGS:
            return Strike(verb)
        whom = self._role()
        late = verb == "power-off" and self._took("late")
        return Strike(verb, whom, self._time("a time after late") if late else 0.0)

    def _elect(self, verb: str) -> Step:
        self._one_of({"preferred": ""}, "election")
        return Elect()

    def _reassign(self, verb: str) -> Step:
        return Reassign(None if self._took("back") else self._role())

    def _link(self, verb: str) -> Step:
        if verb == "heal" and not self._left:
            return Link(verb)
        some = self._whom()
        if some == CLIENTS:
            raise ValueError(f"{CLIENTS} can only stand at its end: cut leader from {CLIENTS}")
        ways = {"to": True} if verb == "delay" else {"from": False, "to": True}
        one_way = ways[self._one_of(ways, "direction")]
        whom = self._whom()
        if isinstance(some, str) and isinstance(whom, str):
            raise ValueError(f"one of {some} and {whom} must be a role")
        if verb != "delay":
            return Link(verb, some, whom, one_way)
        self._one_of({"by": ""}, "word")
        return Link(verb, some, whom, one_way, self._time("a time after by"))

    def _until(self, verb: str) -> Step:
        condition = self._one_of(CONDITIONS, "condition")
        whom = self._role() if CONDITIONS[condition].of else None
        return Until(condition, whom, self._time("a time after within") if self._took("within") else WITHIN_S)

    def _for(self, verb: str) -> Step:
        return For(self._time("a time"))

    def _past(self, verb: str) -> Step:
        return Past(self._one_of(PAST, "limit"))


_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(s|ms)")
_OTHERS: Final[Mapping[str, Callable[[_Words, str], Step]]] = {
    "elect": _Words._elect, "reassign": _Words._reassign, "cut": _Words._link, "delay": _Words._link,
    "heal": _Words._link, "until": _Words._until, "for": _Words._for, "past": _Words._past,
}  # fmt: skip
VERBS: Final[Mapping[str, Callable[[_Words, str], Step]]] = {**dict.fromkeys(STRIKES, _Words._strike), **_OTHERS}


def _all(roles: Roles | str) -> str:
    return roles if isinstance(roles, str) else " and ".join(map(str, roles))


def _time(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 else f"{round(seconds * 1000, 3):g}ms"
