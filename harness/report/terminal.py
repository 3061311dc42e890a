"""All output to the terminal goes through here: control characters in text from nodes, histories or plans are
escaped, so that the terminal shows them and does not obey them.

Plain lines go by say(), everything with colours by a Terminal. `tests/harness/cli/test_terminal.py` sees to it that
there is no other. JSON goes by say_json(), and stays JSON.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from cluster_image.telemetry.printable import printable, printable_json, say

__all__ = ["Terminal", "print_table", "printable", "say", "say_json"]


class Terminal(Console):
    """Text is shown as it is: without markup, and with control characters as visible escapes. Colours and cursor
    movements are those of this program, which rich sends apart from the text."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = True, **options: Any) -> None:
        """options: as of rich.console.Console."""
        super().__init__(stderr=stderr, highlight=False, soft_wrap=soft_wrap, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def silent() -> Terminal:
    """One that shows nothing."""
    return Terminal(file=_Nothing())


class _Nothing(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """A line, or more if it is indented."""
    print(printable_json(json.dumps(value, ensure_ascii=False, indent=indent)), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """For other programs a line each, without the head, fields set apart by tabs."""
    console = Terminal(soft_wrap=False)
    if not console.is_terminal:
        for row in rows:
            say("\t".join(row))
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(printable, row))  # so that columns are as wide as what is shown
    console.print(table)
