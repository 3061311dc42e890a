"""Pages in a real browser: Debian's Chromium, driven by Playwright. Skips tests where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Opened:
    """A page, with what it said on its console, and what it asked for from elsewhere."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        self.fetched: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.fetched.append(request.url))

    def elsewhere(self) -> list[str]:
        return [url for url in self.fetched[1:] if not url.startswith("data:")]


@contextmanager
def chromium() -> Iterator[Any]:
    """Of Playwright. Skips the test where it, or Chromium, is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, url: str | Path, **options: Any) -> Iterator[Opened]:
    """options: of the browser's context, e.g. color_scheme, viewport, bypass_csp."""
    context = browser.new_context(**options)
    try:
        page = Opened(context.new_page())
        page.page.goto(url.as_uri() if isinstance(url, Path) else url)
        yield page
    finally:
        context.close()


def serious(page: Any, axe: Path) -> list[str]:
    """What axe-core finds that keeps people out. page: opened with bypass_csp."""
    page.add_script_tag(path=str(axe))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}, {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def axe_core(fetch: Callable[[], Path]) -> Path:
    """axe.min.js, from npm. Skips the test where it cannot be fetched."""
    import subprocess
    import tarfile

    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm is not installed")
    folder = fetch()
    packed = subprocess.run(
        [npm, "pack", "--silent", "axe-core@4"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if packed.returncode:
        pytest.skip(f"axe-core cannot be fetched: {packed.stderr.strip()[-200:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        archive.extract("package/axe.min.js", folder, filter="data")
    return folder / "package" / "axe.min.js"
