"""The calls of an object in the order in which a search goes through them: completion by completion."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

from checkers.models.bounds import Budget
from checkers.models.calls import Action, Call, Object

_ENTRY_BYTES: Final = 64  # of a completion, apart from what is counted
_TOLD_EVERY: Final = 256  # units of work after which the budget is told


class Timeline:
    """An entry a completion k. Operations are bits of a small int: each gets the lowest slot that is free between its
    invocation and its completion.

    ends[k]: the bit of the call that completes, and numbers[k] the call's number. pending[k]: (bit, kind) of each call
    that is not a read, is invoked before and not completed, in the order of completion. reads[k]: (kind, bits) of the
    reads likewise. totals[k]: the bits of the pending calls that are total. repeats[k]: whether two of the pending
    calls are of one kind. infos[k]: (kind, one in its field, its field, how many there are) of the info calls invoked
    before; most[k]: all the last; escapes[k]: whether one of these overwrites.

    kinds: the distinct actions; overwrites: of each, whether it does. All of this takes as much time and memory as
    there are operations times how many of them overlap, which the budget is told: it raises Exceeded.
    """

    def __init__(self, calls: Sequence[Call], object_: Object, budget: Budget) -> None:
        kind_of: dict[Action, int] = {}
        self.kinds: list[Action] = []
        events = []
        kinds = [-1] * len(calls)
        budget.spend(len(calls))
        for index, call in enumerate(calls):
            if call.complete is None and object_.reads(call.action):
                continue
            kind = kind_of.get(call.action)
            if kind is None:
                kind = kind_of[call.action] = len(self.kinds)
                self.kinds.append(call.action)
            kinds[index] = kind
            events.append((call.invoke, 0, index))
            if call.complete is not None:
                events.append((call.complete, 1, index))
        events.sort()
        reads = [object_.reads(kind) for kind in self.kinds]
        total = [not read and object_.total(kind) for kind, read in zip(self.kinds, reads, strict=True)]
        self.overwrites = [each and object_.overwrites(kind) for kind, each in zip(self.kinds, total, strict=True)]
        shifts, fields = self._lay_out(calls, kinds)

        self.ends: list[int] = []
        self.numbers: list[int] = []
        self.pending: list[tuple[tuple[int, int], ...]] = []
        self.reads: list[tuple[tuple[int, int], ...]] = []
        self.totals: list[int] = []
        self.repeats: list[bool] = []
        self.infos: list[tuple[tuple[int, int, int, int], ...]] = []
        self.escapes: list[bool] = []
        self.most: list[int] = []
        free: list[int] = []
        slots: dict[int, int] = {}
        writing: list[tuple[int, int, int, int]] = []  # completion, index, bit, kind
        of_kind: dict[int, int] = {}
        reading: dict[int, int] = {}
        invoked: dict[int, int] = {}
        infos: tuple[tuple[int, int, int, int], ...] = ()
        shown: tuple[tuple[int, int], ...] = ()
        most = widest = totals = work = held = 0
        changed, more, escape = True, False, False
        for _, completes, index in events:
            call = calls[index]
            kind = kinds[index]
            if call.complete is None:
                invoked[kind] = invoked.get(kind, 0) + 1
                most += 1 << shifts[kind]
                escape = escape or self.overwrites[kind]
                more = True
            elif not completes:
                slot = free.pop() if free else widest
                widest = max(widest, slot + 1)
                slots[index] = bit = 1 << slot
                if reads[kind]:
                    reading[kind] = reading.get(kind, 0) | bit
                else:
                    insort(writing, (call.complete, index, bit, kind))
                    of_kind[kind] = of_kind.get(kind, 0) + 1
                    totals |= bit if total[kind] else 0
                    changed = True
            else:
                bit = slots.pop(index)
                if changed:
                    shown = tuple([(each[2], each[3]) for each in writing])
                    held += 56 + 80 * len(shown)
                    changed = False
                if more:
                    infos = tuple(
                        [(each, 1 << shifts[each], fields[each], n << shifts[each]) for each, n in invoked.items()]
                    )
                    held += 56 + 160 * len(infos)
                    more = False
                self.ends.append(bit)
                self.numbers.append(call.number)
                self.pending.append(shown)
                self.reads.append(tuple(reading.items()))
                self.totals.append(totals)
                self.repeats.append(len(of_kind) < len(writing))
                self.infos.append(infos)
                self.escapes.append(escape)
                self.most.append(most)
                work += 1 + ((len(writing) + len(reading)) >> 2)
                held += _ENTRY_BYTES + 80 * len(reading) + 3 * (widest >> 3)
                if work > _TOLD_EVERY or held > _TOLD_EVERY << 8:
                    budget.spend(work)
                    budget.hold(held)
                    work = held = 0
                if reads[kind]:
                    reading[kind] ^= bit
                    if not reading[kind]:
                        del reading[kind]
                else:
                    del writing[bisect_left(writing, (call.complete, index))]
                    of_kind[kind] -= 1
                    if not of_kind[kind]:
                        del of_kind[kind]
                    totals &= ~bit
                    changed = True
                free.append(bit.bit_length() - 1)
        budget.spend(work)
        budget.hold(held)
        self.width = widest

    def _lay_out(self, calls: Sequence[Call], kinds: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Where in an int the info calls of each kind are counted: lowest bit and field, by kind. Fields have a spare
        bit on top (guards), for comparing them all at once."""
        counts: dict[int, int] = {}
        for call, kind in zip(calls, kinds, strict=True):
            if call.complete is None and kind >= 0:
                counts[kind] = counts.get(kind, 0) + 1
        shifts: dict[int, int] = {}
        fields: dict[int, int] = {}
        self.guards = low = 0
        for kind, count in counts.items():
            shifts[kind] = low
            fields[kind] = ((1 << count.bit_length()) - 1) << low
            low += count.bit_length() + 1
            self.guards |= 1 << (low - 1)
        return shifts, fields
