"""`chaos check PATH…`: histories and runs, one or many, good, broken and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkers import registers
from harness import cli
from spark_history.jepsen import read_history

GOOD = """{:process 0, :type :invoke, :f :write, :value 1}
{:process 0, :type :ok, :f :write, :value 1}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 1}
"""
STALE = (
    GOOD
    + """{:process 0, :type :invoke, :f :write, :value 2}
{:process 0, :type :ok, :f :write, :value 2}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 1}
"""
)


def chaos(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"good.edn": GOOD, "stale.edn": STALE, "bad.edn": "{:type ]}\n" + GOOD}.items():
        Path(name).write_text(text)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_one_history(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("check", "good.edn") == 0
    output = capfd.readouterr().out
    assert output.lstrip().startswith("pass: ") and "taken for a history of register" in output
    assert chaos("check", "stale.edn", "--workload", "register") == 1
    output = capfd.readouterr().out
    assert output.lstrip().startswith("fail: ") and "|" in output and "taken for" not in output
    assert chaos("check", "bad.edn") == 255
    assert capfd.readouterr().err.splitlines()[-1] == "chaos: bad.edn is damaged at line 1: ']' closes '{'"


@pytest.mark.usefixtures("here")
def test_the_initial_value(capfd: pytest.CaptureFixture[str]) -> None:
    Path("read.edn").write_text("{:process 1, :type :invoke, :f :read}\n{:process 1, :type :ok, :f :read, :value 0}\n")
    assert chaos("check", "read.edn", "--initial", "0") == 0
    assert chaos("check", "read.edn", "--initial", "nil") == 1
    assert chaos("check", "read.edn") == 1
    assert chaos("check", "read.edn", "--initial", "zero") == 254
    assert "--initial 'zero' is neither nil nor an integer" in capfd.readouterr().err


def test_many_are_judged_though_one_is_damaged(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("check", "good.edn", "good.edn", "stale.edn") == 1
    assert capfd.readouterr().out.splitlines()[-1] == "2 judged: 1 pass, 1 fail"
    assert chaos("check", here) == 255
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:3]] == ["not", "pass", "fail"] and "line 1" in lines[0]
    assert chaos("check", "--json", "stale.edn", "bad.edn") == 255
    stale, bad = map(json.loads, capfd.readouterr().out.splitlines())
    assert (stale["verdict"], stale["workload"], stale["exit_code"]) == ("fail", "register", 1)
    assert (bad["verdict"], bad["exit_code"]) == (None, 255) and "line 1" in bad["error"]


def test_a_run_of_registers_is_judged_by_its_family(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("good", "stale"):
        imported = read_history(here / f"{name}.edn")
        registers.write_history(here / "results" / name, imported.plan, imported.tables)
    assert chaos("check", "stale") == 1
    verdict = json.loads((here / "results" / "stale" / "verdict.json").read_text())
    assert verdict["verdict"] == "fail" and (here / "results" / "stale" / "anomalies.parquet").exists()
    capfd.readouterr()
    assert chaos("check", "results") == 1
    assert capfd.readouterr().out.splitlines()[-1] == "2 judged: 1 pass, 1 fail"
    assert chaos("check", "latest") in (0, 1)


def test_a_store_of_jepsen_is_judged_by_its_histories(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for time in ("t1", "t2"):
        (here / "store" / "etcd" / time).mkdir(parents=True)
        (here / "store" / "etcd" / time / "history.edn").write_text(GOOD)
        (here / "store" / "etcd" / time / "history.txt").write_text("")
        (here / "store" / "etcd" / time / "jepsen.log").write_text("")
    (here / "store" / "etcd" / "latest").symlink_to("t2")
    assert chaos("check", here / "store") == 0
    assert capfd.readouterr().out.splitlines()[-1] == "2 judged: 2 pass"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("good.edn nope", "there is no run 'nope'"),
        ("good.edn --workload banking", "--workload 'banking' is none .*list-append"),
        ("good.edn --time-limit 0", "--time-limit is 0"),
        ("good.edn --memory-limit 0", "memory-limit"),
    ],
)
@pytest.mark.usefixtures("here")
def test_bad_arguments(arguments: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    import re

    assert chaos("check", *arguments.split()) == 254
    assert re.search(message, capfd.readouterr().err)


@pytest.mark.spark
def test_a_large_history_is_judged_on_spark(here: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    monkeypatch.setattr("harness.judging.IN_MEMORY", 1)
    assert chaos("check", "good.edn", "stale.edn", "--spark", "local[2]") == 1
