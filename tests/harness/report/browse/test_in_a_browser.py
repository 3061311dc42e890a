"""The pages in Chromium: list, search, filter, compare, a run that goes on; by keyboard, on a phone, in the dark.

Whatever a test does, nothing may be said on the browser's console but by us, nothing be fetched from elsewhere, and no
page have a serious fault by axe-core.
"""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.record.catalog.index import Index
from harness.record.catalog.notes import write_note
from harness.record.history import Recorder
from harness.report.browse.exploration import write_page
from harness.report.browse.site import write_site
from tests import ROOT
from tests.harness.record.catalog import made
from tests.harness.report.browse.serving import Client, alive, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, Request, Response

pytestmark = pytest.mark.browser

HOSTILE = "<script>alert(1)<script>\"'&\u202egnp\x1b[2J"
SUITE = f"{made.BEGIN + timedelta(days=2):%Y%m%dT%H%M%S}-suite-short"
EXPLORATION = "20260203T100000-explore-kill-s0"
GOING = "20260301T000000-kill-s77"


def results_of_all_kinds(results: Path) -> None:
    made.many(results, 60, faults=2, partitions=2)
    for day, verdict in enumerate(("pass", "fail", "pass")):
        made.suite(results, "short", made.BEGIN + timedelta(days=day), {"kill, default": verdict, "pause": None},
                   p99=20.0 + day)  # fmt: skip
    made.exploration(results, EXPLORATION, {3: ("LeaderCompleteness", 4), 9: ("LeaderCompleteness", 2)}, [0, 1])
    made.matrix(results, "release", ["pass", "fail"])
    run = made.run(results, HOSTILE, "fail", settings={HOSTILE: HOSTILE}, record={"command": HOSTILE})
    write_note(run, f"see https://issues.example/1 {HOSTILE}")
    made.run(results, GOING, None, seed=77, started=made.BEGIN + timedelta(days=29),
             record={"status": "running", "phase": "workload", "workload_start_ns": 10**9})  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    results_of_all_kinds(directory)
    return directory


@pytest.fixture(scope="module")
def server(results: Path) -> Iterator[Client]:
    with served(results) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def options() -> dict[str, Any]:
    """Of the page."""
    return {}


@pytest.fixture
def page(browser: Browser, options: dict[str, Any]) -> Iterator[Page]:
    """A page that complains about what none of ours may do."""
    context = browser.new_context(**({"viewport": {"width": 1300, "height": 900}} | options))
    found, wrong = context.new_page(), list[str]()
    allowed = ("http://127.0.0.1:", "data:", "file://")

    def dismiss(dialog: Dialog) -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def ask(request: Request) -> None:
        if not request.url.startswith(allowed):
            wrong.append(f"elsewhere: {request.url}")

    def answer(response: Response) -> None:
        if response.status >= 400:
            wrong.append(f"{response.status}: {response.url}")

    found.on("console", lambda message: wrong.append(f"console: {message.text}"))
    found.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    found.on("dialog", dismiss)
    found.on("request", ask)
    found.on("response", answer)
    found.set_default_timeout(20_000)
    yield found
    context.close()
    assert wrong == []


def names(page: Page) -> list[str]:
    return page.locator("table.entries tbody th a.name").all_inner_texts()


def faults_by_axe(page: Page) -> list[str]:
    (source,) = (ROOT / ".browser").glob("axe-*.min.js")
    page.evaluate(source.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found["violations"] if each["impact"] in ("serious", "critical")
    ]  # fmt: skip


