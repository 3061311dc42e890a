"""Consumer groups: each anomaly by its name, and what looks like one and is none."""

from __future__ import annotations

import json
from itertools import permutations
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from checkers import groups
from checkers.groups import healed_of
from checkers.groups.committed import Register
from checkers.groups.events import read
from checkers.groups.records import COLUMNS
from checkers.properties import GROUPS_ALLOWED, WEAK
from spark_history.errors import HistoryError
from spark_history.files import compact
from spark_history.schema import NOTHING_COMMITTED
from tests.checkers.groups.group_history import GROUP, TOPIC, Event, History, events

AFTER: dict[str, Any] = {"commit": "after", "mode": "async", "settle_s": 1e-6}
BEFORE = AFTER | {"commit": "before"}
AUTO = AFTER | {"mode": "auto"}
STATIC = AFTER | {"static": True}


def at(time: int, kind: str, process: int = 0, over: int | None = None, **of: Any) -> Event:
    """of: start, end, generation, outcome. over: when it was complete, by default one later; -1: never."""
    complete = time + 1 if over is None else None if over < 0 else over
    of_member = kind in ("join", "pause", "resume", "leave", "crash")
    return {"kind": kind, "process": process, "invoke": time, "complete": complete,
            "partition": None if of_member else 0, **of}  # fmt: skip


def given(time: int, process: int = 0, start: int | None = None, generation: int | None = None, **of: Any) -> Event:
    return at(time, "assign", process, start=start, generation=generation, **of)


def poll(time: int, start: int, end: int, process: int = 0) -> Event:
    return at(time, "poll", process, start=start, end=end)


def done(time: int, start: int, end: int, process: int = 0, over: int | None = None) -> Event:
    return at(time, "process", process, over, start=start, end=end)


def commit(time: int, end: int, process: int = 0, over: int | None = None, **of: Any) -> Event:
    return at(time, "commit", process, over, end=end, **of)


def asked(time: int, end: int | None, process: int = -1) -> Event:
    return at(time, "committed", process, end=end)


def reset(time: int, end: int, process: int = 0) -> Event:
    return at(time, "reset", process, end=end)


def history(*rows: Event, settings: dict[str, Any] = AFTER, records: int = 10, **of: Any) -> History:
    written = [(0, offset, 5) for offset in range(records)]
    return History(events([at(1, "join"), at(1, "join", 1), *rows]), written, {GROUP: settings}, **of)


def strong(of: History) -> set[str]:
    found = of.judge().anomalies
    return {anomaly for each in found for property_, anomaly, *_ in each.tally if property_ not in WEAK}


def weak(of: History) -> set[str]:
    found = of.judge().anomalies
    return {anomaly for each in found for property_, anomaly, *_ in each.tally if property_ == GROUPS_ALLOWED}


EMPTY = reset(14, 0) | {"error": NOTHING_COMMITTED}
FIRST = (given(10, start=0), poll(20, 0, 4), done(22, 0, 4), commit(24, 4))
TAKEN = (*FIRST, at(30, "revoke"))

