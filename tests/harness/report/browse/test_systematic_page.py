from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.report.browse.systematic import MOST_ROWS, shown, write_page
from tests.harness.record.catalog import made


def test_what_was_counted_struck_and_found(tmp_path: Path) -> None:
    directory = made.systematic(tmp_path, "x", {3: "FlushedOffset", 4: "FlushedOffset", 6: "QuorumState"}, 22)
    page = shown(json.loads((directory / "systematic.json").read_text()))
    assert page.totals[:3] == [
        ("operations counted while a node loads its logs", "22"), ("of broker-1", "10"), ("of broker-2", "12"),
    ]  # fmt: skip
    assert ("struck", "9") in page.totals and ("failed", "3") in page.totals and page.left == 12 and page.missed == 1
    assert [(group.property, [each.name for each in group.seeds]) for group in page.groups] == [
        ("FlushedOffset", ["3 of broker-1", "4 of broker-1"]), ("QuorumState", ["6 of broker-1"]),
    ]  # fmt: skip
    assert [(row.operation, row.file, row.runs, row.results.get("fail", 0)) for row in page.struck] == [
        ("sync", "chaos-0/*.log", 5, 1), ("sync", "quorum-state", 4, 2),
    ]  # fmt: skip
    assert page.columns == [("pass", "passed"), ("fail", "failed"), ("unknown", "unknown")]
    assert page.unknown == [("vacuous: nothing was acknowledged", 1)]
    html = write_page(directory).read_text()
    assert "operation <bdi>3 of broker-1</bdi>" in html and 'href="runs/broker-1.3/report.html"' in html
    assert "12 runs were not made" in html and "/elsewhere" not in html


def test_what_is_struck_seldom_is_one_row() -> None:
    ran = [{"result": "pass", "struck": {"operation": "write", "path": f"file-{at}"}} for at in range(MOST_ROWS + 5)]
    ran += [{"result": "fail", "struck": {"operation": "write", "path": "file-0"}}]
    rows = shown({"ran": ran}).struck
    assert len(rows) == MOST_ROWS + 1 and rows[0].results == {"pass": 1, "fail": 1}
    assert (rows[-1].operation, rows[-1].runs) == ("5 more", 5)


DAMAGED = ("", "[]", "{", '{"ran": [1, {}, {"failure": {"directory": 5}, "struck": 3}], "counted": [], "results": 1}')


@pytest.mark.parametrize("content", DAMAGED)
def test_whatever_the_file_says_there_is_a_page(tmp_path: Path, content: str) -> None:
    (tmp_path / "systematic.json").write_text(content)
    assert "<h1" in write_page(tmp_path).read_text()
