"""Render a run directory to report.html."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from checkers.anomalies import WEAK
from checkers.inside.violation import VIOLATION_FILE
from checkers.verdict import keeping
from harness.report import words
from harness.report.html.aggregate import Fault, Summary, operations_by_id, summarise
from harness.report.html.availability import heat_map
from harness.report.html.charts import timeline_svg
from harness.report.html.data import RunData, load
from harness.report.html.witness import witness_svg
from spark_history.regular import replacing

TEMPLATES = Path(__file__).parent / "templates"
REPORT_FILE = "report.html"
LISTED_LOST = 5000  # records; a row costs some 100 bytes of HTML
LISTED_WITNESSES = 40  # of one anomaly
DRAWN_LOST = 3  # lost appends that are also shown as witnesses
LISTED_OPERATIONS = 8  # of one witness

GLYPHS = {"pass": "✓", "fail": "✕", "unknown": "?"}
OUTCOME_GLYPHS = {"ok": "✓ ok", "fail": "✕ fail", "info": "? info"}

FILES = {
    "verdict.json": "the verdict, for programs",
    "plan.json": "everything that defines the run",
    "violation.json": "why the simulation was stopped",
    "schedule.toml": "the faults as planned, fit to be edited and repeated",
    "run.json": "how the run itself went",
    "anomalies.parquet": "every anomaly found",
    "lost.parquet": "every lost record",
    "history": "the history, Parquet",
    "journal": "the history as it was recorded",
    "logs": "the nodes' logs",
    "trace": "what the nodes told of their roles, ISRs, epochs and watermarks",
    "disks": "the nodes' disks after the run",
}


def build(run_directory: Path) -> Path:
    """Write `run_directory`/report.html, one file that needs nothing else, and return its path.

    Whatever of the run is missing or damaged is said on the page. Raises BadArguments if the directory is no run,
    OSError if the report cannot be written.
    """
    data = load(run_directory)
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    context = _context(data, summarise(data))
    html = _environment().get_template("report.html.j2").render(context, script=Markup(script), script_hash=digest)
    path = run_directory / REPORT_FILE
    # Renamed into place: whoever has the page open never reloads half of one.
    with replacing(path) as unfinished:
        unfinished.write_text(html, encoding="utf-8")
    return path


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=words.duration, number=words.number, second=words.second, plural=words.plural, size=words.size
    )
    return environment


def _context(data: RunData, summary: Summary) -> dict[str, Any]:
    outcome = str(data.verdict.get("verdict", "")).lower()
    properties = _properties(data)
    looked_at = (data.verdict.get("nodes") or {}).get("looked_at") or {}
    return {
        "name": data.name,
        "plan": data.plan_fields,
        "command": data.plan.command() if data.plan else None,
        "tested": str(data.run.get("tested") or ""),
        "outcome": outcome if outcome in GLYPHS else "none",
        "glyph": GLYPHS.get(outcome, "–"),
        "reason": words.sentence(str(data.verdict.get("reason") or "this run has not been judged")),
        "judged": bool(data.verdict),
        "meta": list(_meta(data, summary)),
        "verdict_meaning": words.VERDICTS,
        "changed": words.sentence(f"the verdict {changed}") if (changed := keeping.change(data.verdict)) else "",
        "earlier": _earlier(data),
        "contract": words.contract(data.verdict, data.plan_fields),
        "contract_partitions": _contract_partitions(data),
        "availability": heat_map(summary.availability),
        "summary": summary,
        "tiles": list(_tiles(data, summary)),
        "timeline": timeline_svg(summary.timeline, summary.faults) if summary.timeline else None,
        "faults": [_fault_row(fault) for fault in summary.faults],
        "nodes": list(dict.fromkeys(node for row in summary.partitions for node in row["replicas"])),
        "properties": properties,
        "unclean_recoveries": [
            {**entry, "message": words.sentence(str(entry.get("message") or ""))}
            for entry in data.verdict.get("unclean_recoveries") or ()
            if isinstance(entry, Mapping)
        ],
        "losses": [words.sentence(each) for each in _strings(data.verdict.get("losses"))],
        "violations": _violations(data, summary, properties),
        "lost_groups": list(_lost_groups(summary)),
        "lost_by_fault": sorted(_lost_by_fault(summary.lost), key=lambda row: row["first"]),
        "lost_unlisted": max(len(summary.lost) - LISTED_LOST, 0),
        "phases": _phases(data.run),
        "completeness": list(_completeness(data, summary)),
        "problems": [*_strings(data.run.get("problems")), *_damage(data), *data.problems],
        "files": [(name, text) for name, text in FILES.items() if (data.directory / name).exists()],
        "inside": [
            (name, meaning, str(looked_at.get(name) or "")) for name, meaning in words.PROPERTIES.items()
            if name in properties
        ],
        "outcome_glyphs": OUTCOME_GLYPHS,
        "relative": words.relative,
    }


MOST_GAPS = 12  # pieces of evidence that are missing, named


def _meta(data: RunData, summary: Summary) -> Iterable[str]:
    if "exit_code" in data.verdict:
        yield f"exit code {data.verdict['exit_code']}"
    if summary.duration:
        yield f"{words.duration(summary.duration)} of appends"
    if how := _ended_early(data):
        yield how
    if "seed" in data.plan_fields:
        yield f"seed {data.plan_fields['seed']}"
    if "started_at" in data.run:
        yield f"started {data.run['started_at']}"
    if data.plan_fields.get("on") == "simulation":
        yield "simulated, so that all other times are virtual"


def _earlier(data: RunData) -> list[dict[str, str]]:
    """What other checkers said of this run, newest first."""
    entries = data.verdict.get("earlier")
    reported = []
    for entry in reversed(entries if isinstance(entries, list) else []):
        if isinstance(entry, Mapping):
            reported.append({
                "verdict": str(entry.get("verdict") or "unreadable"),
                "reason": words.sentence(str(entry.get("reason") or "")),
                "when": str(entry.get("checked_at") or "at an unknown time"),
                "by": keeping.by(entry),
            })  # fmt: skip
    return reported


def _damage(data: RunData) -> Iterable[str]:
    """What of the run the checkers could not read, and what they therefore did not judge."""
    damaged = data.verdict.get("damaged")
    for entry in damaged if isinstance(damaged, list) else []:
        if isinstance(entry, Mapping):
            yield words.sentence(f"{entry.get('file')} is damaged: {entry.get('why')}")
    yield from (words.sentence(text) for text in _strings(data.verdict.get("not_judged")))


def _contract_partitions(data: RunData) -> list[dict[str, Any]]:
    """Those of which a broker lost something, the worst first."""
    partitions = _mapping(_mapping(data.verdict.get("contract")).get("partitions"))
    rows = [
        {
            "name": str(name),
            "within": bool(entry.get("within")),
            "brokers": _strings(entry.get("brokers")),
            **{key: entry.get(key) if isinstance(entry.get(key), int | float) else None
               for key in ("worst", "limit", "at_s", "until_s")},
        }
        for name, entry in partitions.items()
        if isinstance(entry, Mapping) and entry.get("worst")
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row["within"])


def _tiles(data: RunData, summary: Summary) -> Iterable[dict[str, str]]:
    """The figures one wants first."""
    whole = summary.conditions[0] if summary.conditions else {}
    invoked = sum(summary.counts.values())
    yield {
        "label": "acknowledged",
        "value": words.number(summary.counts["ok"]),
        "note": f"of {words.number(invoked)} appends, {words.number(whole.get('rate'))} a second",
    }
    lost = len(summary.lost)
    yield {
        "label": "records lost",
        "value": words.number(lost) if data.verdict else words.DASH,
        "note": _lost_note(summary) if lost else "",
        "css": "bad" if lost else "",
    }
    effective = sum(fault.effective for fault in summary.faults)
    yield {
        "label": "faults that took effect",
        "value": f"{effective} of {len(summary.faults)}" if summary.faults else "none",
        "note": ", ".join(sorted({fault.nemesis for fault in summary.faults})) or "no fault was injected",
    }
    yield {
        "label": "not acknowledged",
        "value": words.number(summary.counts["fail"] + summary.counts["info"]),
        "note": f"{words.number(summary.counts['fail'])} failed, {words.number(summary.counts['info'])} indeterminate",
    }
    yield {
        "label": "latency, p99",
        "value": words.duration(whole.get("p99")),
        "note": f"p50 {words.duration(whole.get('p50'))}, max {words.duration(whole.get('max'))}",
    }
    if summary.longest_gap:
        gap, since = summary.longest_gap
        yield {
            "label": "longest silence",
            "value": words.duration(gap),
            "note": f"none acknowledged, from {words.second(since)}",
        }


def _lost_note(summary: Summary) -> str:
    acknowledged = int(summary.lost["complete"].notna().sum())
    part = f"{acknowledged / summary.counts['ok']:.2%} of the acknowledged" if summary.counts["ok"] else ""
    only_read = len(summary.lost) - acknowledged
    return f"{part}; {only_read:,} of them read, never acknowledged" if only_read else part


def _fault_row(fault: Fault) -> dict[str, Any]:
    length = None if fault.end is None else fault.end - fault.start
    return {
        "fault": fault,
        "length": length,
        "recovery": fault.in_sync - fault.end if fault.in_sync is not None and fault.end is not None else None,
        "together": words.evidence(fault.evidence),
        "by_node": words.evidence_by_node(fault.evidence),
    }


def _properties(data: RunData) -> dict[str, dict[str, Any]]:
    """Each property that was checked, with how many records or operations each of its anomalies concerns.

    By the verdict, whose tally is whole (anomalies.parquet holds a limited number of witnesses); without one by that.
    """
    judged = data.verdict.get("anomalies")
    properties: dict[str, dict[str, Any]] = {
        str(name): {
            "weak": bool(entry.get("weak")),
            "anomalies": {str(kind): count for kind, count in _mapping(entry.get("anomalies")).items()},
            "count": entry.get("count") or 0,
        }
        for name, entry in _mapping(judged).items()
        if isinstance(entry, Mapping)
    }
    witnessed = data.anomalies.groupby(["property", "anomaly"], observed=True, sort=False)["count"].sum()
    for (name, anomaly), count in witnessed.items():
        entry = properties.setdefault(str(name), {"weak": name in WEAK, "anomalies": {}, "count": 0})
        entry["anomalies"].setdefault(str(anomaly), int(count))
        entry["count"] = entry["count"] or sum(entry["anomalies"].values())
    return properties


def _violations(data: RunData, summary: Summary, properties: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Witnesses by property and anomaly, with the operations they name. Lost appends are listed apart, in full."""
    groups = []
    for (property_name, anomaly), rows in data.anomalies.groupby(["property", "anomaly"], observed=True, sort=False):
        listed_apart = "lost" in str(anomaly) and len(summary.lost) > 0
        shown = rows.head(DRAWN_LOST if listed_apart else LISTED_WITNESSES)
        groups.append(
            {
                "property": property_name,
                "weak": properties[str(property_name)]["weak"],
                "anomaly": anomaly,
                "count": properties[str(property_name)]["anomalies"].get(str(anomaly), len(rows)),
                "listed_apart": listed_apart,
                "unlisted": 0 if listed_apart else len(rows) - len(shown),
                "rows": shown,
            }
        )
    wanted = {int(op) for group in groups for ops in group["rows"]["ops"] for op in _ids(ops)[:LISTED_OPERATIONS]}
    operations = operations_by_id(data.operations, wanted, summary.faults, summary.origin or 0)
    for group in groups:
        group["cards"] = [_card(row, operations, summary.origin or 0) for row in group.pop("rows").itertuples()]
    return sorted(groups, key=lambda group: str(group["weak"]))


