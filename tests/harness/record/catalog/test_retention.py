from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from harness.record.catalog.index import Index
from harness.record.catalog.notes import write_note
from harness.record.catalog.retention import Wish, consider, remove
from tests.harness.record.catalog import made


def going(results: Path, wish: Wish) -> list[str]:
    index = Index(results, alive)
    index.refresh()
    return [each.entry.path for each in consider(index, wish).going]


def alive(record: Mapping[str, Any]) -> bool:
    return True


def runs(results: Path) -> None:
    """In the order of their names, a the oldest."""
    for number, (name, verdict) in enumerate([("a", "pass"), ("b", "fail"), ("c", "unknown"), ("d", "pass")]):
        made.run(results, name, verdict, started=made.BEGIN + timedelta(hours=number))


def test_the_newest_stay_and_those_that_failed_if_asked(tmp_path: Path) -> None:
    runs(tmp_path)
    assert going(tmp_path, Wish(4)) == [] and going(tmp_path, Wish(2)) == ["a", "b"]
    assert going(tmp_path, Wish(2, keep_failed=True)) == ["a"]
    assert going(tmp_path, Wish(0)) == ["a", "b", "c", "d"]


def test_what_is_noted_goes_only_if_that_is_said(tmp_path: Path) -> None:
    runs(tmp_path)
    write_note(tmp_path / "a", "keep me")
    suite = made.suite(tmp_path, "s", made.BEGIN - timedelta(days=1), {"kill": "pass"})
    write_note(next((suite / "runs").iterdir()), "me too")
    assert going(tmp_path, Wish(2)) == ["b"]
    assert going(tmp_path, Wish(2, with_notes=True)) == [suite.name, "a", "b"]


def test_a_suite_that_passed_with_its_control_has_not_failed(tmp_path: Path) -> None:
    passed = made.suite(tmp_path, "s", made.BEGIN, {"kill": "pass"})
    made.run(passed, "runs/control", "fail")
    failed = made.suite(tmp_path, "t", made.BEGIN, {"kill": "fail"})
    assert going(tmp_path, Wish(0, keep_failed=True)) == [passed.name] and failed.is_dir()


def test_what_goes_on_is_never_removed(tmp_path: Path) -> None:
    running = {"status": "running", "phase": "workload"}
    made.run(tmp_path, "a", None, record=running)
    suite = made.suite(tmp_path, "s", made.BEGIN, {"kill": "pass"}, finished=False)
    (tmp_path / "exploring" / "dataset").mkdir(parents=True)
    assert going(tmp_path, Wish(0)) == []  # between two runs of the suite, too
    for path in [suite, *suite.rglob("*"), tmp_path / "exploring", *(tmp_path / "exploring").iterdir()]:
        os.utime(path, (time.time() - 7200,) * 2)
    assert going(tmp_path, Wish(0)) == [suite.name, "exploring"]
    made.run(suite, "runs/next", None, record=running)
    assert going(tmp_path, Wish(0)) == ["exploring"]


def test_nothing_but_runs_and_their_groups_goes(tmp_path: Path) -> None:
    results, precious = tmp_path / "results", made.run(tmp_path / "elsewhere", "precious")
    runs(results)
    (results / "notes-of-mine").mkdir()
    (results / "notes-of-mine" / "text").write_text("precious")
    (results / "link").symlink_to(precious)
    exploration = made.exploration(results, "x", {3: ("StrongIsr", 1)}, [1])
    matrix = made.matrix(results, "m", ["pass"])
    os.utime(matrix / "matrix.json", (1, 1))
    for path in (matrix, matrix / "runs"):
        os.utime(path, (1, 1))
    index = Index(results, alive)
    index.refresh()
    outlook = consider(index, Wish(0))
    assert {each.entry.path for each in outlook.going} == {"a", "b", "c", "d", exploration.name, matrix.name}
    assert outlook.size >= 6 * 4096
    began = made.run(results, "x/runs/late", None, record={"status": "running"})  # since it was considered
    assert list(remove(index, outlook)) == []
    assert {path.name for path in results.iterdir()} == {"notes-of-mine", "link", "x", ".index.sqlite"}
    assert began.is_dir() and precious.is_dir() and (results / "notes-of-mine" / "text").read_text() == "precious"


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    runs(tmp_path)
    index = Index(tmp_path, alive)
    index.refresh()

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("shutil.rmtree", refuse)
    assert len(list(remove(index, consider(index, Wish(2))))) == 2
