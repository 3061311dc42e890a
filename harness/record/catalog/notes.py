"""A note that somebody leaves at a run: plain text, in note.txt of its directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import BadArguments
from spark_history.regular import open_regular, replacing

NOTE_FILE: Final = "note.txt"
#: More than anybody writes by hand, and as much as a list of runs can show.
MOST_BYTES: Final = 16_384
_LINK: Final = re.compile(r"https?://[^\s<>\"'`\x00-\x1f]+", re.IGNORECASE)
#: What ends a sentence, and no address.
_AFTER: Final = ".,;:!?)]}"


def read_note(directory: Path) -> str:
    """ "": there is none, or none that can be read."""
    try:
        with open_regular(directory / NOTE_FILE) as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def write_note(directory: Path, text: str) -> None:
    """An empty one removes what there was. Raises BadArguments if it is too long, OSError if it cannot be written."""
    text = text.strip()
    path = directory / NOTE_FILE
    if not text:
        path.unlink(missing_ok=True)
        return
    content = (text + "\n").encode("utf-8", "replace")
    if len(content) > MOST_BYTES:
        raise BadArguments(
            f"the note has {len(content):,} bytes; the most is {MOST_BYTES:,}: put the rest where it links to"
        )
    with replacing(path) as unfinished:
        unfinished.write_bytes(content)


def linked(text: str) -> Iterator[tuple[str, str]]:
    """The note in pieces: (what is shown, where it leads to). "": nowhere. Only http and https lead anywhere."""
    at = 0
    for found in _LINK.finditer(text):
        address = found[0].rstrip(_AFTER)
        if found.start() > at:
            yield text[at : found.start()], ""
        yield address, address
        at = found.start() + len(address)
    if at < len(text):
        yield text[at:], ""
