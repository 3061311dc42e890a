"""Runs the plan of a run in containers again, several times: how often does its violation come back?

Seed, schedule and mix of operations are the plan's, so that each run strikes with the same faults at the same times;
what the machine, the network and the clients do in between is not. So a violation comes back in some of the runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from checkers.properties import WEAK
from harness.errors import BadArguments, ExitCode, HarnessFailure, RuntimeUnavailable, Stopped, describe
from harness.explore.replaying.exactly import saved_schedule
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule
from harness.plan.schedule_file import SCHEDULE_FILE
from harness.record import results
from harness.record.results import NOT_JUDGED
from harness.run.order import SIMULATED, Done, Order, Prepared

MOST_TIMES: Final = 1000
#: In place of a property, where a threshold of --expect was broken.
THRESHOLD: Final = "threshold"


class Broken(NamedTuple):
    """What two runs have in common if the same came back: not where, when or how often."""

    property: str
    anomaly: str

    def __str__(self) -> str:
        return f"{self.property}: {self.anomaly}"


def broken_by(verdict: Mapping[str, Any]) -> frozenset[Broken]:
    """What fails a run, by its verdict.json; nothing if it did not fail."""
    if verdict.get("verdict") != "fail":
        return frozenset()
    anomalies, thresholds = verdict.get("anomalies"), verdict.get("thresholds")
    found = {
        Broken(str(name), str(anomaly))
        for name, entry in (anomalies.items() if isinstance(anomalies, Mapping) else ())
        if isinstance(entry, Mapping) and not entry.get("weak", name in WEAK)
        for anomaly in entry.get("anomalies") or ()
    }
    found |= {
        Broken(THRESHOLD, str(each.get("expect")))
        for each in (thresholds if isinstance(thresholds, list) else ())
        if isinstance(each, Mapping) and each.get("held") is False
    }
    return frozenset(found)


@dataclass(frozen=True)
class Attempt:
    """One of the runs. directory: None if it has none. verdict: pass, fail, unknown or "not judged"."""

    directory: Path | None
    verdict: str
    reason: str
    broken: frozenset[Broken] = frozenset()

    @property
    def exit_code(self) -> ExitCode:
        return _CODES[self.verdict]


_CODES: Final = {
    "pass": ExitCode.PASS, "fail": ExitCode.FAIL, "unknown": ExitCode.UNKNOWN, NOT_JUDGED: ExitCode.HARNESS_FAILURE,
}  # fmt: skip
#: From the best to the worst that may become of several runs, as of `chaos run --seeds`.
_WORSE: Final = (ExitCode.PASS, ExitCode.UNKNOWN, ExitCode.HARNESS_FAILURE, ExitCode.FAIL)


@dataclass
class Again:
    """What became of the runs so far. run: the one that is repeated; verdict: its own; broken: what it broke; times:
    how many were asked for; stopped: by the user; gone: what they ran on is, so that the last could not be made."""

    run: str
    verdict: str
    broken: frozenset[Broken]
    times: int
    attempts: list[Attempt] = field(default_factory=list)
    stopped: bool = False
    gone: bool = False

    def came_back(self, attempt: Attempt) -> bool:
        return bool(self.broken & attempt.broken)

    @property
    def back(self) -> int:
        """In how many runs something came back of what the run had broken."""
        return sum(map(self.came_back, self.attempts))

    @property
    def exit_code(self) -> ExitCode:
        """The worst of the runs': 1 if any failed, else 255 if one could not be judged, 2 if one proved nothing."""
        return max((each.exit_code for each in self.attempts), key=_WORSE.index, default=ExitCode.HARNESS_FAILURE)

    def line(self) -> str:
        """What became of the last of them."""
        attempt = self.attempts[-1]
        said = attempt.verdict
        if attempt.verdict == "fail" and self.broken:
            said += ", it came back" if self.came_back(attempt) else ", but of something else"
        where = "" if attempt.directory is None else f" ({attempt.directory})"
        return f"{len(self.attempts)} of {self.times}: {said}: {attempt.reason}{where}"

    def summary(self) -> str:
        """In a sentence."""
        made = len(self.attempts)
        count = Counter(each.verdict for each in self.attempts)
        of = f"{made} {'run' if made == 1 else 'runs'}"
        if made < self.times:
            of += f" (of {self.times}, {'it was stopped' if self.stopped else 'no other could be made'})"
        others = [f"{count[word]} {said}" for word, said in _OTHERS if count[word]]
        if self.broken:
            how_often = str(self.back) if self.back else "none"
            told = f"the violation came back in {how_often} of {of}: {self._counted(self.broken)}"
            if elsewhere := count["fail"] - self.back:
                others.insert(0, f"{elsewhere} failed of something else: {self._counted(self._all() - self.broken)}")
            return "; ".join([told, *([", ".join(others)] if others else [])])
        if count["fail"]:
            others.insert(0, f"{count['fail']} failed: {self._counted(self._all())}")
        itself = {"pass": "passed", "fail": "failed"}.get(self.verdict, f"was {self.verdict}")
        return f"{self.run} {itself}; of {of}: {', '.join(others)}"

    def _all(self) -> frozenset[Broken]:
        return frozenset[Broken]().union(*(each.broken for each in self.attempts))

    def _counted(self, broken: Iterable[Broken]) -> str:
        found = Counter(each for attempt in self.attempts for each in attempt.broken)
        ordered = sorted(broken, key=lambda each: (-found[each], each))
        return ", ".join(f"{each} (in {found[each]})" for each in ordered)

    def as_dict(self, on: str) -> dict[str, Any]:
        """on: where they ran."""
        found = Counter(each for attempt in self.attempts for each in attempt.broken)
        return {
            "run": self.run, "on": on, "verdict": self.verdict, "times": self.times, "stopped": self.stopped,
            "came_back": self.back,
            "broken": [{**each._asdict(), "runs": found[each]} for each in sorted(self.broken | self._all())],
            "runs": [
                {
                    "directory": None if each.directory is None else str(each.directory), "verdict": each.verdict,
                    "reason": each.reason, "came_back": self.came_back(each),
                    "broken": [broken._asdict() for broken in sorted(each.broken)],
                }
                for each in self.attempts
            ],
            "summary": self.summary(), "exit_code": int(self.exit_code),
        }  # fmt: skip


