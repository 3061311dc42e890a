"""What `chaos run --dry-run` prints: for people, and as JSON (docs/schemas/dryrun.json)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from harness.report.terminal import print_table, say
from harness.run.dry.preview import Planned, Preview
from harness.run.dry.recording import Call

_NOT_KNOWN: Final = "given when it starts"
_NOTE: Final = (
    "Times are planned: a fault waits while others hold those whom it would strike, and one that may lose data until "
    "the brokers of the last such fault are back in every ISR; what can no longer be healed in time is skipped."
)
_HELD: Final = "* Another fault may still be in force then: if it holds them, others are struck, or they later."


def show(preview: Preview) -> None:
    plan = preview.plan
    say(plan.command())
    if preview.why:
        say(preview.why)
    say(f"\nNodes, on {plan.on}:")
    print_table(("node", "role", "rack", "address"), [_node(each) for each in preview.nodes])
    if preview.faults:
        _show_faults(preview)
    else:
        say("\nNo fault is planned.")
    for text in plan.abort_if:
        say(f"\nAll is healed and the run ends early if {text}.")
    say("\nNothing was started.")


def _show_faults(preview: Preview) -> None:
    plan = preview.plan
    say(f"\nFaults, in seconds since clients begin, of {plan.time_limit:g}:")
    print_table(("at", "for", "nemesis", "what", "whom"), [_fault(each, plan.on) for each in preview.faults])
    say(f"\n{_NOTE}")
    if any(map(_may_be_held, preview.faults)):
        say(_HELD)
    say(f"\nHow, on {plan.on}:")
    for name, planned in _by_nemesis(preview):
        say(f"  {name}: {preview.nemeses[name].summary}")
        for step, calls in _steps(planned):
            for number, line in enumerate(_lines(preview, calls)):
                say(f"    {'' if number else step:<16}{line}")
        for why in dict.fromkeys(each.done.not_told for each in planned if each.done.not_told):
            say(f"    {'':<16}and more, which cannot be told without a cluster: {why}")


def as_json(preview: Preview) -> dict[str, Any]:
    plan = preview.plan
    return {
        "command": plan.command(), "why": preview.why or None, "seed": plan.seed, "on": plan.on, "target": plan.target,
        "time_limit": plan.time_limit, "abort_if": list(plan.abort_if), "nodes": preview.nodes,
        "faults": [_as_json(each, plan.on) for each in preview.faults],
        "how": {
            name: {step: [_how(preview, call) for call in calls] for step, calls in _steps(planned)}
            for name, planned in _by_nemesis(preview)
        },
    }  # fmt: skip


def _node(node: Mapping[str, Any]) -> tuple[str, str, str, str]:
    role = "broker and controller" if node["role"] == "broker" and node["is_controller"] else str(node["role"])
    return node["name"], role + ", spare" * node["spare"], node["rack"], node["address"] or _NOT_KNOWN


def _fault(planned: Planned, on: str) -> tuple[str, str, str, str, str]:
    fault = planned.fault
    part = f" (of {fault.composite})" if fault.composite else ""
    what = choice_words(fault.choice, on)
    return f"{fault.at:.1f}", f"{fault.duration:.1f} s", fault.nemesis + part, what, _whom(planned)


def _whom(planned: Planned) -> str:
    return planned.whom.words + " *" * _may_be_held(planned)


def _may_be_held(planned: Planned) -> bool:
    return planned.overlaps and not planned.whom.why_nobody


def _as_json(planned: Planned, on: str) -> dict[str, Any]:
    fault, whom, done = planned.fault, planned.whom, planned.done
    return {
        "fault": fault.fault, "nemesis": fault.nemesis, "composite": fault.composite, "at": fault.at,
        "duration": fault.duration, "choice": fault.choice, "what": choice_words(fault.choice, on),
        "whom": whom.words, "targets": list(whom.names), "depends_on": list(whom.depends_on),
        "overlaps": _may_be_held(planned), "inject": _calls(done.inject), "heal": _calls(done.heal),
        "if_ended": _calls(done.if_ended), "not_told": whom.why_nobody or done.not_told or None,
    }  # fmt: skip


def _calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [{**call.as_dict(), "arguments": _plain(call.arguments)} for call in calls]


def _plain(value: Any) -> Any:
    """As JSON can have it: links and shapes of links are tuples and dataclasses, and what is random is no value."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value if isinstance(value, str | int | float | bool) or value is None else type(value).__name__.lower()


