"""python -m tests.project.generations: carry out docs/generations.toml, and put its table into README.md, and what each
cell says, stories included, into docs/generations.md.

A test carries out some of its cells, and holds them to what is written: the simulator gives the same each time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

from harness.suites.matrix import file as matrix_file
from harness.suites.matrix import tables
from harness.suites.results import Ran
from tests import ROOT

FILE: Final = "docs/generations.toml"
PAGE: Final = ROOT / "docs" / "generations.md"
#: Runs for each story: enough for one fault, and for the nodes that it needs.
STORIES: Final = 12
_BEGIN: Final = "<!-- chaos matrix docs/generations.toml -->\n"
_END: Final = "<!-- end -->\n"
README: Final = ROOT / "README.md"


def table() -> tuple[str, str, str]:
    """README.md: what is before the table, the table, what comes after."""
    before, begin, rest = README.read_text().partition(_BEGIN)
    between, end, after = rest.partition(_END)
    assert begin and end, f"{README} has no lines {_BEGIN.strip()} and {_END.strip()}"
    return before + begin, between, end + after


def main() -> int:
    command = ("matrix", FILE, "--stories", str(STORIES), "--jobs", "2", *sys.argv[1:])
    code = subprocess.run([sys.executable, "-m", "harness", *command], cwd=ROOT, check=False).returncode
    if code not in (0, 1):
        return code
    directory = ROOT / "results" / "matrix-generations"
    saved = json.loads((directory / "matrix.json").read_text())
    if saved["finished_at"] is None:
        return code  # it was stopped after a cell had failed
    found = saved["cells"]
    # Reports are not in the repository, and how long a run took is no fact about the protocol.
    results = {key: Ran(**{**ran, "report": ""}) for key, ran in found.items()}
    matrix = matrix_file.read(ROOT / FILE)
    squares = tables.squares(matrix, results, timed=False)
    before, _, after = table()
    page = str(PAGE.relative_to(ROOT))
    README.write_text("".join([before, *(f"{line}\n" for line in tables.markdown_table(matrix, squares, page)), after]))
    made = f"# Three generations of one protocol, cell by cell\n\nMade by `chaos {' '.join(command[:4])}`."
    PAGE.write_text(tables.markdown(matrix, results, made, timed=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
