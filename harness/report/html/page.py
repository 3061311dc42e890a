"""Render a run directory to report.html."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from checkers.inside.violation import VIOLATION_FILE
from checkers.properties import WEAK
from checkers.verdict import keeping
from cluster_image.telemetry.printable import printable, printable_json
from harness.record.catalog.notes import linked, read_note
from harness.record.timeline.partitions import InsideOfRun, inside_of
from harness.report import words
from harness.report.html import first, found
from harness.report.html.aggregate import Fault, Summary, summarise
from harness.report.html.availability import heat_map
from harness.report.html.charts import timeline_svg
from harness.report.html.data import RunData, load
from harness.report.html.lanes import lanes
from harness.report.html.moves import moves
from harness.report.html.takeovers import taken_over
from spark_history.regular import replacing

TEMPLATES = Path(__file__).parent / "templates"
REPORT_FILE = "report.html"
LISTED_LOST = 5000  # records; a row costs some 100 bytes of HTML

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
    summary = summarise(data)
    context = _context(data, summary, inside_of(run_directory, summary.origin))
    html = _environment().get_template("report.html.j2").render(context, script=Markup(script), script_hash=digest)
    path = run_directory / REPORT_FILE
    # Renamed into place: whoever has the page open never reloads half of one.
    with replacing(path) as unfinished:
        unfinished.write_text(html, encoding="utf-8")
    return path


@cache  # compiling the templates takes longer than filling them in
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        duration=words.duration, number=words.number, second=words.second, plural=words.plural, size=words.size
    )
    return environment


def _context(data: RunData, summary: Summary, inside: InsideOfRun) -> dict[str, Any]:
    outcome = str(data.verdict.get("verdict", "")).lower()
    properties = _properties(data)
    looked_at = (data.verdict.get("nodes") or {}).get("looked_at") or {}
    violations = found.found(data, summary, properties, inside)
    marks: dict[str, list[tuple[str, float]]] = {}
    for group in violations.groups:
        for row in group["rows"]:
            if row["second"] is not None and row["where"]:
                marks.setdefault(row["where"], []).append((row["name"], row["second"]))
    return {
        "name": data.name,
        "plan": data.plan_fields,
        "command": data.plan.command() if data.plan else None,
        "facts": list(first.facts(data)),
        "sentences": first.sentences(data, summary),
        "thresholds": _thresholds(data),
        "note": _note(data.directory),
        "outcome": outcome if outcome in GLYPHS else "none",
        "glyph": GLYPHS.get(outcome, "–"),
        "reason": words.sentence(str(data.verdict.get("reason") or "this run has not been judged")),
        "judged": bool(data.verdict),
        "meta": list(_meta(data, summary)),
        "verdict_meaning": words.VERDICTS,
        "terms": words.TERMS,
        "changed": words.sentence(f"the verdict {changed}") if (changed := keeping.change(data.verdict)) else "",
        "earlier": _earlier(data),
        "contract": words.contract(data.verdict, data.plan_fields),
        "contract_partitions": _contract_partitions(data),
        "availability": heat_map(summary.availability),
        "summary": summary,
        "tiles": list(_tiles(data, summary)),
        "timeline": timeline_svg(summary.timeline, summary.faults, _taken(data).keys()) if summary.timeline else None,
        "lanes": lanes(
            inside.inside, data.operations.watermarks, summary.origin or 0, summary.timeline, summary.faults, marks
        ),
        "faults": [
            _fault_row(
                fault,
                _taken(data).get(fault.number, ""),
                taken_over(fault, summary.faults, inside.inside, summary.origin or 0),
            )
            for fault in summary.faults
        ],
        "moves": moves(summary.faults),
        "deleted": _deleted(data),
        "nodes": list(dict.fromkeys(node for row in summary.partitions for node in row["replicas"])),
        "properties": properties,
        "unclean_recoveries": [
            {**entry, "message": words.sentence(str(entry.get("message") or ""))}
            for entry in data.verdict.get("unclean_recoveries") or ()
            if isinstance(entry, Mapping)
        ],
        "losses": [words.sentence(each) for each in _strings(data.verdict.get("losses"))],
        "violations": violations.groups,
        "stories": violations.stories,
        "retold": data.plan_fields.get("on") == "simulation" and not inside.has_traces,
        "evidence": _script_json(violations.evidence) if violations.groups else None,
        "lost_groups": list(found.lost_groups(summary, LISTED_LOST)),
        "lost_by_cause": found.lost_by_cause(data),
        "lost_unlisted": max(len(summary.lost) - LISTED_LOST, 0),
        "phases": _phases(data.run),
        "completeness": list(_completeness(data, summary)),
        "problems": [*_strings(data.run.get("problems")), *_damage(data), *data.problems],
        "files": [(name, text) for name, text in FILES.items() if (data.directory / name).exists()],
        "own": _own(data),
        "inside": [
            (name, meaning, str(looked_at.get(name) or ""))
            for name, meaning in {**words.PROPERTIES, **words.own_properties(data.verdict)}.items()
            if name in properties
        ],
        "outcome_glyphs": OUTCOME_GLYPHS,
        "relative": words.relative,
    }


def _own(data: RunData) -> list[dict[str, Any]]:
    """What checkers of the user's own told, each for a section of its own: see checkers.verdict.own.Section."""
    sections = []
    for name, told in _mapping(data.verdict.get("own_checkers")).items():
        section = _mapping(_mapping(told).get("section"))
        rows, columns = section.get("rows"), _strings(section.get("columns"))
        if not section:
            continue
        sections.append({
            "name": str(name),
            "package": str(_mapping(told).get("package") or ""),
            "text": [words.sentence(each) for each in _strings(section.get("text"))],
            "columns": columns,
            "rows": [
                [words.number(each) if type(each) is int else str(each) for each in row]
                for row in (rows if isinstance(rows, list) else ()) if isinstance(row, list)
            ],
            "unlisted": section.get("unlisted") or 0,
        })  # fmt: skip
    return sections


