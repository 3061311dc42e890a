"""Is a history of one object linearizable? A bounded search: Wing and Gong's, with Lowe's memoisation.

(Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe, "Testing for linearizability", 2017.) It goes
through the completions in order (timeline.py), depth first. An operation is linearised no sooner than it must be: when
one completes that has not taken effect yet, it does so then, after none, some or all of the others that are pending
("just in time"). A configuration is

    (how many completions are done, the object's state, which pending operations have taken effect, which of the others
     need not any more, how many info operations of each kind have)

and none is explored twice. States and operations that do the same are numbered; what one does in the other is
looked up.

What keeps the search small, none of which changes its answer:

- A read (an operation that changes no state, ever) is linearised as soon as the state fits, and never branched on.
- Of pending operations that do the same, those that complete first go first.
- What is overwritten at once leaves no trace: when an operation that leaves the same state whatever was before (a
  write, a put) takes effect, all others that are pending and can take place in any state may have done so right before
  it. They need not take effect any more, but still may. So one that is total is not followed by one that overwrites
  it, unless a read fits in between.
- In a state that is lost (no read fits until it is overwritten) total operations come and go without a trace.
- Info operations that do the same are interchangeable, so that a count stands for which of them took effect. They
  need never take effect, so that a configuration is left out if one that is otherwise the same used fewer. They are
  tried last, and only right before an operation to which they make a difference.
- Info operations that change nothing are dropped, and those whose effect nobody could see (Object.useful).

Bounds: bounds.py. When one is hit, anywhere, the answer is None.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from checkers.models.bounds import Budget, Exceeded
from checkers.models.calls import Call, Object, State
from checkers.models.timeline import Timeline


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


_FRAME_BYTES: Final = 700  # of a configuration that is being explored: its generator, and what that holds
_LOOKUP_BYTES: Final = 160  # of what was looked up once: the entry of a dict, its ints and tuple
_TABLE_BYTES: Final = 232  # of a dict with few entries
_PART_BYTES: Final = 64  # of a state: a part that it does not share with the one before, such as a pair

#: k, state, taken, optional, used, and whether the last operation was total and nothing has seen its effect.
_Configuration = tuple[int, int, int, int, int, bool]
#: What some info calls lead to: their cost in counts, the state, the reads that fit there, (bit, next state) of each
#: pending call to which they make a difference, and whether one of them overwrote what was before.
_Option = tuple[int, int, int, tuple[tuple[int, int], ...], bool]


def search(calls: Sequence[Call], object_: Object, budget: Budget) -> Answer:
    """calls: all that may have taken effect (no failed ones), in any order."""
    required = [call for call in calls if call.complete is not None]
    held = budget.held
    try:
        if budget.spent >= budget.bounds.seconds:
            budget.look()
        optional = [call for call in calls if call.complete is None and not object_.reads(call.action)]
        timeline = Timeline([*required, *object_.useful(optional, required)], object_, budget)
    except Exceeded as exceeded:
        budget.held = held
        return Answer(None, 0, len(required), 0, None, str(exceeded))
    try:
        return _Search(timeline, object_, budget).run()
    finally:
        budget.held = held


class _Search:
    def __init__(self, timeline: Timeline, object_: Object, budget: Budget) -> None:
        self.timeline, self.object, self.budget = timeline, object_, budget
        self.numbers: dict[State, int] = {object_.initial: 0}
        self.states: list[State] = [object_.initial]
        self.lost: list[bool] = [object_.lost(object_.initial)]
        self.steps: list[dict[int, tuple[int, ...]]] = [{} for _ in timeline.kinds]  # by action, then state
        self.fitting: list[dict[int, int]] = [{} for _ in timeline.ends]  # by completion, then state: reads that fit
        self.options: list[dict[int, list[_Option]]] = [{} for _ in timeline.ends]  # by completion, then state
        self.reachable: dict[tuple[int, int], list[tuple[int, int, bool]]] = {}  # by info calls and state
        self.state_bytes = self.lookups = 0
        self.seen: dict[int, int | tuple[int, ...]] = {}
        self.frames: list[Iterator[_Configuration]] = []
        self.furthest = self.configurations = 0
        self.found = not timeline.ends

    def run(self) -> Answer:
        ends = len(self.timeline.ends)
        try:
            self.budget.hold(_TABLE_BYTES * (len(self.steps) + 2 * len(self.fitting)))
            self._go()
        except Exceeded as exceeded:
            return Answer(None, self.furthest, ends, self.configurations, None, str(exceeded))
        if self.found:
            return Answer(True, ends, ends, self.configurations)
        return Answer(False, self.furthest, ends, self.configurations, self.timeline.numbers[self.furthest])

    def _go(self) -> None:
        if self.found:
            return
        frames, budget = self.frames, self.budget
        self._reach(0, 0, 0, 0, 0, False)
        while frames and not self.found:
            depth = len(frames)
            for configuration in frames[-1]:
                budget.work += 3
                if budget.work >= budget.next_look:
                    budget.look(self._bytes())
                self._reach(*configuration)
                if self.found or len(frames) > depth:
                    break
            else:
                frames.pop()

    def _reach(self, k: int, state: int, taken: int, optional: int, used: int, idle: bool) -> None:
        """A configuration, with all completions done that need nothing more, or that are of optional operations: what
        is new of these is noted, to be explored, the furthest first."""
        timeline, fitting, lost = self.timeline, self.fitting, self.lost[state]
        ends = timeline.ends
        while True:
            fits = fitting[k].get(state)
            if fits is None:
                fits = self._fitting(k, state)
            if fits:
                idle = False
                taken |= fits
            if lost:
                optional |= timeline.totals[k] & ~taken
            end = ends[k]
            if taken & end:
                taken ^= end
            elif optional & end:
                optional ^= end
                if lost and timeline.overwrites[timeline.pending[k][0][1]]:
                    # Any state is as good as one that is lost, so that this one goes now if it did not go before.
                    self._note(k, state, taken, optional, used, idle)
                    break
                self._note(k, state, taken, optional, used, idle)
            else:
                self._note(k, state, taken, optional, used, idle)
                break
            k += 1
            idle = False
            if k == len(ends):
                self.found = True
                return
        if k > self.furthest:
            self.furthest = k

    def _note(self, k: int, state: int, taken: int, optional: int, used: int, idle: bool) -> None:
        """To be explored, unless it was: at k the one that completes has to take effect."""
        width = self.timeline.width
        key = (((((state << width) | taken) << width) | optional) << 32) | k
        known = self.seen.get(key)
        if known is None:
            self.seen[key] = used
        elif known == 0:
            return  # nothing used is as good as any
        else:
            guards = self.timeline.guards
            uses = known if isinstance(known, tuple) else (known,)
            self.budget.work += len(uses) >> 2
            for each in uses:
                if ((used | guards) - each) & guards == guards:
                    return
            self.lookups += 1
            self.seen[key] = (*(each for each in uses if ((each | guards) - used) & guards != guards), used)
        self.configurations += 1
        self.frames.append(self._explore(k, state, taken, optional, used, idle))

    def _explore(
        self, k: int, state: int, taken: int, optional: int, used: int, idle: bool
    ) -> Iterator[_Configuration]:
        """What may come next, what is likely first."""
        timeline, lost = self.timeline, self.lost
        totals, repeats, end = timeline.totals[k], timeline.repeats[k], timeline.ends[k]
        escape = timeline.escapes[k]
        tried: set[int] = set()
        for bit, kind in timeline.pending[k]:
            self.budget.work += 1
            if taken & bit:
                continue
            if repeats:
                alike = ~kind if optional & bit else kind
                if alike in tried:
                    continue
                tried.add(alike)
            overwrites, total = timeline.overwrites[kind], bool(totals & bit)
            if overwrites and idle:
                continue
            next_states = self.steps[kind].get(state)
            if next_states is None:
                next_states = self._step(kind, state)
            for after in next_states:
                # A state that is lost is worse than any, and what is total can wait for its own completion; unless
                # an info call may overwrite it at once, so that it leaves no trace.
                if total and lost[after] and ((bit != end and not escape) or (lost[state] and not overwrites)):
                    continue
                now = taken | bit
                left = (optional | totals) & ~now if overwrites else optional & ~bit
                yield k, after, now, left, used, total
        if not timeline.infos[k]:
            return
        options = self.options[k].get(state)
        if options is None:
            options = self._options(k, state)
        guards, most = timeline.guards, timeline.most[k]
        for cost, after, fits, following, overwritten in options:
            self.budget.work += 1
            spent = used + cost
            if ((most | guards) - spent) & guards != guards:
                continue
            free = optional | totals if overwritten else optional
            if fits & ~taken:
                yield k, after, taken, free & ~taken, spent, False
            for bit, following_state in following:
                if not taken & bit and not (totals & bit and bit != end and lost[following_state] and not escape):
                    yield k, following_state, taken | bit, free & ~(taken | bit), spent, bool(totals & bit)

    def _options(self, k: int, state: int) -> list[_Option]:
        """What info calls make possible, where it is more than what is possible without."""
        pending = self.timeline.pending[k]
        plain = {kind: self._step(kind, state) for _, kind in pending}
        options: list[_Option] = []
        for after, cost, over in self._reachable(k, state):
            self.budget.spend(1 + len(pending))
            fits = self._fitting(k, after)
            following = tuple(
                [
                    (bit, next_state)
                    for bit, kind in pending
                    if (next_states := self._step(kind, after)) != plain[kind]
                    for next_state in next_states
                ]
            )
            if fits or following:
                options.append((cost, after, fits, following, over))
                self.lookups += 1 + len(following)
        self.options[k][state] = options
        return options

    def _reachable(self, k: int, state: int) -> list[tuple[int, int, bool]]:
        """States that info calls alone lead to: each with a cost, and whether something was overwritten."""
        infos, guards, budget = self.timeline.infos[k], self.timeline.guards, self.budget
        known_here = self.reachable.get((id(infos), state))  # the same tuple, until one more is invoked
        if known_here is not None:
            return known_here
        overwrites = self.timeline.overwrites
        reached: dict[int, list[tuple[int, bool]]] = {state: [(0, False)]}
        frontier = [(state, 0, False)]
        held = budget.held
        size = _LOOKUP_BYTES + sys.getsizeof(guards)
        for here, spent, overwritten in frontier:  # grows as it is gone through
            for info, one, field, most in infos:
                budget.spend()
                over = overwrites[info]
                if spent & field >= most or (over and spent):
                    continue  # there are no more, or it would have done so at once
                for after in self._step(info, here):
                    if self.lost[after]:
                        continue
                    cost, now = spent + one, overwritten or over
                    known = reached.setdefault(after, [])
                    budget.work += len(known) >> 1
                    if any(((cost | guards) - each) & guards == guards and so >= now for each, so in known):
                        continue
                    known.append((cost, now))
                    frontier.append((after, cost, now))
                    budget.hold(size)
        budget.held = held
        self.lookups += len(frontier)
        found = self.reachable[id(infos), state] = frontier[1:]
        return found

    def _step(self, kind: int, state: int) -> tuple[int, ...]:
        known = self.steps[kind].get(state)
        if known is None:
            following = []
            for after in self.object.step(self.states[state], self.timeline.kinds[kind]):
                # What a large state takes is made, hashed and compared: that is work, too.
                size = sys.getsizeof(after)
                self.budget.work += 1 + (size >> 8)
                number = self.numbers.get(after)
                if number is None:
                    number = self.numbers[after] = len(self.states)
                    self.states.append(after)
                    self.lost.append(self.object.lost(after))
                    self.state_bytes += size + _PART_BYTES
                if self.budget.work >= self.budget.next_look:
                    self.budget.look(self._bytes())
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
            self.budget.spend(1 + (len(self.timeline.reads[k]) >> 1))
            self.fitting[k][state] = bits
            self.lookups += 1
        return bits

    def _bytes(self) -> int:
        """What the search holds. Ints of a configuration are taken to be as long as the last one reached."""
        key = next(reversed(self.seen), 0)
        used = self.seen.get(key, 0)
        entry = sys.getsizeof(key) + (sys.getsizeof(used) if used else 0)
        return (
            3 * sys.getsizeof(self.seen)  # when it grows, it is copied into one twice as long
            + entry * len(self.seen)
            + (_FRAME_BYTES + 2 * entry) * len(self.frames)
            + 3 * sys.getsizeof(self.numbers)
            + sys.getsizeof(self.states)
            + self.state_bytes
            + _LOOKUP_BYTES * self.lookups
        )
