"""The pages of `chaos serve` as files, for any web server, any store of a CI's artifacts, or a browser without either.

All links are relative. Reports are copied, and so are small files beside them; what a run recorded is not. Search and
filters are a small script over what the first page holds of every run; two runs are compared where one follows the
other.
Whatever is written names no directory of the machine that it was made on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from harness.errors import BadArguments
from harness.record.catalog.facts import REPORT, Facts
from harness.record.catalog.filters import Filter
from harness.record.catalog.groups import PAGES, SYSTEMATIC
from harness.record.catalog.index import Index
from harness.report.browse import exploration, systematic, trends
from harness.report.browse.pages import A_PAGE, NotFound, Pages
from harness.report.browse.paths import NotServed, listing, open_below
from harness.report.browse.rendering import TEMPLATES, clean, count, milliseconds, when

#: Says that a directory is a site, which the next one may replace.
MARK: Final = ".chaos-site"
#: Bytes; what is larger is not copied, but for reports.
SMALL: Final = 1 << 20
#: Runs whose comparison with the one before is written, the newest.
MOST_COMPARED: Final = 200
_MOST_FILES: Final = 200
#: What writes the page of a group of that kind.
_WRITTEN: Final[Mapping[str, Callable[[Path], object]]] = {
    "exploration": exploration.write_page, SYSTEMATIC: systematic.write_page,
}  # fmt: skip
_COPIED_FOLDERS: Final = ("", "logs")
_ASSETS: Final = ("browse.css", "search.js")
_TEXTS: Final = frozenset({".html", ".json", ".toml", ".txt", ".md", ".xml", ".log", ".jsonl", ".properties"})


@dataclass
class Written:
    """Links between files. prefix: from the page to the root of the site. copied: files below the results directory.
    compared: pairs of runs. Both are shared by all pages."""

    prefix: str
    copied: set[str]
    compared: Mapping[tuple[str, str], str]

    @property
    def policy(self) -> str:
        """Pages that were opened from a disk, without a server, have no origin of their own."""
        return (
            "default-src 'none'; style-src 'self' file:; script-src 'self' file:; img-src data:; base-uri 'none'; "
            "form-action 'self' file:"
        )

    def home(self, query: Mapping[str, str] | None = None) -> str:
        given = dict(query or {})
        page = given.pop("page", "1")
        name = "index.html" if given or page == "1" else f"page-{page}.html"
        return f"{self.prefix}{name}{f'?{urlencode(given)}' if given else ''}"

    def entry(self, entry: Facts) -> str:
        return self.group(entry.path)

    def group(self, path: str) -> str:
        return f"{self.prefix}run/{quote(path)}/index.html"

    def file(self, path: str) -> str:
        return f"{self.prefix}files/{quote(path)}" if path in self.copied else ""

    def trends(self, suite: str = "", plan: str = "") -> str:
        return f"{self.prefix}{trend_page(suite, plan)}"

    def compare(self, a: str = "", b: str = "") -> str:
        page = self.compared.get((a, b))
        return f"{self.prefix}{page}" if page else ""

    def live(self, path: str) -> str:
        return ""

    def asset(self, name: str) -> str:
        return f"{self.prefix}assets/{name}"


@dataclass
class _Site:
    index: Index
    entries: Sequence[Facts]  # the newest first
    root: Path
    made: str
    hide: Callable[[str], str]
    copied: set[str] = field(default_factory=set)
    compared: dict[tuple[str, str], str] = field(default_factory=dict)
    before: dict[str, Facts] = field(default_factory=dict)  # by path of a run: the one that it is compared with

    def pages(self, page: str) -> Pages:
        """page: where what they make is to be, below the root."""
        links = Written("../" * page.count("/"), self.copied, self.compared)
        return Pages(self.index, links, self.made)

    def write(self, page: str, html: str) -> None:
        path = self.root / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.hide(html), encoding="utf-8")


def write_site(index: Index, out: Path, made: str) -> int:
    """How many entries it shows. Raises BadArguments if `out` holds anything but a former site, OSError if it cannot be
    written."""
    _check(index, out)
    out = out.resolve()
    for entry in index.find(Filter())[0]:
        write_page = _WRITTEN.get(entry.kind)
        if write_page is not None and not entry.report:
            with suppress(OSError):  # where results may not be written to
                write_page(index.results / entry.path)
    index.refresh()
    entries = index.find(Filter())[0]
    beside = out.with_name(f".{out.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        site = _Site(index, entries, beside, made, hiding(index.results))
        _write(site)
        (beside / MARK).write_text("made by chaos report\n")
        if out.exists():
            shutil.rmtree(out)
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return len(entries)


def trend_page(suite: str, plan: str) -> str:
    parts = ["trends", *([_slug(suite)] if suite else []), *([_slug(plan)] if plan else []), "index.html"]
    return "/".join(parts)


def hiding(results: Path) -> Callable[[str], str]:
    """Replaces, in texts, the directories of this machine that a run may have named."""
    known = {str(results.resolve()): "results", os.getcwd(): ".", os.path.expanduser("~"): "~"}
    if results.is_absolute():
        known.setdefault(str(results), "results")
    ways: list[tuple[str, str]] = []
    for path, instead in sorted(known.items(), key=lambda item: -len(item[0])):
        if len(path) > 1:
            ways += [(form, instead) for form in {path, str(escape(path)), json.dumps(path)[1:-1]}]

    def hide(text: str) -> str:
        for form, instead in ways:
            text = text.replace(form, instead)
        return text

    return hide


def _check(index: Index, out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise BadArguments(f"--out {out} is no directory")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise BadArguments(f"--out {out} holds something that chaos report did not write; give another directory")
    if out.resolve() == Path.cwd():
        raise BadArguments(f"--out {out} is the directory that this command runs in; give another")
    if index.results.resolve().is_relative_to(out.resolve()):
        raise BadArguments(f"--out {out} holds the runs themselves; give another directory")


def _write(site: _Site) -> None:
    for name in _ASSETS:
        site.write(f"assets/{name}", (TEMPLATES / name).read_text(encoding="utf-8"))
    for entry in site.entries:
        _copy(site, entry)
    _compare(site)
    for entry in site.entries:
        page = f"run/{entry.path}/index.html"
        site.write(page, site.pages(page).entry_page(entry.path, live=False, previous=site.before.get(entry.path)))
    _lists(site)
    _trends(site)


def _lists(site: _Site) -> None:
    pages = site.pages("index.html")
    chunks = [site.entries[start : start + A_PAGE] for start in range(0, len(site.entries), A_PAGE)] or [[]]
    for number, entries in enumerate(chunks, start=1):
        embedded = _embedded(site, pages) if number == 1 else ""
        html = pages.written_list(entries, number, len(chunks), len(site.entries), embedded)
        site.write("index.html" if number == 1 else f"page-{number}.html", html)


def _embedded(site: _Site, pages: Pages) -> Markup:
    """Of every entry what the script filters by, and shows."""
    rows = [_row(entry, pages, site.hide) for entry in site.entries]
    # In ASCII, and without what could end the element that it stands in.
    text = json.dumps(rows, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _row(entry: Facts, pages: Pages, hide: Callable[[str], str]) -> dict[str, object]:
    settings = {name: hide(value) for name, value in entry.settings.items()}
    words = (
        entry.path, entry.kind, entry.verdict, entry.reason, *entry.nemeses, entry.workload, entry.target,
        entry.runs_on, *(f"{name}={value}" for name, value in settings.items()), entry.suite, entry.plan_name,
        entry.note, entry.command,
    )  # fmt: skip
    numbers = (
        count(entry.acknowledged), count(entry.lost), count(entry.throughput), milliseconds(entry.p99_ms),
        milliseconds(entry.recovery_ms),
    )  # fmt: skip
    return {
        "name": clean(entry.name, 90), "link": pages.links.entry(entry), "kind": entry.kind, "verdict": entry.verdict,
        "reason": clean(hide(entry.reason), 180), "started": entry.started_at, "when": when(entry.started_at),
        "nemeses": [clean(each, 60) for each in entry.nemeses], "target": entry.target, "workload": entry.workload,
        "suite": entry.suite, "plan": entry.plan_name, "parent": entry.parent, "settings": settings,
        "seed": None if entry.seed is None else str(entry.seed), "numbers": numbers,
        "report": pages.links.file(f"{entry.path}/{entry.report}") if entry.report else "",
        "note": clean(hide(entry.note), 160), "words": clean(hide("\n".join(words)).lower(), 4000),
    }  # fmt: skip


def _compare(site: _Site) -> None:
    pairs: list[tuple[str, str]] = []
    pages = site.pages("compare/x.html")
    for entry in [each for each in site.entries if each.kind == "run"][:MOST_COMPARED]:
        before = pages.before(entry)
        if before is not None:
            site.before[entry.path] = before
            site.compared[before.path, entry.path] = f"compare/{len(pairs)}.html"
            pairs.append((before.path, entry.path))
    for pair in pairs:
        site.write(site.compared[pair], pages.compare_page(pair))


def _trends(site: _Site) -> None:
    suites = sorted({each.suite for each in site.entries if each.kind == "suite" and each.suite})
    page = trend_page("", "")
    site.write(page, site.pages(page).trends_page("", ""))
    for suite in suites:
        names = [each.name for each in trends.plans(trends.times(site.index, suite))]
        for plan in ("", *filter(None, names)):
            page = trend_page(suite, plan)
            with suppress(NotFound):
                site.write(page, site.pages(page).trends_page(suite, plan))


def _copy(site: _Site, entry: Facts) -> None:
    directory = site.index.results / entry.path
    for folder in _COPIED_FOLDERS:
        found, _ = listing(directory / folder if folder else directory, _MOST_FILES)
        for name, is_directory, length in found:
            whole = not folder and name in (REPORT, *PAGES.values())
            if not is_directory and (length <= SMALL or whole):
                path = "/".join(filter(None, (entry.path, folder, name)))
                with suppress(NotServed):
                    _copy_file(site, path)


def _copy_file(site: _Site, path: str) -> None:
    """Raises NotServed."""
    with os.fdopen(open_below(site.index.results, path), "rb") as file:
        content = file.read()
    if Path(path).suffix in _TEXTS:
        content = site.hide(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    target = site.root / "files" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    site.copied.add(path)


def _slug(name: str) -> str:
    """A name for a folder, of its own for each name."""
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)[:40].strip("-").lower()
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"
