"""`chaos serve`, `diff`, `note`, `report` and `results prune`, as somebody types them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from harness.cli import app as cli
from tests.harness.record.catalog import made


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made.run(tmp_path / "results", "a", "fail")
    made.run(tmp_path / "results", "b", "pass", seed=2, started=made.BEGIN + timedelta(hours=1))
    os.utime(tmp_path / "results" / "a", (1, 1))
    return tmp_path / "results"


def test_diff(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("diff", "a", "latest") == 0
    lines = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    assert ["plan", "seed", "1", "2", ""] in lines and ["verdict", "verdict", "fail", "pass", ""] in lines
    assert not any(line[:2] == ["plan", "rate"] for line in lines)
    assert chaos("diff", "a", "b", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["a"] == "a" and any(row["differs"] for row in found["sections"][0]["rows"])
    assert chaos("diff", "a", "a") == 0 and "nothing that is on record of them differs" in capfd.readouterr().out
    assert chaos("diff", "a", "c") == 254 and "there is no run 'c'" in capfd.readouterr().err


def test_note(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("note", "a") == 0 and "has no note" in capfd.readouterr().out
    assert chaos("note", "a", "see https://example.org/1 \x1b[2J") == 0
    capfd.readouterr()
    assert chaos("note", "a") == 0 and capfd.readouterr().out == "see https://example.org/1 \\x1b[2J\n"
    assert chaos("note", "a", "") == 0 and not (results / "a" / "note.txt").exists()
    assert chaos("note", "a", "x" * 20_000) == 254 and "16,384" in capfd.readouterr().err
    exploration = made.exploration(results, "explored", {3: ("StrongIsr", 1)}, [1])
    assert chaos("note", "explored", "found") == 0 and (exploration / "note.txt").read_text() == "found\n"
    assert chaos("note", "nothing", "x") == 254
    capfd.readouterr()
    assert chaos("note", "b", "x", "--json") == 0
    assert json.loads(capfd.readouterr().out) == {"run": "results/b", "note": "x"}


def test_prune(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (results / "mine").mkdir()
    assert chaos("results", "prune", "--keep", "1", "--dry-run") == 0
    output = capfd.readouterr().out
    assert "would go  results/a  (run, fail" in output and "1 entry would go" in output and (results / "a").is_dir()
    assert chaos("results", "prune", "--keep", "1", "--dry-run", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert [each["directory"] for each in found["going"]] == ["results/a"] and found["kept"] == {"the newest": 1}
    assert found["bytes"] > 0 and found["removing"] is False
    assert chaos("results", "prune", "--keep", "1", "--json") == 254
    assert chaos("results", "prune", "--keep", "1", "--keep-failed", "--yes") == 0 and (results / "a").is_dir()
    assert chaos("results", "prune", "--keep", "0", "--yes", "--dry-run") == 254
    assert chaos("results", "prune", "--keep", "1", "--yes") == 0
    assert {path.name for path in results.iterdir()} == {"b", "mine", ".index.sqlite"}
    assert chaos("results", "prune", "--keep", "0") == 254 and (results / "b").is_dir()  # nobody can be asked
    assert "give --yes" in capfd.readouterr().err


def test_report(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("report", "results", "--out", "site") == 0 and "site/index.html: 2 entries" in capfd.readouterr().out
    assert chaos("report", "results/a", "--out", "one") == 0 and "1 entry" in capfd.readouterr().out
    assert chaos("report", "nothing") == 254 and chaos("report", "results", "--out", "results") == 254
    assert not Path("nothing").exists() and (results / "a" / "plan.json").is_file()


def test_serve(results: Path) -> None:
    command = [sys.executable, "-m", "harness", "serve", "--port", "0", "--results", str(results)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line.startswith("http://127.0.0.1:")
            port = int(line.split("/ ")[0].rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/run/a")
            assert connection.getresponse().status == 200
            connection.close()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0 and process.stderr.read() == ""


def test_serve_says_in_a_sentence_why_not(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert chaos("serve", "--port", port) == 255
        error = capfd.readouterr().err
        assert f"port {port} of 127.0.0.1 cannot be used: Address already in use" in error and error.count("\n") == 1
    assert chaos("serve", "--port", "70000") == 254 and chaos("serve", "--host", "example.org") == 254
    capfd.readouterr()
    assert chaos("serve", "--port", "0", "--results", "nothing") == 254
    assert "nothing is no directory" in capfd.readouterr().err
