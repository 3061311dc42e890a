"""The kafka workload against brute force, from the text of a history on, over all outcomes, assign and subscribe."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

from checkers.transactions import check_directories, check_tables, history, write_history
from checkers.verdict.judged import Judged, verdict
from spark_history.errors import HistoryError
from spark_history.jepsen import read_history
from tests.checkers.histories import kafka_histories
from tests.checkers.histories.random_histories import HISTORIES

_LOOKED_AT = frozenset({"int-send-skip", "poll-skip", "nonmonotonic-poll"})


def judged(path: Path, text: str) -> tuple[Judged, dict[str, Any]]:
    path.write_text(text)
    imported = read_history(path, workload="kafka")
    found = check_tables(imported.plan, imported.tables)
    return found, verdict(found, imported.plan)


def _names(found: Judged, *, allowed: bool) -> set[str]:
    names = {anomaly for of, anomaly, _, _ in found.tally if (of == "transactions, allowed") == allowed}
    return names & _LOOKED_AT if allowed else {"G1c" if name.startswith("G1c") else name for name in names}


def test_finds_what_brute_force_finds(tmp_path: Path) -> None:
    met: Counter[str] = Counter()
    for number in range(HISTORIES // 2):
        ops = kafka_histories.draw(Random(number))
        text = kafka_histories.edn(ops)
        truth = kafka_histories.judge(ops)
        found, said = judged(tmp_path / "history.edn", text)
        assert _names(found, allowed=False) == truth.names, f"{number}\n{text}{truth}"
        assert _names(found, allowed=True) == truth.allowed, f"{number}\n{text}{truth}"
        assert bool(found.undecided) == bool(truth.unseen), f"{number}\n{text}{truth}"
        assert (said["verdict"] == "fail") == bool(truth.names), f"{number}\n{text}{truth}"
        met.update(truth.names or [said["verdict"]])
    assert min(met[name] for name in EVERY) >= max(1, HISTORIES // 2500), met


def test_a_cluster_that_does_all_right_never_fails(tmp_path: Path) -> None:
    words: Counter[str] = Counter()
    for number in range(HISTORIES // 10):
        text = kafka_histories.edn(kafka_histories.draw_right(Random(-number - 1)))
        found, said = judged(tmp_path / "history.edn", text)
        assert said["verdict"] in ("pass", "unknown"), f"{number}\n{text}{found.tally}"
        words[said["verdict"]] += 1
    assert words["pass"] > words["unknown"]


EVERY = (
    "pass", "unknown", "inconsistent-offsets", "duplicate", "lost-write", "negative-offset", "G1a", "phantom",
    "precommitted-read", "int-poll-skip", "int-nonmonotonic-poll", "int-nonmonotonic-send", "nonmonotonic-send",
    "poll-skip", "nonmonotonic-poll", "G1c", "real-time inversion",
)  # fmt: skip


SENT = """{:process 9, :type :invoke, :f :send, :value [[:send 0 10] [:send 0 11] [:send 0 12]]}
{:process 9, :type :ok, :f :send, :value [[:send 0 [0 10]] [:send 0 [1 11]] [:send 0 [2 12]]]}
"""
POLLED = "{0 [[0 10] [1 11] [2 12]]}"


def events(process: int, f: str, value: str, outcome: str = "ok", asked: str = "") -> str:
    asked = asked or ("[[:poll]]" if f == "poll" else value)
    return f"""{{:process {process}, :type :invoke, :f :{f}, :value {asked}}}
{{:process {process}, :type :{outcome}, :f :{f}, :value {value}}}
"""


def poll(process: int, records: str, outcome: str = "ok") -> str:
    return events(process, "poll", f"[[:poll {records}]]", outcome)


REST = poll(8, POLLED)
ASSIGN = events(1, "assign", "[0]")


@pytest.mark.parametrize("outcome", ["ok", "info", "fail"])
@pytest.mark.parametrize(
    ("anomaly", "text"),
    [
        ("duplicate", poll(1, "{0 [[5 12]]}", "OUTCOME")),
        ("inconsistent-offsets", poll(1, "{0 [[1 12]]}", "OUTCOME")),
        ("negative-offset", poll(1, "{0 [[-1 12]]}", "OUTCOME")),
        ("phantom", poll(1, "{0 [[7 77]]}", "OUTCOME")),
        ("int-nonmonotonic-poll", poll(1, "{0 [[1 11] [0 10]]}", "OUTCOME")),
        ("int-poll-skip", poll(1, "{0 [[0 10] [2 12]]}", "OUTCOME")),
        ("nonmonotonic-poll", ASSIGN + poll(1, "{0 [[0 10] [1 11]]}") + poll(1, "{0 [[1 11]]}", "OUTCOME")),
        ("poll-skip", ASSIGN + poll(1, "{0 [[0 10]]}") + poll(1, "{0 [[2 12]]}", "OUTCOME")),
        (
            "precommitted-read",
            events(1, "txn", "[[:send 0 [3 13]] [:poll {0 [[3 13]]}]]", "OUTCOME", "[[:send 0 13] [:poll]]"),
        ),
    ],
)  # fmt: skip
def test_a_poll_is_believed_whatever_became_of_its_transaction(
    tmp_path: Path, anomaly: str, text: str, outcome: str
) -> None:
    found, said = judged(tmp_path / "history.edn", SENT + text.replace("OUTCOME", outcome) + REST)
    assert said["verdict"] == "fail" and anomaly in _names(found, allowed=False)


def test_a_poll_from_the_future_is_a_cycle_whatever_became_of_it(tmp_path: Path) -> None:
    for outcome in ("ok", "info", "fail"):
        found, said = judged(tmp_path / "history.edn", poll(1, "{0 [[0 10]]}", outcome) + SENT + REST)
        assert said["verdict"] == "fail" and _names(found, allowed=False) == {"G1c"}


def test_an_indeterminate_send_may_take_effect_after_its_completion(tmp_path: Path) -> None:
    """Not even a cycle that is allowed: the log is 14 (of what was invoked later), 10, 13 (indeterminate)."""
    text = events(1, "send", "[[:send 0 [2 13]]]", "info", "[[:send 0 13]]")
    text += events(2, "send", "[[:send 0 [0 14] ]]", asked="[[:send 0 14]]")
    text += events(3, "send", "[[:send 0 [1 10]]]", asked="[[:send 0 10]]")
    found, said = judged(tmp_path / "history.edn", text + poll(4, "{0 [[0 14] [1 10] [2 13]]}"))
    assert said["verdict"] == "pass" and not found.tally


BACK = poll(1, "{0 [[0 10] [1 11]]}"), poll(1, "{0 [[1 11] [2 12]]}")


@pytest.mark.parametrize(
    ("between", "word"),
    [
        ("", "fail"),
        (events(1, "assign", "[0]"), "fail"),  # which keeps the position
        (events(1, "assign", "[0 1]"), "fail"),
        (events(1, "assign", "[1]") + events(1, "assign", "[0]"), "pass"),
        (events(1, "assign", "[1]", "info") + events(1, "assign", "[0]"), "pass"),
        (events(1, "assign", "[1]", "fail"), "fail"),
        (events(2, "assign", "[1]"), "fail"),  # of another process
        (events(1, "assign", "[0], :seek-to-beginning? true"), "pass"),
        (events(1, "crash", "nil", "info"), "pass"),
        (events(1, "debug-topic-partitions", "[0 1]"), "fail"),
        (events(2, "subscribe", "[0]"), "pass"),  # then consumers may be rebalanced
    ],
)
def test_a_consumer_goes_on_where_it_left_off_unless_it_is_assigned_others(
    tmp_path: Path, between: str, word: str
) -> None:
    found, said = judged(tmp_path / "history.edn", SENT + ASSIGN + BACK[0] + between + BACK[1] + REST)
    assert said["verdict"] == word
    assert (_names(found, allowed=False) == {"nonmonotonic-poll"}) == (word == "fail")
    listed = "subscribe" in between  # what is allowed and happened is told; what is no anomaly is not
    assert _names(found, allowed=True) == ({"nonmonotonic-poll"} if listed else set())


def test_what_failed_commits_no_position(tmp_path: Path) -> None:
    """It is polled again; and to go on as if it had been committed is a skip."""
    for outcome in ("info", "fail"):
        text = SENT + ASSIGN + poll(1, "{0 [[0 10]]}") + poll(1, "{0 [[1 11]]}", outcome)
        again, _ = judged(tmp_path / "history.edn", text + poll(1, "{0 [[1 11] [2 12]]}") + REST)
        assert not again.tally
        skipped, _ = judged(tmp_path / "history.edn", text + poll(1, "{0 [[2 12]]}") + REST)
        assert _names(skipped, allowed=False) == {"poll-skip"}


def test_what_only_a_failed_transaction_polled_is_lost_if_others_were_past_it(tmp_path: Path) -> None:
    text = SENT + poll(1, "{0 [[0 10]]}", "fail")
    lost, _ = judged(tmp_path / "history.edn", text + poll(2, "{0 [[1 11] [2 12]]}"))
    assert _names(lost, allowed=False) == {"lost-write"}
    unseen, said = judged(tmp_path / "history.edn", SENT + poll(1, POLLED, "fail"))
    assert said["verdict"] == "unknown" and "3 acknowledged sends were never polled" in unseen.undecided[0]


def test_a_send_without_an_offset_is_no_send_below_the_log(tmp_path: Path) -> None:
    """Kafka's producer gives -1 where acks is 0."""
    unknown = events(2, "send", "[[:send 1 [-1 5]]]", asked="[[:send 1 5]]") + poll(1, "{1 [[0 5]]}")
    assert judged(tmp_path / "history.edn", unknown)[1]["verdict"] == "pass"
    below, _ = judged(tmp_path / "history.edn", unknown.replace("[-1 5]", "[-2 5]"))
    assert _names(below, allowed=False) == {"negative-offset"}


