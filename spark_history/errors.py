"""What is wrong with a history, and how errors are told. Imports nothing that takes time."""

from __future__ import annotations


class HistoryError(Exception):
    """A history that cannot be judged. The message is one sentence that names the file or the operations."""


def first_line(error: BaseException) -> str:
    """What an error says, to stand inside a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
