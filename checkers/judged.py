"""What a family of checkers other than the log's returns of one run, and the verdict on that alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkers.anomalies import WEAK, examples


@dataclass
class Judged:
    run: str
    properties: Sequence[str]  # that were looked at
    rows: list[dict[str, Any]] = field(default_factory=list)  # ANOMALIES
    tally: list[tuple[str, str, int, int]] = field(default_factory=list)  # (property, anomaly, witnesses, records)
    counts: dict[str, int] = field(default_factory=dict)  # e.g. "operations", "read ok"
    undecided: list[str] = field(default_factory=list)  # why a property was not decided, a sentence each
    origin: int = 0  # the first invocation, monotonic ns


def verdict(judged: Judged, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The content of verdict.json: `fail` if an anomaly was found, else `unknown` if something was not decided."""
    from checkers.verdict import EXIT_CODES

    violations = [entry for entry in judged.tally if entry[0] not in WEAK]
    operations = judged.counts.get("operations", 0)
    if violations:
        word, reason = "fail", ", ".join(f"{anomaly} ({records:,})" for _, anomaly, _, records in violations)
    elif judged.undecided:
        word, reason = "unknown", "; ".join(judged.undecided)
    elif not operations:
        word, reason = "unknown", "vacuous: the history holds no operation"
    else:
        word, reason = "pass", f"all {operations:,} operations fit: no anomaly of {', '.join(judged.properties)}"
    shown = examples(judged.rows)
    properties: dict[str, Any] = {
        name: {"count": 0, "witnesses": 0, "weak": name in WEAK, "anomalies": {}, "example": None}
        for name in judged.properties
    }
    for property_, anomaly, witnesses, records in judged.tally:
        entry = properties.setdefault(
            property_, {"count": 0, "witnesses": 0, "weak": property_ in WEAK, "anomalies": {}, "example": None}
        )
        entry["count"] += records
        entry["witnesses"] += witnesses
        entry["anomalies"][anomaly] = entry["anomalies"].get(anomaly, 0) + records
        entry["example"] = shown.get(property_)
    return {
        "verdict": word,
        "reason": reason,
        "exit_code": EXIT_CODES[word],
        "run": judged.run,
        "workload": plan.get("workload"),
        "operations": dict(judged.counts),
        "anomalies": properties,
        "undecided_reasons": list(judged.undecided),
    }
