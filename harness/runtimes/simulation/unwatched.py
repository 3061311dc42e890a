"""In place of a target's invariants, where a run shall go on whatever happens: what do its clients see?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from checkers.properties import LIVENESS


class Unwatched:
    """Implements harness.targets.target.Invariants, and finds nothing."""

    losses: Sequence[str] = ()

    def changed(self, node: str, event: str, where: str, fields: Mapping[str, object]) -> None: ...

    def asks(self, node: str, request: Any, now: float) -> None: ...

    def answers(self, node: str, request: Any, response: Any, since: float, now: float) -> None: ...

    def node_started(self, name: str, process: Any, disk: Any) -> None: ...

    def node_gone(self, name: str, lossy: bool | Collection[str]) -> None: ...

    def check(self) -> None: ...

    def check_liveness(self, now: float) -> None: ...

    def check_all(self) -> None: ...

    def count_states(self, faults: Callable[[], tuple[int, ...]]) -> tuple[Set[int], Set[int]]:
        return frozenset(), frozenset()

    def not_recovered(self, processes: Mapping[str, Any]) -> str:
        return LIVENESS

    def unsettled(self, processes: Mapping[str, Any]) -> str | None:
        return None
