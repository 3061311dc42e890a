"""A matrix' verdicts as tables: for the terminal, as Markdown, and as a page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.suites.matrix_file import Matrix
from harness.suites.results import Ran

#: From the best to the worst.
_WORDS: Final = ("pass", "unknown", "not judged", "fail")
_COLOURS: Final = {"pass": "#1a7f37", "fail": "#cf222e", "unknown": "#9a6700", "not judged": "#57606a"}


class Square(NamedTuple):
    """A cell of the table: what became of its runs. text: "fail 2 of 3, 9,334 lost, 85 s"."""

    verdict: str
    text: str
    reports: Sequence[tuple[str, str]]  # (seed, report)


def square(results: Sequence[Ran | None]) -> Square:
    """results: a seed each; None: not yet."""
    done = [result for result in results if result is not None]
    if not done:
        return Square("", "not yet", ())
    worst = max((result.verdict for result in done), key=_WORDS.index)
    those = [result for result in done if result.verdict == worst]
    of = f" {len(those)} of {len(results)}" if len(results) > 1 else ""
    lost = max(result.lost for result in done)
    parts = [f"{worst}{of}", *([f"{lost:,} lost"] if lost else [])]
    if any(result.expect == "fail" for result in done):
        parts.append("as expected" if all(result.outcome == "passed" for result in done) else "expected to fail")
    parts.append(f"{max(result.took_s for result in done):.0f} s")
    reports = [(str(result.seed), result.report) for result in done if result.report]
    return Square(worst, ", ".join(parts), reports)


def squares(matrix: Matrix, results: Mapping[str, Ran]) -> dict[tuple[str, str], Square]:
    """results: by the keys of runs."""
    return {cell: square([results.get(planned.key) for planned in runs]) for cell, runs in matrix.cells.items()}


def terminal(matrix: Matrix, found: Mapping[tuple[str, str], Square]) -> tuple[list[str], list[list[str]]]:
    """(head, rows)"""
    rows = [[row, *(found[row, column].text for column in matrix.columns)] for row in matrix.rows]
    return ["", *matrix.columns], rows


def markdown(matrix: Matrix, found: Mapping[tuple[str, str], Square], made: str) -> str:
    """made: what is said above the table: when, by which command."""
    head = f"| | {' | '.join(_cell(column) for column in matrix.columns)} |"
    lines = [made, "", head, f"| --- |{' --- |' * len(matrix.columns)}"]
    for row in matrix.rows:
        texts = (_linked(found[row, column]) for column in matrix.columns)
        lines.append(f"| {_cell(row)} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _linked(of: Square) -> str:
    if len(of.reports) == 1:
        return f"[{_cell(of.text)}]({of.reports[0][1]})"
    return " ".join([_cell(of.text), *(f"[{seed}]({report})" for seed, report in of.reports)])


def page(matrix: Matrix, found: Mapping[tuple[str, str], Square], made: str, reasons: Mapping[str, Any]) -> str:
    """reasons: by `row, column, seed`, of what did not pass."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in matrix.columns)
    body = "".join(
        f"<tr><th>{html.escape(row)}</th>{''.join(_square(found[row, column]) for column in matrix.columns)}</tr>"
        for row in matrix.rows
    )
    listed = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(why))}</dd>" for name, why in reasons.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>chaos matrix</title>'
        "<style>body{font:15px system-ui,sans-serif;margin:2rem;color:#1f2328}table{border-collapse:collapse}"
        "th,td{border:1px solid #d0d7de;padding:.4rem .6rem;text-align:left}td b{font-weight:600}"
        "dt{font-weight:600;margin-top:.6rem}dd{margin:0}@media(prefers-color-scheme:dark){body{background:#0d1117;"
        "color:#e6edf3}th,td{border-color:#30363d}a{color:#58a6ff}}</style>"
        f"<h1>chaos matrix</h1><p>{html.escape(made)}</p><table><tr><th></th>{head}</tr>{body}</table>"
        f"{'<h2>What did not pass</h2><dl>' + listed + '</dl>' if listed else ''}</html>\n"
    )


def _square(of: Square) -> str:
    verdict, _, rest = of.text.partition(",")
    text = f'<b style="color:{_COLOURS.get(of.verdict, "inherit")}">{html.escape(verdict)}</b>'
    text += html.escape(f",{rest}" if rest else "")
    links = " ".join(f'<a href="{html.escape(report)}">{html.escape(seed)}</a>' for seed, report in of.reports)
    return f"<td>{text}{f'<br>seed {links}' if links else ''}</td>"