def _card(row: Any, operations: Mapping[int, dict[str, Any]], origin: int) -> dict[str, Any]:
    ids = _ids(row.ops)
    return {
        "message": row.message if isinstance(row.message, str) else "",
        "drawing": witness_svg(row.witness if isinstance(row.witness, str) else None, origin),
        "where": f"{row.topic}-{row.partition}" if pd.notna(row.partition) else "",
        "offset": None if pd.isna(row.offset) else int(row.offset),
        "value": None if pd.isna(row.value) else int(row.value),
        "count": 1 if pd.isna(row.count) else int(row.count),
        "operations": [operations[op] for op in ids[:LISTED_OPERATIONS] if op in operations],
        "unlisted": max(len(ids) - LISTED_OPERATIONS, 0),
    }


def _ids(ops: Any) -> list[int]:
    return [] if ops is None or isinstance(ops, float) else [int(op) for op in ops]


def _lost_groups(summary: Summary) -> Iterable[dict[str, Any]]:
    """Lost records by partition; rows beyond LISTED_LOST of all partitions together are only counted."""
    room = LISTED_LOST
    for name, rows in summary.lost.groupby("partition_name", sort=False):
        listed = rows.head(room)
        room -= len(listed)
        yield {
            "name": name,
            "count": len(rows),
            "ranges": _ranges(rows["offset"]),
            "rows": [
                {
                    "offset": row.offset,
                    "value": row.value,
                    "acknowledged": words.second(row.second) + (" (read)" if pd.isna(row.complete) else ""),
                    "fault": words.relative(row.fault, row.lead),
                    "found": "nothing: the log ends before" if pd.isna(row.found) else f"value {row.found}",
                }
                for row in listed.itertuples()
            ],
            "unlisted": len(rows) - len(listed),
        }


