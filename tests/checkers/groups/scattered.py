"""Histories of a few events that mean little: nearly every rule is broken by some of them, and next to its border."""

from __future__ import annotations

from random import Random
from typing import Any

from spark_history.schema import NOTHING_COMMITTED
from tests.checkers.groups.group_history import GROUP, Event, History, events

_KINDS = ("assign", "assign", "revoke", "lose", "poll", "poll", "process", "process", "commit", "commit", "committed",
          "reset")  # fmt: skip
_OF_MEMBERS = ("pause", "resume", "leave", "crash")


def draw(random: Random) -> History:
    """Of one or two groups, up to three members and two partitions. Times are up to 100."""
    groups = {name: _settings(random) for name in (GROUP, "h")[: random.choice((1, 1, 2))]}
    partitions = random.choice((1, 1, 2))
    rows: list[Event] = []
    for name in groups:
        members = range(random.randint(1, 3))
        for member in members:
            if random.random() < 0.9:
                rows.append({"kind": "join", "process": member, "group": name, **_times(random, 0, 40)})
        for _ in range(random.randint(2, 14)):
            rows.append(_event(random, random.choice(members), partitions) | {"group": name})
    for row in rows:
        if row["kind"] == "assign" and random.random() < 0.8:  # as a rule polls follow, and go on where they left off
            _follow(random, row, rows)
    acknowledged = {(random.randrange(partitions), random.randrange(9)): random.randint(0, 60)
                    for _ in range(random.randint(0, 6))}  # fmt: skip
    history = History(
        events(rows), [(*log, time) for log, time in acknowledged.items()], groups,
        [{"fault": 0, "nemesis": "kill", "targets": ["broker-1"], "start": random.randint(0, 80), "end": 90}]
        * (random.random() < 0.7),
        random.choice((None, random.randint(0, 100))), random.choice((0, random.randint(0, 140))),
        random.choice((None, partitions)),
    )  # fmt: skip
    return history


def _settings(random: Random) -> dict[str, Any]:
    return {
        "commit": random.choice(("after", "before")), "mode": random.choice(("sync", "async", "sync", "auto")),
        "protocol": random.choice(("classic", "consumer")), "assignor": random.choice(("range", "cooperative-sticky")),
        "static": random.random() < 0.3, "settle_s": random.choice((2e-9, 8e-9, 20e-9, 40e-9)),
    }  # fmt: skip


def _times(random: Random, low: int = 0, high: int = 90) -> dict[str, Any]:
    invoke = random.randint(low, high)
    return {"invoke": invoke, "complete": None if random.random() < 0.05 else invoke + random.choice((0, 1, 2, 5, 20))}


def _event(random: Random, member: int, partitions: int) -> Event:
    if random.random() < 0.12:
        return {"kind": random.choice(_OF_MEMBERS), "process": member, **_times(random, 20)}
    kind = random.choice(_KINDS)
    row: Event = {"kind": kind, "process": member, "partition": random.randrange(partitions), **_times(random)}
    row["outcome"] = random.choice(("ok", "ok", "ok", "ok", "ok", "info", "fail"))
    if kind in ("poll", "process"):
        row["start"] = random.randrange(8)
        row["end"] = row["start"] + random.randrange(4)
    elif kind == "assign":
        row["start"] = random.choice((None, None, random.randrange(6)))
    elif kind in ("commit", "committed", "reset"):
        row["end"] = random.choice((*range(7), *range(7), None)) if random.random() < 0.95 else None
    if kind == "commit" and row["end"] is None and random.random() < 0.9:
        row["end"] = 3
    if kind in ("assign", "commit"):
        row["generation"] = random.choice((None, None, 1, 1, 2, 3, -1, 0))
    if kind == "reset" and random.random() < 0.5:
        row["error"] = NOTHING_COMMITTED
    if kind == "committed" and random.random() < 0.5:
        row["process"] = -1
    return row


def _follow(random: Random, assign: Event, rows: list[Event]) -> None:
    position = assign.get("start") or random.randrange(3)
    time = assign["invoke"] + random.randint(1, 4)
    for _ in range(random.randint(0, 3)):
        end = position + random.randint(1, 3)
        start = position if random.random() < 0.8 else random.randrange(8)
        of = {"process": assign["process"], "partition": assign["partition"], "group": assign["group"]}
        generation = assign.get("generation") if random.random() < 0.7 else None
        done = [
            {"kind": "poll", "start": start, "end": end, **of},
            {"kind": "process", "start": start, "end": end, **of},
            {"kind": "commit", "end": end, "generation": generation, **of},
        ]
        if random.random() < 0.4:
            random.shuffle(done)
        for event in done:
            over = time + random.choice((0, 1, 3))
            rows.append({**event, "invoke": time, "complete": over})
            time = over + random.randint(0, 2)
        position = end
