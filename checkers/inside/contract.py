"""The contract: did the faults stay within what the protocol promises to survive, per partition and moment?

The plan says what its target promises (harness.targets.target.Promise): of kraft, with acks=all an acknowledged record
survives MinISR - 1 lossy unclean shutdowns at a time (002, 5.1 and 5.3; design, section 4). Time matters, and so does
place: two brokers that lose data at once harm only the partitions that both hold, and a broker that is back in a
partition's ISR has, of that partition, all that is committed.

For each partition, a broker of its replica set is *out*

* from the moment that a fault struck it (`lost_at` of its evidence, or the fault's start), if the fault lost something
  of that partition's log that was not synced: where the evidence says it by partition (`lost_by_partition`), of this
  one; else of the broker at all;
* until it is back in the ISR. By the committed metadata: a broker that lost its power comes back with a new
  registration, which ends its membership; it is back with the first later state of the partition that has a leader and
  counts it in the ISR (or no longer among the replicas). Metadata is committed when the first node has told that it
  has replayed it;
* or, where metadata or traces do not reach: until `in_sync_at` of the fault's evidence, which the harness noted when it
  saw the broker in every ISR again; without that until the fault's end; `not_in_sync`: for good.

At a moment the partition is *beyond* the contract if more brokers are out than MinISR - 1. MinISR is the topic's, as
far as the metadata tells, at most the number of replicas (KAFKA-21110). After it was raised, the lower one counts until
the ISR has as many members as the new one: records from before are on no more brokers than it asked for.

Where no metadata says which brokers hold a partition, those count that lost something of it; and where evidence does
not name partitions, every partition is taken to be held by every broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.inside.metadata.memberships import Memberships, Step
from checkers.inside.metadata.replay import NO_LEADER, Place
from checkers.inside.promise import of_strategy, promise

#: Intervals beyond the contract that are listed; the partitions are all there.
MOST_MOMENTS: Final = 50
_NEVER: Final = 1 << 62
_LOSSES: Final = ("unsynced_bytes", "unsynced_records")

Fault = Mapping[str, Any]  # a FAULTS row, evidence parsed


@dataclass(frozen=True)
class Out:
    """A broker that has lost something, from `start` to before `end` (_NEVER: for good), monotonic ns."""

    broker: str
    start: int
    end: int
    fault: int
    by_metadata: bool


@dataclass
class _Exceeded:
    start: int
    end: int
    limit: int
    brokers: tuple[str, ...]  # at its worst
    faults: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _OfPartition:
    worst: int
    limit: int  # when it was at its worst
    brokers: tuple[str, ...]
    start: int
    end: int
    exceeded: tuple[_Exceeded, ...]

    @property
    def within(self) -> bool:
        return not self.exceeded


def contract(
    plan: Mapping[str, Any], faults: Iterable[Fault], memberships: Memberships | None = None, origin: int | None = None
) -> dict[str, Any]:
    """`contract` of verdict.json. plan: plan.json; origin: monotonic ns of second 0, None: the first fault.

    within: no partition was ever beyond; limit, worst: brokers out at the worst moment of the worst partition, and how
    many were allowed there; explanation: a sentence; promise: of the target, {sentence, source}; promised: does it
    cover these settings at all? partitions: by name, {worst, limit, at_s, until_s, brokers, within}, at_s to until_s
    (null: the end) being when it was at its worst (null where nobody was out); moments: when a partition was beyond, at
    most MOST_MOMENTS, with the faults; isr_by: whether metadata told when brokers were back ("metadata log"), the
    harness ("harness") or both."""
    faults = list(faults)
    if origin is None:
        origin = min((fault["start"] for fault in faults), default=0)
    outs = _outs(faults, memberships)
    promised_by = plan.get("promise") or promise(plan)  # older plans are of kraft, and do not say it
    plan_limit = int(promised_by["lossy_shutdowns"])
    judged = {}
    for place, of_place in outs.items():
        limits = _limits(memberships.steps.get(place, ())) if memberships is not None and place is not None else []
        judged[place] = sweep(of_place, limits or [(0, plan_limit)])
    everywhere = judged.pop(None, None)  # where the evidence names no partition, and no metadata does
    of_partition = {f"{place[0]}-{place[1]}": judged[place] for place in sorted(filter(None, judged))}
    name, worst = _worst(of_partition, everywhere, plan_limit)
    moments = [(name, moment) for name, of in of_partition.items() for moment in of.exceeded]
    moments += [("", moment) for moment in (everywhere.exceeded if everywhere else ())]
    moments.sort(key=lambda entry: (entry[1].start, entry[0]))
    all_outs = [out for of_place in outs.values() for out in of_place]
    explanation, promised = _explain(promised_by, memberships, name, worst, of_partition, origin)
    return {
        "within": not moments,
        "limit": worst.limit,
        "worst": worst.worst,
        "explanation": explanation,
        "promise": {"sentence": promised_by["sentence"], "source": promised_by["source"]},
        "promised": promised,
        "isr_by": _sources(all_outs),
        "partitions": {name: _reported(of, origin) for name, of in of_partition.items()},
        "moments": [
            {
                "partition": name or None,
                "at_s": _second(moment.start, origin), "until_s": _second(moment.end, origin),
                "brokers": list(moment.brokers), "limit": moment.limit, "faults": sorted(moment.faults),
            }
            for name, moment in moments[:MOST_MOMENTS]
        ],
        "moments_unlisted": max(len(moments) - MOST_MOMENTS, 0),
    }  # fmt: skip


def check_promise(found: Any) -> None:
    """found: `promise` of plan.json, None in older ones. Raises ValueError if it is not what a target says."""
    if found is None:
        return
    kinds = {"sentence": str, "source": str, "bound": str, "lossy_shutdowns": int, "exceptions": list}
    if not isinstance(found, Mapping) or not all(isinstance(found.get(name), kind) for name, kind in kinds.items()):
        raise ValueError("its promise is not what a target promises")


def not_known(why: str) -> dict[str, Any]:
    """`contract` of a run whose plan or faults cannot be read. why: a sentence."""
    return {
        "within": None, "limit": None, "worst": None, "explanation": f"not known: {why}", "promise": None,
        "promised": None,
        "isr_by": "", "partitions": {}, "moments": [], "moments_unlisted": 0,
    }  # fmt: skip


def is_covered(of: Mapping[str, Any]) -> bool:
    """Would code that is right have lost nothing? Its faults stayed within what is promised to be survived, and the
    promise is one for these settings. of: `contract` of a verdict."""
    return bool(of["within"]) and of["promised"] is not False


def weigh_losses(of: Mapping[str, Any], partitions: Iterable[str]) -> str:
    """What the contract says of acknowledged records lost on these partitions, as the end of a sentence; or nothing."""
    if of.get("within") is None or not of.get("promised"):
        return ""
    reported = of.get("partitions") or {}
    names = sorted(partitions)
    within = [name for name in names if (reported[name]["within"] if name in reported else of["within"])]
    if of["within"] or (names and len(within) == len(names)):
        return "; the faults stayed within the contract" + ("" if of["within"] else " there") + ", so this is a bug"
    if not within:
        return "; beyond the contract"
    shown = ", ".join(within[:3]) + (" …" if len(within) > 3 else "")
    return f"; within the contract on {shown}, so that is a bug, and beyond it elsewhere"


# -- who is out when ------------------------------------------------------------------------------------------------


def _outs(faults: Sequence[Fault], memberships: Memberships | None) -> dict[Place | None, list[Out]]:
    """By partition; None: of the cluster, where nothing tells partitions apart."""
    places = dict.fromkeys(memberships.steps if memberships is not None else ())
    named = {_place(name) for fault in faults for _, lost, _ in _lossy(fault) for name in lost or ()}
    places.update(dict.fromkeys(sorted(place for place in named if place is not None)))
    outs: dict[Place | None, list[Out]] = {place: [] for place in places}
    for fault in faults:
        evidence = fault["evidence"]
        end = None if "not_in_sync" in evidence else evidence.get("in_sync_at", fault["end"])
        fallback = _NEVER if end is None else max(int(end), fault["start"])
        for broker, lost, start in _lossy(fault):
            held = 0
            for place in places:
                if lost is not None and not lost.get(f"{place[0]}-{place[1]}"):
                    continue
                until = _back(memberships, place, broker, start)
                if until is _NOT_HELD:
                    continue
                held += 1
                by_metadata = until is not None
                known = fallback if until is None else until
                outs[place].append(Out(broker, start, known, fault["fault"], by_metadata))
            if not held and lost is None and not places:
                outs.setdefault(None, []).append(Out(broker, start, fallback, fault["fault"], False))
    return outs


_NOT_HELD: Final = -1


def _back(memberships: Memberships | None, place: Place, broker: str, cut: int) -> int | None:
    """When the broker was back in the ISR, _NEVER, _NOT_HELD: it was no replica; None: the metadata does not tell."""
    if memberships is None or place not in memberships.steps:
        return None
    steps, who = memberships.steps[place], memberships.ids.get(broker)
    before = [step for step in steps if step.time <= cut]
    if who is None or (not before and memberships.trimmed):
        return None
    if not before or who not in before[-1].replicas:
        return _NOT_HELD
    again = next((r for r in memberships.registrations if r.broker == who and r.time > cut), None)
    for step in steps[len(before) :]:
        if who not in step.replicas:
            return step.time
        if again is not None and step.offset > again.offset and who in step.isr and step.leader != NO_LEADER:
            return step.time
    return _NEVER


def _lossy(fault: Fault) -> list[tuple[str, Mapping[str, int] | None, int]]:
    """Brokers that a fault made lose something, and what of each partition, if that is known; or whose copy of a
    partition it damaged; and when."""
    evidence: Mapping[str, Any] = fault["evidence"]
    nodes = evidence.get("nodes")
    if not isinstance(nodes, Mapping):
        nodes = dict.fromkeys(fault["targets"] or (), evidence)
    found: list[tuple[str, Mapping[str, int] | None, int]] = []
    for name, own in sorted(nodes.items()):
        if not (name.startswith("broker") and isinstance(own, Mapping)):
            continue
        at = own.get("lost_at")
        start = max(at, fault["start"]) if isinstance(at, int) else fault["start"]
        if any((own.get(key) or 0) > 0 for key in _LOSSES):
            lost = own.get("lost_by_partition")
            found.append((name, lost if isinstance(lost, Mapping) else None, start))
        elif isinstance(damaged := own.get("damaged_by_partition"), Mapping):
            found.append((name, damaged, start))
    return found


def _place(name: str) -> Place | None:
    topic, _, partition = name.rpartition("-")
    return (topic, int(partition)) if topic and partition.isdecimal() else None


# -- how many at a time ---------------------------------------------------------------------------------------------


def _limits(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """(from when, MinISR - 1), as records that were committed before may rely on it."""
    limits: list[tuple[int, int]] = []
    least: int | None = None
    for step in steps:
        if least is None or step.min_isr <= least or len(step.isr) >= step.min_isr:
            least = step.min_isr
        if not limits or limits[-1][1] != least - 1:
            limits.append((step.time, least - 1))
    return limits


def sweep(outs: Sequence[Out], limits: Sequence[tuple[int, int]]) -> _OfPartition:
    """Over time. limits: in order; the first also counts before its time."""
    times = sorted({time for out in outs for time in (out.start, out.end)} | {time for time, _ in limits[1:]})
    starts, ends = defaultdict(list), defaultdict(list)
    for out in outs:
        if out.end > out.start:
            starts[out.start].append(out)
            ends[out.end].append(out)
    changes = dict(limits[1:])
    limit = limits[0][1]
    now: list[Out] = []
    worst, exceeded = _OfPartition(0, limit, (), 0, 0, ()), list[_Exceeded]()
    open_: _Exceeded | None = None
    is_worst_now = False
    for time in times:
        limit = changes.get(time, limit)
        now = [out for out in now if out not in ends[time]] + starts[time]
        brokers = tuple(sorted({out.broker for out in now}))
        if is_worst_now and brokers != worst.brokers:
            worst = _OfPartition(worst.worst, worst.limit, worst.brokers, worst.start, time, ())
            is_worst_now = False
        if (len(brokers) - limit, len(brokers)) > (worst.worst - worst.limit, worst.worst) and brokers:
            worst, is_worst_now = _OfPartition(len(brokers), limit, brokers, time, _NEVER, ()), True
        if len(brokers) > limit:
            if open_ is None:
                open_ = _Exceeded(time, _NEVER, limit, brokers)
                exceeded.append(open_)
            if len(brokers) - limit > len(open_.brokers) - open_.limit:
                open_.brokers, open_.limit = brokers, limit
            open_.faults |= {out.fault for out in now}
        elif open_ is not None:
            open_.end, open_ = time, None
    return _OfPartition(worst.worst, worst.limit, worst.brokers, worst.start, worst.end, tuple(exceeded))


def _worst(of: Mapping[str, _OfPartition], everywhere: _OfPartition | None, limit: int) -> tuple[str, _OfPartition]:
    """The partition that was furthest beyond, or nearest to it; "": the cluster."""
    candidates = list(of.items()) + ([("", everywhere)] if everywhere is not None else [])
    if not candidates:
        return "", _OfPartition(0, limit, (), 0, 0, ())
    return max(candidates, key=lambda entry: (entry[1].worst > 0, entry[1].worst - entry[1].limit, entry[1].worst))


# -- in words -------------------------------------------------------------------------------------------------------


def _explain(
    promised_by: Mapping[str, Any],
    memberships: Memberships | None,
    name: str,
    worst: _OfPartition,
    of_partition: Mapping[str, _OfPartition],
    origin: int,
) -> tuple[str, bool]:
    one = worst.worst == 1
    bound = f"{promised_by['bound']} = " if promised_by["bound"] else ""
    if not worst.worst:
        explanation = "no broker lost unsynced data"
    else:
        of = f" of {name}" if name else ""
        sync = "in its ISR" if name else "in sync"
        explanation = (
            f"at worst {worst.worst} {'broker' if one else 'brokers'} ({', '.join(worst.brokers)}) had lost unsynced "
            f"data{of} and {'was' if one else 'were'} not back {sync}"
            + (f" (from {_second(worst.start, origin):.3f} s on)" if name else "")
            + f", where {bound}{worst.limit} {'is' if worst.limit == 1 else 'are'} allowed at a time"
        )
    beyond = [name for name, of in of_partition.items() if not of.within]
    if beyond and len(of_partition) > 1:
        explanation += f"; {len(beyond)} of {len(of_partition)} partitions were beyond the contract"
    exceptions = list(promised_by["exceptions"])
    if memberships is not None:
        exceptions += filter(None, (of_strategy(strategy, topic) for topic, strategy in memberships.strategies.items()))
    return "; ".join((explanation, *exceptions)), not exceptions


def _sources(outs: Iterable[Out]) -> str:
    reported = {out.by_metadata for out in outs}
    return {(): "", (True,): "metadata log", (False,): "harness"}.get(tuple(reported), "metadata log and harness")


def _reported(of: _OfPartition, origin: int) -> dict[str, Any]:
    return {
        "worst": of.worst, "limit": of.limit, "at_s": _second(of.start, origin) if of.worst else None,
        "until_s": _second(of.end, origin) if of.worst else None, "brokers": list(of.brokers), "within": of.within,
    }  # fmt: skip


def _second(time: int, origin: int) -> float | None:
    return None if time == _NEVER else round((time - origin) / 1e9, 3)