def _lost_by_fault(lost: pd.DataFrame) -> Iterable[dict[str, Any]]:
    """The same records by when they were acknowledged: during a fault, before one, or after all of them."""
    how = np.where(lost["lead"] == 0, "during", "before")
    for (fault, when), rows in lost.groupby(["fault", how], sort=False):
        yield {
            "fault": fault,
            "how": when,
            "records": len(rows),
            "partitions": rows["partition_name"].nunique(),
            "first": rows["second"].min(),
            "last": rows["second"].max(),
        }


def _ranges(offsets: pd.Series, most: int = 6) -> str:
    """Offsets as runs, e.g. 17–20, 25, 31–40."""
    values = np.unique(offsets.dropna().to_numpy("int64"))
    if not len(values):
        return words.DASH
    breaks = np.flatnonzero(np.diff(values) > 1)
    starts, ends = values[[0, *(breaks + 1)]], values[[*breaks, len(values) - 1]]
    runs = [f"{first}" if first == last else f"{first}–{last}" for first, last in zip(starts, ends, strict=True)]
    return ", ".join(runs[:most]) + (f" and {len(runs) - most} more runs" if len(runs) > most else "")


def _phases(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How long each step of the run took, by run.json."""
    phases = run.get("phases")
    if not isinstance(phases, Mapping):
        return []
    return [
        (str(name), words.duration(seconds) if isinstance(seconds, int | float) else str(seconds))
        for name, seconds in phases.items()
    ]


def _completeness(data: RunData, summary: Summary) -> Iterable[tuple[str, str]]:
    """What the verdict rests on, as (question, answer)."""
    sources = {
        "history": "the run ended and its history was ingested",
        "journal": "the journal: the run was cut short, what follows is what had been flushed by then",
        "": "none: no operation is on record",
    }
    yield "Source", sources[data.source]
    if how := _ended_early(data):
        yield "Ended", how
    elif data.run.get("status") == "failed":
        yield "Ended", "before it could be judged"
    if (data.directory / VIOLATION_FILE).exists():
        yield "Stopped", "by a property that did not hold: nothing was healed, and liveness was not looked at"
    complete = data.verdict.get("complete")
    if complete is not None:
        logs = " and replica logs" if data.verdict.get("replica_records") else ""
        yield "Complete", f"yes: final reads{logs} included" if complete else "no, see below"
    if gaps := _strings(data.verdict.get("evidence_missing")):
        more = f"; and {len(gaps) - MOST_GAPS:,} more" if len(gaps) > MOST_GAPS else ""
        yield "Evidence missing", "; ".join(gaps[:MOST_GAPS]) + more
    for each in data.verdict.get("nemeses") or ():
        if why := _mapping(each).get("why_not"):
            yield f"No effect of {each.get('nemesis')}", str(why)
    until = data.verdict.get("judged_until_s")
    if isinstance(until, int | float):
        yield "Judged until", f"{until:.3f} s after the first operation"
    undecided = data.verdict.get("undecided")
    if isinstance(undecided, int) and undecided:
        yield "Undecided appends", f"{words.number(undecided)}: acknowledged, but at positions no read covered"
    for kind, count in sorted(summary.kinds.items()):
        yield f"Operations: {kind}", words.number(count)
    yield "Records returned by reads", words.number(int(data.records_read["records"].sum()))
    finals = sum(row["final_end"] is not None for row in summary.partitions)
    yield "Final reads", f"{finals} of {len(summary.partitions)} partitions"
    nodes = sorted({node for row in summary.partitions for node in row["replicas"]})
    yield "Replica logs", ", ".join(nodes) if nodes else "none were collected"
    inside = _mapping(data.verdict.get("nodes"))
    for key, question, noun in (
        ("trace_rows", "Nodes’ traces", "line"),
        ("metadata_records", "Nodes’ metadata logs", "record"),
    ):
        if isinstance(inside.get(key), int):
            yield question, words.plural(inside[key], noun)
    if missing := _strings(inside.get("not_checked")):
        yield "Not checked inside the cluster", "; ".join(missing)
    yield "Appends never answered", f"{words.number(data.operations.never)} (counted as indeterminate)"


def _ended_early(data: RunData) -> str:
    """How the run came to its end before its time, if it did."""
    return str(data.verdict.get("ended_early") or data.run.get("ended_early") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _strings(value: Any) -> list[str]:
    return [str(entry) for entry in value] if isinstance(value, list) else []
