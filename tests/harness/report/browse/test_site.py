"""A site is whole by itself, and names nothing of the machine that it was made on."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from harness.errors import BadArguments
from harness.record.catalog.index import Index
from harness.report.browse.site import SMALL, write_site
from tests.harness.record.catalog import made
from tests.harness.report.browse.serving import alive

HOSTILE = "</script><script>alert(1)</script>\"'&?#%2e\u202e"


def written(results: Path, out: Path, only: str = "") -> int:
    index = Index(results, alive, only)
    index.refresh()
    try:
        return write_site(index, out, "chaos report")
    finally:
        index.close()


def broken_links(site: Path) -> list[str]:
    """Links of all pages that are ours which lead nowhere."""
    broken = []
    for page in site.rglob("*.html"):
        if page.relative_to(site).parts[0] == "files":
            continue
        for link in re.findall(r'(?:href|src)="([^"]*)"', page.read_text()):
            address = urlsplit(unescape(link))
            if address.scheme in ("http", "https", "data") or not address.path:
                continue
            assert not address.path.startswith("/"), (page, link)
            if not (page.parent / unquote(address.path)).exists():
                broken.append(f"{page.relative_to(site)}: {link}")
    return broken


def results_of_all_kinds(results: Path) -> None:
    made.many(results, 70, faults=1)
    for day in range(3):
        made.suite(results, "short", made.BEGIN + timedelta(days=day), {HOSTILE: "fail", "": "pass", "b": None})
    made.exploration(results, "explored", {3: (HOSTILE, 4)}, [0, 1])
    made.systematic(results, "swept", {3: HOSTILE, 4: HOSTILE}, 10)
    made.matrix(results, "release", ["pass"])
    made.run(results, HOSTILE.replace("/", "|"), "fail", settings={HOSTILE: HOSTILE}, record={"command": HOSTILE})


def test_every_link_leads_somewhere(tmp_path: Path) -> None:
    results_of_all_kinds(tmp_path / "results")
    count = written(tmp_path / "results", tmp_path / "site")
    assert count == 70 + 3 * 3 + 2 + 3 + 2 + 1 and broken_links(tmp_path / "site") == []
    assert (tmp_path / "site" / "page-2.html").is_file()
    first = (tmp_path / "site" / "index.html").read_text()
    assert first.count("<script") == 2 and first.count("</script>") == 2  # the search, and what it searches
    for group in ("explored", "swept"):
        assert (tmp_path / "site" / "files" / group / "index.html").is_file()


def test_it_names_no_directory_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home & <you>"
    results = home / "results"
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path / "work")
    run = made.run(results, "a", record={"command": f"chaos run --kafka-home {home}/kafka --results {results}",
                                         "problems": [f"{tmp_path}/work/x is full"]})  # fmt: skip
    (run / "report.html").write_text(f"<p>judge again: chaos check {results}/a</p>")
    (run / "logs").mkdir()
    (run / "logs" / "broker-1.log").write_text(f"reading {home}/kafka\n")
    made.exploration(results, "explored", {3: ("StrongIsr", 4)}, [0])
    written(results, tmp_path / "site")
    texts = [path.read_bytes() for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert not any(str(tmp_path).encode() in text for text in texts)
    assert b"chaos check results/a" in (tmp_path / "site" / "files" / "a" / "report.html").read_bytes()
    assert b"~/kafka" in (tmp_path / "site" / "files" / "a" / "logs" / "broker-1.log").read_bytes()


def test_large_files_and_links_stay_where_they_are_but_reports_come_along(tmp_path: Path) -> None:
    run = made.run(tmp_path / "results", "a")
    (run / "report.html").write_text("x" * (SMALL + 1))
    (run / "lost.parquet").write_bytes(bytes(SMALL + 1))
    (run / "small.parquet").write_bytes(b"\xff\x00")
    (tmp_path / "secret").write_text("secret")
    (run / "leak").symlink_to(tmp_path / "secret")
    os.mkfifo(run / "pipe")
    (run / "journal").mkdir()
    (run / "journal" / "operations-000000.parquet").write_bytes(b"x")
    written(tmp_path / "results", tmp_path / "site")
    copied = {path.name for path in (tmp_path / "site" / "files" / "a").iterdir()}
    assert copied == {"plan.json", "run.json", "verdict.json", "report.html", "small.parquet"}
    assert broken_links(tmp_path / "site") == []


def test_one_suite_alone(tmp_path: Path) -> None:
    made.run(tmp_path / "results", "another")
    suite = made.suite(tmp_path / "results", "short", made.BEGIN, {"kill": "pass", "pause": "fail"})
    assert written(tmp_path / "results", tmp_path / "site", suite.name) == 3
    assert "another" not in (tmp_path / "site" / "index.html").read_text() and broken_links(tmp_path / "site") == []


def test_only_a_former_site_is_replaced(tmp_path: Path) -> None:
    results, mine = tmp_path / "results", tmp_path / "mine"
    made.run(results, "a")
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(mine)
    for out in (mine, tmp_path / "file", tmp_path / "link", results, tmp_path):
        with pytest.raises(BadArguments, match="--out"):
            written(results, out)
    assert (mine / "thesis.txt").read_text() == "years of work" and (results / "a" / "plan.json").is_file()
    written(results, tmp_path / "site")
    (results / "a").rename(results / "b")
    written(results, tmp_path / "site")
    assert {path.name for path in (tmp_path / "site" / "run").iterdir()} == {"b"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    assert written(tmp_path / "results", tmp_path / "site") == 0
    assert "Nothing is here yet" in (tmp_path / "site" / "index.html").read_text()
