"""`python -m tests.project.pictures`: makes the pictures of the README and of docs/ anew, in docs/pictures.

They are of simulated runs whose seeds are given, as Chromium shows them: what a reader sees is what the program
makes today. Needs what tests marked `browser` need.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests import ROOT
from tests.harness import browser
from tests.harness.report.browse.serving import served

_FOLDER: Final = ROOT / "docs" / "pictures"
_SIZE: Final = {"width": 1200, "height": 800}
_OPTIONS: Final = "--on simulation --rate 200 --partitions 2 --seed 1"
_RUNS: Final = {
    "second": "power-outage-cluster --time-limit 12",
    "first": "power-outage --time-limit 12",
    "kill-partition": "kill,partition --time-limit 12",
    "last-replica": "last-replica-standing --time-limit 20",
}


def main() -> None:
    _FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results"
        for name, options in _RUNS.items():
            asked = f"{_OPTIONS} --run-name {name} --nemesis {options}"
            _chaos("run", *asked.split(), "--results", str(results))
        with served(results) as server, browser.chromium() as chromium:
            _take(chromium, results / "second" / "report.html", _report)
            _take(chromium, f"{server.address}/", _list)
            _take(chromium, f"{server.address}/compare?run=first&run=second", _comparison)
    for picture in sorted(_FOLDER.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}  {picture.stat().st_size:,} bytes")


def _chaos(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "harness", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)


def _take(chromium: Any, address: str | Path, shoot: Any) -> None:
    with browser.opened(chromium, address, viewport=_SIZE, color_scheme="light") as opened:
        shoot(opened.page)


def _report(page: Any) -> None:
    page.screenshot(path=_FOLDER / "report.png")
    page.locator("svg.timeline").first.screenshot(path=_FOLDER / "timeline.png")
    page.click("nav >> text=Violations")
    page.click("#kind-1 details.others summary")
    page.locator("#kind-1 [data-violation]").nth(1).click()
    page.evaluate("document.querySelector('#kind-1 details.others').scrollIntoView()")
    page.mouse.wheel(0, -60)  # below the bar that stays at the top
    page.wait_for_timeout(300)
    page.screenshot(path=_FOLDER / "violation.png")


def _list(page: Any) -> None:
    page.screenshot(path=_FOLDER / "serve.png")


def _comparison(page: Any) -> None:
    page.screenshot(path=_FOLDER / "comparison.png")


if __name__ == "__main__":
    main()
