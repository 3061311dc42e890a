"""What others wrote is shown on a terminal, and not obeyed by it."""

from __future__ import annotations

import ast
import io
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from cluster_image.storage.records import build_batch
from cluster_image.telemetry.printable import printable, printable_json
from harness.cli import app as cli
from harness.cli import listing
from harness.cli.histories import check as cli_check
from harness.errors import HarnessFailure
from harness.report.console import Progress, print_summary
from harness.report.terminal import Terminal, say_json
from tests import ROOT
from tests.spark_history.spark.spark_pages import LOOPBACK, listening

#: Clears the screen; renames the window; answers for the user; rings; turns the direction; the same by C1 controls.
HOSTILE = "a\x1b[2J\x1b]0;owned\x07\x1bP$q\x1b\\\x9b31m\x9d0;x\x9c\u202egnp.exe\u2066\b\r\x7f\u061c\U000e0041z"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\x1bP$q\x1b\\x9b31m\x9d0;x\x9c\u202egnp.exe\u2066\x08\x0d\x7f\u061c\U000e0041z"
DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def test_every_control_is_shown_as_what_it_is() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("Ünïcode, 日本語, 👍,\ta tab\nand lines") == "Ünïcode, 日本語, 👍,\ta tab\nand lines"


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left_and_it_is_safe_to_repeat(text: str) -> None:
    shown = printable(text)
    assert not DANGEROUS.search(shown) and printable(shown) == shown
    shown.encode()


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_stays_json_of_the_same_value(value: Any) -> None:
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert not DANGEROUS.search(text) and json.loads(text) == value


def test_a_terminal_shows_text_and_keeps_its_own_colours() -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, force_terminal=True, color_system="standard", width=200, soft_wrap=True)
    terminal.print(Text(HOSTILE, style="bold red"))
    terminal.print("[red]no markup[/red] :smile:", HOSTILE)
    table = Table("column")
    table.add_row(HOSTILE)
    terminal.print(table)
    written = re.sub("\x1b\\[[0-9;]*m", "", file.getvalue())
    assert "\x1b[1;31m" in file.getvalue() and not DANGEROUS.search(written)
    bare = SHOWN.replace(r"\x07", "").replace(r"\x08\x0d", "")  # rich itself leaves these out
    assert written.count(bare) == 2 and "[red]no markup[/red] :smile:" in written
    assert r"\x1b[2J" in written.splitlines()[-2], "in the table, too"


def test_progress_and_summary_show_what_a_node_brings(tmp_path: Path) -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, width=200)
    with Progress(terminal) as progress:
        progress.say(HOSTILE)
        progress.update(HOSTILE)
    fault = {"nemesis": HOSTILE, "targets": [HOSTILE], "start_s": 1.0, "end_s": 2.0, "effective": True,
             "evidence": {"x": HOSTILE, "nodes": {HOSTILE: {"y": HOSTILE}}}}  # fmt: skip
    verdict = {"verdict": "unknown", "reason": HOSTILE, "evidence_missing": [HOSTILE], "ended_early": HOSTILE}
    print_summary(terminal, tmp_path, verdict, [fault], [HOSTILE])
    assert not DANGEROUS.search(file.getvalue()) and file.getvalue().count(r"\x1b[2J") >= 8


def test_progress_on_a_real_terminal_shows_it_too() -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, force_terminal=True, width=200)
    with Progress(terminal) as progress:
        progress.update(HOSTILE)
    assert "\x1b[2J" not in file.getvalue() and "\x1b]0;" not in file.getvalue() and "\x9b" not in file.getvalue()


def test_an_error_and_a_list_show_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise HarnessFailure(HOSTILE)

    cli.guarded(fail)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").write_text("{}")
    (tmp_path / "run" / "verdict.json").write_text(json.dumps({"verdict": HOSTILE, "reason": HOSTILE}))
    assert CliRunner().invoke(cli.app, ["list", "runs", "--results", str(tmp_path)], catch_exceptions=False)
    listing._print_runs(tmp_path, None)
    say_json({"reason": HOSTILE})
    captured = capsys.readouterr()
    assert not DANGEROUS.search(captured.out + captured.err)
    assert SHOWN in captured.err.replace(r"\x0d", r"\x0d") or r"\x1b[2J" in captured.err
    assert captured.out.count(r"\x1b[2J") >= 2 and json.loads(captured.out.splitlines()[-1]) == {"reason": HOSTILE}


def test_the_tools_that_look_at_nodes_show_it_too(tmp_path: Path) -> None:
    folder = tmp_path / "\x1b[2J\u202et-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(build_batch([HOSTILE.encode()], timestamp_ms=0))
    command = [sys.executable, "-m", "cluster_image", "dump-log", "--records", str(tmp_path), "\x1b[2J"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert r"\x1b[2J\u202et-0" in said.stdout and r"\x1b[2J" in said.stderr
    assert not DANGEROUS.search(said.stdout + said.stderr)


#: What may write by itself: the functions themselves, JSON, and programs that no text of others reaches.
ALLOWED = {
    "harness/report/terminal.py", "harness/__main__.py", "cluster_image/telemetry/printable.py",
    "cluster_image/tools/output.py",
    "harness/runtimes/agent/__main__.py", "harness/runtimes/agent/clock.py",
    "harness/runtimes/agent/host/__main__.py", "harness/runtimes/agent/host/launch.py",
    "harness/runtimes/ssh/installation/on_host.py",
}  # fmt: skip


def test_there_is_no_other_way_to_the_terminal() -> None:
    found = []
    for package in ("harness", "cluster_image", "checkers", "nemesis", "spark_history", "workloads"):
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name in ALLOWED or name.startswith("harness/bench/"):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "print", "Console", "typer.echo", "sys.stdout.write", "sys.stderr.write", "rich.print",
                ):  # fmt: skip
                    found.append(f"{name}:{node.lineno}")
    assert found == []


# --- Spark's pages ---


def test_a_port_of_sparks_pages_is_looked_up_where_they_are_shown() -> None:
    """Somebody else's on another address of this machine is no reason against it."""
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        other.listen()
        cli_check.check_port(other.getsockname()[1])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(HarnessFailure, match="cannot be used"):
            cli_check.check_port(taken.getsockname()[1])


@pytest.mark.spark
def test_sparks_pages_are_shown_on_this_machine_only(spark: Any) -> None:
    found = listening(int(spark.sparkContext.uiWebUrl.rpartition(":")[2]))
    assert found and found <= LOOPBACK, found
