from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.record.catalog.facts import of_run
from harness.report.browse.comparison import Comparison, compare, lines, shown
from tests.harness.record.catalog import made
from tests.harness.report.browse.serving import alive


def compared(a: Path, b: Path) -> Comparison:
    return compare((a, b), (of_run(a, a.name, alive), of_run(b, b.name, alive)))


def rows(found: Comparison, section: str) -> dict[str, tuple[Any, Any, str]]:
    (of,) = [each for each in found.sections if each.name == section]
    return {row.name: (row.a, row.b, row.change) for row in of.rows if row.differs}


def test_what_differs_is_found_in_each_part(tmp_path: Path) -> None:
    a = made.run(tmp_path, "a", "pass", seed=1, p99=20.0, acknowledged=60_000, settings={"x": "1", "y": "2"})
    b = made.run(tmp_path, "b", "fail", seed=2, p99=25.0, acknowledged=60_000, nemesis=("pause",), acks="1",
                 settings={"y": "3"})  # fmt: skip
    found = compared(a, b)
    assert rows(found, "plan") == {"nemesis": (["kill"], ["pause"], ""), "seed": (1, 2, ""), "acks": ("all", "1", "")}
    assert rows(found, "settings") == {"x": ("1", None, ""), "y": ("2", "3", "")}
    assert rows(found, "verdict").keys() == {"verdict", "reason", "acknowledged records lost"}
    assert rows(found, "availability")["latency p99, ms"] == (20.0, 25.0, "+25.0%")
    assert "acknowledged a second" not in rows(found, "availability")
    assert rows(found, "faults") == {
        "kill: injected": (2, None, ""), "kill: effective": (2, None, ""), "kill: skipped": (0, None, ""),
        "pause: injected": (None, 2, ""), "pause: effective": (None, 2, ""), "pause: skipped": (None, 0, ""),
    }  # fmt: skip
    assert rows(found, "violations") == {"log linearizability: lost append": (None, 3, "")}
    assert found.differing == sum(section.differing for section in found.sections) > 10
    assert json.loads(json.dumps(found.as_dict()))["differing"] == found.differing


def test_a_run_and_itself(tmp_path: Path) -> None:
    a = made.run(tmp_path, "a")
    assert compared(a, a).differing == 0 and list(lines(compared(a, a), everything=False)) == []
    assert len(list(lines(compared(a, a), everything=True))) > 30


def test_changes_in_words(tmp_path: Path) -> None:
    a, b = made.run(tmp_path, "a", acknowledged=10), made.run(tmp_path, "b", acknowledged=35)
    assert rows(compared(a, b), "operations")["append ok"] == (10, 35, "×3.5")
    assert rows(compared(b, a), "operations")["append ok"] == (35, 10, "×0.286")
    c = made.run(tmp_path, "c", acknowledged=0)
    assert rows(compared(a, c), "operations")["append ok"] == (10, 0, "-10")


def test_of_a_run_without_anything_rows_are_empty(tmp_path: Path) -> None:
    a, b = made.run(tmp_path, "a"), tmp_path / "b"
    b.mkdir()
    (b / "verdict.json").write_text('{"operations": 3, "faults": {"kill": []}, "availability": {"latency_ms": 1}}')
    assert rows(compared(a, b), "verdict")["verdict"] == ("pass", "not judged", "")


def test_values_for_people() -> None:
    assert [shown(each) for each in (None, True, 1234, 0.5, 1234.5678, [], ["a", "b"], {}, {"a": 1}, "x", 1e300)] == [
        "—", "yes", "1,234", "0.5", "1,234.568", "none", "a, b", "none", "a=1", "x", "1e+300",
    ]  # fmt: skip
