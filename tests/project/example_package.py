"""The example of a document as an installed package: its module, and its entry point."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest


def install(document: Path, group: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """group: what it adds to, such as nemeses: the module is called my_nemeses, as in the document."""
    text, module = document.read_text(), f"my_{group}"
    code, entry_points = (re.search(rf"```{kind}\n(.*?)```", text, re.S) for kind in ("python", "toml"))
    assert code is not None and entry_points is not None
    (directory / f"{module}.py").write_text(code[1])
    metadata = directory / f"{module}-1.0.dist-info"
    metadata.mkdir()
    name = module.replace("_", "-")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    written = entry_points[1].replace(f'[project.entry-points."chaos.{group}"]', f"[chaos.{group}]").replace('"', "")
    (metadata / "entry_points.txt").write_text(written)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, module, raising=False)
