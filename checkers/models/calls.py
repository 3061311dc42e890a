"""The input of the search: the calls of one object, and the interface by which it asks about that object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spark_history.log import NEVER

State = Any  # hashable
Action = Any  # hashable: what an operation asks for and got: operations with equal actions are interchangeable


class Object(Protocol):
    """What the search needs to know of an object. All but step() may always say False: they keep the search small."""

    @property
    def initial(self) -> State: ...

    def step(self, state: State, action: Action, /) -> Iterable[State]:
        """The states in which `action` may leave the object; none if it cannot take place in `state`."""

    def reads(self, action: Action, /) -> bool:
        """Whether it changes no state, ever."""

    def total(self, action: Action, /) -> bool:
        """Whether it can take place in every state. Not asked of what reads."""

    def overwrites(self, action: Action, /) -> bool:
        """Whether it is total and leaves the same one state, whatever the state was."""

    def lost(self, state: State, /) -> bool:
        """Whether no action can take place in it but those that are total, and those that always can and change
        nothing; and none leaves it but those that overwrite."""

    def useful(self, info: Sequence[Call], other: Sequence[Call], /) -> Sequence[Call]:
        """Those info calls whose effects could help to explain the other calls."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation that may have taken effect. complete: None if it may do so at any time after its invocation."""

    number: int  # the caller's own
    action: Action
    invoke: int
    complete: int | None

    @property
    def end(self) -> int:
        """By when it has taken effect."""
        return NEVER if self.complete is None else self.complete
