"""cluster_image/PROTOCOL.md stays true: each function and test that it names exists, and no section is missing."""

from __future__ import annotations

import ast
import importlib
from functools import cache

import pytest

from tests.protocol_table.drops import drops, find
from tests.protocol_table.rows import ROOT, TABLE, Row, cells, names, rows, rules_of

#: Of the documents that the project names. A section needs a row, or a place among those that are no rules.
SECTIONS = {
    "000": "1.2.1 1.2.2 2.2 2.2.1 2.2.2 2.2.3 2.3 2.3.1 2.3.2 2.4 2.4.1 2.4.2 2.5 2.6 2.7 2.8 2.9 2.9.1 2.9.2 2.10 "
    "2.10.1 2.10.2 2.10.3 2.10.4 2.10.5 2.10.6",
    "001": "claims paths listeners startup election state roles topics commit moves fetch",
    "002": "5 5.1.1 5.1.2 5.2 5.2.1 5.2.2 5.3 5.3.1 5.3.2 5.3.3 5.4",
    "003": "placement add remove sync follower leader async older",
    "004": "hwm leo epoch loss divergence unclean",
    "raft": "elections log snapshots",
    "": "3 3.1 3.2 3.3.1 3.3.2 3.3.3 3.3.4 3.3.5 3.3.6 3.3.7 6.1 6.2 6.3 6.4 6.4.1 6.4.2 6.5 6.5.1 6.5.2 6.5.3 6.5.4 "
    "6.6 6.7 6.8 8.1 8.2 8.3 retention throttle",
}


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def is_a_test(path: str, name: str) -> bool:
    """By the name that pytest finds it by: `test_…`, `TestX::test_…`; Hypothesis state machines, `TestX::runTest`."""
    container, _, function = name.rpartition("::")
    if function == "runTest":
        return find(parsed(path), container) is not None
    found = find(parsed(path), name.replace("::", "."))
    return function.startswith("test_") and isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_what_a_row_names_is_there(row: Row) -> None:
    assert row.statement
    for name in names(row.code):
        path, _, qualified = name.partition(":")
        assert (TABLE.parent / path).is_file(), f"cluster_image/{path} is no file"
        found: object = importlib.import_module(f"cluster_image.{path.removesuffix('.py').replace('/', '.')}")
        assert qualified, f"{name} names nothing in the file"
        for part in qualified.split("."):
            assert hasattr(found, part) or part in _instance_attributes(path), f"there is no {qualified} in {path}"
            found = getattr(found, part, None)
    for name in names(row.tests):
        path, _, function = name.partition("::")
        assert path.startswith("tests/") and (ROOT / path).is_file(), f"{path} is no file"
        assert is_a_test(path, function), f"there is no {function} in {path}"


@cache
def _instance_attributes(path: str) -> frozenset[str]:
    """What instances of a module's classes have: `self.x: … = …`, `self.x = …`."""
    tree = ast.parse((TABLE.parent / path).read_text())
    return frozenset(
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    )


def test_no_id_stands_twice() -> None:
    ids = [row.id for row in rows()]
    assert sorted({id_ for id_ in ids if ids.count(id_) > 1}) == []


def test_each_rule_can_be_dropped_or_the_row_says_why_not() -> None:
    """That the row's tests fail without it takes longer to find out: `make protocol-table`."""
    of_rows = {row.id: row for row in rows()}
    assert sorted(drops().keys() - of_rows.keys()) == [], "of no row"
    assert sorted(id_ for id_, row in of_rows.items() if (id_ in drops()) == bool(row.not_dropped)) == []
    for drop in drops().values():
        drop.apply((TABLE.parent / drop.path).read_text())


def test_no_section_is_missing() -> None:
    known = {row.section for row in rows()}
    expected = {f"{document}-{s}" if document else s for document, names in SECTIONS.items() for s in names.split()}
    assert sorted(expected - known) == []
    assert sorted(known - expected) == [], "rows of sections that this test does not know"


def test_every_row_stands_under_the_heading_of_its_document() -> None:
    document = ""
    for line in rules_of(TABLE.read_text()).splitlines():
        if line.startswith("## "):
            document = line.split()[1].rstrip(",;")
        elif line.startswith("| ") and not line.startswith(("| id |", "| --- |")):
            id_ = cells(line)[0]
            assert id_.startswith(document.partition(".")[0]), f"{id_} stands under {document}"


def test_what_is_no_rule_has_a_reason() -> None:
    lines = [line for line in TABLE.read_text().partition("\n## Not rules")[2].splitlines() if line.startswith("| ")]
    assert len(lines) > 2
    for line in lines:
        section, what, reason = cells(line)
        assert section and what and reason, line