def test_a_completion_may_tell_how_far_it_came_and_of_nothing_else(tmp_path: Path) -> None:
    asked = "[[:send 0 13] [:poll] [:send 0 14]]"
    text = events(1, "txn", "[[:send 0 [3 13]] [:poll {0 [[1 12]]}]]", "info", asked)
    assert _names(judged(tmp_path / "history.edn", SENT + text + REST)[0], allowed=False) >= {"inconsistent-offsets"}
    imported = read_history(tmp_path / "history.edn")
    values = imported.tables["micro_operations"].filter(pc.field("op") == 1)["value"].to_pylist()
    assert values == [13, 12, 14]
    other = events(1, "txn", "[[:send 0 [3 99]]]", "fail", asked)
    with pytest.raises(HistoryError, match=r"line 2: the transaction did .*99.*, but what was invoked on line 1"):
        judged(tmp_path / "history.edn", other)
    malformed = poll(1, "{0 5}", "info")
    with pytest.raises(HistoryError, match=r"line 2: \[\[:poll \{0 5\}\]\] is no transaction of kafka"):
        judged(tmp_path / "history.edn", malformed)
    named = events(1, "assign", "7")
    with pytest.raises(HistoryError, match="line 2: 7 is no list of partitions to assign"):
        judged(tmp_path / "history.edn", named)


