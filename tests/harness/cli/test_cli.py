"""The commands: exit codes, one sentence for every mistake, and nothing left behind by a mistake."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli import app as cli
from harness.cluster import RuntimeUnavailable
from harness.errors import ExitCode, HarnessFailure
from harness.plan import registry
from harness.plan.plan import Plan, make_plan, parse_settings
from harness.record.results import create, find, list_runs
from harness.runtimes.owner import machine, owner
from harness.targets.kraft.target import Kraft
from tests.harness.run.fakes import FakeComponents, FakeRuntime


@pytest.fixture
def components(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeComponents:
    fake = FakeComponents()
    monkeypatch.setattr("harness.run.run.components_of", lambda plan: fake)
    monkeypatch.setattr("harness.run.components.Verification", lambda: fake)
    monkeypatch.setattr("harness.runtimes.clean.clean", fake.runtime.clean)
    monkeypatch.setattr("harness.run.order.choose_runtime", lambda *_: ("docker", ""))
    monkeypatch.chdir(tmp_path)
    return fake


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


def test_an_option_without_a_value_is_no_directory(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (("explore", "--guided", "--corpus", ""), ("explore", "--corpus=", "--guided")):
        assert chaos(*words) == ExitCode.BAD_ARGUMENTS
        assert "chaos: what follows --corpus is empty; give a value, or leave it out" in capfd.readouterr().err
    assert chaos("prove", "") == ExitCode.BAD_ARGUMENTS
    assert "chaos: an ID is empty" in capfd.readouterr().err


BAD = {
    "--nemesis pwer-outage": r"no nemesis .pwer-outage. \(did you mean power-outage\?\); valid: all, c.*none",
    "--nemesis none,kill": "mixes none with a nemesis",
    "--nemesis kill,kill": "names a nemesis twice",
    "--workload banking": "no workload 'banking'; valid: .*append",
    "--rate -1": r"--rate is -1; .* above 0",
    "--rate nan": "--rate is nan",
    "--rate 1e12": r"--rate is 1e\+12; .* at most 10,000,000",
    "--time-limit inf": "--time-limit: 'inf' is no time; .* e.g. 500ms, 10s, 2m",
    "--time-limit 8d": "--time-limit: '8d' is no time",
    "--time-limit 300h": "--time-limit is 1.08e.06; .* at most 604,800",
    "--seed -1": "--seed is -1; valid is 0 to 9,223,372,036,854,775,807",
    "--seed 9223372036854775808": "--seed is 9223372036854775808; valid is 0 to",
    "--interval 0.001s": "--interval is 0.001 s; it must be at least 0.5 s",
    "--nemesis last-replica-standing --time-limit 9s": "no fault of last-replica-standing fits into --time-limit 9",
    "--time-limit 0": r"--time-limit is 0; .*above 0",
    "--concurrency 0": "--concurrency is 0; it must be at least 1",
    "--partitions 10001": "--partitions is 10001; it must be at least 1 and at most 10,000",
    "--brokers 91": "--brokers is 91; it must be at least 1 and at most 90",
    "--controllers 1000": "--controllers is 1000; it must be at least 1 and at most 90",
    "--min-insync-replicas 4": r"--min-insync-replicas 4 is above --replication-factor 3; valid is 1 to 3",
    "--replication-factor 4": "there are 3; valid is 1 to 3",
    "--records-per-batch 0": "--records-per-batch is 0; valid is 1 to 1,000",
    "--records-per-batch 5 --workload transactions --target kafka": "workload transactions has batches of its own",
    "--acks 2": r"'--acks'.*2.*all",
    "--file-system zfs": r"'--file-system'.*ext4.*xfs",
    "--strike some": r"'--strike'.*random.*leaders",
    "--targets leaders": "called --strike now; use --strike leaders",
    "--target nonsense": "no target 'nonsense'; valid: kafka, kraft",
    "--seed x": "'--seed'.*integer",
    "--unknown-option": "unknown-option",
    "--set log.flush": "must have the form NAME=VALUE",
    "--set no.such.setting=1": r"no\.such\.setting",
    "--set log.flush.interval.messages=0": r"log\.flush\.interval\.messages.*integer",
    "--set num.replica.fetchers=1_0": "num.replica.fetchers=1_0 is not valid: an integer from 1 to 1000 expected",
    "--set metrics.port=9093": "metrics.port=9093 is where nodes listen; all but 9092 and 9093 are valid",
    "--set node.id=3": r"node\.id is not possible",
    "--set min.insync.replicas=1": "use --min-insync-replicas 1",
    "--spark-ui-port 99999": "valid is 1 to 65535",
    "extra": "extra",
}


@pytest.mark.usefixtures("components")
@pytest.mark.parametrize("arguments", BAD)
def test_a_mistake_gets_one_sentence_and_254(arguments: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert chaos("run", *arguments.split()) == 254
    output = capfd.readouterr()
    assert re.search(BAD[arguments], output.err), output.err
    assert output.err.startswith("chaos: ") and output.err.count("\n") == 1 and "Traceback" not in output.err
    assert output.out == "" and list(tmp_path.iterdir()) == []


def test_commands_that_do_not_exist(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("runn") == 254
    assert "runn" in capfd.readouterr().err


@pytest.mark.parametrize(("verdict", "code"), [("pass", 0), ("fail", 1), ("unknown", 2)])
def test_a_run_exits_with_its_verdict_and_can_be_checked_again(
    components: FakeComponents, verdict: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    operations = {"append ok": 20, "append fail": 1, "read ok": 5, "read info": 1}
    components.verdict = {"verdict": verdict, "reason": "as told", "exit_code": code, "operations": operations}
    settings = ("--set", "log.flush.interval.messages=1", "--acks", "1")
    assert chaos("run", "--nemesis", "none", "--time-limit", "0.2", "--seed", "7", *settings) == code
    (run,) = list_runs(Path("results"))
    assert re.fullmatch(r"\d{8}T\d{6}-none-s7", run.name)
    output = capfd.readouterr().out
    assert f"{verdict}: as told" in output and "appends: 20 acknowledged, 1 failed, 0 indeterminate; 6 reads" in output
    assert f"{run}/report.html" in output and f"chaos check {run}" in output
    plan = Plan.load(run)
    assert plan.run == run.name and plan.acks == "1" and plan.settings == {"log.flush.interval.messages": "1"}
    components.cluster.stopped = 0
    for name in (run.name, str(run), "latest"):
        assert chaos("check", name) == code
    assert f"{verdict}: as told" in capfd.readouterr().out


def test_the_command_in_the_plan_repeats_the_run(components: FakeComponents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.plan.schedule.CALM_AT_END_S", -20.0)  # faults fit into any run
    arguments = "run --nemesis kill,pause --time-limit 0.2 --seed 3 --rate 50.5 --partitions 2 --set log.level=DEBUG"
    assert chaos(*arguments.split()) == 0
    plan = Plan.load(find("latest", Path("results")))
    assert plan.strike == "leaders"
    components.cluster.stopped, components.recorder.closed = 0, False
    assert chaos(*plan.command().split()[1:]) == 0
    again = Plan.load(find("latest", Path("results")))
    assert again.model_copy(update={"run": plan.run}) == plan


def test_failures_of_the_machine_exit_with_255(components: FakeComponents, capfd: pytest.CaptureFixture[str]) -> None:
    components.runtime = FakeRuntime(
        components.cluster, RuntimeUnavailable("no permission for Docker: join group docker")
    )
    assert chaos("run", "--nemesis", "none", "--time-limit", "1") == 255
    assert capfd.readouterr().err.splitlines()[-1] == "chaos: no permission for Docker: join group docker"
    assert list(Path("results").iterdir()) == [], "of a run that did not begin"


def test_a_port_in_use_is_found_before_anything_starts(
    components: FakeComponents, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert chaos("run", "--spark-ui-port", str(port)) == 255
    assert f"--spark-ui-port {port} cannot be used: Address already in use" in capfd.readouterr().err
    assert not Path("results").exists()


def test_a_damaged_history_is_a_failure_not_a_verdict(
    components: FakeComponents, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("results/r/journal").mkdir(parents=True)
    components.recorder.closed = True
    components.verdict = HarnessFailure("operations-000003.parquet is damaged")
    assert chaos("check", "r") == 255
    assert capfd.readouterr().err.splitlines()[-1] == "chaos: operations-000003.parquet is damaged"


@pytest.mark.usefixtures("components")
def test_runs_that_are_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("check", "latest") == 254
    assert "no run under results yet" in capfd.readouterr().err
    assert chaos("check", "nope") == 254
    assert "no run 'nope' under results" in capfd.readouterr().err
    Path("empty").mkdir()
    assert chaos("check", "empty") == 254
    assert "empty is not a run directory" in capfd.readouterr().err


@pytest.mark.usefixtures("components")
def test_results_where_nothing_can_be_saved(capfd: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert chaos("run", "--results", "file") == 254
    assert "no run can be saved under file: it is no directory" in capfd.readouterr().err


def test_a_bug_of_ours_gives_no_traceback(components: FakeComponents, capfd: pytest.CaptureFixture[str]) -> None:
    components.verdict = KeyError("offset")
    components.recorder.closed = True
    Path("results/r/journal").mkdir(parents=True)
    assert chaos("check", "r") == 255
    assert "chaos: internal error: KeyError: 'offset'" in capfd.readouterr().err


@pytest.mark.usefixtures("components")
def test_list(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("list", "nemeses") == 0
    assert {line.split("\t")[0] for line in capfd.readouterr().out.splitlines()} >= {
        "kill", "partition", "pause", "power-outage", "power-outage-cluster",
    }  # fmt: skip
    assert chaos("list", "workloads") == 0
    assert capfd.readouterr().out.startswith("append\t")
    assert chaos("list", "settings") == 0
    settings = capfd.readouterr().out
    assert "log.flush.interval.messages\t" in settings and "node.id" not in settings
    assert chaos("list") == 0
    assert "no runs under results" in capfd.readouterr().out
    killed, judged, going, away = (create(Path("results"), ("pause",), seed) for seed in (1, 2, 3, 4))
    for run, process, on in (
        (killed, "1:1", machine()), (judged, "1:1", machine()), (going, owner(), machine()), (away, "1:1", "another"),
    ):  # fmt: skip
        make_plan(run=run.name).save(run)
        harness = {"process": process, "machine": on}
        (run / "run.json").write_text(json.dumps({"status": "running", "harness": harness}))
    (judged / "verdict.json").write_text(json.dumps({"verdict": "pass", "reason": "all held"}))
    for name in ("explored", "stopped", "damaged"):
        Path(f"results/{name}/dataset").mkdir(parents=True)
    Path("results/damaged/explore.json").write_text(json.dumps({"exit_code": [], "totals": {"runs": "all"}}))
    reported = {"exit_code": 1, "totals": {"runs": 1200, "passed": 1198, "failed": 2, "unknown": 0}}
    Path("results/explored/explore.json").write_text(json.dumps(reported))
    told = {"exit_code": 2, "every": "power", "of": "load", "runs": 4, "planned": 9, "results": {"pass": 4}}
    for name, text in (("everywhere", json.dumps(told)), ("nowhere", '{"exit_code": 0}')):
        Path(f"results/{name}").mkdir()
        Path(f"results/{name}/systematic.json").write_text(text)
    assert chaos("list", "runs") == 0
    assert {tuple(line.split("\t")) for line in capfd.readouterr().out.splitlines()} == {
        (killed.name, "not judged", "its harness was killed; chaos check judges what was recorded until then"),
        (judged.name, "pass", "all held"),
        (going.name, "not judged", "running"),
        (away.name, "not judged", "running"),
        ("everywhere", "unknown", "--every power --of load, 4 of 9 runs: 4 pass"),
        ("nowhere", "not judged", "a systematic exploration whose systematic.json is damaged"),
        ("explored", "fail", "an exploration of 1,200 seeds: 1,198 passed, 2 failed, 0 unknown"),
        ("stopped", "not judged", "an exploration that did not come to its end"),
        ("damaged", "not judged", "an exploration whose explore.json is damaged"),
    }  # fmt: skip
    assert chaos("list", "everything") == 254


def test_details_are_listed_by_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert chaos("list", "nemeses", "clock") == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "clock" and "clock:jump" in lines and not any(line.startswith("clock-jump") for line in lines)
    assert [line.split()[0] for line in lines[1:4]] == ["knobs", "works", "what"]
    assert chaos("list", "bugs", "M01") == 0
    assert "--nemesis power-outage,kill,pause,partition" in capfd.readouterr().out
    assert chaos("list", "nemeses", "clok") == 254
    assert "there is no nemesis 'clok' (did you mean clock?)" in capfd.readouterr().err


def test_run_directories_are_never_shared(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 1, 31, 12, 1, 2, tzinfo=UTC)
    first, second = (create(tmp_path, ("kill", "pause"), 1, now) for _ in range(2))
    assert first.name == "20260131T120102-kill-pause-s1" and second.name == first.name + "-2"


def test_a_run_of_every_nemesis_has_a_name_that_fits_its_socket(tmp_path: Path) -> None:
    directory = create(tmp_path, tuple(registry.names(registry.NEMESES)), 10**30)
    assert len(f"/var/lib/chaos/{directory.name}/agent.sock.new") <= 107


def test_settings_are_kept_as_text() -> None:
    assert parse_settings(["log.segment.bytes = 4096", "log.level=DEBUG"], Kraft()) == {
        "log.segment.bytes": "4096",
        "log.level": "DEBUG",
    }


def test_a_plan_that_was_damaged_is_said_to_be(components: FakeComponents, tmp_path: Path) -> None:
    from harness.errors import BadArguments

    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(BadArguments, match=r"plan\.json cannot be read"):
        Plan.load(tmp_path)


def test_a_nemesis_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    entry: Any = EntryPoint("broken", "no_such_module:Broken", registry.NEMESES)
    monkeypatch.setattr("harness.plan.registry.entry_points", lambda group: [entry])
    with pytest.raises(HarnessFailure, match=r"'broken' of chaos\.nemeses .*no_such_module"):
        registry.make_nemeses(["broken"])


def test_a_crash_exits_with_255_also_where_its_traceback_is_asked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 is the exit code of a violation."""
    from harness.cli.guarded import guarded

    def crash() -> int:
        raise ZeroDivisionError("a bug")

    assert guarded(crash) == 255 and "Traceback" not in capfd.readouterr().err
    monkeypatch.setenv("CHAOS_DEBUG", "1")
    assert guarded(crash) == 255
    assert "Traceback" in capfd.readouterr().err


