"""States of one key of a key-value store, for the search; all texts that no get ever shows are one state.

A text that no get returned the beginning of will not be seen before the next put, and nor will what is appended to it.
All such texts are one state, LOST. Any other is a beginning of some text that a get returned; of these the first in
the order of the alphabet, and the length, are the state. So states are small, however long the texts are, and there
are no more than what gets returned has beginnings, however many orders of appends there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from checkers.models.bounds import Budget
from checkers.models.calls import Call
from checkers.models.objects import UNKNOWN, Action

State = tuple[int, int]  # (which text, how much of it)
LOST: Final = (-1, 0)


class Texts:
    """A search.Object. calls: of one key. Raises Exceeded, also from its methods."""

    def __init__(self, calls: Sequence[Call], initial: str, budget: Budget) -> None:
        self._budget = budget
        got = {call.action[2] or "" for call in calls if call.action[0] == "get" and call.action[2] is not UNKNOWN}
        for text in got:
            budget.spend(1 + (len(text) >> 8))
        self._texts = sorted(got)
        self._exact = {text: (number, len(text)) for number, text in enumerate(self._texts)}
        self._placed: dict[str, State] = {}
        self.initial = self._place(initial)

    def _place(self, text: str) -> State:
        """The state in which the text is `text`."""
        known = self._placed.get(text)
        if known is None:
            at = bisect_left(self._texts, text)
            self._budget.spend(1 + (len(text) >> 6))
            found = at < len(self._texts) and self._texts[at].startswith(text)
            known = self._placed[text] = (at, len(text)) if found else LOST
        return known

    def step(self, state: State, action: Action) -> Iterable[State]:
        f, text, result = action
        if f == "get":
            return (state,) if result is UNKNOWN or state == self._exact[result or ""] else ()
        if f == "put":
            return (self._place(text),)
        if state == LOST or not text:
            return (state,)
        number, length = state
        if self._texts[number].startswith(text, length):
            return ((number, length + len(text)),)
        if number + 1 == len(self._texts) or not self._texts[number + 1].startswith(self._texts[number][:length]):
            return (LOST,)
        longer = self._texts[number][:length] + text
        at = bisect_left(self._texts, longer, number + 1)
        self._budget.spend(1 + (len(longer) >> 6))
        if at < len(self._texts) and self._texts[at].startswith(longer):
            return ((at, len(longer)),)
        return (LOST,)

    def reads(self, action: Action) -> bool:
        return bool(action[0] == "get" or (action[0] == "append" and not action[1]))

    def total(self, action: Action) -> bool:
        return not self.reads(action)

    def overwrites(self, action: Action) -> bool:
        return bool(action[0] == "put")

    def lost(self, state: State) -> bool:
        return state == LOST

    def useful(self, info: Sequence[Call], other: Sequence[Call]) -> Sequence[Call]:
        """What was put is seen by who gets a text that begins with it, and what was appended by who gets one with it
        inside; and an append is seen through appends after it, too."""
        last: dict[str, int] = {}  # by text, until when somebody gets it
        for call in other:
            if call.action[0] == "get":
                text = call.action[2] or ""
                last[text] = max(last.get(text, call.end), call.end)
        # A text that begins another one shows nothing that the other does not, unless it was got later.
        longest: list[tuple[str, int]] = []
        for text in sorted(last, reverse=True):
            self._budget.spend(1 + (len(text) >> 8))
            if not (longest and longest[-1][0].startswith(text) and longest[-1][1] >= last[text]):
                longest.append((text, last[text]))
        seen: dict[tuple[str, str], int] = {}

        def until(f: str, part: str) -> int:
            latest = -1
            for text, end in longest:
                self._budget.spend(1 + (len(text) >> 10))
                if end > latest and (text.startswith(part) if f == "put" else part in text):
                    latest = end
            return latest

        kept = []
        for call in info:
            f, part, _ = call.action
            if (f, part) not in seen:
                seen[f, part] = until(f, part)
            if (part or f == "put") and seen[f, part] >= call.invoke:
                kept.append(call)
        return kept
