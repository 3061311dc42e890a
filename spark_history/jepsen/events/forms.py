"""Maps one after the other, or in one vector, over any number of lines."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, Final, Generic, TypeVar

from spark_history.errors import HistoryError
from spark_history.jepsen.events.text import TextFile

M = TypeVar("M")


class Garbage(Exception):
    """The text is not what it should be. found: the forms before that."""

    def __init__(self, why: str, found: list[Any]) -> None:
        super().__init__(why)
        self.found = found


_A_MAP: Final = re.compile(r'\s*\{[:"]')


class Forms(ABC, Generic[M]):
    """Takes lines and gives the maps that end on them. Subclasses read a notation.

    A map that is not at its end waits for more lines; how many are read at once doubles, so that a long form costs no
    more than its length. What is wrong is an error once more lines follow: the last line may be cut off.
    """

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self.pending: list[str] = []  # lines of a form that is not at its end yet
        self.opened = ""  # the bracket around the history
        self.begun = self.ended = False
        self._since = 0
        self._retry_at = 1  # lines
        self._error: HistoryError | None = None

    @abstractmethod
    def parse(self, text: str) -> tuple[list[M], str]:
        """The forms in a text, and what is left of one that goes on after it. Keeps opened, begun, ended. Raises
        Garbage."""

    def add(self, number: int, line: str) -> list[tuple[int, M]]:
        """The maps that end on this line, and where each began (or the first of several did)."""
        if self._error is not None and line.strip("\0 \t\r"):
            raise self._error
        if not self.pending:
            if not line or line.isspace():
                return []
            self._since, self._retry_at = number, 1
        self.pending.append(line)
        return self._read(number) if len(self.pending) >= self._retry_at else []

    def _read(self, number: int) -> list[tuple[int, M]]:
        since = self._since
        try:
            found, rest = self.parse("\n".join(self.pending))
        except Garbage as error:
            self._error = self._wrong(str(error))
            return [(since, each) for each in error.found]
        if rest:
            if found:
                self._since = number
            self.pending = [rest] if found else self.pending
            self._retry_at = 2 * len(self.pending)
        else:
            self.pending = []
        return [(since, each) for each in found]

    def _wrong(self, why: str) -> HistoryError:
        return HistoryError(f"{self._file.path} is damaged at line {self._since}: {why}")

    def end(self, number: int) -> list[tuple[int, M]]:
        """The last maps; number: of the last line. Raises HistoryError; adds to the notes of the file."""
        found = (
            self._read(number) if self.pending and self._error is None and len(self.pending) < self._retry_at else []
        )
        if self._error is not None and self._file.ends_with_newline:
            raise self._error
        if self.pending:
            if any(map(_A_MAP.match, "\n".join(self.pending).split("\n")[1:])):
                raise self._wrong("the form that begins there is not closed")
            self._file.notes.append(f"{self._file.path} ends within line {self._since}: that line is left out")
        elif self.opened and not self.ended:
            self._file.notes.append(
                f"{self._file.path} ends before its closing bracket: it is judged as far as it goes"
            )
        return found
