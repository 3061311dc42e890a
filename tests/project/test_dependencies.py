"""What is wrong with the table of dependencies is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import dependencies


def test_the_table_is_true() -> None:
    assert list(dependencies.check()) == []


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("| docker | 7", "| docker | 6", "docker 7"),
        ("| tenacity |", "| tenacious |", "tenacious is in dependencies.md and no longer required"),
        ("| typer | {typer} | MIT |", "| typer | {typer} | AGPL-3.0-only |", "AGPL-3.0-only is none of the licences"),
        ("| tomlkit | {tomlkit} | MIT |", "| tomlkit | {tomlkit} | ISC |", "says ISC, and the package MIT"),
        ("made on 20", "made on 29", "had its last release on"),
    ],
)
def test_what_is_not_true_is_told(
    old: str, new: str, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {name: version for name, (version, _) in dependencies.pins().items()}
    text = dependencies.TABLE.read_text()
    assert old.format(**versions) in text
    (tmp_path / "dependencies.md").write_text(text.replace(old.format(**versions), new.format(**versions)))
    monkeypatch.setattr(dependencies, "TABLE", tmp_path / "dependencies.md")
    assert any(reported in problem for problem in dependencies.check())
