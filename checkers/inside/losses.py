"""How acknowledged records were lost: which fault took them from which node, and whether that node led again without
them. Told from what faults left in evidence, and from the committed metadata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkers.inside.metadata.memberships import Memberships, Step
from spark_history.log import NEVER

Fault = Mapping[str, Any]
_SHOWN: Final = 3  # partitions in a sentence


class _Taken(NamedTuple):
    """What one fault took from one node: records by partition."""

    fault: Fault
    node: str
    records: Mapping[str, int]


def explain(lost_in: Sequence[str], faults: Iterable[Fault], held: Memberships | None, origin: int) -> list[str]:
    """A sentence for each fault and node that explains a loss, in order of time; nothing where no evidence does.

    lost_in: partitions (chaos-0) that lost acknowledged records. faults: rows of FAULTS, evidence parsed. origin: of
    the times shown, monotonic ns."""
    found = []
    explained: set[str] = set()
    taken = [each for fault in faults for each in _taken(fault, lost_in)]
    for each in taken:
        led = _led_again(each, held, taken)
        if led:
            found.append((each, led))
            explained |= led.keys()
    known = [each for each, _ in found]
    found += [(each, {}) for each in taken if each.records.keys() - explained and each not in known]
    return [_sentence(each, led, origin) for each, led in sorted(found, key=lambda entry: entry[0].fault["start"])]


def _taken(fault: Fault, lost_in: Sequence[str]) -> Iterator[_Taken]:
    for node, seen in (fault["evidence"].get("nodes") or {}).items():
        by_partition = seen.get("lost_by_partition") or {}
        records = {log: by_partition[log] for log in lost_in if by_partition.get(log)}
        if records:
            yield _Taken(fault, node, records)


def _led_again(taken: _Taken, held: Memberships | None, of: Sequence[_Taken]) -> dict[str, int]:
    """By partition, from when on the node led it with what it had left, unless it had come into the ISR meanwhile by
    fetching from somebody else who led. of: what any fault took."""
    if held is None or taken.node not in held.ids:
        return {}
    loser, led = held.ids[taken.node], {}
    steps_of = {f"{topic}-{partition}": steps for (topic, partition), steps in held.steps.items()}
    for log in taken.records:
        steps = steps_of.get(log, ())
        before = max((step.leader_epoch for step in steps if step.time <= taken.fault["start"]), default=-1)
        for step, until in zip(steps, _tenures(steps), strict=True):
            # What was decided before the fault may be seen after it; an election has a leader epoch of its own.
            seen_late = -1 < step.leader_epoch <= before
            if step.time <= taken.fault["start"] or step.leader < 0 or seen_late:
                continue
            # Who was elected without power, and replaced before it was back, has decided nothing.
            if any(held.ids.get(each.node) == step.leader and _throughout(each.fault, step.time, until) for each in of):
                continue
            if step.leader == loser:
                led[log] = step.time
            break  # whoever leads first decides what the log is from then on
    return led


def _throughout(fault: Fault, since: int, until: int) -> bool:
    end = fault.get("end")
    return bool(fault["start"] <= since and end is not None and until <= end)


def _tenures(steps: Sequence[Step]) -> list[int]:
    """Until when each step's leader is it, ns."""
    ends, until = [NEVER] * len(steps), NEVER
    for number in range(len(steps) - 2, -1, -1):
        if steps[number + 1].leader != steps[number].leader:
            until = steps[number + 1].time
        ends[number] = until
    return ends


def _sentence(taken: _Taken, led: Mapping[str, int], origin: int) -> str:
    fault, by_kind = taken.fault, defaultdict(list)
    for log, count in taken.records.items():
        by_kind[log in led].append(f"{count:,} of {log}")
    listed = by_kind[True] + by_kind[False]
    more = f" and of {len(listed) - _SHOWN} more partitions" if len(listed) > _SHOWN else ""
    text = (
        f"fault {fault['fault']}, {fault['nemesis']} at {(fault['start'] - origin) / 1e9:.1f} s, took records from "
        f"{taken.node} that it had not synced: {', '.join(listed[:_SHOWN])}{more}"
    )
    if not led:
        return text
    first = min(led.values())
    logs = ", ".join(list(led)[:_SHOWN]) + (" …" if len(led) > _SHOWN else "")
    return f"{text}; it was elected leader of {logs} without them, from {(first - origin) / 1e9:.1f} s on"
