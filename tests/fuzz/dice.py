"""Decisions drawn from bytes, so that a fuzzer that changes bytes changes decisions. Past the end all are 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """Up to `size` bytes as they are."""
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        return self.take(self.left)

    def number(self, below: int) -> int:
        size = 1 if below <= 1 << 8 else 2 if below <= 1 << 16 else 8
        return int.from_bytes(self.take(size), "big") % below

    def flag(self) -> bool:
        return bool(self.number(2))

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.number(len(choices))]
