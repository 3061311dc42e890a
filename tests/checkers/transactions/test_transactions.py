"""list-append: every anomaly by hand, and agreement with brute force on random histories."""

from __future__ import annotations

import json
import re
from random import Random

import pyarrow as pa
import pytest

from checkers.transactions import check_tables, cycles, graph
from checkers.transactions.consistency import forbidden, implied, model_named
from checkers.verdict.judged import verdict
from checkers.witness import draw as draw_witness
from spark_history.errors import HistoryError
from spark_history.schema import MICRO_OPERATIONS
from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.transaction_histories import (
    Micro,
    Txn,
    check,
    draw,
    found,
    names,
    serializable,
    tables,
    word,
)
from tests.checkers.transactions.test_transactions_kafka import ALLOWED, FORBIDDEN


def append(key: int, value: int) -> Micro:
    return ("append", key, value)


def read(key: int, *values: int) -> Micro:
    return ("read", key, list(values))


def at_once(*micro: list[Micro]) -> list[Txn]:
    return [Txn(each, number, 100 + number) for number, each in enumerate(micro)]


def one_by_one(*micro: list[Micro], process: int | None = None) -> list[Txn]:
    return [Txn(each, 10 * number, 10 * number + 5, process=process) for number, each in enumerate(micro)]


@pytest.mark.parametrize("complete", [True, False])
def test_agrees_with_brute_force(complete: bool) -> None:
    """With all versions known: pass if and only if there is a serial order. Else: no fail where there is one."""
    words = {True: 0, False: 0}
    for number in range(HISTORIES // 2):
        txns = draw(Random(2 * number + complete), complete=complete)
        strict = number % 3 > 0
        exists = serializable(txns, strict=strict)
        failed = word(txns, consistency="strict-serializable" if strict else "serializable") == "fail"
        words[exists] += 1
        assert not (exists and failed), (number, txns)
        assert exists or failed or not complete, (number, txns)
    assert min(words.values()) > HISTORIES // 20


def test_agrees_with_brute_force_where_versions_are_computed_in_topological_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph, "ROUNDS", 0)
    for number in range(300):
        txns = draw(Random(number), complete=True)
        assert (word(txns) == "fail") == (not serializable(txns, strict=True)), (number, txns)


IN_LOGS = {f"kafka {name}": txns for name, txns in (FORBIDDEN | ALLOWED).items()}
CYCLES = {
    "G0": at_once([append(0, 1), append(1, 1)], [append(0, 2), append(1, 2)], [read(0, 1, 2), read(1, 2, 1)]),
    "G1c": at_once([append(0, 1), read(1, 1)], [append(1, 1), read(0, 1)]),
    "G-single": at_once([append(0, 1), append(1, 1)], [read(0), read(1, 1)]),
    "G-nonadjacent": at_once([append(0, 1)], [append(1, 1)], [read(0, 1), read(1)], [read(0), read(1, 1)]),
    "G2-item": at_once([read(0), append(1, 1)], [read(1), append(0, 1)], [read(0, 1), read(1, 1)]),
    "G0-realtime": one_by_one([append(0, 1)], [append(0, 2)], [read(0, 2, 1)]),
    "G1c-realtime": one_by_one([read(0, 1)], [append(0, 1)]),
    "G-single-realtime": one_by_one([append(0, 1)], [read(0)]),
    "G0-process": one_by_one([append(0, 1)], [append(0, 2)], [read(0, 2, 1)], process=3),
    "G1c-process": one_by_one([read(0, 1)], [append(0, 1)], process=3),
    "G-single-process": one_by_one([append(0, 1)], [read(0)], process=3),
    "G2-item-realtime": [
        Txn([append(1, 1)], 0, 4),
        Txn([read(1), append(0, 1)], 2, 20),
        Txn([read(0)], 6, 9),
        Txn([read(0, 1), read(1, 1)], 30, 40),
    ],
    "G-nonadjacent-realtime": [
        Txn([append(0, 1)], 0, 4),
        Txn([append(1, 1)], 1, 50),
        Txn([read(1, 1), read(0)], 2, 60),
        Txn([read(1)], 6, 9),
        Txn([read(0, 1), read(1, 1)], 70, 80),
    ],
}


@pytest.mark.parametrize("name", CYCLES)
def test_names_a_cycle_by_its_edges(name: str) -> None:
    judged = check(CYCLES[name])
    assert names(judged) == {name}
    row = judged.rows[0]
    assert "a contradiction!" in row["message"]
    witness = json.loads(row["witness"])
    edges = [(edge["from"], edge["to"]) for edge in witness["edges"]]
    assert [to for _, to in edges] == [of for of, _ in edges[1:]] + [edges[0][0]]
    assert {op for edge in edges for op in edge} == {step["op"] for step in witness["operations"]} == set(row["ops"])
    assert draw_witness(row["witness"], judged.origin)


