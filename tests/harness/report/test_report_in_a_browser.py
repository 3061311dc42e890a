"""A failing run's report, as a person finds a way through it: from the verdict to a violation and nodes' lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.harness import browser

pytestmark = pytest.mark.timeout(240)


def chaos(*arguments: str) -> int:
    """A process of its own: Playwright has a loop in this one."""
    ended = subprocess.run([sys.executable, "-m", "harness", *arguments], cwd=ROOT, capture_output=True, check=False)
    return ended.returncode


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a simulated run that lost acknowledged records to one power cut of all brokers."""
    results = tmp_path_factory.mktemp("results")
    asked = "run --on simulation --nemesis power-outage-cluster --seed 2 --time-limit 12 --rate 150 --partitions 2"
    assert chaos(*asked.split(), "--results", str(results)) == 1
    (directory,) = results.iterdir()
    (directory / "note.txt").write_text("known: https://example.org/issues/7")
    assert chaos("check", str(directory)) == 1
    return directory / "report.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as started:
        yield started


def test_from_the_verdict_to_a_violation_to_the_lines_around_it(chromium: Any, report: Path) -> None:
    with browser.opened(chromium, report) as opened:
        page = opened.page
        first = page.inner_text(".verdict")
        assert "FAIL" in first and "the power cut F0" in first.replace("The", "the") and "had them last" in first
        page.click("nav >> text=Violations")
        page.click("#kind-1 details.others summary")
        button = page.locator("#kind-1 [data-violation]").nth(1)
        name = button.inner_text().strip()
        button.click()
        row = page.locator("#kind-1 tr.opened")
        text = row.inner_text()
        assert "Its operations" in text and "On the replicas’ disks after the run" in text
        assert f"--around {name}" in text and "F0 power-outage-cluster strikes" in text
        assert row.locator("ol.lines li").count() > 5
        row.locator("text=Show on the time line").click()
        assert " s to " in page.inner_text(".zoom [aria-live]")
        last = page.locator("#kind-1 [data-violation]").last.inner_text().strip()
        page.fill("#kind-1 input[type=search]", last)
        left = page.locator("#kind-1-rows > tbody > tr:not([hidden]) [data-violation]").all_inner_texts()
        assert [each.strip() for each in left] == [last] and last != name
        assert opened.said == [] and opened.elsewhere() == []


def test_by_keyboard_alone(chromium: Any, report: Path) -> None:
    with browser.opened(chromium, report) as opened:
        page = opened.page
        page.focus("svg.timeline")
        page.keyboard.press("ArrowRight")
        assert "acknowledged" in page.inner_text("#tip")
        page.keyboard.press("+")
        assert " s to " in page.inner_text(".zoom [aria-live]")
        page.keyboard.press("0")
        assert page.inner_text(".zoom [aria-live]") == ""
        page.evaluate("location.hash = '#story-1'")
        page.wait_for_selector("#story-1[open] li")
        assert opened.said == []


def test_a_link_to_what_is_closed_opens_it(chromium: Any, report: Path) -> None:
    with browser.opened(chromium, f"{report.as_uri()}#V2") as opened:
        assert opened.page.is_visible("#V2") and opened.said == []


@pytest.mark.parametrize("options", [
    {"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}},
])  # fmt: skip
def test_nobody_is_kept_out(
    chromium: Any, report: Path, options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    axe = browser.axe_core(lambda: tmp_path_factory.mktemp("axe"))
    with browser.opened(chromium, report, bypass_csp=True, **options) as opened:
        page = opened.page
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], "nothing of it lies beside the screen"
        assert browser.serious(page, axe) == []
