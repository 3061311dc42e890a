"""Limits how many tasks run at a time, in total and for each address; waiting addresses take turns."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Shares:
    """limit: turns at a time, of which one address has of_one. Addresses that wait are let in one after the other."""

    def __init__(self, limit: int, of_one: int) -> None:
        self._limit = limit
        self._of_one = of_one
        self._inside: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by address, whose turn is next first

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        if host in self._waiting or not self._may_enter(host):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(host, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._leave(host)
                raise
        else:
            self._inside[host] += 1
        try:
            yield
        finally:
            self._leave(host)

    def _may_enter(self, host: str) -> bool:
        return self._inside.total() < self._limit and self._inside[host] < self._of_one

    def _leave(self, host: str) -> None:
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]
        for next_host in list(self._waiting):
            turns = self._waiting[next_host]
            while turns and turns[0].done():  # cancelled
                turns.popleft()
            if turns and not self._may_enter(next_host):
                continue
            del self._waiting[next_host]
            if turns:
                self._inside[next_host] += 1
                turns.popleft().set_result(None)
                self._waiting[next_host] = turns  # the next time, others come first
