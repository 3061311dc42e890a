"""The lines of a text file, gzipped or not, as far as they go.

A harness that is killed leaves a last line, or a gzip stream, that is cut off: what came before it is good. Whether a
file is gzipped is told by its first two bytes, not by its name.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spark_history.errors import HistoryError

_CHUNK: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"


@dataclass
class TextFile:
    """Read once, by lines(). notes: what was odd about it, a sentence each, complete once all lines are read."""

    path: Path
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)  # the same, of what forbids to call what was read a whole history
    ends_with_newline: bool = True

    def head(self, size: int = 1 << 16) -> str:
        """The beginning, to see what it is. Raises HistoryError."""
        text = ""
        for part in self._decoded(_CHUNK):
            text += part
            if len(text) >= size:
                break
        self.notes.clear()
        self.doubts.clear()
        return text[:size]

    def lines(self) -> Iterator[list[str]]:
        """All lines without their ends, many at a time. Raises HistoryError."""
        rest = ""
        for part in self._decoded(_CHUNK):
            first, *more = part.split("\n")
            if not more:
                rest += first
                continue
            yield [rest + first, *more[:-1]]
            rest = more[-1]
        self.ends_with_newline = not rest
        if rest:
            yield [rest]

    def _decoded(self, chunk: int) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            for part in self._bytes(chunk):
                yield decoder.decode(part)
        except UnicodeDecodeError:
            raise HistoryError(f"{self.path} is no text in UTF-8, so it is no history") from None

    def _bytes(self, chunk: int) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                first = file.read(chunk)
                if first[:2] != _GZIP:
                    while first:
                        yield first
                        first = file.read(chunk)
                    return
                stream = None
                while first:
                    if stream is None:  # a gzip file may be several, one after the other, and padded
                        first = first.lstrip(b"\0")
                        stream = zlib.decompressobj(wbits=31) if first else None
                        continue
                    yield stream.decompress(first, _CHUNK)
                    first = stream.unconsumed_tail
                    if stream.eof:
                        first, stream = stream.unused_data, None
                    first = first or file.read(chunk)
                if stream is not None:
                    self.doubts.append(f"{self.path} ends within its gzip stream, so there was more of it")
        except OSError as error:
            raise HistoryError(f"{self.path} cannot be read: {error.strerror or error}") from None
        except zlib.error as error:
            raise HistoryError(f"{self.path} is damaged: its gzip stream cannot be read ({error})") from None
