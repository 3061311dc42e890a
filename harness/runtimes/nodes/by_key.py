"""What several nodes are asked, one that cannot be asked among them: the others do it all the same, and what they tell
of it is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from harness.cluster import ClusterLost
from harness.errors import describe

from .asking import AgentError
from .node import AgentNode

T = TypeVar("T")


async def each(nodes: Iterable[AgentNode], work: Callable[[AgentNode], Awaitable[T]]) -> list[T]:
    """At once, in their order. Raises, once all have ended, the error of the one that failed; AgentError with those of
    several; ClusterLost if there is one among them."""
    done = await asyncio.gather(*map(work, nodes), return_exceptions=True)
    failed = [error for error in done if isinstance(error, BaseException)]
    for error in failed:
        if len(failed) == 1 or isinstance(error, ClusterLost) or not isinstance(error, Exception):
            raise error
    if failed:
        raise AgentError("; ".join(dict.fromkeys(map(describe, failed))))
    return [result for result in done if not isinstance(result, BaseException)]


class ByKey(Generic[T]):
    """What is done to nodes for a key, and undone again: by key, those that have to undo it, and what the others have
    told when they did, at whichever attempt."""

    def __init__(self) -> None:
        self._doing: dict[str, dict[str, AgentNode]] = {}
        self._told: dict[str, dict[str, T]] = {}

    def begin(self, key: str, nodes: Iterable[AgentNode]) -> list[AgentNode]:
        """These are going to do it. With them, those that still do what was begun for this key before."""
        self._told.pop(key, None)  # of another fault
        doing = self._doing.setdefault(key, {})
        doing.update((node.name, node) for node in nodes)
        return list(doing.values())

    def in_force(self, key: str) -> bool:
        """By anybody, still?"""
        return bool(self._doing.get(key))

    async def undo(self, key: str, work: Callable[[AgentNode], Awaitable[T]]) -> dict[str, T]:
        """What was told, by node. Raises as each(): those that have undone it are not asked again, and what they have
        told is in what is returned once the others have, too."""
        doing, told = self._doing.get(key, {}), self._told.setdefault(key, {})

        async def undone(node: AgentNode) -> None:
            told[node.name] = await work(node)
            doing.pop(node.name, None)

        await each(list(doing.values()), undone)
        self._doing.pop(key, None)
        self._told.pop(key, None)
        return told

    def forget(self, node: AgentNode) -> None:
        """It does nothing any more, for no key."""
        for doing in self._doing.values():
            doing.pop(node.name, None)
