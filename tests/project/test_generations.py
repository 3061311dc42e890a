"""README.md's table of three generations says what `chaos matrix` finds: some of its cells are carried out again."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import tomlkit

from harness.cli import app as cli
from harness.suites.matrix import file as matrix_file
from harness.suites.matrix import tables
from harness.suites.results import Ran
from tests import ROOT
from tests.project.generations import FILE, PAGE, table

ROWS = ("v2", "v2, leader epochs", "kraft, ELR")
COLUMNS = ("none", "kill, acks=1", "hw-truncation")
ALL = matrix_file.read(ROOT / FILE)


def cells_of(lines: list[str]) -> dict[tuple[str, str], str]:
    head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return {(row[0], column): text for row in rows for column, text in zip(head[1:], row[1:], strict=True)}


WRITTEN = cells_of(table()[1].splitlines())


def test_the_table_is_whole_and_each_cell_leads_to_what_it_says() -> None:
    assert WRITTEN.keys() == ALL.cells.keys()
    page, anchors = PAGE.read_text(), tables.anchors(ALL)
    for cell, text in WRITTEN.items():
        said, where = re.fullmatch(r"\[(.*)\]\((.*)\)", text).groups()  # type: ignore[union-attr]
        assert where == f"docs/generations.md#{anchors[cell]}"
        _, _, rest = page.partition(f'<a id="{anchors[cell]}"></a>')
        section = rest.partition("<a id=")[0]
        assert f": {said.partition(',')[0]}: " in section, "each verdict has its sentence"
        assert ("<details>" in section) is said.startswith("fail"), "and each that fails its story"


@pytest.mark.nightly
def test_some_cells_are_as_the_table_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tomllib.loads((ROOT / FILE).read_text())
    found["rows"] = {name: found["rows"][name] for name in ROWS}
    found["columns"] = {name: found["columns"][name] for name in COLUMNS}
    small = tmp_path / "small.toml"
    small.write_text(tomlkit.dumps(found))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["matrix", str(small), "--jobs", "2"])
    assert ended.value.code == 1
    matrix = matrix_file.read(small)
    saved = json.loads((tmp_path / "results" / "matrix-small" / "matrix.json").read_text())["cells"]
    squares = tables.squares(matrix, {key: Ran(**ran) for key, ran in saved.items()}, timed=False)
    for cell, square in squares.items():
        assert f"[{square.text}]" in WRITTEN[cell], cell
    assert {square.verdict for square in squares.values()} == {"pass", "fail"}
