"""The mutants that explorations are measured by: drawn as mutants.toml says, each searched for as bugs are."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from harness.explore.proofs.search import Search
from harness.explore.simulate import simulate
from harness.explore.source import Seeds
from harness.plan.plan import Plan
from harness.runtimes.simulation.mutants.places import Mutant, mutants_of
from harness.runtimes.simulation.mutants.reached import Reached, watched

FILE: Final = "mutants.toml"
#: Why a mutant changes nothing that anybody may rely on, by its id, and source text before and after.
ARGUED_FILE: Final = "equivalent.toml"
#: Tables of mutants.toml: what is drawn from, by target.
TARGETS: Final = ("kraft", "v2")


@dataclass(frozen=True)
class Chosen:
    """A mutant, and the explorations that are to kill it, options of `chaos explore`, which seeds take turns at."""

    mutant: Mutant
    explorations: Sequence[str]


@dataclass(frozen=True)
class Measured:
    """What became of one. runs: that it was searched for in. reached: in how many of all it makes a difference where
    that can be told, and else how many come to its place: the others need not be simulated; -1: that was not asked.
    simulated_s, wall_s: seconds of these. broke, message: which property, and how; None: none. argued: why it is
    equivalent, if somebody says so. given_up: the budget of time was spent before all of them."""

    mutant: Mutant
    runs: int
    simulated_s: float
    wall_s: float
    broke: str | None
    message: str | None
    argued: str = ""
    reached: int = -1
    given_up: bool = False

    @classmethod
    def by(cls, search: Search, mutant: Mutant, runs: int, reached: int) -> Measured:
        """runs: in how many it was to be found, those included in which it makes none. reached: see above."""
        found, seeds = search.found, search.source.seeds
        given_up = found is None and search.runs < len(seeds)
        if found is not None:
            runs = found.seed + 1
        elif given_up:
            runs = seeds[search.runs]  # that of this seed was not made any more
        return cls(
            mutant, runs, round(search.simulated_s, 1), round(search.wall_s, 1),
            None if found is None else str(found), None if found is None else found.message,
            argued().get(key(mutant), ""), reached, given_up,
        )  # fmt: skip

    @classmethod
    def read(cls, told: Mapping[str, Any], mutant: Mutant) -> Measured:
        """told: by as_dict(). What is argued may be new since. Raises KeyError, TypeError, ValueError."""
        return cls(
            mutant, int(told["runs"]), float(told["simulated_s"]), float(told["wall_s"]), told["property"],
            told["message"], argued().get(key(mutant), ""), int(told.get("reached", -1)),
            bool(told.get("given_up", False)),
        )  # fmt: skip

    @property
    def outcome(self) -> str:
        """`killed`, `survived`, `equivalent` as argued, or `given up`, of which nothing is known."""
        if self.broke is not None:
            return "killed"
        if self.argued:
            return "equivalent"
        return "given up" if self.given_up else "survived"

    def as_dict(self) -> dict[str, Any]:
        mutant = self.mutant
        return {
            "id": mutant.id, "line": mutant.line, "before": mutant.before, "after": mutant.after,
            "outcome": self.outcome, "argued": self.argued, "runs": self.runs, "reached": self.reached,
            "given_up": self.given_up, "simulated_s": self.simulated_s, "wall_s": self.wall_s, "property": self.broke,
            "message": self.message,
        }  # fmt: skip


def settings() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath(FILE).read_text())


@cache
def argued() -> Mapping[str, str]:
    """By key()."""
    told = tomllib.loads(files(__package__).joinpath(ARGUED_FILE).read_text())
    return {" | ".join((each["function"], each["before"], each["after"])): each["why"] for each in told["equivalent"]}


def key(mutant: Mutant) -> str:
    """Survives changes elsewhere in the function, as numbers do not."""
    return f"{mutant.module}:{mutant.function} | {mutant.before} | {mutant.after}"


def sample(ids: Sequence[str] = ()) -> Sequence[Chosen]:
    """As the file says: of each operator as many, those whose ids come first by their hashes, so that code elsewhere
    changes nothing of it. ids: instead these, or all whose ids begin so."""
    told = settings()
    every = [
        Chosen(mutant, told[target]["explorations"])
        for target in TARGETS
        for module in told[target]["modules"]
        for mutant in mutants_of(module)
    ]
    if ids:
        return [each for each in every if each.mutant.id.startswith(tuple(ids))]
    by_operator: dict[str, list[Chosen]] = defaultdict(list)
    for each in every:
        by_operator[each.mutant.operator].append(each)
    share = told["mutants"] // len(told["operators"])
    drawn = [
        each
        for operator in told["operators"]
        for each in sorted(by_operator[operator], key=lambda each: _drawn(told["seed"], each.mutant.id))[:share]
    ]
    places = {each.mutant.id: place for place, each in enumerate(every)}
    return sorted(drawn, key=lambda each: places[each.mutant.id])


def _drawn(seed: int, id_: str) -> bytes:
    return sha256(f"{seed}/{id_}".encode()).digest()


#: By the options of an exploration and a seed, what the run of that comes to.
ReachedByRun = Mapping[tuple[str, int], Reached]


def explored(chosen: Iterable[Chosen], runs: int) -> Sequence[tuple[str, int]]:
    """The runs that these are searched for in: options of an exploration and a seed."""
    return list(dict.fromkeys((_turn(each, seed), seed) for each in chosen for seed in range(runs)))


def reached_by(plan: Plan, mutants: Sequence[Mutant]) -> Reached:
    """Of code that is right, whatever of it comes to these."""
    with watched(mutants) as seen:
        simulate(plan)
    return seen


def search_for(
    chosen: Chosen, plan_of: Callable[[str, int], Plan], runs: int, budget_s: float, reached: ReachedByRun | None
) -> Search:
    """plan_of: the plan of an exploration, by its options, and a seed. Runs in which the mutant makes no difference are
    left out, if that is known: they are those of the code that is right."""
    mutant = chosen.mutant
    seeds = [
        seed for seed in range(runs)
        if reached is None or reached[_turn(chosen, seed), seed].may_differ_with(mutant)
    ]  # fmt: skip

    def plan(seed: int) -> Plan:
        return plan_of(_turn(chosen, seed), seed).model_copy(update={"mutant": mutant.id})

    return Search(mutant.id, Seeds(plan, seeds), budget_s, ended=not seeds)


def _turn(chosen: Chosen, seed: int) -> str:
    """Explorations take turns."""
    return chosen.explorations[seed % len(chosen.explorations)]


def summary(measured: Sequence[Measured]) -> Iterator[str]:
    """Lines: the share that was killed, by operator as well, and those that survived."""
    for name, count in _counts(measured, lambda each: each.mutant.operator).items():
        argued = f", {count['equivalent']} argued equivalent" if count["equivalent"] else ""
        given_up = f", {count['given up']} given up" if count["given up"] else ""
        yield f"{name:12} {count['killed']} of {_judged(count)} killed: {_share(count)}{argued}{given_up}"
    if killed := _properties(measured):
        yield "by " + ", ".join(f"{name} {n}" for name, n in killed)
    for each in measured:
        if each.outcome in ("survived", "given up"):
            mutant = each.mutant
            became = mutant.after or "nothing"
            nowhere = "; no run is another with it" if each.reached == 0 else ""
            after = f" after {each.runs} runs" if each.given_up else ""
            yield f"{each.outcome}  {mutant.id} (line {mutant.line}): {mutant.before} -> {became}{nowhere}{after}"


def page(measured: Sequence[Measured], when: str, of: int) -> str:
    """Of the documentation, in Markdown. when: the day, and the commit; of: how many were drawn."""
    runs, every = settings()["runs"], _counts(measured, lambda each: each.mutant.module)
    count = every[_ALL]
    given_up = f", and {count['given up']} were given up before their runs were made" if count["given up"] else ""
    lines = [
        "# Mutants, and which of them exploring finds", "",
        f"Made by `chaos prove --mutants` ({when}): of {of} mutants drawn, {len(measured)} were measured; "
        f"{count['killed']} of {_judged(count)} are killed ({_share(count)}), {count['equivalent']} more are argued to "
        f"be equivalent{given_up}. Each was explored for up to {runs} runs "
        "([simulation](simulation.md#how-good-is-it)).", "",
        *_counted("changed", _counts(measured, lambda each: each.mutant.operator)), "",
        *_counted("module", every), "",
        "Killed by " + ", ".join(f"{name} {n}" for name, n in _properties(measured)) + ".", "",
        "## Those that survive", "",
        *_changes(measured, "survived", "runs in which it makes a difference", _told_reached), "",
        "## Those that are argued to change nothing", "",
        *_changes(measured, "equivalent", "why", lambda each: each.argued),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _told_reached(each: Measured) -> str:
    return "not asked" if each.reached < 0 else str(each.reached)


_ALL: Final = "all"


def _counts(measured: Sequence[Measured], part: Callable[[Measured], str]) -> dict[str, Counter[str]]:
    """How many of each outcome, by part, and of all."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for each in measured:
        found[part(each)][each.outcome] += 1
    return {**found, _ALL: sum(found.values(), Counter())}


