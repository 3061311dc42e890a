"""Foreign histories in each notation and of each workload become the tables of their workload."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from spark_history.errors import HistoryError
from spark_history.jepsen import Imported, read_history
from spark_history.jepsen.events.events import open_history
from spark_history.jepsen.operations import SECOND

REGISTER = """{:type :invoke, :f :write, :value 3, :process 0, :time 10, :index 0}
{:type :invoke, :f :read, :value nil, :process 1, :time 20, :index 1}
{:type :ok, :f :write, :value 3, :process 0, :time 30, :index 2}
{:type :info, :f :start-partition, :value [:n1], :process :nemesis, :time 31, :index 3}
{:type :ok, :f :read, :value 3, :process 1, :time 40, :index 4}
{:type :invoke, :f :cas, :value [3 4], :process 0, :time 50, :index 5}
{:type :info, :f :cas, :value [3 4], :process 0, :time 60, :error :timeout, :index 6}
{:type :info, :f :stop-partition, :value nil, :process :nemesis, :time 70, :index 7}
{:type :invoke, :f :cas, :value [9 9], :process 2, :time 80, :index 8}
{:type :fail, :f :cas, :value [9 9], :process 2, :time 90, :index 9}
{:type :invoke, :f :read, :value nil, :process 3, :time 95, :index 10}
"""
VECTOR = "; a history\n[" + REGISTER.replace("\n", ",\n ").rstrip(" ,\n") + "]\n"
PRETTY = "(" + REGISTER.replace(", ", ",\n  ") + ")"
TAGGED = REGISTER.replace("{:type", "#jepsen.history.Op{:type")
TEXT = "INFO  jepsen.core - Worker 1 starting\n" + "".join(
    f"INFO  jepsen.util - {process}\t:{type_}\t:{f}\t{value}\n"
    for type_, f, value, process in [
        ("invoke", "write", "3", "0"), ("invoke", "read", "nil", "1"), ("ok", "write", "3", "0"),
        (":info", "start-partition", "Cut off {:n1", ":nemesis"), ("ok", "read", "3", "1"),
        ("invoke", "cas", "[3 4]", "0"), ("info", "cas", ":timed-out", "0"),
        (":info", "stop-partition", "nil", ":nemesis"),
        ("invoke", "cas", "[9 9]", "2"), ("fail", "cas", "[9 9]", "2"), ("invoke", "read", "nil", "3"),
    ]
).replace("::info", ":info")  # fmt: skip


def as_json(text: str, *, array: bool = False) -> str:
    from spark_history.jepsen.events import edn
    from spark_history.jepsen.events.plain import to_json

    lines = [to_json(form) for form in edn.read_all(text)]
    return "[" + ",\n".join(lines) + "]" if array else "\n".join(lines) + "\n"


def importing(tmp_path: Path, text: str | bytes, name: str = "history.edn", **options: Any) -> Imported:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_history(path, **options)


def rows(imported: Imported, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in imported.tables[table].to_pylist()]


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("EDN", REGISTER), ("EDN", VECTOR), ("EDN", PRETTY), ("EDN", TAGGED),
        ("EDN", REGISTER.replace(", ", " ")), ("EDN", " ".join(VECTOR.split("\n")[1:])),
        ("JSON", as_json(REGISTER)), ("JSON", as_json(REGISTER, array=True)),
        ("JSON", json.dumps(json.loads(as_json(REGISTER, array=True)), indent=1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gzipped", [False, True])
def test_one_history_in_every_notation(tmp_path: Path, notation: str, text: str, gzipped: bool) -> None:
    imported = importing(tmp_path, gzip.compress(text.encode()) if gzipped else text, "a history")
    assert (imported.notation, imported.plan["workload"], imported.operations) == (notation, "cas-register", 5)
    columns = ("process", "kind", "value", "expected", "invoke", "complete", "outcome", "error")
    assert rows(imported, "registers", *columns) == [
        (0, "write", 3, None, 10, 30, "ok", None),
        (1, "read", 3, None, 20, 40, "ok", None),
        (0, "cas", 4, 3, 50, None, "info", "timeout"),
        (2, "cas", 9, 9, 80, 90, "fail", None),
        (3, "read", None, None, 95, None, "info", None),
    ]  # fmt: skip
    assert rows(imported, "faults", "nemesis", "start", "end") == [("partition", 31, 70)]


def test_jepsens_log(tmp_path: Path) -> None:
    imported = importing(tmp_path, TEXT)
    assert imported.notation == "text"
    assert rows(imported, "registers", "kind", "value", "expected", "invoke", "complete", "outcome") == [
        ("write", 3, None, 0, 2 * SECOND, "ok"),
        ("read", 3, None, 1 * SECOND, 4 * SECOND, "ok"),
        ("cas", 4, 3, 5 * SECOND, None, "info"),
        ("cas", 9, 9, 8 * SECOND, 9 * SECOND, "fail"),
        ("read", None, None, 10 * SECOND, None, "info"),
    ]
    assert any("order of its events counts" in note for note in imported.notes)


def test_history_txt_has_no_prefix(tmp_path: Path) -> None:
    lines = [line.partition(" - ")[2] for line in TEXT.splitlines()[1:]]
    assert importing(tmp_path, "\n".join(lines) + "\n").operations == 5


@pytest.mark.parametrize("last", ["1\t:ok\t:read\t1", "1\t:ok\t:read\t[1 [2", "1\t:o"])
def test_a_last_line_of_text_that_does_not_end_may_be_cut(tmp_path: Path, last: str) -> None:
    """12 to 1, say."""
    text = "0\t:invoke\t:write\t12\n0\t:ok\t:write\t12\n1\t:invoke\t:read\tnil\n" + last
    imported = importing(tmp_path, text)
    assert rows(imported, "registers", "value", "outcome") == [(12, "ok"), (None, "info")]
    assert any("ends within line 4: that line is left out" in note for note in imported.notes)


@pytest.mark.parametrize(
    ("times", "usable"),
    [((1, 2, 3, 4), True), ((1, 1, 3, 4), True), ((1, 2, 2, 4), False), ((1, 5, 3, 4), False), ((0, 0, 0, 0), False)],
)
def test_times_count_only_if_they_say_what_the_order_says(tmp_path: Path, times: tuple[int, ...], usable: bool) -> None:
    text = "".join(
        f"{{:process {process}, :type :{type_}, :f :write, :value 1, :time {time}}}\n"
        for (process, type_), time in zip([(0, "invoke"), (0, "ok"), (1, "invoke"), (1, "ok")], times, strict=True)
    )
    imported = importing(tmp_path, text, workload="register")
    expected = times if usable else tuple(number * SECOND for number in range(4))
    assert rows(imported, "registers", "invoke", "complete") == [expected[:2], expected[2:]]


def test_values_and_keys_that_are_no_numbers_get_some(tmp_path: Path) -> None:
    text = """{:process 0, :type :invoke, :f :write, :value [:x "a"]}
    {:process 0, :type :ok, :f :write, :value [:x "a"]}
    {:process 0, :type :invoke, :f :read, :value [:y nil]}
    {:process 0, :type :ok, :f :read, :value #jepsen.independent.Tuple[:y 7]}
    {:process 0, :type :invoke, :f :cas, :value [:x ["a" 7]]}
    {:process 0, :type :ok, :f :cas, :value [:x ["a" 7]]}"""
    imported = importing(tmp_path, text)
    names, keys = imported.plan["names"], imported.plan["key_names"]
    reported = [
        (keys[str(key)], names.get(str(value), value), names.get(str(expected), expected))
        for key, value, expected in rows(imported, "registers", "key", "value", "expected")
    ]
    assert reported == [(":x", '"a"', None), (":y", 7, None), (":x", 7, '"a"')]


def test_pairs_are_no_keys_where_reads_return_something_else(tmp_path: Path) -> None:
    text = """{:process 0, :type :invoke, :f :read, :value nil} {:process 0, :type :ok, :f :read, :value 2}
    {:process 0, :type :invoke, :f :cas, :value [2 3]} {:process 0, :type :ok, :f :cas, :value [2 3]}"""
    assert rows(importing(tmp_path, text), "registers", "key", "value", "expected") == [(0, 2, None), (0, 3, 2)]


LIST_APPEND = """{:type :invoke, :value [[:append 1 5] [:r 1 nil] [:r 2 nil]], :process 0}
{:type :ok, :value [[:append 1 5] [:r 1 [4 5]] [:r 2 nil]], :process 0}
{:type :invoke, :value [[:append 2 6] [:r 1 nil]], :process 1}
{:type :info, :value [[:append 2 6] [:r 1 nil]], :process 1}
"""


@pytest.mark.parametrize("text", [LIST_APPEND, as_json(LIST_APPEND), LIST_APPEND.replace(" [:r", "\n [:r")])
@pytest.mark.parametrize("workload", [None, "append", "list-append"])
def test_list_append(tmp_path: Path, text: str, workload: str | None) -> None:
    imported = importing(tmp_path, text, workload=workload)
    assert imported.plan["workload"] == "list-append"
    assert rows(imported, "transactions", "op", "process", "outcome") == [(0, 0, "ok"), (1, 1, "info")]
    assert rows(imported, "micro_operations", "op", "position", "kind", "key", "offset", "value") == [
        (0, 0, "append", 1, None, 5),
        (0, 1, "read", 1, 0, 4),
        (0, 1, "read", 1, 1, 5),
        (0, 2, "read", 2, None, None),
        (1, 0, "append", 2, None, 6),
    ]


KAFKA = """{:type :invoke, :f :assign, :value [0], :process 0}
{:type :ok, :f :assign, :value [0], :process 0}
{:type :invoke, :f :txn, :value [[:send 0 7] [:poll]], :process 0}
{:type :ok, :f :txn, :value [[:send 0 [3 7]] [:poll {0 [[2 6] [3 7]], 1 []}]], :process 0, :rebalance-log []}
{:type :invoke, :f :send, :value [[:send 1 8]], :process 1}
{:type :info, :f :send, :value [[:send 1 [5 8]]], :process 1, :error [:timeout]}
{:type :invoke, :f :send, :value [[:send 1 9]], :process 2}
{:type :fail, :f :send, :value :nope, :process 2}
"""


@pytest.mark.parametrize("text", [KAFKA, as_json(KAFKA)])
def test_kafka(tmp_path: Path, text: str) -> None:
    imported = importing(tmp_path, text)
    assert imported.plan["workload"] == "kafka"
    assert rows(imported, "transactions", "outcome") == [("ok",), ("info",), ("fail",)]
    assert rows(imported, "micro_operations", "op", "position", "kind", "key", "offset", "value") == [
        (0, 0, "send", 0, 3, 7),
        (0, 1, "poll", 0, 2, 6),
        (0, 1, "poll", 0, 3, 7),
        (0, 1, "poll", 1, None, None),
        (1, 0, "send", 1, 5, 8),
        (2, 0, "send", 1, None, 9),
    ]


@pytest.mark.parametrize(
    ("workload", "operation", "argument", "result"),
    [
        ("mutex", ":f :acquire", "null", "null"),
        ("queue", ":f :enqueue, :value :a", '":a"', '":a"'),
        ("set", ":f :add, :value [1 2]", "[1, 2]", "[1, 2]"),
        ("kv", ':f :put, :key "k", :value "x"', '"x"', '"x"'),
        ("multi-register", ":f :txn, :value [[:w :x 1] [:r :y nil]]", '[["w", ":x", 1], ["r", ":y", null]]', None),
    ],
)
def test_other_objects(tmp_path: Path, workload: str, operation: str, argument: str, result: str | None) -> None:
    text = "".join(f"{{:process 0, :type :{type_}, {operation}}}\n" for type_ in ("invoke", "ok"))
    imported = importing(tmp_path, text)
    assert imported.plan["workload"] == workload
    assert rows(imported, "calls", "argument", "result") == [(argument, result or argument)]
    assert rows(imported, "calls", "key") == [('"k"' if workload == "kv" else None,)]


@pytest.mark.parametrize("text", [REGISTER, VECTOR, as_json(REGISTER), as_json(REGISTER, array=True)])
def test_a_last_line_that_is_cut_off_is_left_out_and_said(tmp_path: Path, text: str) -> None:
    cut = text.rstrip().rstrip("]")[:-9]
    imported = importing(tmp_path, cut)
    assert imported.operations == 4
    assert any("ends within line" in note for note in imported.notes)
    imported = importing(tmp_path, gzip.compress(text.encode() * 1)[:-9])
    assert any("gzip stream" in doubt for doubt in imported.doubts)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("garbage here", r"line 3: garbage is no operation"),
        ("{:type :ok, :f :write", "line 3: the form that begins there is not closed"),
        ("{:type ]}", "line 3: ']' closes '{'"),
        ("{:type :okay, :f :read, :process 9}", "line 3: the operation has a :type okay"),
        ("{:type :invoke, :f :read, :process 1}", "line 3: process 1 invokes read, but its operation of line 2"),
        ("{:type :ok, :f :read, :process 9}", r"line 3: process 9 completes read \(ok\), but has invoked none"),
        ("{:type :ok, :f :cas, :process 1}", "line 3: process 1 completes cas, but what it had invoked, on line 2"),
    ],
)
def test_what_is_wrong_in_the_middle_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    lines = REGISTER.splitlines()
    lines.insert(2, line)
    with pytest.raises(HistoryError, match=message):
        importing(tmp_path, "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PAR1\xff\xfe\x00", "no text in UTF-8"),
        (b"hello world\n", "is no history"),
        (b"\x1f\x8bnonsense", "gzip stream cannot be read"),
        (b'{"type": "invoke", "f": "transfer", "process": 0}\n', "no workload known here .*transfer.*--workload"),
        (b'{"type": "invoke", "process": 0}\n', "its operations have no :f"),
        (b'{"type": "invoke"\n{"type": "invoke"}\n', "line 1"),
    ],
)
def test_files_that_are_no_history(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        importing(tmp_path, content)


def test_a_line_by_expression_is_what_a_line_by_the_reader_is(tmp_path: Path) -> None:
    """Values that look like more fields, and fields that come and go."""
    lines = [
        '{:type :info, :process 1, :f :x, :value "a, :error b", :error "c, :process 7"}',
        "{:type :info, :process 1, :f :x, :value [:a, :error :b], :error {:process 2, :index 3}}",
        "{:type :info, :process 1, :f :x, :value 3}",
        '{:type :info, :process :nemesis, :f :x, :value {:a "}"}, :error #{1}}',
    ]
    slow = tmp_path / "slow.edn"
    slow.write_text("\n".join(f"{line[:1]}\n{line[1:]}" for line in lines * 3))
    fast = tmp_path / "fast.edn"
    fast.write_text("\n".join(lines * 3))
    one, other = ([event[1:] for event in open_history(path).events] for path in (fast, slow))
    assert one == other and len(one) == 12
