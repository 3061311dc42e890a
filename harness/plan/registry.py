"""Finds nemeses, workloads, clients, targets and checkers by name, through entry points, so that a package of the
user's own can add some.

A package adds a nemesis by an entry point in the group `chaos.nemeses` that names a class implementing
nemesis.Nemesis, made without arguments but for its knobs; a workload likewise in `chaos.workloads`, a client in
`chaos.clients`, a target in `chaos.targets`, a checker in `chaos.checkers` (checkers/verdict/own.py).

A nemesis is asked for as `family`, `family:variant`, and with knobs as `family:variant:knob=value:knob=value`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from checkers.verdict import own
from harness.cluster import RuntimeUnavailable
from harness.errors import BadArguments, HarnessFailure, did_you_mean
from harness.targets.target import Target
from harness.targets.timing import QUICK, Timing
from nemesis import EVERYWHERE, Knob, Nemesis, Targets, knobs

NEMESES = "chaos.nemeses"
WORKLOADS = "chaos.workloads"
TARGETS = "chaos.targets"
CLIENTS = "chaos.clients"
CHECKERS = own.GROUP
#: The target that a file describes.
_DESCRIBED = "described"


def names(group: str) -> list[str]:
    """Sorted names of what is installed in an entry-point group."""
    return sorted(_installed(group))


def load(group: str, name: str) -> Any:
    """What the entry point stands for. Raises BadArguments naming what is valid."""
    installed = _installed(group)
    kind = group.removeprefix("chaos.")
    if name not in installed:
        singular = {"nemeses": "nemesis"}.get(kind, kind.removesuffix("s"))
        named = sorted(set(installed) - {_DESCRIBED})
        valid = ", ".join([*named, *(["none"] if group == NEMESES else [])])
        raise BadArguments(f"there is no {singular} {name!r}{did_you_mean(name, named)}; valid: {valid}")
    try:
        return installed[name].load()
    except Exception as error:  # a user's own package may fail in any way
        raise HarnessFailure(f"{name!r} of {group} ({installed[name].value}) cannot be loaded: {error}") from error


def summary(group: str, name: str) -> str:
    """The first line of a class's docstring, where it can be read without importing what the class needs."""
    module, _, kind = _installed(group)[name].value.partition(":")
    spec = find_spec(module)
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        for node in ast.parse(Path(spec.origin).read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name == kind and (text := ast.get_docstring(node)):
                return text.split("\n")[0]
    return (load(group, name).__doc__ or "").strip().split("\n")[0]


def make_target(wanted: str) -> Target:
    """wanted: the name of a target, for some with an argument, `name:argument`; or a file that describes one. Raises
    BadArguments naming what is valid."""
    if wanted.endswith(".toml"):
        described: Target = load(TARGETS, _DESCRIBED)(wanted)
        return described
    target: Target = _with_argument(TARGETS, "target", wanted)
    return target


def make_client(wanted: str) -> Any:
    """A workloads.clients.client.Client. wanted: its name, for some with an argument, `name:argument`. Raises
    BadArguments naming what is valid."""
    return _with_argument(CLIENTS, "client", wanted)


def _with_argument(group: str, what: str, wanted: str) -> Any:
    name, colon, argument = wanted.partition(":")
    kind = load(group, name)
    takes = getattr(kind, "takes", "")
    if colon and not takes:
        raise BadArguments(f"{what} {name} takes nothing after its name; use --{what} {name}")
    return kind(argument) if takes else kind()


def clients() -> list[Any]:
    """One of each kind that is installed."""
    return [make_client(name) for name in names(CLIENTS)]


def targets() -> list[Target]:
    """One of each kind that is installed."""
    kinds = [(name, load(TARGETS, name)) for name in names(TARGETS) if name != _DESCRIBED]
    return [make_target(f"{name}:{kind.example}" if getattr(kind, "takes", "") else name) for name, kind in kinds]


def make_nemeses(wanted: Iterable[str], acks: str = "all", timing: Timing = QUICK) -> dict[str, Nemesis]:
    """One new nemesis for each name, which may name a variant and set knobs. acks: of the producers. timing: of the
    cluster. Raises BadArguments."""
    return {name: _make(name, acks, timing) for name in wanted}


def _make(wanted: str, acks: str, timing: Timing) -> Nemesis:
    family, *rest = wanted.split(":")
    kind = load(NEMESES, family)
    if rest and "=" not in rest[0]:
        variant, *rest = rest
        variants = getattr(kind, "variants", {})
        if variant not in variants:
            valid = f"valid: {', '.join(variants)}" if variants else "it has none"
            meant = did_you_mean(variant, variants)
            raise BadArguments(f"there is no variant {variant!r} of nemesis {family}{meant}; {valid}")
        kind = variants[variant]
    settings = _settings(wanted, rest, knobs(kind))
    try:
        nemesis: Nemesis = kind(**settings)
    except ValueError as error:
        raise BadArguments(f"nemesis {wanted}: {error}") from None
    nemesis.name, nemesis.acks, nemesis.timing = wanted, acks, timing
    return nemesis


def _settings(wanted: str, assignments: Sequence[str], there_are: Mapping[str, Knob]) -> dict[str, float | str]:
    """From `knob=value` each."""
    settings: dict[str, float | str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or name not in there_are:
            valid = f"valid: {', '.join(there_are)}" if there_are else "it has none"
            raise BadArguments(f"nemesis {wanted} sets {name!r}, which is no knob of it; {valid}")
        if name in settings:
            raise BadArguments(f"nemesis {wanted} sets {name} twice; set it once")
        try:
            settings[name] = there_are[name].read(value)
        except ValueError as error:
            raise BadArguments(f"nemesis {wanted}: {name} cannot be {value!r}; {error}") from None
    return settings


def check_runtime(nemeses: Mapping[str, Nemesis], on: str, *, advise: bool = True) -> None:
    """Raises BadArguments naming the first nemesis that does not work in the runtime `on`. advise: can the command be
    told to run elsewhere?"""
    for name, nemesis in nemeses.items():
        if on not in getattr(nemesis, "runtimes", EVERYWHERE):  # a user's own may be older
            valid = sorted(nemesis.runtimes)
            remedy = f"add --on {valid[0]}" if advise else f"leave it out, or chaos run --on {valid[0]} it"
            raise BadArguments(f"nemesis {name} works only in {' and '.join(valid)}; {remedy}")


def needs(nemesis: Nemesis) -> frozenset[str]:
    """Of harness.cluster.NEEDS."""
    return getattr(nemesis, "needs", frozenset())  # a user's own may be older


def check_lacks(nemeses: Mapping[str, Nemesis], lacks: Mapping[str, str]) -> None:
    """Raises RuntimeUnavailable naming the first nemesis that this machine cannot do. Parts of a composite are not
    asked: one of many without effect is no reason not to run."""
    for name, nemesis in nemeses.items():
        for need in sorted(needs(nemesis) & lacks.keys()):
            raise RuntimeUnavailable(f"nemesis {name} is not available here: {lacks[need]}")


def preferred_targets(nemeses: Mapping[str, Nemesis]) -> Targets:
    """Whom to strike when the user does not say: leaders, if any of these nemeses would rather."""
    return "leaders" if any(each.preferred_targets == "leaders" for each in nemeses.values()) else "random"


def parse_names(text: str) -> tuple[str, ...]:
    """`a,b` as ("a", "b"); `none` as (). Raises BadArguments for nothing at all, which is most often a mistake."""
    wanted = tuple(part.strip() for part in text.split(",") if part.strip())
    if not wanted:
        raise BadArguments("--nemesis names nothing; give none for a run without faults")
    if "none" in wanted and len(wanted) > 1:
        raise BadArguments(f"--nemesis {text} mixes none with a nemesis; give either")
    return () if wanted == ("none",) else wanted


def _installed(group: str) -> Mapping[str, EntryPoint]:
    return _looked_up(entry_points, group, tuple(sys.path))


@cache
def _looked_up(
    look: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]
) -> Mapping[str, EntryPoint]:
    """path: where packages are. Once for each: it reads the metadata of all installed packages, and every plan asks for
    its target."""
    return {entry.name: entry for entry in look(group=group)}