@pytest.mark.nightly
def test_on_disk_in_parts_the_same_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part needs the assignments of all partitions."""
    monkeypatch.setattr(history, "PART_ROWS", 1)
    failed = 0
    for number in range(300):
        text = kafka_histories.edn(kafka_histories.draw(Random(number)))
        whole, _ = judged(tmp_path / "history.edn", text)
        imported = read_history(tmp_path / "history.edn", workload="kafka")
        write_history(tmp_path / "run", imported.plan, imported.tables)
        (parts,) = check_directories([tmp_path / "run"])
        # That an indeterminate transaction was committed a part cannot tell from another.
        if not any(op == "info" for op in imported.tables["transactions"]["outcome"].to_pylist()):
            assert sorted(parts.tally) == sorted(whole.tally), number
            failed += bool(whole.tally)
    assert failed > 10


def test_an_assignment_that_cannot_be_is_undecided(tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text(SENT + ASSIGN + REST)
    imported = read_history(tmp_path / "history.edn")
    write_history(tmp_path / "run", imported.plan, imported.tables)
    (path,) = (tmp_path / "run" / "history" / "assignments").iterdir()
    path.write_bytes(b"")
    (found,) = check_directories([tmp_path / "run"])
    assert verdict(found, {})["verdict"] == "unknown" and str(path) in found.undecided[0]
