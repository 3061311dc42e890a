from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.report.browse.exploration import ranges, shown, smallest_seeds, write_page
from tests.harness.record.catalog import made


def test_failing_seeds_are_grouped_by_what_broke_the_smallest_first(tmp_path: Path) -> None:
    failing = {3: ("StrongIsr", 4), 5: ("LeaderCompleteness", 1), 9: ("StrongIsr", 2), 11: ("StrongIsr", 9)}
    directory = made.exploration(tmp_path, "x", failing, [0, 1])
    found = json.loads((directory / "explore.json").read_text())
    found["failing"].append({"seed": 40, "result": "hang", "message": "it did not end", "directory": None})
    page = shown(found)
    assert [(group.property, [each.seed for each in group.seeds]) for group in page.groups] == [
        ("StrongIsr", [9, 3, 11]), ("LeaderCompleteness", [5]), ("the run did not end", [40]),
    ]  # fmt: skip
    assert page.groups[0].meaning.startswith("A member of the ISR") and smallest_seeds(found) == {9, 5, 40}
    assert (page.coverage[0].fault, page.coverage[0].seeds_effective) == ("kill", 6)
    html = write_page(directory).read_text()
    assert 'href="runs/s9/report.html"' in html and "/elsewhere" not in html  # it may have been moved since


DAMAGED = (
    "", "[]", "{", '{"failing": 3, "unknown": [1, {}], "coverage": [], "totals": 1}',
    '{"failing": [{"seed": "x", "directory": 5}, {}], "coverage": {"kill": 1}}',
)  # fmt: skip


def test_histories_are_grouped_by_the_worst_of_what_they_break() -> None:
    lines = ["real-time inversion, lost append", "lost append", "non-monotonic read, phantom", "of another version, G0"]
    failing = [{"seed": at, "result": "fail", "property": "p", "anomaly": line} for at, line in enumerate(lines)]
    assert [(group.anomaly, len(group.seeds)) for group in shown({"failing": failing}).groups] == [
        ("lost append", 2), ("phantom", 1), ("of another version, G0", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED)
def test_whatever_the_file_says_there_is_a_page(tmp_path: Path, content: str) -> None:
    (tmp_path / "explore.json").write_text(content)
    assert "<h1" in write_page(tmp_path).read_text()


def test_seeds_as_ranges() -> None:
    assert ranges([]) == "" and ranges([7]) == "7" and ranges([3, 1, 2, 9, 2, 5, 6]) == "1..3, 5..6, 9"
