"""Key-value stores whose texts can be taken apart again, so that no search is needed.

If what was put and appended to a key is all different, not empty, and none is the beginning of another, then a text
that a get returned was put together in one way only: from one put (or the initial value) and appends, each of which
came right after the one before. So put and append are writes of distinct values, of which those appends that a get
returned replaced a certain other (chains.py); a text that nobody got may have replaced anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from checkers.models.bounds import Budget
from checkers.models.calls import Call
from checkers.models.chains import INITIAL, Name, Write, judge_chains
from checkers.models.objects import UNKNOWN


def judge_kv(calls: Sequence[Call], initial: str, budget: Budget) -> Sequence[Call] | None:
    """The calls of one key. None: cannot be judged this way; else calls that contradict each other, if any."""
    parts: dict[str, Call] = {}
    gets: list[Call] = []
    for call in calls:
        f, text, result = call.action
        if f == "get":
            if result is not UNKNOWN:
                gets.append(call)
        elif not text or text in parts:
            return None
        else:
            parts[text] = call
    ordered = sorted([*parts, initial] if initial else parts)
    if any(later.startswith(text) for text, later in pairwise(ordered)):
        return None
    lengths = sorted({len(text) for text in parts})
    after: dict[Name, Name] = {}
    ends: dict[str, Name] = {initial: INITIAL}  # by text: the write that completed it
    got: dict[Name, Call] = {}  # by an append: a get that returned it
    reads = []
    for call in sorted(gets, key=lambda get: len(get.action[2] or "")):
        text = call.action[2] or ""
        if text not in ends:
            names = _take_apart(text, initial, parts, lengths)
            if names is None:
                return [call]
            for before, name in pairwise(names):
                if after.setdefault(name, before) != before:
                    return [got[name], call]
                got.setdefault(name, call)
            ends[text] = names[-1]
        reads.append((call, ends[text]))
    writes: dict[Name, Write] = {text: Write(call, after.get(text)) for text, call in parts.items()}
    return judge_chains(writes, reads)


def _take_apart(text: str, initial: str, parts: dict[str, Call], lengths: Sequence[int]) -> list[Name] | None:
    """Of which writes the text is made, in their order."""
    names: list[Name] = []
    at = 0
    if initial:
        if text.startswith(initial):
            names, at = [INITIAL], len(initial)
    elif text:
        names = [INITIAL]
    while at < len(text):
        part = next((part for length in lengths if (part := text[at : at + length]) in parts), None)
        if part is None:
            return None
        if parts[part].action[0] == "put":
            if at > 0:
                return None
            names = []
        elif not names:
            return None
        names.append(part)
        at += len(part)
    return names or None
