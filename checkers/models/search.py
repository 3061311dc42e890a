"""Is a history of one object linearizable? A bounded search: Wing and Gong's, with Lowe's memoisation.

(Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe, "Testing for linearizability", 2017.) It goes
through the completions in order. An operation is linearised no sooner than it must be: when one completes that has
not taken effect yet, it does so then, after none, some or all of the others that are pending ("just in time"). A
configuration is

    (how many completions are done, the object's state, which pending operations have taken effect, how many info
     operations of each kind have)

and none is explored twice. Pending operations are bits of a small int: each gets the lowest slot that is free between
its invocation and its completion. States and operations that do the same are numbered; what one does in the other is
looked up.

What keeps the search small, none of which changes its answer:

- A read (an operation that changes no state, ever) is linearised as soon as the state fits, and never branched on.
- Info operations that do the same are interchangeable, so that a count stands for which of them took effect. They
  need never take effect, so that a configuration is left out if one with the same progress and state used fewer.
  They are tried last, and only right before an operation to which they make a difference.
- Info operations that change nothing are dropped, and those whose effect nobody could see (Object.useful).

Bounds: seconds of wall time, and the memory that the configurations, states and what is left to explore take, as
sys.getsizeof() has it. When one is hit the answer is None.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from spark_history.files import HistoryError
from spark_history.log import NEVER

State = Any  # hashable
Action = Any  # hashable: what an operation asks for and got: operations with equal actions are interchangeable


class Object(Protocol):
    """What the search needs to know of an object."""

    @property
    def initial(self) -> State: ...

    def step(self, state: State, action: Action, /) -> Iterable[State]:
        """The states in which `action` may leave the object; none if it cannot take place in `state`."""

    def reads(self, action: Action, /) -> bool:
        """Whether it changes no state, ever."""

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


@dataclass(frozen=True)
class Bounds:
    seconds: float = 60.0
    memory_mb: float = 1024.0

    @staticmethod
    def of(plan: Mapping[str, Any]) -> Bounds:
        """From `bounds` of a plan: seconds and memory_mb, of each key. Raises HistoryError."""
        given = plan.get("bounds") or {}
        if not isinstance(given, Mapping):
            raise HistoryError(f"the plan's bounds must be seconds and memory_mb, not {given!r}")
        bounds = Bounds(given.get("seconds", Bounds.seconds), given.get("memory_mb", Bounds.memory_mb))
        for name, bound in vars(bounds).items():
            if type(bound) not in (int, float) or not bound >= 0:
                raise HistoryError(f"the plan's bound of {name} must be a number from 0, not {bound!r}")
        return bounds


@dataclass(frozen=True)
class Answer:
    """linearizable: None if a bound was hit. done: completions explained at the furthest, of `completions`. blocked:
    the number of the call that nobody could explain next, if the answer is False."""

    linearizable: bool | None
    done: int
    completions: int
    configurations: int
    blocked: int | None = None
    bound: str | None = None  # which one was hit

    def doubt(self) -> str:
        """What an undecided answer says, but for the object."""
        return (
            f"not decided within {self.bound}: {self.done:,} of {self.completions:,} completed operations were "
            f"explained, in {self.configurations:,} configurations"
        )


_LOOK_EVERY: Final = 4096  # steps of work between two looks at the bounds
_ENTRY_BYTES: Final = 136  # of a configuration on the list of what is left to explore
_LOOKUP_BYTES: Final = 160  # of what was looked up once: the entry of a dict, its ints and tuple
_TABLE_BYTES: Final = 232  # of a dict with few entries
_Option = tuple[int, int, int, tuple[tuple[int, int], ...]]  # see _Search._options()


class _Timeline:
    """The calls as the search goes through them, an entry a completion k.

    ends[k]: the bit of the call that completes. pending[k]: (bit, action) of each call that is not a read, is invoked
    before and not completed; the one that completes first. reads[k]: (action, bits) of the reads likewise. infos[k]:
    (action, one in its field, its field, how many there are) of the info calls invoked before; most[k]: all the last.
    """

    def __init__(self, calls: Sequence[Call], object_: Object) -> None:
        kinds: dict[Action, int] = {}
        self.kinds: list[Action] = []
        events = []
        for index, call in enumerate(calls):
            if call.complete is None and object_.reads(call.action):
                continue
            if call.action not in kinds:
                kinds[call.action] = len(self.kinds)
                self.kinds.append(call.action)
            events.append((call.invoke, 0, index))
            if call.complete is not None:
                events.append((call.complete, 1, index))
        events.sort()
        info = [call for call in calls if call.complete is None and not object_.reads(call.action)]
        totals: dict[int, int] = {}
        for call in info:
            totals[kinds[call.action]] = totals.get(kinds[call.action], 0) + 1
        # Fields with a spare bit on top, for comparing them all at once.
        shifts, low = {}, 0
        self.guards = 0
        for kind, total in totals.items():
            shifts[kind] = low
            low += total.bit_length() + 1
            self.guards |= 1 << (low - 1)
        fields = {kind: ((1 << total.bit_length()) - 1) << shifts[kind] for kind, total in totals.items()}

        self.ends: list[int] = []
        self.blocked: list[int] = []
        self.pending: list[tuple[tuple[int, int], ...]] = []
        self.reads: list[tuple[tuple[int, int], ...]] = []
        self.infos: list[tuple[tuple[int, int, int, int], ...]] = []
        self.most: list[int] = []
        free: list[int] = []
        slots: dict[int, int] = {}
        writing: dict[int, tuple[int, int]] = {}
        reading: dict[int, int] = {}
        invoked: dict[int, int] = {}
        infos: tuple[tuple[int, int, int, int], ...] = ()
        widest = 0
        for _, completes, index in events:
            call = calls[index]
            kind = kinds[call.action]
            if call.complete is None:
                invoked[kind] = invoked.get(kind, 0) + 1
                infos = tuple(
                    (each, 1 << shifts[each], fields[each], count << shifts[each]) for each, count in invoked.items()
                )
            elif not completes:
                slot = free.pop() if free else widest
                widest = max(widest, slot + 1)
                slots[index] = bit = 1 << slot
                if object_.reads(call.action):
                    reading[kind] = reading.get(kind, 0) | bit
                else:
                    writing[index] = (bit, kind)
            else:
                bit = slots.pop(index)
                self.ends.append(bit)
                self.blocked.append(call.number)
                mine = writing.pop(index, None)
                self.pending.append((*(() if mine is None else (mine,)), *writing.values()))
                self.reads.append(tuple(reading.items()))
                self.infos.append(infos)
                self.most.append(sum(each[3] for each in infos))
                if mine is None:
                    reading[kind] ^= bit
                    if not reading[kind]:
                        del reading[kind]
                free.append(bit.bit_length() - 1)
        self.width = widest


def search(calls: Sequence[Call], object_: Object, bounds: Bounds = Bounds()) -> Answer:
    """calls: all that may have taken effect (no failed ones), in any order."""
    optional = [call for call in calls if call.complete is None and not object_.reads(call.action)]
    required = [call for call in calls if call.complete is not None]
    return _Search(_Timeline([*required, *object_.useful(optional, required)], object_), object_, bounds).run()


class _Search:
    def __init__(self, timeline: _Timeline, object_: Object, bounds: Bounds) -> None:
        self.timeline, self.object, self.bounds = timeline, object_, bounds
        self.numbers: dict[State, int] = {object_.initial: 0}
        self.states: list[State] = [object_.initial]
        self.steps: list[dict[int, tuple[int, ...]]] = [{} for _ in timeline.kinds]  # by action, then state
        self.fitting: list[dict[int, int]] = [{} for _ in timeline.ends]  # by completion, then state: reads that fit
        self.options: list[dict[int, list[_Option]]] = [{} for _ in timeline.ends]  # by completion, then state
        self.state_bytes = self.lookups = self.closure = 0
        self.work, self.next_look = 0, _LOOK_EVERY
        self.deadline = time.monotonic() + bounds.seconds
        self.bound: str | None = None  # that was hit
        self.seen: dict[int, int | tuple[int, ...]] = {}
        self.left: list[tuple[int, int, int, int]] = []
        self.furthest = 0
        self.found = not timeline.ends

    def run(self) -> Answer:
        timeline, left = self.timeline, self.left
        ends = len(timeline.ends)
        configurations = 0
        if not self.found:
            self._reach(0, 0, 0, 0)
        while left and not self.found:
            if self.work >= self.next_look and self._exceeds():
                return Answer(None, self.furthest, ends, configurations, None, self.bound)
            configurations += 1
            self.work += 1
            self._explore(*left.pop())
        if self.found:
            return Answer(True, ends, ends, configurations)
        if self.bound is not None:
            return Answer(None, self.furthest, ends, configurations, None, self.bound)
        return Answer(False, self.furthest, ends, configurations, timeline.blocked[self.furthest])

    def _exceeds(self) -> bool:
        """Look at the bounds. Once one was hit, that remains."""
        self.next_look = self.work + _LOOK_EVERY
        if self.bound is None:
            if time.monotonic() > self.deadline:
                self.bound = f"{self.bounds.seconds:g} s"
            elif self._bytes() > self.bounds.memory_mb * 1e6:
                self.bound = f"{self.bounds.memory_mb:g} MB of memory"
        return self.bound is not None

    def _explore(self, k: int, state: int, taken: int, used: int) -> None:
        """Go on from one configuration."""
        if self.timeline.infos[k]:
            options = self.options[k].get(state)
            if options is None:
                options = self._options(k, state)
            guards, most = self.timeline.guards, self.timeline.most[k]
            for cost, after, fits, following in options:
                spent = used + cost
                if ((most | guards) - spent) & guards != guards:
                    continue
                if fits & ~taken:
                    self._reach(k, after, taken, spent)
                for bit, next_state in following:
                    if not taken & bit:
                        self._reach(k, next_state, taken | bit, spent)
        steps = self.steps
        for bit, kind in reversed(self.timeline.pending[k]):
            if not taken & bit:
                next_states = steps[kind].get(state)
                if next_states is None:
                    next_states = self._step(kind, state)
                for next_state in next_states:
                    self._reach(k, next_state, taken | bit, used)

    def _options(self, k: int, state: int) -> list[_Option]:
        """What info calls make possible: the cost in counts, the state that they lead to, the reads that fit there,
        and (bit, next state) of each pending call to which they make a difference. Only where any of these is."""
        infos, guards, pending = self.timeline.infos[k], self.timeline.guards, self.timeline.pending[k]
        plain = {kind: self._step(kind, state) for _, kind in pending}
        reached: dict[int, list[int]] = {state: [0]}
        frontier = [(state, 0)]
        options: list[_Option] = []
        for here, spent in frontier:  # grows as it is gone through
            self.work += len(infos)
            if self.work >= self.next_look:
                self.closure = len(frontier)
                if self._exceeds():
                    return []
            for info, one, field, most in infos:
                if spent & field >= most:
                    continue
                for after in self._step(info, here):
                    cost = spent + one
                    known = reached.setdefault(after, [])
                    if any(((cost | guards) - each) & guards == guards for each in known):
                        continue
                    known.append(cost)
                    frontier.append((after, cost))
        self.closure = 0
        for after, cost in frontier[1:]:
            fits = self._fitting(k, after)
            following = tuple(
                (bit, next_state)
                for bit, kind in pending
                if (next_states := self._step(kind, after)) != plain[kind]
                for next_state in next_states
            )
            if fits or following:
                options.append((cost, after, fits, following))
                self.lookups += 1 + len(following)
        self.options[k][state] = options
        return options

    def _reach(self, k: int, state: int, taken: int, used: int) -> None:
        """A configuration, with all completions done that need nothing more: noted, and explored later if it is new."""
        self.work += 1
        ends, fitting = self.timeline.ends, self.fitting
        while True:
            fits = fitting[k].get(state)
            if fits is None:
                fits = self._fitting(k, state)
            taken |= fits
            end = ends[k]
            if not taken & end:
                break
            taken ^= end
            k += 1
            if k == len(ends):
                self.found = True
                return
        if k > self.furthest:
            self.furthest = k
        key = (((state << self.timeline.width) | taken) << 32) | k
        known = self.seen.get(key)
        if known is None:
            self.seen[key] = used
        elif known == 0:
            return  # nothing used is as good as any
        else:
            guards = self.timeline.guards
            uses = known if isinstance(known, tuple) else (known,)
            for each in uses:
                if ((used | guards) - each) & guards == guards:
                    return
            self.lookups += 1
            self.seen[key] = (*(each for each in uses if ((each | guards) - used) & guards != guards), used)
        self.left.append((k, state, taken, used))

    def _step(self, kind: int, state: int) -> tuple[int, ...]:
        known = self.steps[kind].get(state)
        if known is None:
            following = []
            for after in self.object.step(self.states[state], self.timeline.kinds[kind]):
                number = self.numbers.get(after)
                if number is None:
                    number = self.numbers[after] = len(self.states)
                    self.states.append(after)
                    self.state_bytes += _size(after)
                following.append(number)
            known = self.steps[kind][state] = tuple(following)
            self.lookups += 1
        return known

    def _fitting(self, k: int, state: int) -> int:
        bits = self.fitting[k].get(state)
        if bits is None:
            bits = 0
            for kind, of_kind in self.timeline.reads[k]:
                if self._step(kind, state):
                    bits |= of_kind
            self.fitting[k][state] = bits
            self.lookups += 1
        return bits

    def _bytes(self) -> int:
        """What the search holds. Ints of a configuration are taken to be as long as the last one reached."""
        key = next(reversed(self.seen), 0)
        used = self.left[-1][3] if self.left else 0
        entry = sys.getsizeof(key) + (sys.getsizeof(used) if used else 0)
        tables = _LOOKUP_BYTES * self.lookups + _TABLE_BYTES * (len(self.steps) + 2 * len(self.fitting))
        return (
            3 * sys.getsizeof(self.seen)  # when it grows, it is copied into one twice as long
            + entry * len(self.seen)
            + sys.getsizeof(self.left)
            + (_ENTRY_BYTES + entry) * len(self.left)
            + sys.getsizeof(self.states)
            + sys.getsizeof(self.numbers)
            + self.state_bytes
            + tables
            + (_ENTRY_BYTES + entry) * self.closure
        )


def _size(state: State) -> int:
    if isinstance(state, tuple | frozenset):
        return sys.getsizeof(state) + sum(_size(each) for each in state)
    return sys.getsizeof(state)
