"""Log transactions (Jepsen's kafka workload): every anomaly by hand, and good histories at random."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.transaction_histories import Micro, Txn, check, names, word


def send(key: int, offset: int | None, value: int) -> Micro:
    return ("send", key, offset, value)


def poll(key: int, *records: tuple[int, int]) -> Micro:
    return ("poll", key, records)


def one_by_one(*micro: list[Micro], process: int | None = None) -> list[Txn]:
    return [Txn(each, 10 * number, 10 * number + 5, process=process) for number, each in enumerate(micro)]


FAILED = Txn([send(0, None, 1)], outcome="fail")
FORBIDDEN = {
    "inconsistent-offsets": one_by_one([send(0, 0, 1)], [send(0, 1, 2)], [poll(0, (0, 2))], [poll(0, (0, 1), (1, 2))]),
    "duplicate": one_by_one([send(0, 0, 1)], [poll(0, (0, 1), (1, 1))]),
    "lost-write": one_by_one([send(0, 0, 1)], [send(0, 1, 2)], [poll(0, (1, 2))]),
    "G1a": [FAILED, Txn([poll(0, (0, 1))], 20, 30)],
    "phantom": one_by_one([send(0, 0, 1)], [poll(0, (0, 1), (1, 7))]),
    "precommitted-read": one_by_one([send(0, 0, 1), poll(0, (0, 1))]),
    "int-poll-skip": one_by_one(
        [send(0, 0, 1), send(0, 1, 2), send(0, 2, 3)], [poll(0, (0, 1)), poll(0, (2, 3))], [poll(0, (1, 2))]
    ),
    "int-nonmonotonic-poll": one_by_one([send(0, 0, 1), send(0, 1, 2)], [poll(0, (1, 2), (0, 1))]),
    "int-nonmonotonic-send": one_by_one([send(0, 1, 1), send(0, 0, 2)], [poll(0, (0, 2), (1, 1))]),
    "nonmonotonic-send": [
        *one_by_one([send(0, 1, 1)], [send(0, 0, 2)], process=3),
        Txn([poll(0, (0, 2), (1, 1))], 40, 50),
    ],
    "G1c": [Txn([send(0, 0, 1), poll(1, (0, 1))]), Txn([send(1, 0, 1), poll(0, (0, 1))])],
    "G1c-realtime": one_by_one([poll(0, (0, 1))], [send(0, 0, 1)]),
    "G1c-process": one_by_one([poll(0, (0, 1))], [send(0, 0, 1)], process=3),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_names_what_is_wrong(name: str) -> None:
    judged = check(FORBIDDEN[name], "kafka")
    assert name in names(judged)
    assert word(FORBIDDEN[name], "kafka") == "fail"
    assert all(json.loads(row["witness"])["operations"] and row["message"] for row in judged.rows)


ALLOWED = {
    "int-send-skip": [
        Txn([send(0, 0, 1), send(0, 2, 3)]),
        Txn([send(0, 1, 2)], 1, 9),
        Txn([poll(0, (0, 1), (1, 2), (2, 3))], 20, 30),
    ],
    "poll-skip": [
        *one_by_one([send(0, 0, 1), send(0, 1, 2), send(0, 2, 3)]),
        Txn([poll(0, (0, 1), (1, 2))], 20, 30, process=1),
        Txn([poll(0, (0, 1))], 20, 30, process=2),
        Txn([poll(0, (2, 3))], 40, 50, process=2),
    ],
    "nonmonotonic-poll": [
        *one_by_one([send(0, 0, 1), send(0, 1, 2)]),
        Txn([poll(0, (0, 1), (1, 2))], 20, 30, process=1),
        Txn([poll(0, (0, 1))], 40, 50, process=1),
    ],
    "G0": [
        Txn([send(0, 0, 1), send(1, 1, 1)]),
        Txn([send(0, 1, 2), send(1, 0, 2)], 1, 9),
        Txn([poll(0, (0, 1), (1, 2)), poll(1, (0, 2), (1, 1))], 20, 30),
    ],
    "G1c": [  # by a ww edge
        Txn([send(0, 0, 1), poll(1, (0, 9))]),
        Txn([send(0, 1, 2), send(1, 0, 9)], 1, 9),
        Txn([poll(0, (0, 1), (1, 2))], 20, 30),
    ],
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_kafka_allows_is_told_and_passes(name: str) -> None:
    judged = check(ALLOWED[name], "kafka")
    assert names(judged) == set()
    assert name in names(judged, "transactions, allowed")
    assert word(ALLOWED[name], "kafka") == "pass"


def test_a_send_below_one_that_had_completed_is_an_inversion() -> None:
    txns = one_by_one([send(0, 1, 1)], [send(1, 0, 5)], [send(0, 0, 2)], [poll(0, (0, 2), (1, 1)), poll(1, (0, 5))])
    judged = check(txns, "kafka")
    assert names(judged, "log linearizability") == {"real-time inversion"}
    assert judged.rows[0]["ops"] == [2, 0] and word(txns, "kafka") == "fail"
    txns[2].invoke = txns[0].complete or 0  # they touch
    assert names(check(txns, "kafka"), "log linearizability") == set()


def test_sends_that_nobody_polled_are_lost_or_undecided() -> None:
    sent = one_by_one([send(0, 0, 1)], [send(0, 1, 2)])
    assert word([*sent, Txn([poll(0, (0, 1), (1, 2))], 20, 30)], "kafka") == "pass"
    undecided = check([*sent, Txn([poll(0, (0, 1))], 20, 30)], "kafka")
    assert not undecided.tally and "1 acknowledged sends were never polled" in undecided.undecided[0]
    assert word([*sent, Txn([poll(0, (1, 2))], 20, 30)], "kafka") == "fail"


def test_gaps_in_offsets_are_markers() -> None:
    txns = one_by_one([send(0, 3, 1), send(0, 4, 2)], [send(0, 9, 3)], [poll(0, (3, 1), (4, 2), (9, 3))])
    assert check(txns, "kafka").tally == []


def test_an_indeterminate_send_is_believed_when_it_was_polled() -> None:
    maybe = Txn([send(0, 0, 1), send(0, 1, 2)], 0, None, "info")
    assert word([maybe, Txn([poll(0, (0, 1), (1, 2))], 20, 30)], "kafka") == "pass"
    assert names(check([maybe, Txn([poll(0, (1, 2))], 20, 30)], "kafka")) == {"lost-write"}
    assert word([maybe, Txn([send(0, 2, 3)], 5, 9), Txn([poll(0, (2, 3))], 20, 30)], "kafka") == "pass"


def test_good_histories_at_random_pass_and_a_lost_record_is_missed() -> None:
    failures = 0
    for number in range(HISTORIES // 5):
        random = Random(number)
        txns = _draw(random)
        judged = check(txns, "kafka")
        assert judged.tally == [] and judged.undecided == [], number
        # Take a record away that another one, in the same partition, follows.
        polls = [(txn, place) for txn in txns for place, each in enumerate(txn.micro) if each[0] == "poll" and each[2]]
        txn, place = random.choice(polls)
        _, key, records = txn.micro[place]
        gone = random.randrange(len(records))
        txn.micro[place] = ("poll", key, [*records[:gone], *records[gone + 1 :]])
        later = [each for other in txns for each in other.micro if each[0] == "poll" and each[1] == key]
        follows = any(offset > records[gone][0] for each in later for offset, _ in each[2])
        acknowledged = any(("send", key, *records[gone]) in other.micro for other in txns)
        if follows and acknowledged:
            assert "lost-write" in names(check(txns, "kafka")), number
            failures += 1
    assert failures > HISTORIES // 50


def _draw(random: Random) -> list[Txn]:
    """Producers and one consumer a partition, each transaction at an instant; a last poll returns the rest."""
    partitions = random.randint(1, 3)
    logs: dict[int, list[tuple[int, int]]] = {key: [] for key in range(partitions)}
    polled = dict.fromkeys(logs, 0)
    txns = []
    for value, instant in enumerate(sorted(random.sample(range(10, 100), random.randint(3, 8)))):
        invoke, complete = instant - random.randint(0, 8), instant + random.randint(0, 8)
        if random.random() < 0.6:
            outcome = random.choices(["ok", "info", "fail"], [8, 1, 1])[0]
            micro = []
            for number in range(random.randint(1, 3)):
                key = random.randrange(partitions)
                offset = (logs[key][-1][0] + random.randint(1, 2)) if logs[key] else 0
                micro.append(send(key, offset if outcome == "ok" else None, 10 * value + number))
                if outcome != "fail":
                    logs[key].append((offset, 10 * value + number))
            txns.append(Txn(micro, invoke, None if outcome == "info" else complete, outcome))
        else:
            txns.append(Txn(_poll_rest(logs, polled), invoke, complete))
    txns.append(Txn([send(0, (logs[0][-1][0] + 1) if logs[0] else 0, 999)], 200, 201))
    logs[0].append((txns[-1].micro[0][2], 999))
    txns.append(Txn(_poll_rest(logs, polled), 210, 220))
    return sorted(txns, key=lambda txn: txn.invoke)


def _poll_rest(logs: dict[int, list[tuple[int, int]]], polled: dict[int, int]) -> list[Micro]:
    micro = [poll(key, *log[polled[key] :]) for key, log in logs.items()]
    polled.update({key: len(log) for key, log in logs.items()})
    return micro
