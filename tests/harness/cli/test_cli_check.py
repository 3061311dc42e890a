"""`chaos check PATH…`: histories and runs, one or many, good, broken and damaged."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from checkers import registers
from harness.cli import app as cli
from harness.generate import registers as generators
from harness.generate import transactions
from harness.record.judging import Judge
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
    assert chaos("check", "read.edn", "--workload", "register") == 1
    assert chaos("check", "read.edn", "--initial", "zero") == 254
    assert "--initial 'zero' is neither nil nor an integer" in capfd.readouterr().err


READS = {
    "bank": ("{0 10, 1 90}", "register, cas-register, multi-register, bank or something"),
    "set": ("[]", "register, cas-register, set, set-full, comments or something"),
    "counter": ("0", "register, cas-register, counter or something"),
    "keyed counter": ("[:x 0]", "register, cas-register, counter or something"),
    "transactions": ("[[:r 1 [2]]]", "list-append, multi-register, rw-register, long-fork or something"),
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("of", READS)
def test_nothing_is_judged_on_a_guess_that_only_reads_support(of: str, capfd: pytest.CaptureFixture[str]) -> None:
    value, several = READS[of]
    asked = {"[:x": "[:x nil]", "[[:r": "[[:r 1 nil]]"}.get(value.split()[0], "nil")
    lines = [f"{{:process 1, :type :{type_}, :f :read, :value {each}}}\n" for type_, each in
             (("invoke", asked), ("ok", value))]  # fmt: skip
    Path("reads.edn").write_text("".join(lines))
    assert chaos("check", "reads.edn") == 254
    reported = capfd.readouterr().err.splitlines()[-1]
    assert reported.startswith(f"chaos: reads.edn could be a history of {several}") and reported.endswith(
        "by --workload"
    )
    # In a directory it costs the others nothing, and what else is there is judged.
    assert chaos("check", "reads.edn", "good.edn", "stale.edn") == 254
    output = capfd.readouterr().out.splitlines()
    assert [line.split()[1] for line in output[:3]] == ["not", "pass", "fail"]
    assert output[-1] == "3 judged: 1 pass, 1 fail, 1 not judged"


@pytest.mark.usefixtures("here")
def test_what_comes_after_many_reads_tells(capfd: pytest.CaptureFixture[str]) -> None:
    read = "{:process 1, :type :invoke, :f :read}\n{:process 1, :type :ok, :f :read, :value []}\n"
    add = "{:process 1, :type :invoke, :f :add, :value 3}\n{:process 1, :type :ok, :f :add, :value 3}\n"
    Path("late.edn").write_text(read * 6000 + add)
    assert chaos("check", "late.edn") == 0
    assert "taken for a history of set" in capfd.readouterr().out


@pytest.mark.usefixtures("here")
def test_adds_alone_are_of_a_set_or_a_counter(capfd: pytest.CaptureFixture[str]) -> None:
    add = "{:process 1, :type :invoke, :f :add, :value 3}\n{:process 1, :type :ok, :f :add, :value 3}\n"
    read = "{{:process 1, :type :invoke, :f :read, :value {}}}\n{{:process 1, :type :ok, :f :read, :value {}}}\n"
    keyed = add.replace("3", "[:x 3]")
    for text, code, reported in (
        (add, 254, "could be a history of set or counter (its operations: add)"),
        (add.replace("3", ":x"), 2, "unknown: vacuous: the set was never read"),
        (add + read.format("nil", "[3]"), 0, "taken for a history of set"),
        (add + read.format("nil", "3"), 0, "taken for a history of counter"),
        (keyed + read.format("[:x nil]", "[:x 3]"), 0, "taken for a history of counter"),
        (keyed + read.format("[:x nil]", "[:x #{3}]"), 0, "each key an object of its own; --not-keyed says otherwise"),
        (keyed + read.format("[:x nil]", "[:x #{3}]") + add.replace("3", "[:y 4]"), 2, "1 of 2 sets were never read"),
    ):
        Path("adds.edn").write_text(text)
        assert chaos("check", "adds.edn") == code
        assert reported in "".join(capfd.readouterr())


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


def test_what_is_no_history_is_left_alone_in_a_directory(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "bad.edn").unlink()
    for name, text in {"notes.txt": "nothing here", "broker.log": "[INFO] up", "some.json": '{"a": 1}'}.items():
        (here / name).write_text(text)
    (here / "log.txt").write_text("INFO  jepsen.util - 3\t:invoke\t:write\t4\nINFO  jepsen.util - 3\t:ok\t:write\t4\n")
    (here / "good.json").write_text('{"type": "invoke", "process": 0, "f": "read", "value": null}\n'
                                    '{"type": "ok", "process": 0, "f": "read", "value": null}\n')  # fmt: skip
    assert chaos("check", here) == 1
    output = capfd.readouterr().out
    assert output.splitlines()[-1] == "4 judged: 3 pass, 1 fail" and "good.json" in output and "log.txt" in output


def test_a_verdict_under_other_options_keeps_the_one_on_record(here: Path) -> None:
    stored = here / "results" / "run"
    transactions.generate(stored, operations=500, processes=4, seed=1, defect="g1c", workload="list-append")
    assert chaos("check", "run") == 1
    assert chaos("check", "run", "--consistency", "read-uncommitted") == 0
    verdict = json.loads((stored / "verdict.json").read_text())
    assert verdict["asked"] == {"consistency": "read-uncommitted"}
    assert [(each["verdict"], each["asked"]) for each in verdict["earlier"]] == [("fail", {})]
    assert chaos("check", "run") == 1
    verdict = json.loads((stored / "verdict.json").read_text())
    assert [each["verdict"] for each in verdict["earlier"]] == ["fail", "pass"]


@pytest.mark.parametrize("in_memory", [0, 200_000])
def test_damage_costs_no_more_than_the_operations_in_it(
    here: Path, in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the run is small or large."""
    monkeypatch.setattr("harness.record.judging.IN_MEMORY", in_memory)
    monkeypatch.setattr(Judge, "_spark", lambda self, log: None)  # which is judged in this process too
    run = here / "run"
    label = generators.generate(run, operations=20_000, processes=9, seed=1, defect="stale-read", keys=50)
    *_, last = sorted((run / "history" / "registers").iterdir())
    damaged = bytearray(last.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    last.write_bytes(damaged)
    assert chaos("check", "run") == 1, label
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["reason"].startswith("stale read") and str(last.name) in verdict["undecided_reasons"][0]
    assert 10_000 < verdict["operations"]["operations"] < 20_000


def test_what_nobody_thought_of_costs_the_others_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = registers.check_tables

    def check_tables(plan: dict[str, object], tables: object) -> object:
        if plan["run"] == "good":
            raise TypeError("unhashable")
        return real(plan, tables)  # type: ignore[arg-type]

    monkeypatch.setattr(registers, "check_tables", check_tables)
    assert chaos("check", "--json", here / "good.edn", here / "stale.edn") == 255
    good, stale = map(json.loads, capfd.readouterr().out.splitlines())
    assert good["error"] == "internal error: TypeError: unhashable" and stale["verdict"] == "fail"


@pytest.mark.parametrize("content", ['{"tables": 5}', '{"tables": {"registers": 5}}', '{"tables": {}}', "[]", ""])
def test_a_manifest_that_cannot_be_makes_the_verdict_unknown(here: Path, content: str) -> None:
    generators.generate(here / "run", operations=100, processes=2, seed=1, defect=None)
    manifest = here / "run" / "history" / "manifest.json"
    manifest.write_text(content)
    assert chaos("check", "run") == 2
    assert str(manifest.name) in json.loads((here / "run" / "verdict.json").read_text())["reason"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("good.edn --consistency strongest", "no consistency model is called 'strongest'"),
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
    monkeypatch.setattr("harness.record.judging.IN_MEMORY", 1)
    assert chaos("check", "good.edn", "stale.edn", "--spark", "local[2]") == 1


OTHER = GOOD.replace(":value 1", ":value 7")


def judged(output: str) -> list[str]:
    return [line.split()[0] for line in output.splitlines()[:-1]]


def test_every_history_in_a_directory_is_judged_and_the_same_one_once(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = here / "d"
    (root / "sub").mkdir(parents=True)
    text = "".join(
        f"0\t:{kind}\t:{f}\t{value}\n" for f in ("write", "read") for kind, value in (("invoke", 1), ("ok", 1))
    )
    as_text = text.replace(":invoke\t:read\t1", ":invoke\t:read\tnil").replace("0\t:invoke\t:read", "1\t:invoke\t:read")
    as_text = as_text.replace("0\t:ok\t:read", "1\t:ok\t:read")
    as_json = "".join(
        json.dumps({"process": process, "type": kind, "f": f, "value": value}) + "\n"
        for process, kind, f, value in (
            (0, "invoke", "write", 1), (0, "ok", "write", 1), (1, "invoke", "read", None), (1, "ok", "read", 1),
        )
    )  # fmt: skip
    same = {"history.edn": GOOD, "history.txt": as_text, "history.json": as_json}
    same["jepsen.log"] = "INFO  [main] jepsen.cli - hello\n" + "".join(
        f"INFO [w 0] jepsen.util - {line}\n" for line in as_text.splitlines()
    )
    others = {"other.edn": STALE, "UPPER.EDN": GOOD, "sub/s.edn": GOOD, "history.edn.gz": OTHER}
    no_history = {"results.edn": "{:valid? true, :stats {:count 4}}", "x.json": "{}", ".hidden.edn": GOOD}
    for name, content in (same | others | no_history).items():
        (root / name).write_text(content)
    os.mkfifo(root / "pipe.edn")
    assert chaos("check", root) == 1
    captured = capfd.readouterr()
    found = sorted(str(Path(each).relative_to(root)) for each in judged(captured.out))
    assert found == sorted(["history.edn", *others])
    assert "results.edn is left out: it holds no operation" in captured.err
    (root / "history.edn").unlink()  # then it is judged by the next of its notations
    assert chaos("check", root) == 1
    found = [str(Path(each).relative_to(root)) for each in judged(capfd.readouterr().out)]
    assert "history.json" in found and "history.txt" not in found


def test_a_file_called_a_history_that_is_empty_is_told(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "d").mkdir()
    (here / "d" / "a.edn").write_text("")
    (here / "d" / "b.edn").write_text(GOOD)
    assert chaos("check", here / "d") == 255
    assert "a.edn is empty" in capfd.readouterr().out


def test_what_is_no_file_is_one_sentence(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(here / "pipe.edn")
    assert chaos("check", "pipe.edn") == 254
    assert "pipe.edn is no file" in capfd.readouterr().err
    assert chaos("check", f"file://{here}/nothing") == 254
    assert f"there is nothing at file://{here}/nothing" in capfd.readouterr().err


def test_a_choice_that_a_workload_does_not_have_is_refused(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("check", "good.edn", "--consistency", "serializable") == 254
    assert "--consistency is for list-append, rw-register, and this is of register" in capfd.readouterr().err
    assert chaos("check", "good.edn", "--workload", "register", "--consistency", "serializable") == 254
    assert chaos("check", "good.edn", "--consistency", "bogus") == 254
    transactions.generate(here / "results" / "txn", operations=100, processes=3, seed=1)
    assert chaos("check", "txn", "--nil-reads", "anything") == 254
    assert not (here / "results" / "txn" / "verdict.json").exists()
    capfd.readouterr()
    assert chaos("check", "txn", "good.edn", "--consistency", "serializable") == 254  # which costs others nothing
    assert capfd.readouterr().out.splitlines()[-1] == "2 judged: 1 pass, 1 not judged"


def test_a_summary_says_what_is_damaged_and_that_the_verdict_changed(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = here / "results" / "run"
    generators.generate(run, operations=20_000, processes=9, seed=1, defect="stale-read", keys=50)
    assert chaos("check", "run") == 1
    assert "undecided" not in capfd.readouterr().out
    files = sorted((run / "history" / "registers").iterdir())
    files[-1].write_bytes(b"")
    assert chaos("check", "run") == 1
    output = capfd.readouterr().out
    assert f"  undecided   {files[-1].relative_to(here)} is damaged" in output and "was fail" not in output
    for file in files:
        file.unlink()
    assert chaos("check", "run") == 2
    assert "  verdict     was fail by" in capfd.readouterr().out
    generators.generate(run, operations=20_000, processes=9, seed=1, defect=None, keys=50)
    assert chaos("check", "run", "good.edn") == 0
    assert "(was unknown by" in capfd.readouterr().out


@pytest.mark.parametrize("damage", ["{", "[1]", None])
def test_a_run_whose_plan_is_lost_names_it(here: Path, damage: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    run = here / "results" / "run"
    generators.generate(run, operations=100, processes=3, seed=1, defect=None)
    if damage is None:
        (run / "plan.json").unlink()
    else:
        (run / "plan.json").write_text(damage)
    assert chaos("check", "results") == 2
    assert f"{run.relative_to(here)}/plan.json" in capfd.readouterr().out


def test_an_operation_that_cannot_be_is_told_with_its_file(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("check", "good.edn", "--workload", "mutex") == 255
    assert "chaos: good.edn: operation 0 is a 'write', which a mutex does not have" in capfd.readouterr().err


@pytest.mark.parametrize("name", [":client-1", '"x"'])
def test_operations_of_a_process_with_a_name_are_not_left_out(
    here: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    more = f"{{:process {name} :type :invoke :f :read :value nil}}\n{{:process {name} :type :ok :f :read :value 777}}\n"
    (here / "named.edn").write_text(GOOD + more)
    assert chaos("check", "named.edn") == 255
    assert "named.edn line 5: the process" in capfd.readouterr().err


def test_a_gzip_stream_that_is_cut_off_is_no_pass(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, verdict in (("good", 2), ("stale", 1)):
        content = gzip.compress((here / f"{name}.edn").read_bytes())
        (here / f"{name}.edn.gz").write_bytes(content[:-8])  # what checks the whole is gone
        assert chaos("check", f"{name}.edn.gz", "--workload", "register") == verdict
    assert "ends within its gzip stream" in capfd.readouterr().out


def test_an_exploration_without_its_runs_is_not_judged(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("explore", "--seeds", "1", "--time-limit", "8", "--results", here / "r") in (0, 2)
    (exploration,) = (here / "r").iterdir()
    for path in (exploration / "dataset" / "runs").iterdir():
        path.unlink()
    assert chaos("check", exploration) == 255
    assert "lists no run" in capfd.readouterr().err


def test_a_part_that_was_stopped_before_its_first_run_is_no_hindrance(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ("explore", "--seeds", "1", "--nemesis", "kill", "--time-limit", "12", "--results", here / "r")
    assert chaos(*options) == 0
    (whole,) = (here / "r").iterdir()
    empty = here / "r" / "stopped"
    (empty / "dataset" / "runs").mkdir(parents=True)
    shutil.copy(whole / "seeds.json", empty)
    told = json.loads((whole / "explore.json").read_text())
    (empty / "explore.json").write_text(json.dumps(told | {"totals": told["totals"] | {"runs": 0}}))
    assert chaos("check", whole, empty) == 0
    assert chaos("check", empty) == 2
    assert "not simulated: 1 of 1 seeds: 1" in capfd.readouterr().out
