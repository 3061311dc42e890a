"""How a story tells the faults of a run: whom each one struck and what that did, what a choreography did step by step,
and when all of it was over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.report import words


class Told(NamedTuple):
    """time: seconds on the clock of the run. strikes: it breaks something, or mends it in the middle of a fault."""

    time: float
    text: str
    strikes: bool


_CUT: Final = ("the power of {nodes} is cut", "{nodes} {has} power again and {starts}")
_FULL: Final = ("the disk of {nodes} is full", "{nodes} {has} room again and {starts}, if it had ended")
_FAILS: Final = ("the disk of {nodes} fails", "it works again, and {nodes} {starts} if it had ended")
_JUMPS: Final = ("the clock of {nodes} jumps", "the clock of {nodes} is right again")
_STOPS: Final = ("{nodes} {is} asked to stop", "{nodes} {is} started again")
_LINKS: Final = "the links of {nodes} are as they were"
_REQUESTS: Final = "requests to {nodes} arrive once, and as they are sent"
#: By variant of a nemesis, or by its family where that says as much: how a fault begins, and how it ends. {nodes}: by
#: name; {is}, {has}: of one or of several.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "power": _CUT,
    "power-outage": _CUT,
    "power-outage-cluster": _CUT,
    "page-cache": ("{nodes} {is} killed and {its} page cache is lost", "{nodes} {is} started again"),
    "page-cache:clean": ("clean pages of {nodes} are dropped from the page cache", "that is over"),
    "kill": ("{nodes} {is} killed", "{nodes} {is} started again"),
    "kill:storm": ("{nodes} {is} killed again and again", "{nodes} {is} started again"),
    "kill:term": _STOPS,
    "kill:rolling": _STOPS,
    "hw-truncation": (
        "{others} {restarts} out of reach of {first}, which leads, and then {first} is killed",
        "{first} is started again",
    ),
    "pause": ("{nodes} {is} frozen", "{nodes} {goes} on"),
    "partition": ("{nodes} {is} cut off from the other nodes", "the network is whole again"),
    "partition:clients": ("{nodes} {is} cut off from clients", "the network is whole again"),
    "network": ("links of {nodes} lose packets or are slow", _LINKS),
    "network:delay": ("packets of {nodes} are late", _LINKS),
    "network:loss": ("packets of {nodes} are lost, by chance", _LINKS),
    "network:duplicate": ("packets of {nodes} come twice, by chance", _LINKS),
    "network:reorder": ("packets of {nodes} overtake others, by chance", _LINKS),
    "network:rate": ("links of {nodes} pass so much and no more", _LINKS),
    "network:at-message": ("one message of {nodes} is lost or late", "that is over"),
    "requests": ("some requests to {nodes} are late", _REQUESTS),
    "requests:repeat": ("some requests to {nodes} arrive twice", _REQUESTS),
    "clock": ("the clock of {nodes} jumps or drifts", "the clock of {nodes} is right again"),
    "clock:jump": _JUMPS,
    "clock:drift": ("the clock of {nodes} drifts", "the clock of {nodes} is right again"),
    "clock-jump": _JUMPS,
    "disk": _FULL,
    "disk-full": _FULL,
    "disk:error": _FAILS,
    "disk-error": _FAILS,
    "disk:error-once": ("one operation on the disk of {nodes} fails", "{nodes} {starts} if it had ended"),
    "disk:slow": ("the disk of {nodes} becomes slow", "the disk of {nodes} is as fast as ever"),
    "disk:read-only": ("the disk of {nodes} refuses writes", "the disk of {nodes} can be written again"),
    "disk:corrupt": ("{nodes} {is} killed, a file of {its} damaged, and {starts} on that", "the file is as it was"),
    "disk:corrupt-stopped": (
        "{nodes} {is} asked to stop, a file of {its} damaged, and {starts} on that", "the file is as it was",
    ),
    "disk:replaced": (
        "{nodes} {is} asked to stop, and {starts} without what was on {its} disk, or without one log", "that is over",
    ),
    "disk:restored": (
        "{nodes} {is} asked to stop, and {starts} on a copy of {its} disk from some seconds before", "that is over",
    ),
    "membership": ("the membership of {nodes} is changed", "the assignment is the old one again"),
    "membership:controlled-shutdown": _STOPS,
    "membership:preferred-election": ("other replicas are to lead, for {nodes}", "the old replicas are to lead again"),
    "membership:reassign": ("partitions of {nodes} are reassigned", "the assignment is the old one again"),
    "membership:new-id": ("another broker takes the place of {nodes}", "{nodes} {is} back in {its} place"),
    "membership:add": ("{nodes} {is} added to the cluster", "{nodes} {is} taken out again"),
    "membership:remove": ("{nodes} {is} taken out of the cluster", "{nodes} {is} back"),
    "membership:rebalance": (
        "all partitions are moved to {nodes}, and then over all brokers again", "the assignment is the old one again",
    ),
    "membership:controller": ("{nodes} {is} voted out of the metadata quorum", "{nodes} {is} a voter again"),
    "membership:upgrade": ("{nodes} {is} given another release", "that is over"),
    "choreography": ("a choreography begins", "what the choreography struck is whole again"),
}  # fmt: skip
_SECONDS: Final = ("at_s", "waited_s")
_DIRECTIONS: Final = {"outgoing": "what they send is lost", "incoming": "what is sent to them is lost"}


def told_faults(rows: Sequence[Mapping[str, Any]], where: str) -> Iterator[Told]:
    """Not in order of time. rows: of FAULTS, `evidence` as JSON. where: the partition that the story is of."""
    for row in rows:
        evidence = json.loads(row["evidence"])
        if "skipped" in evidence:
            continue
        begin, end = words_of(row["nemesis"])
        forms = _forms(row["targets"])
        effects = "; ".join(_effects(evidence, where))
        start = row["start"] / 1e9
        yield Told(start, f"FAULT {begin.format(**forms)}{effects and f' ({effects})'}", True)
        for step in told_steps(evidence):
            yield step._replace(time=start + step.time, text=f"choreography: {step.text}")
        if row["end"] is not None:
            yield Told(row["end"] / 1e9, end.format(**forms), False)


def words_of(nemesis: str) -> tuple[str, str]:
    """How a fault of this nemesis begins, and how it ends; see _WORDS."""
    family, *variant = nemesis.split(":")[:2]
    if family == "choreography" and variant and "=" not in variant[0]:
        return f"the choreography {variant[0]} begins", _WORDS[family][1]
    known = _WORDS.get(":".join((family, *variant))) or _WORDS.get(family)
    return known or (f"{nemesis} strikes {{nodes}}", f"{nemesis} is over")


def _forms(nodes: Sequence[str]) -> Mapping[str, str]:
    one = len(nodes) == 1
    return {
        "nodes": _named(nodes),
        "is": "is" if one else "are", "has": "has" if one else "have",
        "its": "its" if one else "their", "goes": "goes" if one else "go", "starts": "starts" if one else "start",
        "restarts": "restart" if len(nodes) > 2 else "restarts",
        "first": nodes[0] if nodes else "nobody", "others": _named(nodes[1:]),
    }  # fmt: skip


def _named(nodes: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(nodes[:-1]), *nodes[-1:])))


def told_steps(evidence: Mapping[str, Any]) -> Iterator[Told]:
    """Of a choreography, but for those that waited for nothing but time. Times are since the fault began; a step that
    waited is told at its end. evidence: of the fault, which others may have written: what is no step is left out."""
    steps = evidence.get("steps")
    for step in steps if isinstance(steps, list) else ():
        if not isinstance(step, Mapping) or not all(isinstance(step.get(key, 0), int | float) for key in _SECONDS):
            continue
        name, at_s, waited_s = str(step.get("step")), step.get("at_s", 0.0), step.get("waited_s")
        if "skipped" in step or "failed" in step:
            yield Told(at_s, f"{name}: {step.get('skipped') or step.get('failed')}", False)
        elif waited_s is None or name.startswith("until "):
            more = "; ".join(filter(None, [", ".join(_struck(step)), "in vain" * bool(step.get("gave_up"))]))
            yield Told(at_s + (waited_s or 0.0), f"{name}{more and f' ({more})'}", waited_s is None)


def _struck(step: Mapping[str, Any]) -> Sequence[str]:
    """Nodes, or links, or the replicas that a partition is to have; or of whom it waited for something."""
    struck, links, of, replicas = (step.get(key) for key in ("struck", "links", "of", "replicas"))
    if isinstance(replicas, list):
        return ["to " + ", ".join(map(str, replicas))]
    told = _links(list(map(str, links))) if isinstance(links, list) else struck or of
    return list(map(str, told)) if isinstance(told, list) else []


def _links(links: Sequence[str]) -> Sequence[str]:
    """links: `from > to` each. Those that are struck both ways are one, `a <> b`."""
    back = {" > ".join(reversed(link.split(" > "))) for link in links}
    told = {"".join(sorted(link.split(" > "))): link.replace(" > ", " <> ") for link in reversed(links) if link in back}
    return [*(link for link in links if link not in back), *reversed(told.values())]


def _effects(evidence: Mapping[str, Any], where: str) -> Iterator[str]:
    if evidence.get("direction") in _DIRECTIONS:
        yield _DIRECTIONS[evidence["direction"]]
    for name, own in evidence.get("nodes", {}).items():
        if offset_ms := own.get("clock_offset_ms"):
            yield f"{words.duration(abs(offset_ms) / 1e3)} {'ahead' if offset_ms > 0 else 'back'}"
        if drifted_ms := own.get("clock_drifted_ms"):
            yield f"by {words.duration(abs(drifted_ms) / 1e3)} {'ahead' if drifted_ms > 0 else 'back'} in the end"
        if lost := own.get("lost_by_partition", {}).get(where):
            were = "was" if lost == 1 else "were"
            yield f"{name} loses {words.plural(lost, 'record')} of {where} that {were} never synced"
