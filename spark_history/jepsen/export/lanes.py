"""Assigns each exported operation to a Jepsen process, which can have only one operation at a time.

A Jepsen process has one operation at a time, and ends with an `info`. So an operation whose process is not free goes to
another lane of it, the lowest that is free: lane n of process p is process p + n * width. A lane is used up by an
operation that is not done (an `info`), from its invocation on.

Events come in parts, each of a span of time. Where the operations of a process follow each other, which is all of them
as a rule, the lane changes only with what is not done, and is told for all of them at once.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from spark_history.files import Bools, Ints

NEMESIS: Final = -1


class Lanes:
    def __init__(self, width: int) -> None:
        """width: one more than the highest process."""
        self._width = width
        self._free: dict[int, list[int]] = {}  # lanes by process
        self._used: dict[int, int] = {}  # how many lanes there are so far
        self._open: dict[int, tuple[int, int, bool]] = {}  # by op: process, lane, and whether it will be free again

    def processes(self, op: Ints, process: Ints, done: Bools, row: Ints, end: Bools) -> Ints:
        """Of each event its process in the export. op, process, done: of operations; row, end: of events in their
        order, of which operation each is, and whether it is its completion. NEMESIS remains NEMESIS."""
        lane = np.zeros(len(op), np.int64)
        begins, finishes = (np.full(len(op), -1) for _ in range(2))  # the event that is it; -1: in another part
        begins[row[~end]] = np.flatnonzero(~end)
        finishes[row[end]] = np.flatnonzero(end)
        mine = process != NEMESIS
        carried = np.flatnonzero(mine & (begins < 0))
        before: dict[int, list[int]] = {}  # by process, rows that began in an earlier part and are done in this one
        for each in carried.tolist():
            which, lane[each], free_again = self._open.pop(int(op[each]))
            if free_again:
                before.setdefault(which, []).append(each)
        busy = {which for which, _, free_again in self._open.values() if free_again}
        begun = np.flatnonzero(mine & (begins >= 0))
        begun = begun[np.lexsort((begins[begun], process[begun]))]
        of = process[begun]
        firsts = np.flatnonzero(np.append(True, of[1:] != of[:-1])[: len(of)])
        ends = np.append(firsts[1:], len(of))[: len(firsts)]
        # When the one before was done (`never` if it is in this part not); one that is not done takes its lane along.
        never = len(row)
        free_at = np.where(done[begun], np.where(finishes[begun] < 0, never, finishes[begun]), -1)
        overlaps = np.append(False, (free_at[:-1] > begins[begun[1:]]) & (of[1:] == of[:-1]))[: len(of)]
        spends = (~done[begun]).astype(np.int64)
        rank: Ints = np.cumsum(spends) - spends  # how many lanes were used up before
        for first, last in zip(firsts.tolist(), ends.tolist(), strict=True):
            which, rows = int(of[first]), begun[first:last]
            late = max((int(finishes[each]) for each in before.get(which, ())), default=-1)
            if which in busy or late > begins[rows[0]] or overlaps[first + 1 : last].any():
                self._one_by_one(which, rows, before.pop(which, []), lane, begins, finishes, done)
                continue
            free = sorted(self._free.pop(which, []) + [int(lane[each]) for each in before.pop(which, ())])
            ranks: Ints = rank[first:last] - rank[first]
            most, used = int(ranks[-1]), self._used.get(which, 0)
            more = max(most + 1 - len(free), 0)
            free += range(used, used + more)
            self._used[which] = used + more
            lane[rows] = free[0] if not most else np.array(free)[ranks]
            over = bool(done[rows[-1]]) and int(finishes[rows[-1]]) >= 0
            self._free[which] = free[most:] if over else free[most + 1 :]
        for which, rows_ in before.items():  # processes that begin nothing in this part
            self._free.setdefault(which, []).extend(int(lane[each]) for each in rows_)
            heapify(self._free[which])
        for each in begun[finishes[begun] < 0].tolist():
            self._open[int(op[each])] = int(process[each]), int(lane[each]), bool(done[each])
        found: Ints = np.where(mine, process + lane * self._width, NEMESIS)[row]
        return found

    def _one_by_one(
        self, which: int, rows: Ints, before: list[int], lane: Ints, begins: Ints, finishes: Ints, done: Bools
    ) -> None:
        """The events of a process whose operations overlap."""
        free = self._free.setdefault(which, [])
        heapify(free)
        events = [(int(begins[each]), False, each) for each in rows.tolist()]
        events += [
            (int(finishes[each]), True, each)
            for each in [*rows.tolist(), *before]
            if done[each] and finishes[each] >= 0
        ]
        for _, is_end, each in sorted(events):
            if is_end:
                heappush(free, int(lane[each]))
            elif free:
                lane[each] = heappop(free)
            else:
                lane[each] = self._used.get(which, 0)
                self._used[which] = int(lane[each]) + 1