def _deleted(data: RunData) -> dict[str, dict[str, int]]:
    """By partition, where its log begins and how many acknowledged records were deleted; see checkers.log.deletion."""
    told = data.verdict.get("deletion")
    logs = told.get("logs") if isinstance(told, Mapping) else None
    return {
        str(log): {key: of[key] for key in ("begins_at", "deleted") if isinstance(of.get(key), int)}
        for log, of in (logs.items() if isinstance(logs, Mapping) else ()) if isinstance(of, Mapping)
    }  # fmt: skip


def shown(value: Any) -> Any:
    """As it stands on the page: whoever wrote it, no text turns the direction of others, hides itself, or is so long
    that it hides others. What is markup already was made of such texts."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return printable(value if len(value) <= MOST_TEXT else f"{value[: MOST_TEXT // 2]} … {value[-MOST_TEXT // 2 :]}")


MOST_TEXT: Final = 8000  # characters: a sentence of the checkers has fewer
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
    gone = int(summary.lost["complete"].notna().sum())
    yield {
        "label": "acknowledged, and lost" if lost else "records lost",
        "value": words.number(gone if gone else lost) if data.verdict else words.DASH,
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
            "note": f"no partition acknowledged, from {words.second(since)}",
        }


def _lost_note(summary: Summary) -> str:
    gone = int(summary.lost["complete"].notna().sum())
    only_read = len(summary.lost) - gone
    part = f"{gone / summary.counts['ok']:.1%} of the acknowledged" if summary.counts["ok"] else ""
    return f"{part}; besides {only_read:,} that were only read: {len(summary.lost):,} in all" if only_read else part


def _taken(data: RunData) -> dict[int, str]:
    """By fault, how much of what is lost it took, as a clause."""
    records: Counter[int] = Counter()
    acknowledged: Counter[int] = Counter()
    for group in first.attribution(data):
        if group["fault"] is not None:
            records[group["fault"]] += group["records"]
            acknowledged[group["fault"]] += group["acknowledged"]
    return {
        fault: f"took {words.plural(count, 'lost record')}, {acknowledged[fault]:,} of which had been acknowledged"
        for fault, count in records.items()
    }


def _fault_row(fault: Fault, taken: str, heirs: Sequence[str]) -> dict[str, Any]:
    length = None if fault.end is None else fault.end - fault.start
    return {
        "fault": fault,
        "length": length,
        "recovery": fault.in_sync - fault.end if fault.in_sync is not None and fault.end is not None else None,
        "taken": taken,
        "heirs": [words.sentence(each) for each in heirs],
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


def _thresholds(data: RunData) -> list[dict[str, Any]]:
    """What was expected of measurements (--expect), and did it hold?"""
    entries = data.verdict.get("thresholds")
    return [
        {"expect": str(each.get("expect")), "measured": str(each.get("measured")), "held": each.get("held")}
        for each in (entries if isinstance(entries, list) else ())
        if isinstance(each, Mapping)
    ]


def _note(directory: Path) -> Markup | None:
    """What a person noted of this run; addresses of http and https become links, and nothing else does."""
    anchor = Markup('<a href="{0}" rel="noreferrer">{1}</a>')
    return (
        Markup("").join(
            anchor.format(address, printable(text)) if address else escape(printable(text))
            for text, address in linked(read_note(directory))
        )
        or None
    )


def _script_json(value: Any) -> Markup:
    """Inside a script element, which `</script` or `<!--` in a text must not end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(printable_json(text).replace("<", "\\u003c"))


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
    held = data.verdict.get("replica_records")
    none = f"{held:,} records, of which this page found no file" if isinstance(held, int) and held else "none"
    empty = "collected, and empty: no replica holds a record" if _collected_empty(data) else none
    yield "Replica logs", ", ".join(nodes) if nodes else empty
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


def _collected_empty(data: RunData) -> bool:
    """Were the replicas' logs collected, though no record lies in any of them? A verdict that misses none says so."""
    looked = data.plan_fields.get("replica_logs", True) is not False
    missing = _strings(data.verdict.get("evidence_missing"))
    return looked and bool(data.verdict.get("complete")) and not missing and not data.verdict.get("replica_records")


def _ended_early(data: RunData) -> str:
    """How the run came to its end before its time, if it did."""
    return str(data.verdict.get("ended_early") or data.run.get("ended_early") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _strings(value: Any) -> list[str]:
    return [str(entry) for entry in value] if isinstance(value, list) else []
