"""The rows of cluster_image/PROTOCOL.md."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests import ROOT

TABLE: Final = ROOT / "cluster_image" / "PROTOCOL.md"
NOT_DROPPED: Final = "*Not dropped:*"


class Row(NamedTuple):
    id: str
    statement: str
    code: str
    tests: str

    @property
    def section(self) -> str:
        return self.id.rpartition("-")[0]

    @property
    def not_dropped(self) -> str:
        """Why its rule cannot be dropped; empty: it can."""
        return self.statement.partition(NOT_DROPPED)[2].strip()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rules_of(table: str) -> str:
    """The part of the table's text that has rules."""
    return table.partition("\n## Not rules")[0]


def rows() -> list[Row]:
    found = []
    for line in rules_of(TABLE.read_text()).splitlines():
        if line.startswith("|") and not line.startswith(("| id |", "| --- |")):
            id_, statement, code, tests = cells(line)
            found.append(Row(id_, statement, code, tests))
    return found


def names(cell: str) -> list[str]:
    assert re.fullmatch(r"`[^`]+`(, `[^`]+`)*", cell), f"not a list of names: {cell}"
    return re.findall(r"`([^`]+)`", cell)