PAGES = (
    "/", "/?verdict=fail", "/?seed=1..3", "/?q=nothing-like-that", f"/run/{GOING}", f"/run/{SUITE}",
    f"/run/{EXPLORATION}", "/run/matrix-release", "/run/20260131T120000-power-outage-s0", "/trends",
    "/trends?suite=short", "/trends?suite=short&plan=kill%2C+default", "/compare",
    "/compare?run=20260131T120000-power-outage-s0&run=20260131T120100-kill-pause-s1", "/files/",
    f"/files/{EXPLORATION}/",
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault(server: Client, browser: Browser, page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    for path in PAGES:
        page.goto(server.address + path)
        assert faults_by_axe(page) == [], path


def test_search_filter_and_open(server: Client, page: Page) -> None:
    page.goto(server.address)
    assert len(names(page)) == 50
    page.get_by_label("Nemesis").select_option("partition:one-way")
    page.get_by_label("Seed").fill("0..9")
    with page.expect_navigation():
        page.get_by_role("button", name="Filter").click()
    assert names(page) == ["20260131T120700-partition-one-way-s7", "20260131T120200-partition-one-way-s2"]
    with page.expect_navigation():
        page.get_by_role("link", name="Clear").click()
    with page.expect_navigation():
        page.get_by_role("navigation", name="By verdict").get_by_role("link", name="failed").click()
    words = set(page.locator("td[data-label=Verdict]").all_inner_texts())
    assert words == {"✕ fail"}
    page.get_by_role("searchbox").fill("issues.example")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.get_by_role("status").inner_text() == "1 fit, the newest first"
    (name,) = names(page)
    assert name == r"""<script>alert(1)<script>"'&\u202egnp\x1b[2J"""
    with page.expect_navigation():
        page.get_by_role("link", name=name).first.click()
    assert page.locator("h1").inner_text() == name
    link = page.get_by_role("link", name="https://issues.example/1")
    assert link.get_attribute("href") == "https://issues.example/1" and "noopener" in (link.get_attribute("rel") or "")
    with page.expect_navigation():
        page.get_by_role("link", name="Open the report").click()
    assert page.locator("h1").inner_text() == "report of a run"


def test_a_script_in_a_report_reads_nothing_but_the_report(browser: Browser, tmp_path: Path) -> None:
    run = made.run(tmp_path, "sent-by-mail")
    with socket.socket() as elsewhere, served(tmp_path) as client:
        elsewhere.bind(("127.0.0.1", 0))
        elsewhere.listen()
        elsewhere.settimeout(1)
        (run / "report.html").write_text(
            "<!doctype html><title>waits</title><script>fetch('plan.json', {mode: 'no-cors'})"
            ".then(() => document.title = 'read it', () => document.title = 'refused, as ' + origin)</script>"
            f"<img src='http://127.0.0.1:{elsewhere.getsockname()[1]}/'><form action='/'><button>go</button></form>"
        )
        page = browser.new_page()
        page.goto(f"{client.address}/files/sent-by-mail/report.html")
        page.get_by_text("go").click()
        for _ in range(100):
            if page.title() != "waits":
                break
            page.wait_for_timeout(50)
        assert page.title() == "refused, as null" and page.url.endswith("report.html")
        with pytest.raises(TimeoutError):
            elsewhere.accept()
        page.close()


def test_two_runs_are_ticked_and_compared(server: Client, page: Page) -> None:
    page.goto(f"{server.address}/?seed=0..1&kind=run&nemesis=power-outage")
    page.goto(f"{server.address}/?q=20260131T1200&kind=run")
    for box in page.locator("input[name=run]").all()[:2]:
        box.check()
    with page.expect_navigation():
        page.get_by_role("button", name="Compare the two that are ticked").click()
    assert page.locator("tr.differs").count() > 3
    assert page.locator("tr.differs th").first.inner_text().startswith("≠")
    page.locator("summary").first.click()
    assert page.locator("details[open] tbody tr").count() > 1


def test_by_keyboard_alone(server: Client, page: Page) -> None:
    page.goto(server.address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")
    assert {"q", "verdict", "nemesis", "seed", "Filter", "Clear", "run"} <= seen


def test_trends_lead_to_the_runs(server: Client, page: Page) -> None:
    page.goto(f"{server.address}/trends")
    with page.expect_navigation():
        page.get_by_role("link", name="short").click()
    assert page.locator(".strip").first.inner_text().replace("\n", "").startswith("✓")
    with page.expect_navigation():
        page.get_by_role("link", name="kill, default").click()
    assert page.locator("svg.chart").count() == 4
    assert page.locator("svg.chart").nth(2).get_attribute("aria-label") == (
        "Latency, 99th percentile: 3 values from 20 to 22 ms, the latest 22"
    )
    with page.expect_navigation():
        page.locator("svg.chart a").nth(1).click()
    assert "fail" in page.locator(".card").first.inner_text()


def test_an_exploration_leads_to_the_smallest_of_what_failed(server: Client, page: Page) -> None:
    page.goto(f"{server.address}/run/{EXPLORATION}")
    group = page.locator("section.card.fail", has_text="LeaderCompleteness").last
    assert "The smallest: seed 9, 2 faults, 200 operations" in group.inner_text()
    with page.expect_navigation():
        group.get_by_role("link", name="seed 9").click()
    assert page.locator("h1").inner_text() == "s9"


@pytest.mark.parametrize("options", [{"viewport": {"width": 360, "height": 740}}])
def test_a_phone_scrolls_in_one_direction(server: Client, page: Page) -> None:
    for path in PAGES:
        page.goto(server.address + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def append(recorder: Recorder, count: int, at_s: int, outcome: Any = "ok") -> None:
    operation = recorder.invoke_append(0, "chaos", 0, count, at_s * 10**9)
    recorder.complete(operation, at_s * 10**9 + 1, outcome, offset=0)


def test_a_run_is_followed_while_it_goes_on(page: Page, tmp_path: Path) -> None:
    said = {"status": "running", "phase": "workload", "workload_start_ns": 10**9}
    run = made.run(tmp_path, "going", None, record=said)
    recorder = Recorder(run, "going", flush_interval=None)
    append(recorder, 40, 1)
    recorder.record_fault(0, "kill", ["broker-1"], 2 * 10**9, None, effective=False, evidence="{}")
    recorder.flush()
    with served(tmp_path) as client:
        page.goto(f"{client.address}/run/going")
        status = page.locator("#live [role=status]")
        assert status.inner_text() == "In the phase workload; 40 appends acknowledged so far; 1 fault in force."
        assert "kill on broker-1, since 1.0 s" in page.locator("#live").inner_text()
        append(recorder, 2, 3)
        append(recorder, 5, 3, "fail")
        recorder.record_fault(0, "kill", ["broker-1"], 2 * 10**9, 4 * 10**9, effective=True, evidence="{}")
        recorder.flush()
        status.get_by_text("42 appends").wait_for()
        assert "None is on record" in page.locator("#live").inner_text()
        assert page.locator("#live tbody tr").first.inner_text().split() == ["append", "42", "5", "0"]
        made.run(tmp_path, "x", "pass")
        shutil.copy(tmp_path / "x" / "verdict.json", run / "verdict.json")
        (run / "run.json").write_text(json.dumps({"status": "done"}))
        page.wait_for_selector(".card.pass")
        assert page.locator("#live").count() == 0
    recorder.close()


@pytest.mark.parametrize("options", [{"java_script_enabled": False}])
def test_it_is_followed_without_scripts_too(server: Client, page: Page) -> None:
    page.goto(f"{server.address}/run/{GOING}")
    assert (
        page.locator('noscript meta[http-equiv="refresh"]').count() + page.locator("meta[http-equiv=refresh]").count()
    )
    assert "In the phase workload" in page.locator("#live").inner_text()
    page.goto(f"{server.address}/?verdict=fail")
    assert len(names(page)) > 5


def test_the_same_as_files(results: Path, page: Page, tmp_path: Path) -> None:
    index = Index(results, alive, "")
    index.refresh()
    write_site(index, tmp_path / "site", "chaos report")
    start = (tmp_path / "site" / "index.html").as_uri()
    page.goto(start)
    assert len(names(page)) == 50 and faults_by_axe(page) == []
    page.get_by_label("Nemesis").select_option("partition:one-way")
    page.get_by_label("Seed").fill("0..9")
    page.get_by_role("button", name="Filter").click()
    assert names(page) == ["20260131T120700-partition-one-way-s7", "20260131T120200-partition-one-way-s2"]
    with page.expect_navigation():
        page.get_by_role("navigation", name="By verdict").get_by_role("link", name="failed").click()
    assert set(page.locator("td[data-label=Verdict]").all_inner_texts()) == {"✕ fail"}
    assert r"""<script>alert(1)<script>"'&\u202egnp\x1b[2J""" in names(page)
    page.goto(f"{start}?q=20260131T120200")
    with page.expect_navigation():
        page.locator("a.name").click()
    with page.expect_navigation():
        page.get_by_role("link", name="Open the report").click()
    assert page.locator("h1").inner_text() == "report of a run"
    page.goto(f"{start}?suite=short")
    with page.expect_navigation():
        page.locator("a.name").last.click()
    with page.expect_navigation():
        page.get_by_role("link", name="Trends").last.click()
    assert page.locator("h1").inner_text() == "Trends of short" and faults_by_axe(page) == []


def test_the_page_of_an_exploration_by_itself(page: Page, tmp_path: Path) -> None:
    made.exploration(tmp_path, "explored", {3: (HOSTILE, 4), 9: ("StrongIsr", 2)}, [0, 1])
    page.goto(write_page(tmp_path / "explored").as_uri())
    assert faults_by_axe(page) == []
    with page.expect_navigation():
        page.get_by_role("link", name="seed 9").click()
    assert page.locator("h1").inner_text() == "report of a run"
