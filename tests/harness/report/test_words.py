"""Properties have one definition, which the report and docs/properties.md both give."""

from __future__ import annotations

from checkers.properties import HISTORY_PROPERTIES, NODE_PROPERTIES
from harness.record.timeline.violations import ORDER
from harness.report import words
from tests import ROOT


def test_every_property_is_defined_in_the_docs_as_in_the_report() -> None:
    text = " ".join((ROOT / "docs" / "properties.md").read_text().split())
    for name, meaning in words.PROPERTIES.items():
        _, found, row = text.partition(f"| {name} | {meaning} | ")
        assert found and len(row.split(" | ")[0]) > 20, "and an example"
    assert set(NODE_PROPERTIES) <= set(words.PROPERTIES)
    for name in HISTORY_PROPERTIES:
        assert f"### {name}" in text
    for anomaly in ORDER[1:]:
        assert anomaly == "…" or anomaly in text