_OTHERS: Final = (("pass", "passed"), ("unknown", "unknown"), (NOT_JUDGED, "not judged"))


def repeat(directory: Path, times: int, carry_out: Callable[[], Done], tell: Callable[[Again], object]) -> Again:
    """Carries out the run in `directory` again, so many times. tell: called after each. Ends early once the user asks
    to, or there is nothing any more to run it on, of which the last attempt tells: what was seen until then is
    returned. Raises RuntimeUnavailable if not one run was made."""
    verdict = results.read_json(directory / "verdict.json")
    again = Again(directory.name, str(verdict.get("verdict") or NOT_JUDGED), broken_by(verdict), times)
    while len(again.attempts) < times and not again.stopped and not again.gone:
        try:
            done = carry_out()
        except (Stopped, KeyboardInterrupt):
            if not again.attempts:
                raise
            again.stopped = True
            break
        except (HarnessFailure, RuntimeUnavailable) as error:
            if (gone := isinstance(error, RuntimeUnavailable)) and not again.attempts:
                raise
            again.gone = gone  # nor will it be there for the next
            attempt = Attempt(None, NOT_JUDGED, describe(error))
        else:
            told = done.verdict
            attempt = Attempt(done.directory, str(told["verdict"]), str(told["reason"]), broken_by(told))
            again.stopped = done.was_stopped
        again.attempts.append(attempt)
        tell(again)
    again.stopped = again.stopped and len(again.attempts) < times
    return again


def prepare(directory: Path, plan: Plan, results_directory: Path, *, quiet: bool) -> Prepared:
    """The run in `directory`, `plan`, as it can be carried out again: a run of its own below `results_directory`, with
    the faults of its schedule.toml. Raises BadArguments, HarnessFailure, RuntimeUnavailable."""
    if plan.on == "simulation":
        raise BadArguments(f"{directory.name} ran on {plan.on}, where it repeats exactly")
    schedule, file = saved_schedule(directory), str((directory / SCHEDULE_FILE).absolute())
    fields = {name: getattr(plan, name) for name in Plan.model_fields if name not in ("run", *SIMULATED)}
    if plan.schedule is not None:  # the file that it names may have changed since
        fields["schedule"] = file
        fields.pop("nemesis", None)
    prepared = Order(fields, results_directory, quiet=quiet, facts={"replay_of": directory.name}).prepared()
    if plan.schedule is not None or _is_same(schedule, prepared.faults):
        return prepared
    # The seed draws others today.
    return replace(prepared, faults=schedule, tried=prepared.tried.model_copy(update={"schedule": file}))


def _is_same(saved: Schedule, drawn: Schedule) -> bool:
    """But for what a file does not tell apart."""
    one, other = ([fault.model_dump(mode="json") for fault in faults] for faults in (saved, drawn))
    return bool(one == other)
