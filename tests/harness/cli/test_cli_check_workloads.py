"""`chaos check` of the workloads of Elle and Jepsen that have options of their own."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from harness.cli import app as cli
from tests import ROOT

BANK = """{:process 0, :type :invoke, :f :transfer, :value {:from 0, :to 1, :amount 15}}
{:process 0, :type :ok, :f :transfer, :value {:from 0, :to 1, :amount 15}}
{:process 0, :type :invoke, :f :read}
{:process 0, :type :ok, :f :read, :value {0 -5, 1 25}}
"""
STALE = """{"process": 0, "type": "invoke", "f": "txn", "value": [["w", "x", 1]]}
{"process": 0, "type": "ok", "f": "txn", "value": [["w", "x", 1]]}
{"process": 1, "type": "invoke", "f": "txn", "value": [["w", "x", 2]]}
{"process": 1, "type": "ok", "f": "txn", "value": [["w", "x", 2]]}
{"process": 2, "type": "invoke", "f": "txn", "value": [["r", "x", null]]}
{"process": 2, "type": "ok", "f": "txn", "value": [["r", "x", 1]]}
"""
SET = """{:process 0, :type :invoke, :f :add, :value 1, :time 1000000}
{:process 0, :type :ok, :f :add, :value 1, :time 2000000}
{:process 0, :type :invoke, :f :read, :time 5000000}
{:process 0, :type :ok, :f :read, :value [], :time 6000000}
{:process 0, :type :invoke, :f :read, :time 7000000}
{:process 0, :type :ok, :f :read, :value #{1}, :time 8000000}
"""
GROUPS = """{:process 0, :type :invoke, :f :txn, :value [[:r :x nil] [:r :y nil]]}
{:process 0, :type :ok, :f :txn, :value [[:r :x 1] [:r :y nil]]}
"""


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("bank.edn", BANK), ("stale.json", STALE), ("set.edn", SET), ("groups.edn", GROUPS)):
        Path(name).write_text(text)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        ("bank.edn", 1, "fail: negative-value"),
        ("bank.edn --allow-negative-balances", 0, "no anomaly of bank invariant"),
        ("bank.edn --allow-negative-balances --total-amount 20", 0, "no anomaly of bank invariant"),
        ("bank.edn --allow-negative-balances --total-amount 21", 1, "add up to 20, and not to 21"),
        ("stale.json", 1, "multi-register"),
        ("stale.json --consistency strict-serializable", 0, "no anomaly of transactions"),
        ("stale.json --workload rw-register", 0, "no anomaly of transactions"),
        ("stale.json --linearizable-keys", 1, "cyclic-versions"),
        ("stale.json --linearizable-keys --consistency read-uncommitted", 1, "cyclic-versions"),
        ("stale.json --linearizable-keys --consistency PL-1,read-atomic", 1, "cyclic-versions"),
        ("stale.json --consistency serializable,none", 254, "no consistency model is called 'none'"),
        ("stale.json --sequential-keys --wfr-keys", 0, "no anomaly of transactions"),
        ("set.edn", 1, "fail: not linearizable (1)"),
        ("set.edn --workload set-full", 0, "allowed here: stale"),
        ("set.edn --workload set-full --linearizable", 1, "fail: stale"),
        ("set.edn --workload set-full", 0, "stable_latency_ms 0: 3.000"),
        ("groups.edn --workload long-fork", 0, "no anomaly of long-fork invariant"),
        ("groups.edn --workload long-fork --group-size 3", 255, "reads 2 keys, and groups here are of 3"),
        ("bank.edn --group-size 3", 254, "--group-size is for long-fork, and this is of bank; leave it out"),
        ("set.edn --allow-negative-balances", 254, "--allow-negative-balances is for bank, and this is of set"),
        ("set.edn --wfr-keys", 254, "--wfr-keys is for rw-register, and this is of set; leave it out"),
        ("stale.json --workload bank --linearizable", 254, "--linearizable is for set-full, and this is of bank"),
        ("stale.json --workload bank", 255, "a 'txn', which a bank does not have: it has read, transfer"),
        ("stale.json --workload rw-register --consistency none", 254, "no consistency model is called 'none'"),
        ("bank.edn --workload rw-register", 255, "is no transaction of rw-register"),
    ],
)
def test_options_of_a_workload(arguments: str, code: int, reported: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("check", *arguments.split()) == code
    output = capfd.readouterr()
    assert reported in " ".join((output.out + output.err).split())


@pytest.mark.usefixtures("here")
def test_what_was_measured_is_in_the_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("check", "set.edn", "--workload", "set-full", "--json") == 0
    verdict = json.loads(capfd.readouterr().out)
    assert verdict["measured"]["stable_latency_ms"]["0.99"] == pytest.approx(3, abs=0.001)
    schema = json.loads((ROOT / "docs" / "schemas" / "verdict.json").read_text())
    del schema["required"]  # of runs of logs
    jsonschema.validate(verdict, schema)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("workload", ["rw-register", "bank", "set-full", "total-queue"])
def test_what_is_generated_is_judged(workload: str, capfd: pytest.CaptureFixture[str]) -> None:
    defect = {"rw-register": "g1c", "bank": "wrong-total"}.get(workload, "lost")
    assert chaos("generate", "--workload", workload, "--operations", "500", "--defect", defect, "--name", "bad") == 0
    assert chaos("generate", "--workload", workload, "--operations", "500", "--name", "good") == 0
    capfd.readouterr()
    assert (chaos("check", "good"), chaos("check", "bad")) == (0, 1)
    assert f"bad ({workload})" in capfd.readouterr().out
