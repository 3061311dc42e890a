"""Histories as Jepsen's tests write them get the verdict that Jepsen's checkers give, or one sentence of why not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkers.transactions.consistency import IMPLIED_MODELS
from checkers.verdict.judged import verdict
from harness.record.judging import family_of
from spark_history.errors import HistoryError
from spark_history.jepsen import WORKLOADS, read_history
from spark_history.jepsen.events import edn
from spark_history.jepsen.events.plain import to_json, unspell
from tests import ROOT

Step = Sequence[str]  # f, value as invoked, value as completed, and how if not ok


def one_after_the_other(*steps: Step) -> str:
    """Of process 0; in EDN."""
    lines = []
    for f, asked, done, *outcome in steps:
        for kind, value in (("invoke", asked), (outcome[0] if outcome else "ok", done)):
            lines.append(f"{{:process 0, :type :{kind}, :f :{f}, :value {value}}}\n")
    return "".join(lines)


def judged(tmp_path: Path, text: str, **options: Any) -> tuple[str, str, dict[str, int]]:
    """Workload, verdict and how many of each anomaly."""
    path = tmp_path / "history.edn"
    path.write_text(text)
    imported = read_history(path, **options)
    found = verdict(family_of(imported.plan["workload"]).check_tables(imported.plan, imported.tables), imported.plan)
    counts = {name: count for each in found["anomalies"].values() for name, count in each["anomalies"].items()}
    return imported.plan["workload"], found["verdict"], counts


ENQUEUE = ("enqueue", "1", "1")
READ_BACK = ("read", "nil", "{:b 2, :a #{3 4}}")


@pytest.mark.parametrize(
    ("workload", "answer", "steps"),
    [
        # an ok drain is as many dequeues, and what never came out is lost
        ("total-queue", "pass", [ENQUEUE, ("enqueue", "2", "2"), ("dequeue", "nil", "2"), ("drain", "nil", "[1]")]),
        ("total-queue", "pass", [ENQUEUE, ("drain", "nil", "#{1}")]),
        ("total-queue", "fail", [ENQUEUE, ("enqueue", "2", "2"), ("dequeue", "nil", "2"), ("drain", "nil", "nil")]),
        ("total-queue", "fail", [ENQUEUE, ("drain", "nil", "[1 7]")]),
        # duplicates are told, and no reason to fail
        ("total-queue", "pass", [ENQUEUE, ("drain", "nil", "[1 1]")]),
        # one client's drain may end while others hold what they were sent
        ("total-queue", "pass", [ENQUEUE, ("drain", "nil", "[]"), ("drain", "nil", "[1]")]),
        ("total-queue", "pass", [ENQUEUE, ("drain", "nil", "[]"), ("dequeue", "nil", "1")]),
        ("total-queue", "pass", [ENQUEUE, ("drain", "nil", "nil", "fail"), ("dequeue", "nil", "1")]),
        # a drain that crashed may have taken anything
        ("total-queue", "unknown", [ENQUEUE, ("drain", "nil", "nil", "info"), ("dequeue", "nil", "nil")]),
        ("bank", "pass", [("transfer", "{:from 0 :to 1 :amount 5}", "nil"), ("read", "nil", "{0 5 1 -0}")]),
        ("bank", "fail", [("transfer", "{:from 0 :to 1 :amount 5}", "nil"), ("read", "nil", "{0 -5 1 15}")]),
        ("bank", "fail", [("transfer", "{:from :a :to :b :amount 5}", "nil"), ("read", "nil", "{:a 5 :b 5}"),
                          ("read", "nil", "{:a 5 :b 0}")]),
        ("comments", "pass", [("write", "1", "1"), ("read", "nil", "#{1}"), ("write", "2", "2"),
                              ("read", "nil", "#{1 2}")]),
        ("comments", "fail", [("write", "1", "1"), ("write", "2", "2"), ("read", "nil", "#{2}")]),
        ("comments", "fail", [("write", "[0 1]", "[0 1]"), ("write", "[0 2]", "[0 2]"),
                              ("read", "[0 nil]", "[0 #{2}]")]),
        ("sequential", "pass", [("write", "5", "5"), ("read", "5", '[5 [nil "5_1" "5_0"]]')]),
        ("sequential", "fail", [("write", "5", "5"), ("read", "nil", '[5 ["5_2" nil "5_0"]]')]),
        ("sequential", "fail", [("add", "5", "5"), ("read", "nil", '[5 ["5_2" "5_1" nil]]')]),
        # jepsen.independent, of whatever object
        ("register", "pass", [("write", "[0 1]", "[0 1]"), ("write", "[1 2]", "[1 2]"), ("read", "[0 nil]", "[0 1]")]),
        ("mutex", "pass", [("acquire", "[0 nil]", "[0 nil]"), ("acquire", "[1 nil]", "[1 nil]")]),
        ("mutex", "fail", [("acquire", "[0 nil]", "[0 nil]"), ("acquire", "[0 nil]", "[0 nil]")]),
        ("queue", "pass", [("enqueue", "[0 1]", "[0 1]"), ("dequeue", "[1 nil]", "[1 nil]")]),
        ("cas-register", "pass", [("write", "[0 1]", "[0 1]"), ("cas", "[0 [1 2]]", "[0 [1 2]]")]),
        ("cas-register", "pass", [("write", "[0 1]", "[0 1]"), ("cas", "[[0 1] [2 3]]", "[[0 1] [2 3]]")]),
        # equal in Clojure, however it is printed
        ("register", "pass", [("write", "{:a #{4 3} :b 2}", "{:a #{4 3} :b 2}"), READ_BACK]),
        ("register", "pass", [("write", "#:n{:a 1, :_/b 2}", "#:n{:a 1, :_/b 2}"), ("read", "nil", "{:b 2 :n/a 1}")]),
        ("register", "fail", [("write", "1", "1"), ("read", "nil", "1.0")]),
        # several registers, read as a map
        ("multi-register", "pass", [("write", "{:x 1}", "{:x 1}"), ("write", "{:y 2}", "{:y 2}"),
                                    ("read", "{:x nil}", "{:x 1}")]),
        # the invocation need not say what the transaction will do
        ("list-append", "pass", [("txn", "nil", "[[:append 1 1] [:r 1 [1]]]")]),
        # keys that are texts of digits
        ("kafka", "pass", [("send", '[[:send "0" 1]]', '[[:send "0" [0 1]]]'),
                           ("poll", "[[:poll]]", '[[:poll {"0" [[0 1]]}]]')]),
        ("kafka", "pass", [("send", '[[:send "7" 1]]', '[[:send "7" [0 1]]]'),
                           ("send", '[[:send "007" 2]]', '[[:send "007" [0 2]]]'),
                           ("poll", "[[:poll]]", '[[:poll {"7" [[0 1]], "007" [[0 2]]}]]')]),
        # without a value, a write wrote what it was invoked with
        ("register", "pass", [("write", "1", "1"), ("read", "nil", "nil", "fail"), ("write", "2", "nil"),
                              ("read", "nil", "2")]),
        ("list-append", "pass", [("txn", "[[:append :x 1]]", "nil"), ("txn", "[[:r :x nil]]", "[[:r :x [1]]]")]),
        # a key that is nil is not the key 0
        ("register", "pass", [("write", "[nil 1]", "[nil 1]"), ("read", "[0 nil]", "[0 nil]")]),
        ("register", "pass", [("write", "1", "1"), ("read", "nil, :key 0", "nil")]),
        # what differs in Clojure, differs
        ("queue", "fail", [("enqueue", ":a", ":a"), ("dequeue", "nil", '"a"')]),
        ("queue", "fail", [("enqueue", ":a", ":a"), ("dequeue", "nil", '":a"')]),
        ("queue", "pass", [("enqueue", ":a", ":a"), ("enqueue", '"a"', '"a"'), ("dequeue", "nil", '"a"'),
                           ("dequeue", "nil", ":a")]),
        ("set", "fail", [("add", ":a", ":a"), ("read", "nil", '["a"]')]),
        ("set", "pass", [("add", ":a", ":a"), ("add", "#{2 1}", "#{2 1}"), ("read", "nil", "#{:a #{1 2}}")]),
        ("multi-register", "fail", [("txn", "[[:w :x :a]]", "[[:w :x :a]]"),
                                    ("txn", "[[:r :x nil]]", '[[:r :x "a"]]')]),
        ("multi-register", "pass", [("txn", "[[:w :x 1]]", "[[:w :x 1]]"), ("txn", '[[:r "x" nil]]', '[[:r "x" nil]]'),
                                    ("read", "{:x nil}", "{:x 1}")]),
    ],
)  # fmt: skip
def test_what_jepsen_would_say(tmp_path: Path, workload: str, answer: str, steps: list[Step]) -> None:
    assert judged(tmp_path, one_after_the_other(*steps))[:2] == (workload, answer)


WX, WY = ("txn", "[[:w :x 1]]", "[[:w :x 1]]"), ("txn", "[[:w :y 1]]", "[[:w :y 1]]")
STALE = [WX, ("txn", "[[:r :x nil]]", "[[:r :x nil]]")]
FORK = [WX, WY, ("read", "[[:r :x nil] [:r :y nil]]", "[[:r :x 1] [:r :y nil]]"),
        ("read", "[[:r :y nil] [:r :x nil]]", "[[:r :y 1] [:r :x nil]]")]  # fmt: skip
BACK = [WX, ("txn", "[[:w :x 2]]", "nil"), ("txn", "nil", "[[:r :x 1]]")]
TAKEN = [ENQUEUE, ("enqueue", "2", "2"), ("drain", "nil", "[1]")]
LATE = [("add", "1", "1"), ("read", "nil", "[]"), ("read", "nil", "[1]")]
GONE = [("add", "1", "1"), ("read", "nil", "[1]"), ("read", "nil", "[]")]


@pytest.mark.parametrize(
    ("workload", "answer", "counts", "steps", "options"),
    [
        ("rw-register", "fail", {"G-single-process": 1}, STALE, {}),
        ("rw-register", "fail", {"G-single-process": 1}, STALE, {"consistency": "strong-session-serializable"}),
        ("rw-register", "pass", {"G-single-process": 1}, STALE, {"consistency": "serializable"}),
        ("rw-register", "fail", {"cyclic-versions": 2}, BACK, {"sequential_keys": True, "consistency": "PL-1"}),
        ("rw-register", "pass", {}, BACK, {"wfr_keys": True}),
        ("rw-register", "fail", {"garbage-read": 1}, [WX, ("txn", "[[:r :x nil]]", "[[:r :x :no]]")], {}),
        ("long-fork", "fail", {"long-fork": 1}, FORK, {}),
        ("long-fork", "pass", {}, FORK[:3], {"group_size": 2}),
        ("multi-register", "fail", {"not linearizable": 1}, STALE, {}),
        ("total-queue", "fail", {"lost": 1}, TAKEN, {}),
        ("queue", "pass", {}, TAKEN, {}),
        ("queue", "fail", {"not linearizable": 1}, [("drain", "nil", "[1]"), ENQUEUE], {}),
        ("total-queue", "pass", {}, [("drain", "nil", "[1]"), ENQUEUE], {}),
        ("set", "fail", {"not linearizable": 1}, LATE, {}),
        ("set-full", "pass", {"stale": 1}, LATE, {}),
        ("set-full", "fail", {"stale": 1}, LATE, {"linearizable": True}),
        ("set-full", "fail", {"lost": 1}, GONE, {}),
        ("bank", "fail", {"negative-value": 1}, [("read", "nil", "{0 -5 1 5}")], {}),
        ("bank", "pass", {}, [("read", "nil", "{0 -5 1 5}")], {"negative_balances": True}),
        ("bank", "fail", {"wrong-total": 1}, [("read", "nil", "{0 5 1 5}")], {"total_amount": 11}),
        ("bank", "fail", {"nil-balance": 1}, [("read", "nil", "{0 5 1 nil}")], {"total_amount": 5}),
        ("bank", "fail", {"unexpected-key": 1}, [("read", "nil", "{0 5 1 0}")], {"accounts": [0]}),
        ("comments", "fail", {"missing": 1}, [("write", "1", "1"), ("write", "2", "2"), ("read", "nil", "[2]")], {}),
        ("sequential", "fail", {"trailing-nil": 1}, [("write", ":k", ":k"), ("read", ":k", "[:k [:b nil]]")], {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("notation", ["edn", "json"])
def test_what_the_definition_says_of_a_workload_that_is_named(
    tmp_path: Path,
    workload: str,
    answer: str,
    counts: dict[str, int],
    steps: list[Step],
    options: dict[str, Any],
    notation: str,
) -> None:
    text = one_after_the_other(*steps)
    if notation == "json":
        text = "".join(_as_json(line) for line in text.splitlines())
    assert judged(tmp_path, text, workload=workload, given=options) == (workload, answer, counts)


def _as_json(line: str) -> str:
    event = {str(getattr(key, "name", key)): value for key, value in edn.read(line).items()}
    return to_json(event) + "\n"


def test_the_documentation_has_every_workload_and_level() -> None:
    text = (ROOT / "docs" / "histories.md").read_text()
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert set(WORKLOADS) <= listed
    plain = [name for name in IMPLIED_MODELS if not name.startswith("strong-")]
    assert [name for name in plain if f"`{name}`" not in text] == []


def test_who_names_no_process_is_one_for_each_f(tmp_path: Path) -> None:
    """As elle-cli's examples are written."""
    text = """{:index 1, :type :invoke, :f :read, :value nil}
    {:index 2, :type :invoke, :f :write, :value 425}
    {:index 3, :type :ok, :f :write, :value 425}
    {:index 4, :type :invoke, :f :write, :value 430}
    {:index 5, :type :ok, :f :write, :value 430}
    {:index 6, :type :ok, :f :read, :value #{2 430}}
    """
    assert judged(tmp_path, text) == ("comments", "fail", {"missing": 1})
    assert judged(tmp_path, text.replace("#{2 430}", "#{425 430}"))[1] == "pass"
    with pytest.raises(HistoryError, match=r"line 3: what names no process completes an operation \(ok\), but has"):
        judged(tmp_path, text.replace(":ok, :f :write,", ":ok,"), workload="comments")
    alone = "\n".join(text.splitlines()[1:5]).replace(":ok, :f :write,", ":ok,")
    assert judged(tmp_path, alone, workload="comments")[1] == "pass"
    with pytest.raises(HistoryError, match="line 3: what names no process invokes write, but its operation of line 2"):
        judged(tmp_path, text.replace(":ok, :f :write, :value 425", ":invoke, :f :write, :value 426"))


