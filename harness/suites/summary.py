"""A suite's results as a table: in the terminal, and as Markdown, e.g. for the summary of a step of GitHub's CI."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Final

from harness.report.terminal import printable
from harness.suites.results import Ran

COLUMNS: Final = ("outcome", "plan", "seed", "verdict", "acknowledged", "lost", "s", "reason")
_SIGNS: Final = {"passed": "✅", "failed": "❌", "error": "⚠️", "not run": "⚠️"}
#: Characters of a reason in a table of Markdown.
_REASON: Final = 300


def rows(ran: Sequence[Ran]) -> list[tuple[str, ...]]:
    """For the terminal, by COLUMNS."""
    return [
        (each.outcome, each.name, str(each.seed), each.verdict, f"{each.acknowledged:,}", f"{each.lost:,}",
         f"{each.took_s:.0f}", each.reason)
        for each in ran
    ]  # fmt: skip


def counted(ran: Sequence[Ran]) -> str:
    """`12 runs: 10 passed, 1 failed, 1 error`"""
    words = [each.outcome for each in ran]
    counts = [f"{words.count(word)} {word}" for word in ("passed", "failed", "error", "not run") if word in words]
    return f"{len(ran)} run{'s' * (len(ran) != 1)}: {', '.join(counts) or 'none'}"


def markdown(name: str, ran: Sequence[Ran]) -> str:
    lines = [f"## chaos suite {_cell(name)}", "", f"{counted(ran)}.", "", f"| | {' | '.join(COLUMNS[1:])} |"]
    lines.append(f"| --- |{' --- |' * (len(COLUMNS) - 1)}")
    for each, cells in zip(ran, rows(ran), strict=True):
        report = f" ([report]({each.report}))" if each.report else ""
        shown = [*map(_cell, cells[1:-1]), _cell(each.reason) + report]
        lines.append(f"| {_SIGNS[each.outcome]} {each.outcome} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Anybody's text as text: neither Markdown nor HTML, in one line."""
    text = " ".join(printable(text).split())
    cut = text if len(text) <= _REASON else text[: _REASON - 1] + "…"
    return re.sub(r"([\\`*_{}\[\]()#+!|~])", r"\\\1", html.escape(cut, quote=False))
