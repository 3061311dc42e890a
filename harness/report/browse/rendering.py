"""How pages are made of templates: everything that was written by others is escaped, isolated and cut."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cluster_image.telemetry.printable import printable
from harness.record.catalog.facts import Facts
from harness.record.catalog.notes import linked
from harness.report.browse import comparison
from harness.report.words import DASH, duration

TEMPLATES: Final = Path(__file__).parent / "templates"
_TONES: Final = {
    "pass": "pass", "passed": "pass", "fail": "fail", "failed": "fail", "unknown": "unknown", "error": "unknown",
    "running": "running",
}  # fmt: skip
_GLYPHS: Final = {"pass": "✓", "fail": "✕", "unknown": "?", "running": "▶"}


class Links(Protocol):
    """Where pages are. Paths are those of Facts. policy: a Content-Security-Policy that the pages themselves name; "":
    whoever sends them does."""

    @property
    def policy(self) -> str: ...
    def home(self, query: Mapping[str, str] | None = None) -> str: ...
    def entry(self, entry: Facts) -> str: ...
    def group(self, path: str) -> str: ...
    def file(self, path: str) -> str: ...
    def trends(self, suite: str = "", plan: str = "") -> str: ...
    def compare(self, a: str = "", b: str = "") -> str: ...
    def live(self, path: str) -> str: ...
    def asset(self, name: str) -> str: ...


class Served:
    """Links of `chaos serve`."""

    policy = ""

    def home(self, query: Mapping[str, str] | None = None) -> str:
        return f"/?{urlencode(query)}" if query else "/"

    def entry(self, entry: Facts) -> str:
        return self.group(entry.path)

    def group(self, path: str) -> str:
        return f"/run/{quote(path)}"

    def file(self, path: str) -> str:
        return f"/files/{quote(path)}"

    def trends(self, suite: str = "", plan: str = "") -> str:
        query = {name: value for name, value in (("suite", suite), ("plan", plan)) if value}
        return f"/trends?{urlencode(query)}" if query else "/trends"

    def compare(self, a: str = "", b: str = "") -> str:
        return f"/compare?{urlencode([('run', a), ('run', b)])}" if a or b else "/compare"

    def live(self, path: str) -> str:
        return f"/live/{quote(path)}"

    def asset(self, name: str) -> str:
        return f"/assets/{name}"


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters.update(
        clean=clean, when=when, count=count, milliseconds=milliseconds, seconds=seconds, tone=tone, glyph=glyph,
        linked=_linked, shown=comparison.shown,
    )  # fmt: skip
    return made


def clean(text: Any, most: int) -> str:
    """Control characters are shown, and no more characters than `most`."""
    given = str(text)
    return printable(given if len(given) <= most else f"{given[: most - 1]}…")


def when(seconds_: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds_, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return DASH


def count(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    return DASH if value is None else duration(value / 1e3)


def seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:,.1f} s" if abs(value) < 600 else duration(value)


def tone(word: str) -> str:
    """A class of the style sheet."""
    return _TONES.get(word, "none")


def glyph(word: str) -> str:
    return _GLYPHS.get(tone(word), "–")


def glance(entry: Facts) -> Sequence[tuple[str, str]]:
    """What an index knows of an entry, in words; what it does not know is left out."""
    rows: list[tuple[str, Any]] = [
        ("Started, UTC", when(entry.started_at)),
        ("Took", None if entry.duration_s is None else duration(entry.duration_s)),
        ("Nemeses", ", ".join(entry.nemeses) or ("none" if entry.kind == "run" else None)),
        ("Workload", entry.workload),
        ("Target", entry.target),
        ("Runs in", {"docker": "containers", "ssh": "hosts over SSH"}.get(entry.runs_on, entry.runs_on)),
        ("Seed", None if entry.seed is None else str(entry.seed)),
        ("Settings", ", ".join(f"{name}={value}" for name, value in entry.settings.items())),
        ("Operations", None if entry.operations is None else count(entry.operations)),
        ("Acknowledged records", None if entry.acknowledged is None else count(entry.acknowledged)),
        ("Acknowledged records lost", None if entry.lost is None else count(entry.lost)),
        ("Acknowledged a second", None if entry.throughput is None else count(entry.throughput)),
        ("Latency, median", None if entry.p50_ms is None else milliseconds(entry.p50_ms)),
        ("Latency, 99th percentile", None if entry.p99_ms is None else milliseconds(entry.p99_ms)),
        ("Slowest recovery after a heal", None if entry.recovery_ms is None else milliseconds(entry.recovery_ms)),
        ("Longest without an acknowledgement",
         None if entry.unavailable_ms is None else milliseconds(entry.unavailable_ms)),
    ]  # fmt: skip
    return [(name, value) for name, value in rows if value]


def _linked(note: str, most: int) -> Iterator[tuple[str, str]]:
    left = most
    for piece, address in linked(note):
        if left <= 0:
            yield "…", ""
            return
        yield (piece if len(piece) <= left or address else f"{piece[: left - 1]}…"), address
        left -= len(piece)


def digest(content: str) -> str:
    """As a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
