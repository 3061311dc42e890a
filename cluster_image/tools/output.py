"""How tools show what they have found: aligned columns for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence


class ToolError(Exception):
    """A tool cannot do its work. The message is one sentence."""


class Unanswered(ToolError):
    """A request was sent, and no answer came: it may have been carried out."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "") -> str:
    """Columns as wide as they must be; numbers to the right."""
    lines = [list(heads), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    right = [len(lines) > 1 and all(_is_number(line[column]) for line in lines[1:]) for column in range(len(heads))]
    return "\n".join(
        indent
        + "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, list | tuple):
        return ",".join(map(str, cell)) or "-"
    return str(cell)


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").isdigit()


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def size(number: int) -> str:
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


def print_json(value: object) -> None:
    """One line, which is whole even if what follows fails."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")
