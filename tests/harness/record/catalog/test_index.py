"""What lies in a results directory is indexed as it is, whatever has become of it, and found again."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.errors import BadArguments
from harness.record.catalog.filters import Filter
from harness.record.catalog.index import INDEX_FILE, Index
from harness.record.catalog.notes import write_note
from tests.harness.record.catalog import made

HOSTILE = "<script>alert(1)</script>\"'&\u202egnp\x1b[2J"


def nobody(record: Mapping[str, Any]) -> bool:
    return False


def somebody(record: Mapping[str, Any]) -> bool:
    return True


def opened(results: Path, alive: Any = nobody) -> Index:
    index = Index(results, alive)
    index.refresh()
    return index


def paths(index: Index, **wanted: str) -> list[str]:
    return [entry.path for entry in index.find(Filter(**wanted))[0]]


def test_a_run_is_known_by_what_its_files_say(tmp_path: Path) -> None:
    made.run(tmp_path, "a", "fail", seed=7, nemesis=("kill", "pause"), p99=25, acknowledged=60_000, faults=3,
             settings={"broker.session.timeout.ms": "2000"})  # fmt: skip
    (entry,), count = opened(tmp_path).find(Filter())
    assert count == 1 and (entry.path, entry.kind, entry.verdict, entry.seed) == ("a", "run", "fail", 7)
    assert entry.nemeses == ("kill", "pause") and entry.settings == {"broker.session.timeout.ms": "2000"}
    assert (entry.target, entry.workload, entry.runs_on, entry.lost) == ("kraft", "append", "docker", 3)
    assert entry.acknowledged == 60_000 and entry.throughput == 1000.0  # in 20 s + 40 s
    assert entry.operations == 60_000 + 12 + 3 + 500 + 1
    assert (entry.p50_ms, entry.p99_ms, entry.recovery_ms, entry.unavailable_ms) == (5.0, 25.0, 3000.0, 4002.0)
    assert entry.started_at == made.BEGIN.timestamp() and entry.duration_s == 70.0 and entry.report == "report.html"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"verdict": "fail"}, ["b"]),
        ({"nemesis": "partition"}, ["b"]),  # the family of partition:one-way
        ({"nemesis": "partition:one-way"}, ["b"]),
        ({"nemesis": "part"}, []),
        ({"seed": "2"}, ["b"]),
        ({"seed": "2..3"}, ["c", "b"]),
        ({"setting": "log.segment.bytes"}, ["c"]),
        ({"setting": "log.segment.bytes=16384"}, ["c"]),
        ({"setting": "log.segment.bytes=1"}, []),
        ({"target": "kafka:4.2.0"}, ["b"]),
        ({"since": "2026-02-01"}, ["c", "b"]),
        ({"since": "2026-02-01", "until": "2026-02-01"}, ["b"]),
        ({"q": "LOST appends"}, ["b"]),
        ({"q": "lost nowhere"}, []),
        ({"q": "%"}, []),  # is no wildcard
        ({"verdict": "pass", "nemesis": "kill"}, ["c", "a"]),
        ({"seed": "many"}, ["c", "b", "a"]),  # is told, and does not filter
    ],
)
def test_filters(tmp_path: Path, wanted: dict[str, str], found: list[str]) -> None:
    made.run(tmp_path, "a", "pass", seed=1)
    made.run(tmp_path, "b", "fail", seed=2, nemesis=("partition:one-way",), started=made.BEGIN + timedelta(days=1),
             target="kafka:4.2.0")  # fmt: skip
    made.run(tmp_path, "c", "pass", seed=3, started=made.BEGIN + timedelta(days=2),
             settings={"log.segment.bytes": "16384"})  # fmt: skip
    assert paths(opened(tmp_path), **wanted) == found


def test_what_makes_no_sense_as_a_filter_is_told() -> None:
    problems = Filter(seed="1..x", since="31.01.2026", until="2026-13-01").problems()
    assert len(problems) == 3 and "1..x" in problems[0] and "31.01.2026" in problems[1]
    assert Filter(seed="0..9223372036854775807", since="2026-01-31").problems() == []
    assert Filter(seed="9223372036854775808").problems() != []


def test_only_what_has_changed_is_read_again(tmp_path: Path) -> None:
    first, second = made.run(tmp_path, "a"), made.run(tmp_path, "b")
    index = opened(tmp_path)
    assert index.refresh() == 0
    (first / "verdict.json").write_text(json.dumps({"verdict": "unknown", "reason": "judged again"}))
    assert index.refresh() == 1 and paths(index, verdict="unknown") == ["a"]
    for path in sorted(second.iterdir()):
        path.unlink()
    second.rmdir()
    assert index.refresh() == 1 and paths(index) == ["a"]
    write_note(first, "see it")
    assert index.refresh() == 1 and paths(index, q="see it") == ["a"]
    index.close()
    assert Index(tmp_path, nobody).refresh() == 0  # it was kept


def test_a_run_that_goes_on_is_looked_at_each_time(tmp_path: Path) -> None:
    going = {"status": "running", "phase": "workload", "finished_at": ""}
    made.run(tmp_path, "a", None, record=going)
    living = True
    index = opened(tmp_path, lambda record: living)
    assert [entry.verdict for entry in index.find(Filter())[0]] == ["running"]
    assert index.refresh() == 1
    living = False
    index.refresh()
    (entry,), _ = index.find(Filter())
    assert entry.verdict == "not judged" and "killed" in entry.reason and index.refresh() == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"verdict": 5, "operations": [], "lost": "x"}',
                                     b'{"availability": {"windows": 7, "latency_ms": {"p99": "fast"}}}',
                                     b'{"lost": 1e400, "operations": {"acknowledged": 99999999999999999999999}}',
                                     b'{"seed": -1, "nemesis": {"a": 1}, "settings": [], "status": [], "problems": 1}',
                                     b'{"started_at": "yesterday", "reason": "\\ud800", "nemesis": ["\\udfff"]}']
)  # fmt: skip
def test_damaged_runs_are_entries_too(tmp_path: Path, content: bytes) -> None:
    for name in ("plan.json", "run.json", "verdict.json"):
        (tmp_path / name[:-5]).mkdir()
        (tmp_path / name[:-5] / name).write_bytes(content)
    index = opened(tmp_path)
    assert sorted(paths(index)) == ["plan", "run", "verdict"]
    assert {entry.verdict for entry in index.find(Filter())[0]} == {"not judged"}
    index.choices()


def test_pipes_links_and_other_directories_are_none_of_ours(tmp_path: Path) -> None:
    results, outside = tmp_path / "results", made.run(tmp_path / "elsewhere", "secret")
    run = made.run(results, "a", None)
    os.mkfifo(run / "verdict.json")
    (results / "linked").symlink_to(outside)
    (results / "holiday-pictures").mkdir()
    (results / "README.md").write_text("runs")
    os.mkdir(os.fsencode(results) + b"/\xff")
    began = time.monotonic()
    index = opened(results)
    assert paths(index) == ["a"] and time.monotonic() - began < 5
    assert "regular" in index.find(Filter())[0][0].reason


def test_names_of_all_kinds(tmp_path: Path) -> None:
    made.run(tmp_path, HOSTILE.replace("/", ""), settings={HOSTILE: HOSTILE * 500}, record={"command": HOSTILE})
    index = opened(tmp_path)
    assert paths(index, setting=HOSTILE) == paths(index, q="gnp\x1b[2j") == [HOSTILE.replace("/", "")]


@pytest.mark.parametrize("damage", [b"", b"no database", bytes(8192), "cut", "older"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: Any) -> None:
    made.run(tmp_path, "a")
    opened(tmp_path).close()
    path = tmp_path / INDEX_FILE
    if damage == "cut":
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    elif damage == "older":
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version = 999")
        database.close()
    else:
        path.write_bytes(damage)
    index = opened(tmp_path)
    assert paths(index) == ["a"] and index.where == path


def test_where_nothing_can_be_written_the_index_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    made.run(results, "a")
    (results / INDEX_FILE).mkdir()  # as little a file that may be written as in a directory that is read-only
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index = opened(results)
    assert paths(index) == ["a"] and index.where is not None and index.where.parent == tmp_path / "cache" / "chaos"
    index.close()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    index = opened(results)
    assert paths(index) == ["a"] and index.where is None


def test_an_index_that_links_elsewhere_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made.run(tmp_path / "results", "a")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "results" / INDEX_FILE).symlink_to(tmp_path / "precious")
    assert paths(opened(tmp_path / "results")) == ["a"] and (tmp_path / "precious").read_text() == "precious"


def test_suites_explorations_and_matrices(tmp_path: Path) -> None:
    made.suite(tmp_path, "short", made.BEGIN, {"kill, default": "pass", "power": "fail", "pause": None})
    made.exploration(tmp_path, "x-explore", {3: ("LeaderCompleteness", 4)}, [0, 1, 2])
    made.systematic(tmp_path, "x-systematic", {4: "FlushedOffset"}, 22)
    made.matrix(tmp_path, "table", ["pass", "unknown"])
    index = opened(tmp_path)
    by_kind = {entry.kind: entry for entry in index.find(Filter(parent=""))[0] if entry.kind != "run"}
    assert {kind: entry.verdict for kind, entry in by_kind.items()} == {
        "suite": "fail", "exploration": "fail", "systematic exploration": "fail", "matrix": "unknown"
    }  # fmt: skip
    assert by_kind["suite"].reason == "3 runs: 1 passed, 1 failed, 1 not run"
    assert by_kind["exploration"].reason == "5 seeds: 3 passed, 1 failed, 1 unknown"
    swept = by_kind["systematic exploration"]
    assert swept.reason == "--every fsync --of load, 10 of 22 runs: 1 fail, 8 pass, 1 unknown"
    assert swept.nemeses == () and swept.duration_s == 3.0 and swept.runs_on == "simulation"
    assert paths(index, parent="x-systematic") == ["x-systematic/runs/broker-1.4"]
    inside = index.find(Filter(parent=by_kind["suite"].path))[0]
    assert {(entry.suite, entry.plan_name) for entry in inside} == {("short", "kill, default"), ("short", "power")}
    assert [each.outcome for each in index.members(by_kind["suite"].path)] == ["passed", "failed", "not run"]
    assert paths(index, parent="x-explore") == ["x-explore/runs/s3"]
    assert index.choices()["suite"] == ["short"] and index.counts(Filter(kind="run")) == {
        "pass": 2,
        "fail": 3,
        "unknown": 1,
    }


def test_a_suite_goes_on_while_one_of_its_runs_does(tmp_path: Path) -> None:
    suite = made.suite(tmp_path, "short", made.BEGIN, {"kill": "pass"}, finished=False)
    index = opened(tmp_path, somebody)
    assert index.get(suite.name).verdict == "not judged"  # type: ignore[union-attr]
    going = made.run(suite, "runs/next", None, record={"status": "running", "phase": "workload"})
    index.refresh()
    assert index.get(suite.name).verdict == "running"  # type: ignore[union-attr]
    (going / "run.json").write_text('{"status": "done"}')
    index.refresh()
    assert index.get(suite.name).verdict == "not judged"  # type: ignore[union-attr]


def test_a_suite_cannot_claim_what_is_not_in_it(tmp_path: Path) -> None:
    made.run(tmp_path, "a")
    suite = made.suite(tmp_path, "short", made.BEGIN, {"kill": "pass"})
    said = json.loads((suite / "suite.json").read_text())
    said["runs"] += [{"name": "up", "directory": "../a"}, {"name": "root", "directory": "/etc"}, {"name": 5}, 7]
    (suite / "suite.json").write_text(json.dumps(said))
    assert [each.path for each in opened(tmp_path).members(suite.name)][1:] == ["", "", ""]


def test_no_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match="is no directory"):
        Index(tmp_path / "nothing", nobody)


def test_an_index_that_is_damaged_while_it_is_in_use_is_made_anew(tmp_path: Path) -> None:
    made.run(tmp_path, "a")
    index = opened(tmp_path)
    (tmp_path / INDEX_FILE).write_bytes(bytes(8192))
    made.run(tmp_path, "b")
    index.refresh()
    assert sorted(paths(index)) == ["a", "b"]


def test_one_that_another_process_writes_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.record.catalog.index._WAIT_S", 0.1)
    made.run(tmp_path, "a")
    index = opened(tmp_path)
    other = sqlite3.connect(tmp_path / INDEX_FILE)
    other.execute("BEGIN EXCLUSIVE")
    made.run(tmp_path, "b")
    assert index.refresh() == 0
    other.rollback()
    other.close()
    assert index.refresh() == 1 and sorted(paths(index)) == ["a", "b"]


def test_only_its_owner_reads_it_and_closing_loses_nothing(tmp_path: Path) -> None:
    made.run(tmp_path, "a")
    index = opened(tmp_path)
    assert (tmp_path / INDEX_FILE).stat().st_mode & 0o077 == 0
    index.close()
    assert index.refresh() == 0  # of a thread that comes too late
    assert opened(tmp_path).refresh() == 0 and (tmp_path / INDEX_FILE).stat().st_size > 8192