@pytest.mark.parametrize("option", ["consistency", "linearizable_keys"])
def test_what_only_transactions_have_tells_what_a_history_is_of(tmp_path: Path, option: str) -> None:
    given = {option: "serializable" if option == "consistency" else True}
    assert judged(tmp_path, one_after_the_other(*STALE), given=given)[0] == "rw-register"
    assert judged(tmp_path, one_after_the_other(*STALE))[0] == "multi-register"


@pytest.mark.parametrize(
    ("message", "steps", "options"),
    [
        (r"line 4: this completes 1, .* line 3 is of the key 0", [("write", "[0 1]", "[0 1]"),
                                                                  ("read", "[0 nil]", "1")], {}),
        (r"line 2: .* is write 2, .* on line 1 is write 1$", [("write", "1", "2")], {"workload": "register"}),
        (r"line 2: .* is write 1, .* is write true$", [("write", "true", "1")], {"workload": "register"}),
        (r"line 4: .* is cas \[1 3\], .* is cas \[1 2\]$", [("write", "1", "1"), ("cas", "[1 2]", "[1 3]")], {}),
        (r"line 2: .* is write 2, .* is write 1$", [("write", "[0 1]", "[0 2]")],
         {"keyed": True, "workload": "register"}),
        (r"line 4: this completes \[1 1\]", [("write", "[0 1]", "[0 1]"), ("read", "[0 nil]", "[1 1]")], {}),
        (r"line 4: this completes nil", [("write", "[0 1]", "[0 1]"), ("read", "[0 nil]", "nil")], {"keyed": True}),
        (r"line 3: .* is nil, no \[key value\]", [("write", "[0 1]", "[0 1]"), ("read", "nil", "1")], {"keyed": True}),
        (r"line 2: the value of a cas is \[old new\], not true", [("cas", "[1 2]", "true")], {"workload": "register"}),
        (r"line 2: the transaction did .* on line 1 is .*:append 1 2",
         [("txn", "[[:append 1 1] [:append 1 2]]", "[[:append 1 1]]")], {}),
        (r"line 2: the transaction did", [("txn", "[[:append 1 1]]", "[[:append 1 3]]")], {}),
        (r"line 2: the transaction did", [("send", "[[:send 0 1] [:send 0 2]]", "[[:send 0 [0 1]]]")], {}),
        (r"line 2: .* is no transaction of list-append", [("txn", "[[:r 1 nil]]", "[[:r 1 #{1 2}]]")],
         {"workload": "list-append"}),
        (r"line 2: .* is no transaction of kafka", [("poll", "[[:poll]]", "[[:poll {0 #{[0 1]}}]]")], {}),
        (r"line 2: an ok drain lists what it took, which 5 is not", [("drain", "nil", "5")], {"workload": "queue"}),
        (r"line 1: a set or a map has an element twice", [("add", "#{1 true}", "#{1 true}")], {"workload": "set"}),
        (r"line 1: there are forms within forms", [("write", "[" * 200 + "]" * 200, "nil")], {}),
        (r"line 4: this txn is ok, but does not say what it found: its :value is nil",
         [("txn", "[[:append :x 1]]", "[[:append :x 1]]"), ("txn", "[[:r :x nil]]", "nil")], {}),
        (r"line 2: this read is ok, .* its :value is nil", [("read", "{:x nil}", "nil")],
         {"workload": "multi-register"}),
        (r"line 1: what a kv holds must be text, which :a is not", [("put", ":a", ":a")], {"workload": "kv"}),
        (r"line 1: two keys of .* look alike", [("write", '{1 2, "1" 3}', "nil")], {"workload": "multi-register"}),
        (r"line 2: .* is no transaction of kafka", [("send", "[[:send 0 1]]", f"[[:send 0 [{-2**63} 1]]]")], {}),
        (r"line 2: .* is no transaction of rw-register", [("txn", "nil", "[[:append :x 1]]")],
         {"workload": "rw-register"}),
        (r"line 2: .* is no transaction of rw-register", [("txn", "nil", "[[:w :x]]", "info")],
         {"workload": "rw-register"}),
        (r"no workload known here .*read, transfer", [("transfer", "{:from 0}", "{:from 0}"),
                                                      ("read", "nil", "{0 5}")], {}),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_in_a_sentence(
    tmp_path: Path, message: str, steps: list[Step], options: dict[str, Any]
) -> None:
    with pytest.raises(HistoryError, match=message):
        judged(tmp_path, one_after_the_other(*steps), **options)


@pytest.mark.parametrize(("partition", "answer"), [("0", "pass"), ("1", "fail")])
def test_a_rebalance_during_a_transaction_excuses_how_it_polled(tmp_path: Path, partition: str, answer: str) -> None:
    """As in jepsen.tests.kafka: int-poll-skip+nonmonotonic-cases."""
    polls = "[:poll {0 [[0 1] [1 2]]}] [:poll {0 [[0 1]]}]"
    text = one_after_the_other(
        ("send", "[[:send 0 1]]", "[[:send 0 [0 1]]]"),
        ("send", "[[:send 0 2]]", "[[:send 0 [1 2]]]"),
        ("txn", "[[:poll] [:poll]]", f"[{polls}], :rebalance-log [{{:keys [{partition}], :pause :before}}]"),
    )
    anomalies = {} if answer == "pass" else {"int-nonmonotonic-poll": 1}
    assert judged(tmp_path, text) == ("kafka", answer, anomalies)


def test_a_log_is_acknowledged_as_a_whole(tmp_path: Path) -> None:
    """Else the rest would be forgotten: reads of it phantoms, its loss no loss."""
    path = tmp_path / "history.edn"
    for done, what in (("[[0 17]]", r"append of \[17\]"), ("[]", r"append of \[\]"), ("[[0 17] [1 9]]", "append of")):
        path.write_text(one_after_the_other(("append", '["t" 0 [17 18]]', f'["t" 0 {done}]')))
        with pytest.raises(HistoryError, match=rf"line 2: this completes {what}.* line 1 is append of \[17 18\]"):
            read_history(path)
    path.write_text(one_after_the_other(("append", '["t" 0 [17 18]]', '["t" 1 [[0 17] [1 18]]]')))
    with pytest.raises(HistoryError, match=r'completes the log \["t" 1\], .* the log \["t" 0\]'):
        read_history(path)
    path.write_text(one_after_the_other(("append", '["t" 0 [17 18]]', '["t" 0 nil]')))
    operations = read_history(path).tables["operations"]
    assert operations["value"].to_pylist() == [17, 18] and operations["offset"].null_count == 2


def events(*values: Any, **more: Any) -> str:
    """A write of each value, in JSON."""
    kinds = ("invoke", "ok")
    reported = ({"process": 0, "type": kind, "f": "write", "value": each} | more for each in values for kind in kinds)
    return "".join(json.dumps(each) + "\n" for each in reported)


def test_numbers_too_large_and_values_too_deep(tmp_path: Path) -> None:
    assert judged(tmp_path, events(1, time=10**20))[1] == "pass"
    with pytest.raises(HistoryError, match=r"history.edn line 1: 99999999999 is too large a number for a process"):
        judged(tmp_path, events(1, process=99999999999))
    with pytest.raises(HistoryError, match="values within values"):
        judged(tmp_path, events("deep").replace('"deep"', "[" * 700 + "]" * 700))


@pytest.mark.parametrize(
    ("f", "asked"),
    [("read", "nil"), ("get", "nil"), ("dequeue", "nil"), ("txn", "[[:r :x nil]]"), ("write", None)],
)
def test_a_value_that_is_missing_is_not_nil(tmp_path: Path, f: str, asked: str | None) -> None:
    workloads = {"get": "kv", "dequeue": "queue", "txn": "list-append"}
    value = "" if asked is None else f", :value {asked}"
    text = f"{{:process 0, :type :invoke, :f :{f}{value}}}\n{{:process 0, :type :ok, :f :{f}}}\n"
    with pytest.raises(HistoryError, match=r"line \d: this .* it has no :value"):
        judged(tmp_path, text, workload=workloads.get(f, "register"))
    for outcome in ("fail", "info"):
        assert asked is None or judged(
            tmp_path, text.replace(":ok", f":{outcome}"), workload=workloads.get(f, "register")
        )


def test_a_poll_in_json_is_of_the_keys_that_are_sent_to(tmp_path: Path) -> None:
    def reported(*keys: Any) -> str:
        sends = [[["send", key, 1]] for key in keys]
        polls = [[["poll", {"7": [[0, 1]]}]]]
        asked = [*zip(["send"] * len(keys), sends, sends, strict=True), ("poll", [["poll"]], polls[0])]
        return "".join(
            json.dumps({"process": 0, "type": kind, "f": f, "value": value}) + "\n"
            for f, *values in asked
            for kind, value in zip(("invoke", "ok"), values, strict=True)
        )

    for key in (7, "7"):
        assert judged(tmp_path, reported(key)) == ("kafka", "pass", {})
    assert judged(tmp_path, reported("007"))[1] != "pass"
    with pytest.raises(HistoryError, match='has the keys 7 and "7"'):
        judged(tmp_path, reported(7, "7"))


@pytest.mark.parametrize(
    ("message", "done"),
    [
        (f"line 2: {-(2**63)} is no offset", f'["t" 0 [[{-(2**63)} 5]]]'),
        ("line 2: -1 is no offset", '["t" 0 [[-1 5]]]'),
        ("line 2: 99999999999 is no :leader-epoch", '["t" 0 [[0 5]]], :leader-epoch 99999999999'),
        (f"line 2: {10**20} is no :high-watermark", f'["t" 0 [[0 5]]], :high-watermark {10**20}'),
        (f"line 2: {2**31} is no partition", f'["t" {2**31} [[0 5]]]'),
        (f"line 2: {-(2**63)} is no value", f'["t" 0 [[0 {-(2**63)}]]]'),
    ],
)
def test_numbers_that_a_log_cannot_have(tmp_path: Path, message: str, done: str) -> None:
    partition, value = (2**31 if str(2**31) in done else 0), (-(2**63) if "value" in message else 5)
    (tmp_path / "history.edn").write_text(one_after_the_other(("append", f'["t" {partition} [{value}]]', done)))
    with pytest.raises(HistoryError, match=message):
        read_history(tmp_path / "history.edn")


@pytest.mark.parametrize("value", [f"{{:fault {10**20}}}", "{:fault 0, :targets 5}"])
def test_what_a_nemesis_says_in_its_own_way(tmp_path: Path, value: str) -> None:
    nemesis = f"{{:type :info, :process :nemesis, :f :start-kill, :value {value}}}\n"
    (tmp_path / "history.edn").write_text(nemesis + one_after_the_other(("write", "1", "1")))
    faults = read_history(tmp_path / "history.edn", workload="register").tables["faults"]
    assert faults.select(["fault", "nemesis", "targets"]).to_pylist() == [
        {"fault": 0, "nemesis": "kill", "targets": []}
    ]


def test_half_a_character_of_json_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text(
        events("a\ud800").replace("write", "add") + events("\\ud800 \U0001f600").replace("write", "add")
    )
    arguments = read_history(tmp_path / "history.edn", workload="set").tables["calls"]["argument"].to_pylist()
    assert [unspell(json.loads(each)) for each in arguments] == ["a\ufffd", "\\ud800 \U0001f600"]
