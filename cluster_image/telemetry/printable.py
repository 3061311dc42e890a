"""Text that others wrote, made safe for a terminal: of nodes, of histories, of files that anybody may have written.

A terminal obeys what it is sent: sequences that begin with ESC or with the C1 controls clear it, rename it, answer for
its user; those that turn the direction of writing show other text than there is. Here each such character is shown as
Python would write it, `\\x1b` or `\\u202e`, and nothing else changes.
"""

from __future__ import annotations

import re
import sys
from typing import Final, TextIO

#: C0 (but for what lines and columns are made of), DEL, C1; line and paragraph separators; marks, embeddings, overrides
#: and isolates of direction, and the tags, which nobody sees; halves of what UTF-8 has no half of.
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Lines and tabs stay. Safe to repeat."""
    return _CONTROLS.sub(lambda found: _escaped(ord(found[0])), text)


def printable_json(text: str) -> str:
    """The same for JSON, which stays JSON of the same value: such characters are in strings only, and escaped there."""
    return _CONTROLS.sub(_as_json, text)


def say(text: str = "", *, end: str = "\n", file: TextIO | None = None) -> None:
    """print(), of text that may be anybody's. file: standard output by default."""
    print(printable(text), end=end, file=sys.stdout if file is None else file)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _as_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
