"""A matrix' verdicts: as a table for the terminal; as Markdown and as a page also what each cell says, to which the
table links, and of what failed in simulation the story."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from harness.suites.matrix.file import Matrix
from harness.suites.results import Ran
from harness.suites.stories import Story

#: From the best to the worst.
_WORDS: Final = ("pass", "unknown", "not judged", "fail")
_COLOURS: Final = {"pass": "#1a7f37", "fail": "#cf222e", "unknown": "#9a6700", "not judged": "#57606a"}


class Square(NamedTuple):
    """A cell of the table: what became of its runs. text: "fail 2 of 3, 9,334 lost, 85 s"."""

    verdict: str
    text: str


def square(results: Sequence[Ran | None], *, timed: bool = True) -> Square:
    """results: a seed each; None: not yet. timed: with how long they took."""
    done = [result for result in results if result is not None]
    if not done:
        return Square("", "not yet")
    worst = max((result.verdict for result in done), key=_WORDS.index)
    those = [result for result in done if result.verdict == worst]
    of = f" {len(those)} of {len(results)}" if len(results) > 1 else ""
    lost = max(result.lost for result in done)
    parts = [f"{worst}{of}", *([f"{lost:,} lost"] if lost else [])]
    if any(result.expect == "fail" for result in done):
        parts.append("as expected" if all(result.outcome == "passed" for result in done) else "expected to fail")
    if timed:
        parts.append(f"{max(result.took_s for result in done):.0f} s")
    return Square(worst, ", ".join(parts))


def squares(matrix: Matrix, results: Mapping[str, Ran], *, timed: bool = True) -> dict[tuple[str, str], Square]:
    """results: by the keys of runs."""
    return {
        cell: square([results.get(planned.key) for planned in runs], timed=timed)
        for cell, runs in matrix.cells.items()
    }  # fmt: skip


def terminal(matrix: Matrix, found: Mapping[tuple[str, str], Square]) -> tuple[list[str], list[list[str]]]:
    """(head, rows)"""
    rows = [[row, *(found[row, column].text for column in matrix.columns)] for row in matrix.rows]
    return ["", *matrix.columns], rows


def markdown(matrix: Matrix, results: Mapping[str, Ran], made: str, *, timed: bool = True) -> str:
    """made: what is said above the table: when, by which command. results: by the keys of runs. timed: see square()."""
    lines = [made, "", *markdown_table(matrix, squares(matrix, results, timed=timed)), "", "## Each cell"]
    where = anchors(matrix)
    for cell, done in _judged(matrix, results):
        lines += ["", f'<a id="{where[cell]}"></a>**{_cell(", ".join(cell))}**', ""]
        for ran in done:
            seed = f"seed {ran.seed}"
            lines.append(f"- {f'[{seed}]({ran.report})' if ran.report else seed}: {_cell(said(ran))}")
            lines += _told(ran)
    return "\n".join(lines) + "\n"


def markdown_table(matrix: Matrix, found: Mapping[tuple[str, str], Square], page: str = "") -> list[str]:
    """Lines. page: where each cell's words are, if not below the table."""
    head = f"| | {' | '.join(_cell(column) for column in matrix.columns)} |"
    lines = [head, f"| --- |{' --- |' * len(matrix.columns)}"]
    where = anchors(matrix)
    for row in matrix.rows:
        linked = (_linked(found[row, column], f"{page}#{where[row, column]}") for column in matrix.columns)
        lines.append(f"| {_cell(row)} | {' | '.join(linked)} |")
    return lines


def said(ran: Ran) -> str:
    """What became of a run, in a sentence; of a story also how it ends, which names what contradicts what."""
    if ran.story is None:
        return f"{ran.verdict}: {ran.reason}"
    end = re.sub(r"^ *\d+\. +[\d.]+ s +", "", ran.story["lines"][-1])
    return f"{ran.verdict}: {ran.reason}. In {'the smallest' if ran.story['minimal'] else 'a smaller'} run: {end}"


