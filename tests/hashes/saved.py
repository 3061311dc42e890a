"""Runs of an earlier state, judged again: what was found in them before is found in them now.

saved/NAME.tar.xz holds a run's directory, without its disks, logs and report."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

#: Of verdict.json: not when and how fast, nor where, nor that it was judged before.
_LEFT_OUT: Final = frozenset({"checked_at", "checkers", "earlier", "history", "path"})


def verdicts(directory: Path) -> Iterator[tuple[str, str]]:
    """Names of the runs, and their verdicts as JSON."""
    for archive in sorted(directory.glob("*.tar.xz")):
        name = archive.name.removesuffix(".tar.xz")
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(archive) as packed:
                packed.extractall(scratch, filter="data")
            run = Path(scratch) / name
            subprocess.run([sys.executable, "-m", "harness", "check", str(run)], capture_output=True, check=False)
            verdict = json.loads((run / "verdict.json").read_text())
        yield name, json.dumps(stable(verdict), indent=1, sort_keys=True) + "\n"


def stable(found: Any) -> Any:
    """found: a verdict, or a part of one."""
    if isinstance(found, dict):
        return {key: stable(value) for key, value in found.items() if key not in _LEFT_OUT}
    return [stable(each) for each in found] if isinstance(found, list) else found