def _by_nemesis(preview: Preview) -> Iterator[tuple[str, list[Planned]]]:
    for name in preview.nemeses:
        yield name, [each for each in preview.faults if each.fault.nemesis == name]


def _steps(planned: Sequence[Planned]) -> list[tuple[str, list[Call]]]:
    """The methods that are called, in their order, whoever they are called on."""
    of: Sequence[tuple[str, Callable[[Planned], Sequence[Call]]]] = (
        ("inject", lambda each: each.done.inject), ("heal", lambda each: each.done.heal),
        ("if it has ended", lambda each: each.done.if_ended),
    )  # fmt: skip
    return [(step, _together([calls(each) for each in planned])) for step, calls in of]


def _together(faults: Iterable[Sequence[Call]]) -> list[Call]:
    """What the first does, one of several alike, and what later ones do besides."""
    found: list[Call] = []
    for calls in faults:
        known = {(call.kind, call.method) for call in found}
        for method, alike in groupby(calls, key=lambda call: (call.kind, call.method)):
            if method not in known:
                found.append(next(alike))
    return found


def _how(preview: Preview, call: Call) -> dict[str, Any]:
    return {"method": call.method, "kind": call.kind, "by": list(preview.by(call))}


def _lines(preview: Preview, calls: Sequence[Call]) -> list[str]:
    return [
        f"{'' if number else call.method:<20}{line}" for call in calls for number, line in enumerate(preview.by(call))
    ]


#: What keys of choices mean, where they are set: {} stands for the value. Those that only draw somebody are left out.
_WORDS: Final[Mapping[str, str]] = {
    "ahead_s": "followers kept from fetching for {} s before", "variant": "{}", "bytes_per_s": "{} bytes/s",
    "iops": "{} operations/s", "how": "{}", "offset_s": "by {} s", "drift": "{} s a second", "api": "{}",
    "least_s": "after {} s at least", "most_s": "after {} s at most", "stop": "ends by {}", "who": "{}",
    "links": "links of: {}", "clients": "links to clients: {}", "share": "share {}",
}  # fmt: skip
_DRAWN: Final = frozenset({"role", "node", "rack", "which", "where", "bit", "seed", "targets"})
#: What only simulation can do: elsewhere the power goes at once.
_SIMULATED: Final[Mapping[str, str]] = {
    "in_write": "in the middle of operation {} of its disk", "late_s": "its last packets {} s late",
}  # fmt: skip
_DIRECTIONS: Final[Mapping[str, str]] = {
    "both": "both ways", "outgoing": "what it sends", "incoming": "what it is sent",
}  # fmt: skip


def choice_words(choice: Mapping[str, Any], on: str) -> str:
    """What a fault's choice says, but for whom it strikes."""
    words = {**_WORDS, **(_SIMULATED if on == "simulation" else dict.fromkeys(_SIMULATED, ""))}
    told = []
    for name, value in choice.items():
        if name in _DRAWN or value in (0, 0.0, "without", None):
            continue
        if name == "direction":
            told.append(_DIRECTIONS.get(value, str(value)))
        elif name == "shape":
            told += [f"{what} {amount:g}" for what, amount in value.items()]
        elif name == "what" and isinstance(value, list):
            told.append(" or else ".join(map(str, value)))
        else:
            told.append(words.get(name, f"{name} {{}}").format(f"{value:g}" if isinstance(value, float) else value))
    return ", ".join(filter(None, told))