def _judged(count: Counter[str]) -> int:
    return count["killed"] + count["survived"]


def _share(count: Counter[str]) -> str:
    return f"{count['killed'] / _judged(count):.1%}" if _judged(count) else "none"


def _properties(measured: Sequence[Measured]) -> Sequence[tuple[str, int]]:
    return Counter(each.broke for each in measured if each.broke is not None).most_common()


def _counted(what: str, counts: Mapping[str, Counter[str]]) -> Iterator[str]:
    yield f"| {what} | killed | survived | argued equivalent | share killed |"
    yield "| --- | --- | --- | --- | --- |"
    for name, count in counts.items():
        numbers = " | ".join(str(count[outcome]) for outcome in ("killed", "survived", "equivalent"))
        yield f"| {name} | {numbers} | {_share(count)} |"


def _changes(
    measured: Sequence[Measured], outcome: str, column: str, tell: Callable[[Measured], str]
) -> Iterator[str]:  # fmt: skip
    yield f"| mutant | what is changed | into | {column} |"
    yield "| --- | --- | --- | --- |"
    for each in measured:
        if each.outcome == outcome:
            mutant = each.mutant
            cells = (mutant.id, f"`{mutant.before}`", f"`{mutant.after}`" if mutant.after else "nothing", tell(each))
            yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
