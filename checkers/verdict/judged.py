"""What the checkers of registers, other objects and transactions return for one run, and the verdict on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.anomalies import examples
from checkers.properties import WEAK
from checkers.verdict.tally import EXIT_CODES, by_property, name
from checkers.verdict.vacuous import vacuous

#: In counts: how many sets nobody has read.
NEVER_READ: Final = "never read"


@dataclass
class Judged:
    run: str
    properties: Sequence[str]  # that were looked at
    rows: list[dict[str, Any]] = field(default_factory=list)  # ANOMALIES
    tally: list[tuple[str, str, int, int]] = field(default_factory=list)  # (property, anomaly, witnesses, records)
    counts: dict[str, int] = field(default_factory=dict)  # e.g. "operations", "read ok"
    undecided: list[str] = field(default_factory=list)  # why a property was not decided, a sentence each
    origin: int = 0  # the first invocation, monotonic ns
    measured: dict[str, dict[str, float]] = field(default_factory=dict)  # by what was measured, quantiles


def verdict(judged: Judged, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The content of verdict.json: `fail` if an anomaly was found, else `unknown` if something was not decided,
    nothing was ok, or a set was never read."""
    violations = [entry for entry in judged.tally if entry[0] not in WEAK]
    allowed = [entry for entry in judged.tally if entry[0] in WEAK]
    operations = judged.counts.get("operations", 0)
    if violations:
        word, reason = "fail", name(violations)
    elif judged.undecided:
        word, reason = "unknown", "; ".join(judged.undecided)
    elif not operations:
        word, reason = "unknown", vacuous("the history holds no operation")
    elif not any(count for of, count in judged.counts.items() if of.endswith(" ok")):
        word, reason = "unknown", vacuous(f"none of the {operations:,} operations was ok")
    elif unread := judged.counts.get(NEVER_READ):
        of = f"{unread:,} of {judged.counts['keys']:,} sets were" if judged.counts["keys"] > 1 else "the set was"
        word, reason = "unknown", vacuous(f"{of} never read")
    else:
        checked = ", ".join(property_ for property_ in judged.properties if property_ not in WEAK)
        besides = f"; allowed here: {name(allowed)}" if allowed else ""
        fit = f"all {operations:,} operations fit" if operations != 1 else "the one operation fits"
        word, reason = "pass", f"{fit}: no anomaly of {checked}{besides}"
    return {
        "verdict": word,
        "reason": reason,
        "exit_code": EXIT_CODES[word],
        "run": judged.run,
        "workload": plan.get("workload"),
        "operations": dict(judged.counts),
        "anomalies": by_property(judged.properties, judged.tally, examples(judged.rows)),
        "undecided_reasons": list(judged.undecided),
        **({"measured": judged.measured} if judged.measured else {}),
    }


#: Of what is measured, as Jepsen has them.
QUANTILES: Final = (0, 0.5, 0.95, 0.99, 1)


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """The value at each of QUANTILES; none if there is no value."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {f"{each:g}": ordered[min(last, int(len(ordered) * each))] for each in QUANTILES} if ordered else {}