def anchors(matrix: Matrix) -> dict[tuple[str, str], str]:
    """Of what is said of each cell, in the page: no two are the same."""
    found: dict[tuple[str, str], str] = {}
    for cell in matrix.cells:
        plain = "--".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in cell)
        numbered = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
        found[cell] = next(each for each in numbered if each not in found.values())
    return found


def _judged(matrix: Matrix, results: Mapping[str, Ran]) -> Iterator[tuple[tuple[str, str], list[Ran]]]:
    for cell, runs in matrix.cells.items():
        if done := [results[planned.key] for planned in runs if planned.key in results]:
            yield cell, done


def _cell(text: str) -> str:
    """Anybody's text as text, in one line of Markdown."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", " ".join(html.escape(text, quote=False).split()))


def _linked(of: Square, where: str) -> str:
    return f"[{_cell(of.text)}]({where})" if of.verdict else _cell(of.text)


def _told(ran: Ran) -> list[str]:
    """A run's story, as lines of Markdown."""
    if ran.story is None:
        return []
    fenced = ["  ```text", *(f"  {line}" for line in ran.story["lines"]), "  ```"]
    return ["", f"  <details><summary>{html.escape(_title(ran.story))}</summary>", "", *fenced, "", "  </details>"]


def _title(story: Story) -> str:
    minimal = "nothing more can go" if story["minimal"] else "more might go"
    return f"The story of {story['broken']}, as small as {story['runs']} runs could make it ({minimal})"


def page(matrix: Matrix, results: Mapping[str, Ran], made: str) -> str:
    """See markdown()."""
    found, where = squares(matrix, results), anchors(matrix)
    head = "".join(f"<th>{html.escape(column)}</th>" for column in matrix.columns)
    body = "".join(
        f"<tr><th>{html.escape(row)}</th>"
        f"{''.join(_square(found[row, column], where[row, column]) for column in matrix.columns)}</tr>"
        for row in matrix.rows
    )
    sections = "".join(_section(cell, where[cell], done) for cell, done in _judged(matrix, results))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>chaos matrix</title>'
        "<style>body{font:15px system-ui,sans-serif;margin:2rem;color:#1f2328}table{border-collapse:collapse}"
        "th,td{border:1px solid #d0d7de;padding:.4rem .6rem;text-align:left}td b{font-weight:600}"
        "h3{margin:1.2rem 0 .2rem}p{margin:.2rem 0}:target{background:#fff8c5}pre{overflow-x:auto;font-size:12px}"
        "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}"
        "a{color:#58a6ff}:target{background:#3a2f00}}</style>"
        f"<h1>chaos matrix</h1><p>{html.escape(made)}</p><table><tr><th></th>{head}</tr>{body}</table>"
        f"<h2>Each cell</h2>{sections}</html>\n"
    )


def _section(cell: tuple[str, str], where: str, done: Sequence[Ran]) -> str:
    text = f'<h3 id="{where}">{html.escape(", ".join(cell))}</h3>'
    for ran in done:
        seed = f"seed {ran.seed}"
        link = f'<a href="{html.escape(ran.report)}">{seed}</a>' if ran.report else seed
        text += f"<p>{link}: {html.escape(said(ran))}</p>"
        if ran.story is not None:
            lines = html.escape("\n".join(ran.story["lines"]))
            replay = html.escape(f"chaos replay {ran.story['directory']} --story")
            text += (
                f"<details open><summary>{html.escape(_title(ran.story))}</summary><pre>{lines}</pre>"
                f"<p><code>{replay}</code></p></details>"
            )
    return text


def _square(of: Square, where: str) -> str:
    verdict, _, rest = of.text.partition(",")
    text = f'<b style="color:{_COLOURS.get(of.verdict, "inherit")}">{html.escape(verdict)}</b>'
    text += html.escape(f",{rest}" if rest else "")
    return f'<td><a href="#{where}">{text}</a></td>' if of.verdict else f"<td>{text}</td>"