WITHOUT_CYCLE = {
    "G1a": [Txn([append(0, 1)], outcome="fail"), Txn([read(0, 1)])],
    "G1b": at_once([append(0, 1), append(0, 2)], [read(0, 1)]),
    "internal": at_once([append(0, 1), read(0)]),
    "future-read": at_once([read(0, 1), append(0, 1)]),
    "dirty-update": [Txn([append(0, 1)], outcome="fail"), Txn([append(0, 2)]), Txn([read(0, 1, 2)], 20, 30)],
    "duplicate-elements": at_once([append(0, 1)], [read(0, 1, 1)]),
    "incompatible-order": at_once([append(0, 1)], [append(0, 2)], [read(0, 1, 2)], [read(0, 2)]),
    "garbage-read": at_once([append(0, 1)], [read(0, 1, 2)]),
    "lost-update": at_once([read(0), append(0, 1)], [read(0), append(0, 2)]),
}


@pytest.mark.parametrize("name", WITHOUT_CYCLE)
def test_names_what_is_wrong_without_a_cycle(name: str) -> None:
    judged = check(WITHOUT_CYCLE[name])
    assert name in names(judged)
    assert word(WITHOUT_CYCLE[name]) == "fail"
    assert all(json.loads(row["witness"])["operations"] for row in judged.rows)


@pytest.mark.parametrize("name", [*CYCLES, *WITHOUT_CYCLE, *IN_LOGS])
def test_keys_and_values_go_by_their_names(name: str) -> None:
    """Imported histories have numbers from 2^62 on for what is no integer."""
    workload = "kafka" if name in IN_LOGS else "list-append"
    txns = (CYCLES | WITHOUT_CYCLE | IN_LOGS)[name]
    keys = {str(number): f":key{number}" for number in range(9)}
    values = {str(number): f'"v{number}"' for number in range(99)}
    plain, judged = check(txns, workload), check(txns, workload, names=values, key_names=keys)
    assert judged.tally == plain.tally and len(judged.rows) == len(plain.rows) > 0
    for row, other in zip(judged.rows, plain.rows, strict=True):
        witness = json.loads(row["witness"])
        reported = [row["message"], *(step["what"] for step in witness["operations"])]
        reported += [edge["why"] for edge in witness.get("edges", ())]
        bare = re.compile(r"\b(key|partition|append|appended|appending|read|send|sent|poll|observed|up to|of) \[?\d")
        assert not [text for text in reported if bare.search(text)]
        assert row["message"] != other["message"]


def test_what_keeps_a_key_from_being_decided_goes_by_names() -> None:
    keys, values = {"0": ":x"}, {"1": '"a"'}
    twice = check(at_once([append(0, 1)], [append(0, 1)]), names=values, key_names=keys)
    assert twice.undecided == ['value "a" was appended to key :x twice: only unique values make it decidable']


def test_internal_in_all_its_ways() -> None:
    for micro in (
        [read(0), append(0, 1), read(0)],
        [read(0), read(0, 1)],
        [append(0, 1), append(0, 2), read(0, 2, 1)],
        [append(0, 1), read(0, 1), append(0, 2), read(0, 2)],
    ):
        assert "internal" in found(at_once(micro)), micro
    assert "internal" in found(at_once([append(0, 1), append(0, 2)], [read(0, 2, 1)]))
    assert found(at_once([read(0), append(0, 1), append(0, 2), read(0, 1, 2), append(0, 3), read(0, 1, 2, 3)])) == set()


def test_a_good_history_passes_and_one_without_any_transaction_is_undecided() -> None:
    good = one_by_one([append(0, 1), read(1)], [read(0, 1), append(1, 5)], [read(0, 1), read(1, 5)])
    assert word(good) == "pass"
    assert check(good).counts["operations"] == 3
    assert word([]) == "unknown"
    assert word([Txn([append(0, 1)], outcome="fail")]) == "unknown"


def test_a_pass_says_what_was_allowed() -> None:
    judged = check(CYCLES["G1c"], consistency="read-uncommitted")
    said = verdict(judged, {})
    assert said["verdict"] == "pass" and said["reason"].endswith("no anomaly of transactions; allowed here: G1c (1)")


def test_an_indeterminate_transaction_has_happened_if_it_was_read() -> None:
    maybe = Txn([append(0, 1), append(1, 1)], 0, None, "info")
    assert word([maybe, Txn([read(0), read(1)], 20, 30)]) == "pass"
    assert word([maybe, Txn([read(0, 1), read(1, 1)], 20, 30), Txn([append(2, 1)])]) == "pass"
    assert found([maybe, Txn([read(0, 1), read(1)], 20, 30), Txn([append(2, 1)])]) == {"G-single"}
    # What it read is not known.
    unread = Txn([("read", 0, None), append(1, 1)], 15, None, "info")
    assert word([Txn([append(0, 1)]), unread, Txn([read(0, 1), read(1, 1)], 20, 30)]) == "pass"


def test_operations_that_touch_are_concurrent() -> None:
    assert word([Txn([append(0, 1)], 0, 10), Txn([read(0)], 10, 20)]) == "pass"
    assert word([Txn([append(0, 1)], 0, 10), Txn([read(0)], 11, 20)]) == "fail"


