"""Plants what is wrong in a history that is right: by name of the anomaly, a function of the history's rows. Each finds
a place where what it does is wrong beyond doubt, or none in this history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

from checkers.groups import committed, delivery, order, ownership, positions, settling
from tests.checkers.groups.group_history import GROUP, Event, History, events

Plant = Callable[[History, list[Event], Random], bool]


def plant(anomaly: str, history: History, random: Random) -> History | None:
    """None: there is no place for it in this history."""
    rows = deepcopy(history.events)
    for row in rows:
        row.pop("op")
    if not PLANTS[anomaly](history, rows, random):
        return None
    return replace(history, events=events(rows))


def _settings(history: History) -> Any:
    return history.groups[GROUP]


def _manual(history: History, commit: str) -> bool:
    return _settings(history)["mode"] != "auto" and _settings(history)["commit"] == commit


def _spells(rows: list[Event]) -> Iterator[list[Event]]:
    """Of one member and partition, from an assign to what ends it, in order of time."""
    logs = {(row["process"], row["partition"]) for row in rows if row["partition"] is not None}
    for process, partition in sorted(logs):
        spell: list[Event] = []
        own = [row for row in rows if (row["process"], row["partition"]) == (process, partition)]
        for row in sorted(own, key=_time):
            if row["kind"] == "assign":
                spell = [row]
            elif spell:
                spell.append(row)
            if row["kind"] in ("revoke", "lose") and spell:
                yield spell
                spell = []
        if spell:
            yield spell


def _time(row: Event) -> int:
    inside = row["kind"] in ("assign", "commit", "reset") or row["complete"] is None
    return int(row["invoke"] if inside else row["complete"])


def _ok(row: Event, kind: str) -> bool:
    return bool(row["kind"] == kind and row["outcome"] == "ok" and row["complete"] is not None)


def _choose(random: Random, items: list[Any]) -> Any:
    return random.choice(items) if items else None


def unprocessed(history: History, rows: list[Event], random: Random) -> bool:
    done = [row for row in rows if row["kind"] == "process"]
    written = {(partition, offset) for partition, offset, _ in history.acknowledged}
    resets = [row for row in rows if row["kind"] == "reset" and row["end"]]
    sure = [(row["partition"], offset) for row in done for offset in range(row["start"], row["end"])
            if (row["partition"], offset) in written
            and not any(each["partition"] == row["partition"] and each["end"] > offset for each in resets)]  # fmt: skip
    chosen = _choose(random, sure)
    if chosen is None or _settings(history)["commit"] != "after":
        return False
    partition, offset = chosen
    for row in done:
        if row["partition"] == partition and row["start"] <= offset < row["end"]:
            rows.remove(row)
            rows += [{**row, "end": offset}, {**row, "start": offset + 1}]
    return True


def twice(history: History, rows: list[Event], random: Random) -> bool:
    row = _choose(random, [each for spell in _spells(rows) for each in spell if _ok(each, "process")
                           and spell[-1]["kind"] != "revoke" and not any(r["kind"] == "reset" for r in spell[1:])
                           ])  # fmt: skip
    if row is None or _settings(history)["commit"] != "before":
        return False
    rows.append({**row, "invoke": row["complete"] + 1, "complete": row["complete"] + 1})
    return _before_the_end(rows, rows[-1])


def _before_the_end(rows: list[Event], row: Event) -> bool:
    """Is the process still an owner then?"""
    own = [each for each in rows if each["process"] == row["process"]
           and (each["partition"] is None or each["partition"] == row["partition"])]  # fmt: skip
    ends = [each["invoke"] for each in own if each["kind"] in ("revoke", "lose", "assign", "leave", "crash", "reset")]
    before = [each["invoke"] for each in own if each["kind"] == "assign" and each["invoke"] < row["invoke"]]
    return bool(before) and not any(max(before) < end <= row["complete"] for end in ends)


def went_back(history: History, rows: list[Event], random: Random) -> bool:
    row = _choose(random, [each for spell in _spells(rows) for each in spell if _ok(each, "commit") and each["end"]])
    if row is None or _settings(history)["mode"] == "auto":
        return False
    rows.append({**row, "end": row["end"] - 1, "invoke": row["complete"] + 1, "complete": row["complete"] + 2})
    return _before_the_end(rows, {**row, "complete": row["complete"] + 2})


def lost_commit(history: History, rows: list[Event], random: Random) -> bool:
    if _settings(history)["mode"] == "auto":
        return False
    for question in [row for row in rows if row["kind"] == "committed" and row["process"] == -1]:
        commits = [row for row in rows if row["kind"] == "commit" and row["partition"] == question["partition"]]
        unsure = {row["end"] for row in commits if row["outcome"] == "info"}
        sure = [row for row in commits if _ok(row, "commit")]
        if not sure:
            continue
        newest = max(sure, key=lambda row: int(row["invoke"]))
        late = {row["end"] for row in sure if row["complete"] >= newest["invoke"]}
        stale = {row["end"] for row in sure} - late - unsure
        question["end"] = random.choice([None, *sorted(stale)])
        return True
    return False


def phantom_commit(history: History, rows: list[Event], random: Random) -> bool:
    row = _choose(random, [each for each in rows if each["kind"] == "committed"])
    if row is None:
        return False
    row["end"] = 1000
    return True


def skipped(history: History, rows: list[Event], random: Random) -> bool:
    """A poll is not there, and what it had handed out is not processed."""
    written = {(partition, offset) for partition, offset, _ in history.acknowledged}
    places = []
    for spell in _spells(rows):
        moves = [row for row in spell if row["kind"] in ("poll", "reset")]
        for one, other, third in zip(moves, moves[1:], moves[2:], strict=False):
            if {each["kind"] for each in (one, other, third)} == {"poll"} and any(
                (other["partition"], offset) in written for offset in range(other["start"], other["end"])
            ):
                places.append(other)
    row = _choose(random, places)
    if row is None:
        return False
    rows.remove(row)
    return True


def position_went_back(history: History, rows: list[Event], random: Random) -> bool:
    places = []
    for spell in _spells(rows):
        moves = [row for row in spell if row["kind"] in ("poll", "reset")]
        places += [other for one, other in pairwise(moves)
                   if one["kind"] == other["kind"] == "poll" and other["start"] > 0]  # fmt: skip
    row = _choose(random, places)
    if row is None:
        return False
    row["start"] -= 1
    return True


def _begins(rows: list[Event]) -> list[tuple[Event, Event]]:
    """An assignment that does not tell where it begins, and its first poll."""
    found = []
    for spell in _spells(rows):
        moves = [row for row in spell if row["kind"] in ("poll", "reset")]
        if moves and moves[0]["kind"] == "poll" and spell[0]["start"] is None:
            found.append((spell[0], moves[0]))
    return found


def skipped_after_rebalance(history: History, rows: list[Event], random: Random) -> bool:
    written = {(partition, offset) for partition, offset, _ in history.acknowledged}
    places = []
    for assign, poll in _begins(rows):
        asked = [row for row in rows if row["kind"] in ("commit", "reset", "poll") and row is not poll
                 and row["partition"] == poll["partition"] and row["invoke"] <= poll["complete"]]  # fmt: skip
        highest = max([row["end"] for row in asked], default=None)
        sure = any(_ok(row, "commit") and row["complete"] < assign["invoke"] for row in asked)
        auto = _settings(history)["mode"] == "auto"
        if highest is not None and (sure or auto) and (poll["partition"], highest) in written:
            places.append((poll, highest + 1))
    chosen = _choose(random, places)
    if chosen is None:
        return False
    chosen[0].update(start=chosen[1], end=max(chosen[1] + 1, chosen[0]["end"]))
    return True


def began_below(history: History, rows: list[Event], random: Random) -> bool:
    places = []
    for assign, poll in _begins(rows):
        asked = [row for row in rows if row["kind"] == "commit" and row["partition"] == poll["partition"]]
        before = [row for row in asked if _ok(row, "commit") and row["complete"] < assign["invoke"]]
        lowest = min((row["end"] for row in asked), default=0)
        proof = any(row["kind"] == "commit" and _ok(row, "commit") for spell in _spells(rows) if spell[0] is assign
                    for row in spell)  # fmt: skip
        if before and proof and lowest > 0:
            places.append((poll, random.randrange(lowest)))
    chosen = _choose(random, places)
    if chosen is None or _settings(history)["mode"] == "auto":
        return False
    chosen[0]["start"] = chosen[1]
    return True


def committed_first(history: History, rows: list[Event], random: Random) -> bool:
    """What was processed last before a commit is processed after it."""
    if not _manual(history, "after"):
        return False
    places = []
    for spell in _spells(rows):
        for number, row in enumerate(spell):
            earlier = [each for each in spell[:number] if each["kind"] == "process"]
            if _ok(row, "commit") and earlier and earlier[-1]["end"] == row["end"]:
                own = [each for each in rows if each["kind"] in ("process", "assign", "reset", "commit")
                       and each["process"] == row["process"] and each["partition"] == row["partition"]]  # fmt: skip
                done = earlier[-1]
                furthest = max(
                    [
                        each["end"] if each["kind"] != "assign" else (each["start"] or 0)
                        for each in own
                        if each is not done and each["invoke"] <= row["invoke"] and each is not row
                    ],
                    default=0,
                )
                begins = [each["start"] for each in spell if each["kind"] == "poll"][:1]
                if furthest < done["end"] and begins and spell[0]["start"] in (None, begins[0]):
                    places.append((done, row))
    chosen = _choose(random, places)
    if chosen is None:
        return False
    chosen[0].update(invoke=chosen[1]["invoke"] + 1, complete=chosen[1]["invoke"] + 1)
    return True


def processed_first(history: History, rows: list[Event], random: Random) -> bool:
    if not _manual(history, "before"):
        return False
    places = []
    for row in rows:
        if _ok(row, "process"):
            own = [each for each in rows if each["process"] == row["process"] and each["partition"] == row["partition"]]
            covers = [each for each in own if _ok(each, "commit") and each["end"] >= row["end"]]
            if len(covers) == 1:
                places.append((row, covers[0]))
    chosen = _choose(random, places)
    if chosen is None:
        return False
    chosen[0]["invoke"] = chosen[1]["invoke"]
    return True


def two_owners(history: History, rows: list[Event], random: Random) -> bool:
    """Another member is given it in the same generation; or, where that is not told, both commit."""
    places = [spell for spell in _spells(rows) if len(spell) > 1 and spell[0]["complete"] < spell[-1]["invoke"] - 4
              and spell[-1]["kind"] not in ("revoke", "lose")]  # fmt: skip
    spell = _choose(random, places)
    if spell is None or _settings(history)["static"]:
        return False
    assign = spell[0]
    ends = [row["invoke"] for row in rows if row["process"] == assign["process"] and row["kind"] in ("leave", "crash")]
    if ends and min(ends) <= assign["complete"] + 3:
        return False
    at = assign["complete"] + 1
    other = {**assign, "process": 99, "invoke": at, "complete": at + 1}
    rows.append(other)
    if not (assign.get("generation") or 0) > 0:
        mine = [row for row in spell if _ok(row, "commit") and row["invoke"] > at + 1]
        if not mine or (ends and mine[0]["invoke"] >= min(ends)):
            return False
        rows.append({**mine[0], "process": 99})
    return True


def zombie_commit(history: History, rows: list[Event], random: Random) -> bool:
    told = [row for row in rows if row["kind"] == "assign" and (row["generation"] or 0) > 1 and row["complete"]]
    row = _choose(random, told)
    if row is None or _settings(history)["mode"] == "auto":
        return False
    at = row["complete"] + 1
    rows.append({**row, "kind": "commit", "process": 98, "end": 0, "generation": row["generation"] - 1, "invoke": at,
                 "complete": at + 1, "start": None})  # fmt: skip
    return True


def not_settled(history: History, rows: list[Event], random: Random) -> bool:
    """Nobody owns a partition in the end: the last assignment of it was never made."""
    assert history.healed is not None
    partition = random.randrange(history.partitions or 1)
    assigns = [row for row in rows if row["kind"] == "assign" and row["partition"] == partition]
    last = max(assigns, key=lambda row: int(row["invoke"]))
    still = [spell for spell in _spells(rows) if spell[0]["partition"] == partition and spell[0] is not last
             and spell[-1]["kind"] not in ("revoke", "lose")]  # fmt: skip
    leaves = {row["process"] for row in rows if row["kind"] in ("leave", "crash") and row["invoke"] < history.healed}
    if any(spell[0]["process"] not in leaves for spell in still):
        return False
    rows.remove(last)
    return True


PLANTS: Final[dict[str, Plant]] = {
    delivery.UNPROCESSED: unprocessed, delivery.TWICE: twice, committed.OFFSET_WENT_BACK: went_back,
    committed.LOST_COMMIT: lost_commit, committed.PHANTOM_COMMIT: phantom_commit, positions.SKIPPED: skipped,
    positions.WENT_BACK: position_went_back, committed.SKIPPED_AFTER_REBALANCE: skipped_after_rebalance,
    committed.BEGAN_BELOW: began_below, order.COMMITTED_FIRST: committed_first, order.PROCESSED_FIRST: processed_first,
    ownership.TWO_OWNERS: two_owners, ownership.ZOMBIE_COMMIT: zombie_commit, settling.NOT_SETTLED: not_settled,
}  # fmt: skip
