"""Judges a key-value store without a search, where each text that was read shows which writes it is made of.

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
    known = initial  # the text that was taken apart last: the next one often goes on where it ends
    for call in sorted(gets, key=lambda get: (len(get.action[2] or ""), get.action[2] or "")):
        text = call.action[2] or ""
        budget.spend(1 + (len(text) >> 8))
        if text not in ends:
            goes_on = text.startswith(known) and known in ends
            begin = (ends[known], len(known)) if goes_on and (known or not initial) else None
            names = _take_apart(text, begin, initial, parts, lengths, budget)
            if names is None and begin is not None:
                names = _take_apart(text, None, initial, parts, lengths, budget)
            if names is None:
                return [call]
            for before, name in pairwise(names):
                if after.setdefault(name, before) != before:
                    return [got[name], call]
                got.setdefault(name, call)
            ends[text] = names[-1]
            known = text
        reads.append((call, ends[text]))
    writes: dict[Name, Write] = {text: Write(call, after.get(text), got.get(text)) for text, call in parts.items()}
    budget.spend(len(calls))
    return judge_chains(writes, reads)


def _take_apart(
    text: str,
    begin: tuple[Name, int] | None,
    initial: str,
    parts: dict[str, Call],
    lengths: Sequence[int],
    budget: Budget,
) -> list[Name] | None:
    """Of which writes the text is made, in their order. begin: the write that completed a beginning of the text, and
    the length of that: then only that write and those after it."""
    names: list[Name] = []
    at = 0
    if begin is not None:
        names, at = [begin[0]], begin[1]
    elif initial:
        if text.startswith(initial):
            names, at = [INITIAL], len(initial)
    elif text:
        names = [INITIAL]
    while at < len(text):
        part = None
        for length in lengths:
            budget.spend(1 + (length >> 8))
            if text[at : at + length] in parts:
                part = text[at : at + length]
                break
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