def test_a_value_appended_twice_is_undecided() -> None:
    judged = check(at_once([append(0, 1)], [append(0, 1)]))
    assert judged.undecided and "appended to key 0 twice" in judged.undecided[0]
    assert word(at_once([append(0, 1)], [append(1, 1)])) == "pass"


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("G2-item", {"snapshot-isolation": "pass", "serializable": "fail", "read-committed": "pass"}),
        ("G-nonadjacent", {"snapshot-isolation": "fail", "repeatable-read": "fail", "read-committed": "pass"}),
        ("G-single", {"snapshot-isolation": "fail", "consistent-view": "fail", "read-committed": "pass"}),
        ("G1c", {"read-committed": "fail", "read-uncommitted": "pass"}),
        ("G0", {"read-committed": "fail", "read-uncommitted": "fail"}),
        ("G-single-realtime", {"serializable": "pass", "strong-snapshot-isolation": "fail", "PL-SS": "fail"}),
        ("G-single-process", {"serializable": "pass", "strong-session-snapshot-isolation": "fail"}),
    ],
)
def test_a_consistency_model_says_what_is_forbidden(name: str, models: dict[str, str]) -> None:
    for model, expected in models.items():
        assert word(CYCLES[name], consistency=model) == expected, model
        if expected == "pass":
            assert names(check(CYCLES[name], consistency=model), "transactions, allowed") == {name}


def test_lost_update_is_forbidden_where_elle_says_so() -> None:
    assert word(WITHOUT_CYCLE["lost-update"], consistency="read-committed") == "pass"
    assert word(WITHOUT_CYCLE["lost-update"], consistency=["cursor-stability"]) == "fail"


def test_models_are_known_by_their_names() -> None:
    assert model_named(":Serializable") == "serializable"
    with pytest.raises(HistoryError, match="no consistency model is called 'strongest'"):
        model_named("strongest")
    assert implied("G0") >= {"G1c", "G1", "G0-realtime", "G1c-process", "G1-realtime"}
    assert "G2-item" not in implied("G1c")
    assert forbidden("strict-serializable") >= forbidden("serializable") > forbidden("snapshot-isolation")


def test_each_independent_violation_is_reported_once() -> None:
    txns = []
    for place in range(5):
        start = 1000 * place
        txns += [Txn([append(place, 1)], start, start + 4), Txn([read(place)], start + 6, start + 9)]
        txns += [Txn([read(place)], start + 7, start + 10)]  # of the same violation
        txns += [Txn([read(place, 1)], start + 20, start + 30)]
    assert check(txns).tally == [("transactions", "G-single-realtime", 5, 5)]


def test_a_cycle_of_several_real_time_edges_is_found_by_one_of_them() -> None:
    # T0 -rt-> T1 -rw-> T2 -rt-> T3 -rw-> T0
    txns = [
        Txn([append(0, 1)], 0, 10),
        Txn([read(1)], 11, 40),
        Txn([append(1, 1)], 5, 15),
        Txn([read(0)], 16, 40),
        Txn([read(0, 1), read(1, 1)], 50, 60),
    ]
    assert not serializable(txns, strict=True)
    assert found(txns) == {"G-single-realtime"}


def test_the_shortest_cycle_is_the_witness() -> None:
    # A ring of eight write skews, and between its first two a ring of two.
    ring = [[read(k), append((k + 1) % 8, 1)] for k in range(8)]
    ring[0].append(read(20))
    ring[1].append(append(20, 1))
    ring[1].append(read(21))
    ring[0].append(append(21, 1))
    judged = check(at_once(*ring, [read(k, 1) for k in (*range(8), 20, 21)]))
    assert [row["anomaly"] for row in judged.rows] == ["G2-item"]
    assert len(judged.rows[0]["ops"]) == 2


def test_a_search_that_is_given_up_still_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "BUDGET", 0)
    for name in ("G0", "G1c", "G-single", "G2-item"):
        assert word(CYCLES[name]) == "fail"


def test_bad_tables_are_one_sentence() -> None:
    made = tables(at_once([append(0, 1)], [read(0, 1, 2)]))
    rows = made["micro_operations"].to_pylist()
    rows[2]["offset"] = 0
    made["micro_operations"] = pa.Table.from_pylist(rows, schema=MICRO_OPERATIONS)
    with pytest.raises(HistoryError, match="element 2 at position 0, where 1 was due"):
        check_tables({"workload": "list-append"}, made)
    rows[2] |= {"offset": 1, "op": 17}
    made["micro_operations"] = pa.Table.from_pylist(rows, schema=MICRO_OPERATIONS)
    with pytest.raises(HistoryError, match="belongs to transaction 17, not on record"):
        check_tables({"workload": "list-append"}, made)
    with pytest.raises(HistoryError, match="completed before it was invoked"):
        check([Txn([append(0, 1)], 10, 5)])
    with pytest.raises(HistoryError, match="no workload of transactions"):
        check([Txn([append(0, 1)])], "bank")
