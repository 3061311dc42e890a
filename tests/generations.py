"""python -m tests.generations: carry out docs/generations.toml, and put its table into README.md and docs/v2.md, and what
each cell says, stories included, into docs/generations.md.

A test carries out some of its cells, and holds them to what is written: the simulator gives the same each time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.suites import matrix_file
from harness.suites import matrix_tables as tables
from harness.suites.results import Ran
from tests import ROOT

FILE: Final = "docs/generations.toml"
PAGE: Final = ROOT / "docs" / "generations.md"
#: Runs for each story: enough for one fault, and for the nodes that it needs.
STORIES: Final = 12
_BEGIN: Final = "<!-- chaos matrix docs/generations.toml -->\n"
_END: Final = "<!-- end -->\n"
#: Documents with the table, and where each finds the page.
DOCUMENTS: Final[Mapping[str, str]] = {"README.md": "docs/generations.md", "docs/v2.md": "generations.md"}


def table(results: Mapping[str, Ran], page: str) -> str:
    """As Markdown. results: by the keys of runs."""
    matrix = matrix_file.read(ROOT / FILE)
    return "\n".join(tables.markdown_table(matrix, tables.squares(matrix, results, timed=False), page)) + "\n"


def written(document: str) -> str:
    """The table that a document has."""
    return _places(ROOT / document)[1]


def _places(path: Path) -> tuple[str, str, str]:
    before, begin, rest = path.read_text().partition(_BEGIN)
    between, end, after = rest.partition(_END)
    assert begin and end, f"{path} has no lines {_BEGIN.strip()} and {_END.strip()}"
    return before, between, after


def main() -> int:
    command = ("matrix", FILE, "--stories", str(STORIES), "--jobs", "2", *sys.argv[1:])
    code = subprocess.run([sys.executable, "-m", "harness", *command], cwd=ROOT, check=False).returncode
    if code not in (0, 1):
        return code
    directory = ROOT / "results" / "matrix-generations"
    found = json.loads((directory / "matrix.json").read_text())["cells"]
    results = {key: Ran(**ran) for key, ran in found.items()}
    for name, page in DOCUMENTS.items():
        before, _, after = _places(ROOT / name)
        (ROOT / name).write_text(f"{before}{_BEGIN}{table(results, page)}{_END}{after}")
    matrix = matrix_file.read(ROOT / FILE)
    made = f"# Three generations of one protocol, cell by cell\n\nMade by `chaos {' '.join(command[:4])}`."
    text = tables.markdown(matrix, {key: Ran(**{**ran, "report": ""}) for key, ran in found.items()}, made)
    PAGE.write_text(re.sub(r"(\]\(#[^)]*)\)", r"\1)", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
