"""What a command imports before it answers: one that needs neither Spark, Arrow nor Docker waits for none of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.commands import COMMANDS, Commands
from tests import ROOT

#: Each takes a tenth of a second or more; hypothesis comes with kio.
SLOW = ("pyarrow", "pyspark", "docker", "pandas", "numpy", "kio", "hypothesis", "networkx")
PROGRAM = f"""
import sys
from harness.cli.app import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    slow = [name for name in {SLOW} if name in sys.modules]
    print("slow:", ",".join(slow), file=sys.stderr)
    raise
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("run --help", 0),
        ("explore --help", 0),
        ("suite --help", 0),
        ("runn", 254),
        ("run --nemesi kill", 254),
        ("run --time-limit soon", 254),
        ("run --nemesis earthquake", 254),
        ("run --seeds 3..1", 254),
        ("run --plan nowhere.toml", 254),
        ("explore --seeds 3..1", 254),
        ("suite nowhere.toml", 254),
        ("matrix nowhere.toml", 254),
        ("check nowhere", 254),
        ("list runs", 0),
        ("list bugs", 0),
        ("list nemeses", 0),
        ("list workloads", 0),
        ("logs nowhere", 254),
        ("report nowhere", 254),
        ("list settings", 0),
        ("list targets", 0),
    ],
)
def test_a_command_that_answers_without_them_does_not_import_them(arguments: str, code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments.split()], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1] == "slow: ", done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there(name: str) -> None:
    command = Commands(name="chaos").get_command(None, name)
    assert command is not None and command.name == name and command.help