def test_allow_vacuous_is_part_of_the_plan(components: FakeComponents) -> None:
    assert chaos("run", "--nemesis", "none", "--time-limit", "0.2s", "--allow-vacuous") == 0
    plan = Plan.load(find("latest", Path("results")))
    assert plan.must_take_effect == "none" and plan.command().endswith("--allow-vacuous")


def test_what_is_shown_of_a_moment_names_the_faults_since_the_last_line() -> None:
    from harness.report.console import Counts, live_line
    from harness.run.injector import InjectedFault

    struck = [InjectedFault(0, "kill", ["broker-1"], 5, 7), InjectedFault(1, "pause", ["broker-2"], 6)]
    counts = Counts(operations=100, acknowledged=80, failed=12, indeterminate=3)
    line = live_line(12, 60, counts, {"CONNECTION_FAILED": 2}, struck)
    assert "12 failed · 3 indeterminate · errors of 2 requests (CONNECTION_FAILED 2)" in line
    assert line.endswith("kill on broker-1, healed · pause on broker-2")
    assert live_line(12, 60, counts, {}, []).endswith("3 indeterminate · no fault in force")


#: What a library does that goes wrong while the interpreter is taken down.
_ABORTS_LAST = """
import atexit, os, sys
class Last:
    abort = os.abort
    def __del__(self):
        self.abort()
sys.last = Last()
from harness.__main__ import main
from harness.cli import guarded
command = guarded.guarded
guarded.guarded = lambda *given: atexit.register(print, "at exit") and command(*given)
sys.argv[1:] = {arguments}
main()
"""


@pytest.mark.parametrize(
    ("arguments", "code"), [(["list", "workloads"], 0), (["check", "nowhere"], 254), (["run", "--seed", "-1"], 254)]
)
def test_the_exit_code_is_the_commands_whatever_libraries_do_at_the_very_end(arguments: list[str], code: int) -> None:
    program = _ABORTS_LAST.format(arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout.endswith("at exit\n")