WRONG: dict[str, list[History]] = {
    "committed offset went back": [
        history(*FIRST, commit(30, 3)),
        history(*TAKEN, given(40, 1, 4), commit(44, 2, 1)),
        history(given(10, start=0), reset(12, 2), poll(20, 2, 4), done(22, 2, 4), commit(24, 4), commit(30, 3)),
    ],
    "lost commit": [
        history(*FIRST, asked(50, None)),
        history(*FIRST, commit(30, 4), reset(34, 2), commit(36, 2), asked(50, 4)),
    ],
    "lost commit, by who begins": [
        history(*TAKEN, given(40, 1), reset(42, 0, 1) | {"error": NOTHING_COMMITTED}, poll(50, 0, 4, 1),
                done(52, 0, 4, 1), commit(54, 4, 1)),
    ],
    "phantom commit": [
        history(*FIRST, asked(50, 3)), history(*FIRST, asked(50, 5)),
        history(given(10, start=0), poll(20, 0, 4), asked(50, 5), settings=AUTO),
        history(*FIRST, commit(30, 4, outcome="fail"), commit(34, 7, outcome="fail"), asked(50, 7)),
    ],
    "skipped records": [
        history(*FIRST, poll(40, 5, 6), done(42, 5, 6)), history(given(10, start=0), poll(20, 1, 2)),
        history(given(10), reset(12, 2), poll(20, 3, 4)),
        history(given(10), EMPTY, poll(20, 2, 4), commit(30, 2, 1)),
        history(given(10), EMPTY, poll(20, 3, 4), commit(12, 2, 1, over=16)),
        history(given(10), EMPTY, poll(20, 3, 4), at(9, "poll", 1, start=0, end=2), settings=AUTO),
    ],
    "position went back": [history(*FIRST, poll(40, 3, 6)), history(given(10, start=3), poll(20, 2, 4))],
    "skipped after rebalance": [
        history(*TAKEN, given(40, 1), poll(50, 5, 6, 1)), history(*TAKEN, given(40, 1, 6)),
        history(*FIRST, commit(26, 4, outcome="info", over=-1), at(30, "lose"), given(40, 1, 5)),
        history(given(10, start=0), poll(20, 0, 4), at(30, "revoke"), given(40, 1), poll(50, 5, 6, 1), settings=AUTO),
    ],
    "began below the committed offset": [
        history(*TAKEN, given(40, 1), poll(50, 3, 6, 1), done(52, 3, 6, 1), commit(54, 6, 1)),
    ],
    "committed before processing": [
        history(given(10, start=0), poll(20, 0, 4), commit(24, 4)),
        history(given(10, start=0), poll(20, 0, 4), commit(24, 4, over=30), done(26, 0, 4)),
        history(given(10, start=0), poll(20, 0, 4), done(22, 2, 4), commit(24, 4), done(26, 0, 2)),
    ],
    "processed before commit": [
        history(given(10, start=0), poll(20, 0, 4), done(22, 0, 4), settings=BEFORE),
        history(given(10, start=0), poll(20, 0, 4), commit(22, 4, over=30), done(24, 0, 4), settings=BEFORE),
        history(given(10, start=0), poll(20, 0, 4), commit(22, 3), done(24, 0, 4), settings=BEFORE),
    ],
    "processed twice": [
        history(given(10, start=0), poll(20, 0, 4), commit(22, 4), done(24, 0, 4), done(26, 3, 4), settings=BEFORE),
    ],
    "two owners": [
        history(given(10, 0, 0, 3), given(20, 1, 0, 3)),
        history(given(10, 0, 0), commit(30, 0), given(20, 1, 0), commit(40, 0, 1), settings=STATIC),
        history(given(10, 0, 0, 2), commit(30, 0), given(20, 1, 0, 2), commit(40, 0, 1), settings=STATIC),
    ],
    "zombie commit": [
        history(given(10, 0, 0, 2), given(20, 1, 0, 3), commit(30, 0, generation=2)),
        history(given(10, 0, 0, 2), given(20, 1, 0, 3), commit(30, 0), commit(40, 0, 1)),
        history(given(10, 0, 0, 2), at(14, "lose"), given(20, 1, 0, 3), at(24, "revoke", 1),
                commit(30, 0, generation=2)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("anomaly", WRONG)
def test_each_is_told_by_its_name_and_no_other(anomaly: str) -> None:
    assert [strong(of) for of in WRONG[anomaly]] == [{anomaly.split(",")[0]}] * len(WRONG[anomaly])


RIGHT: dict[str, History] = {
    "what is processed, committed and taken away": history(*TAKEN, given(40, 1, 4), poll(50, 4, 6, 1)),
    "a poll in which the callback ran": history(given(10, start=0), at(8, "poll", over=20, start=0, end=4)),
    "a commit within the callback that takes it away": history(
        given(10, start=0), poll(20, 0, 4), at(30, "revoke", over=40), done(32, 0, 4), commit(34, 4),
        given(50, 1, 4)),
    "a stated reset": history(*FIRST, reset(30, 1), poll(40, 1, 3), done(42, 1, 3), commit(44, 3), asked(50, 3)),
    "a reset after nothing was committed": history(
        given(10), EMPTY, poll(20, 0, 4), done(22, 0, 4), commit(24, 4)),
    "nothing was committed when the member asked, and something when its client did": history(
        at(8, "assign", 1, start=0), at(9, "poll", 1, start=0, end=2), done(10, 0, 2, 1), commit(11, 2, 1, over=19),
        at(12, "revoke", 1), given(13), EMPTY, poll(20, 2, 4), done(22, 2, 4), commit(24, 4)),
    "the same where nobody tells of commits": history(
        at(8, "assign", 1, start=0), at(9, "poll", 1, start=0, end=2), at(12, "revoke", 1), given(13), EMPTY,
        poll(20, 2, 4), settings=AUTO),
    "a reset after nothing was committed, by who was never a member again": history(
        *TAKEN, given(40, 1), reset(42, 0, 1) | {"error": NOTHING_COMMITTED}, poll(50, 0, 4, 1)),
    "an offset with no record": history(given(10, start=0), poll(20, 0, 4), poll(30, 6, 8), records=4),
    "a late commit, and the next owner has begun below it": history(
        given(10, 0, 0, 1), poll(20, 0, 4), done(22, 0, 4), commit(24, 4, over=60, generation=1), at(30, "lose"),
        given(40, 1, 0, 2), poll(50, 0, 2, 1), done(52, 0, 2, 1), commit(70, 2, 1), asked(90, 2)),
    "a commit without an answer that comes into force later": history(
        *FIRST, commit(26, 2, outcome="info", over=-1), at(30, "lose"), given(40, 1, 2), asked(70, 4), asked(80, 2)),
    "commits at a time, either of which may be the last": history(
        given(10, start=0), poll(12, 0, 6), done(14, 0, 6), commit(20, 4, over=40), commit(22, 6, over=30),
        asked(60, 4), asked(70, 6)),
    "a member that commits what it inherited": history(*TAKEN, given(40, 1, 4), commit(44, 4, 1)),
    "a member that commits what it has processed before": history(
        *TAKEN, given(40), reset(42, 1), poll(44, 1, 3), done(46, 1, 3), commit(48, 3)),
    "commits that tell nothing of their own": history(
        given(10, start=0), poll(20, 0, 4), asked(30, 3), at(32, "lose"), given(40, 1, 2), poll(50, 2, 4, 1),
        settings=AUTO),
    "twice, as the commit was in flight": history(
        given(10, start=0), poll(20, 0, 4), commit(22, 4, over=60), given(30, 1, 0), poll(34, 0, 4, 1),
        commit(36, 4, 1, over=50), done(52, 0, 4, 1), done(62, 0, 4), settings=BEFORE),
    "twice, on purpose": history(
        given(10, start=0), poll(20, 0, 4), commit(22, 4), done(24, 0, 4), reset(30, 0), poll(34, 0, 4), commit(36, 4),
        done(40, 0, 4), settings=BEFORE),
    "who was replaced and does not know it": history(
        given(10, 0, 0, 2), given(20, 1, 0, 3), commit(30, 0, outcome="fail", generation=2), at(40, "lose")),
    "a static member that came back": history(
        given(10, 0, 0, 2), given(20, 1, 0, 2), commit(30, 0, 1), settings=STATIC),
    "owners of whom one commits": history(given(10, 0, 0), given(20, 1, 0), commit(30, 0, 1)),
    "a commit of no generation, by a group without members": history(
        given(10, 0, 0, 2), given(20, 1, 0, 3), commit(30, 0, generation=-1), commit(40, 0, 1, generation=-1)),
    "who began below, and was never a member again": history(*TAKEN, given(40, 1), poll(50, 0, 2, 1)),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_is_not_blamed(case: str) -> None:
    assert strong(RIGHT[case]) == set()


def test_what_is_allowed_is_counted() -> None:
    assert weak(RIGHT["who was replaced and does not know it"]) == {"overlapping ownership"}
    assert weak(RIGHT["who began below, and was never a member again"]) == {"began at no committed offset"}
    assert weak(RIGHT["twice, on purpose"]) == {"processed again"}
    cooperative = AFTER | {"assignor": "cooperative-sticky"}
    both = (given(10, 0, 0, 2), given(20, 1, 0, 3), at(40, "revoke"))
    assert weak(history(*both, settings=cooperative)) == {"assigned before revoked"}
    assert weak(history(*both)) == {"overlapping ownership"}
    assert weak(history(poll(20, 0, 4))) == {"handed without ownership"}


def test_an_answer_while_a_coordinator_may_be_deposed_is_not_held_against_commits() -> None:
    fault = {"fault": 0, "nemesis": "pause", "targets": ["broker-1"], "start": 40, "end": 60}
    late = history(*FIRST, commit(30, 4), asked(50, None, 1), faults=[fault])
    assert strong(late) == set() and weak(late) == {"stale committed offset"}
    for of in (
        history(*FIRST, asked(35, None, 1), faults=[fault]),
        history(*FIRST, asked(50, None), faults=[fault]),
        history(*FIRST, asked(2000, None, 1), faults=[fault], healed=900),
    ):
        assert "lost commit" in strong(of)


END = (at(3000, "leave"),)


def test_a_record_that_nobody_processes_is_one_only_where_somebody_had_the_time() -> None:
    wrong = history(*FIRST, *END, healed=100, until=4000)
    assert strong(wrong) == {"unprocessed record", "group not settled"}
    rows = [row for found in wrong.judge().anomalies for row in found.rows if row["anomaly"] == "unprocessed record"]
    assert [(row["count"], row["offset"]) for row in rows] == [(6, 4)]
    assert "6 acknowledged records of chaos-0, the first at 4" in rows[0]["message"]
    for of, why in (
        (history(*FIRST, *END, healed=None), "when all faults were healed is not known"),
        (history(*FIRST, at(30, "crash"), at(31, "crash", 1), healed=100, until=4000), "no member was there"),
        (history(*FIRST, at(600, "leave"), at(610, "leave", 1), healed=100, until=650), "no member had the time"),
        (history(*FIRST, poll(1000, 4, 6), healed=100, until=1100), "no member had the time"),
    ):
        assert strong(of) == set() and any(why in reason for reason in of.judge().undecided), why
    rest = (poll(30, 4, 10), done(32, 4, 10))
    assert strong(history(*FIRST, *rest, *END, healed=100, until=4000)) == set()
    assert strong(history(*FIRST, reset(30, 10), *END, healed=100, until=4000)) == set(), "leapt over on purpose"
    assert "unprocessed record" not in strong(history(*FIRST, *END, healed=100, until=4000, settings=BEFORE))


def test_a_group_settles_with_one_live_owner_of_each_partition() -> None:
    rest = (poll(30, 4, 10), done(32, 4, 10))
    lost = history(*FIRST, *rest, at(40, "lose"), *END, healed=100, until=4000)
    assert strong(lost) == {"group not settled"}
    dead = history(*FIRST, *rest, at(40, "crash"), healed=100, until=4000)
    assert strong(dead) == {"group not settled"}, "its owner is dead, and member 1 lives"
    two = history(*FIRST, *rest, given(40, 1, 4), healed=100, until=4000)
    assert strong(two) == {"group not settled"}
    assert strong(history(*FIRST, *rest, healed=100, until=4000, partitions=2)) == {"group not settled"}
    later = history(*FIRST, *rest, at(40, "lose"), at(3000, "join", 2), healed=2500, until=3600)
    assert strong(later) == set() and any("to settle" in reason for reason in later.judge().undecided)


def test_a_group_of_the_plan_must_be_on_record() -> None:
    found = History([], groups={"g": AFTER}).judge()
    assert found.undecided == ["group g: nothing of it is on record"] and not found.anomalies


def test_what_was_committed_without_telling_is_undecided() -> None:
    of = history(*FIRST, commit(30, 0) | {"end": None}, asked(50, 9))
    assert strong(of) == set() and "what was committed of chaos-0 is not known" in of.judge().undecided[0]


def test_deleted_records_leave_open_what_was_to_be_processed() -> None:
    of = history(*FIRST, *END, healed=100, until=4000)
    plan = {**of.plan, "log_start": "moves"}
    found = groups.check(groups.Facts("r", plan, [], 0, 4000, 100), of.table, {})
    assert any("records are deleted" in reason for reason in found.undecided)


def test_partitions_that_no_member_has_seen_are_those_of_the_topics_of_the_run_and_of_the_group() -> None:
    of = history(*FIRST, poll(30, 4, 10), done(32, 4, 10), *END, healed=100, until=4000)
    other = [(TOPIC, 1, [pa.Table.from_pylist([WRITTEN], schema=COLUMNS).cast(compact(COLUMNS))])]
    for topic in (TOPIC, None):
        facts = groups.Facts("r", {**of.plan, "topic": topic}, [], 0, 4000, 100)
        found = groups.check(facts, of.table, groups.acknowledged(other))
        wrong = {(row["anomaly"], row["partition"]) for each in found.anomalies for row in each.rows}
        assert wrong == {("unprocessed record", 1), ("group not settled", 1)}


WRITTEN = {"kind": "append", "outcome": "ok", "offset": 3, "complete": 5}


@pytest.mark.parametrize("settle", ["30", True, 0, -1, None, 1e30, float("nan")])
def test_a_time_to_settle_that_is_none_is_refused(settle: Any) -> None:
    with pytest.raises(HistoryError, match="settle_s of group g is to be a number of seconds"):
        history(*FIRST, settings={"settle_s": settle}).judge()


def test_a_witness_names_the_events_and_what_was_in_force() -> None:
    fault = {"fault": 0, "nemesis": "pause", "targets": ["broker-1"], "start": 26, "end": 60}
    (found,) = history(*FIRST, commit(30, 3), faults=[fault]).judge().anomalies
    (row,) = found.rows
    assert row["ops"] == [], "numbers of operations, which these are not"
    assert [each["op"] for each in json.loads(row["witness"])["operations"]] == [5, 6]
    assert (row["topic"], row["partition"]) == (TOPIC, 0)
    assert row["message"] == (
        "group g, chaos-0: member 0's commit of 3 (event 6, at 0.000 s) was acknowledged, and was begun after member "
        "0's commit of 4 (event 5, at 0.000 s) had been: nothing says that it went back on purpose (in force: pause of "
        "broker-1)"
    )
    assert '"what": "commit of 4 of chaos-0, group g"' in row["witness"]


def test_when_all_was_healed_is_for_the_run_to_say() -> None:
    assert healed_of({"healed_ns": 5}) == 5
    assert healed_of({}) is healed_of({"healed_ns": "5"}) is healed_of({"healed_ns": True}) is None


def test_what_may_be_in_force_is_what_some_order_of_the_commits_explains() -> None:
    """Of few commits, by trying all orders in which they may have come into force."""
    for number in range(300):
        random = Random(number)
        rows = []
        for offset in range(random.randint(1, 4)):
            time = random.randint(0, 20)
            over, outcome = random.choice(((time + random.randint(0, 9), "ok"), (-1, "info"), (time + 3, "info")))
            rows.append(commit(time, offset, over=over, outcome=outcome))
        low = random.randint(0, 22)
        high = low + random.randint(0, 4)
        share = read(History(events(rows)).table)[GROUP].shares[TOPIC, 0]
        possible = Register(share).possible(low, high)
        found = {int(share.rows.end[row]) for row in possible.rows} | ({None} if possible.nothing else set())
        assert found == _explained(rows, low, high), number


def _explained(rows: list[Event], low: int, high: int) -> set[int | None]:
    question: Event = {"invoke": low, "complete": high, "outcome": "ok", "end": None}
    found: set[int | None] = set()
    for order in permutations([*rows, question]):
        # Each is in force at some moment, one after the other: what was answered before another was begun is so before.
        ok = all(
            one["outcome"] == "info" or one["complete"] is None or one["complete"] >= other["invoke"]
            for at_, other in enumerate(order) for one in order[at_ + 1 :]
        )  # fmt: skip
        if ok:
            before = order[: order.index(question)]
            for left_out in range(1 << len(before)):  # commits without an answer may never come into force
                kept = [row for at_, row in enumerate(before) if row["outcome"] == "ok" or not left_out >> at_ & 1]
                found.add(kept[-1]["end"] if kept else None)
    return found
