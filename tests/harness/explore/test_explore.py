"""Explore: seeds in parallel, one dataset, one Spark job; and what becomes of seeds that fail, hang or crash."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from checkers import check
from checkers.inside.violation import Violation
from checkers.properties import INVARIANTS
from checkers.verdict.keeping import without_stamps
from harness.cli import app as cli
from harness.cli.simulated import showing
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.explore import exploration
from harness.explore.exploration import Exploration, Standing, explore
from harness.explore.failures import Failure
from harness.explore.parts import read
from harness.explore.simulate import Simulated, simulate
from harness.explore.source import Seeds
from harness.explore.workers import Outcome
from harness.plan.plan import Plan
from harness.plan.seeds import parse_seeds, part_of
from harness.record import results
from harness.record import sources as sources
from harness.record.history import MemoryRecorder, load_journal

PLAN = Plan(run="explore", on="simulation", nemesis=("kill",), time_limit=5, rate=40, partitions=1, concurrency=1)


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


# -- stand-ins for simulate(); workers import them from here ---------------------------------------------------------


def recorded(plan: Plan) -> Simulated:
    """A run without a fault in which one append was acknowledged, and never read."""
    recorder = MemoryRecorder(plan.run)
    recorder.complete(recorder.invoke_append(0, plan.topic, 0, 1, 10), 20, "ok", offset=0)
    return Simulated(plan, (), recorder.tables(), None, (), (), f"hash of {plan.seed}", 100, 5.0, 0.1)


def troubled(plan: Plan) -> Simulated:
    """Even seeds are well; each odd one comes to grief in its own way."""
    if plan.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if plan.seed == 3:
        os._exit(7)
    if plan.seed == 5:
        time.sleep(600)
    if plan.seed == 7:
        raise ZeroDivisionError("seven")
    if plan.seed == 9:
        return replace(recorded(plan), crash="the workload failed: nine")
    if plan.seed == 11:
        return replace(recorded(plan), tables={"operations": recorded(plan).tables["operations"]})
    return recorded(plan)


def violated_from_3(plan: Plan) -> Simulated:
    violation = Violation(
        "LeaderCompleteness", "broker-1 lacks offset 0", "chaos-0", ("broker-1",), 2_500_000_000, 88, "role"
    )
    return recorded(plan) if plan.seed < 3 else replace(recorded(plan), violation=violation)


def not_importable(plan: Plan) -> Simulated:
    raise NotImplementedError


# -- end to end ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_failing_seeds_are_told_and_can_be_judged_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = "explore --seeds 4..7 --nemesis power-outage,kill --bug M01 --time-limit 8 --workers 2 --json"
    assert chaos(*arguments.split()) == 1
    output = capfd.readouterr()
    document = json.loads(output.out)
    assert "4 of 4 seeds" in output.err and "failing so far · judging" in output.err

    directory = Path(document["directory"])
    assert json.loads((directory / "explore.json").read_text()) == document
    assert document["exit_code"] == 1 and document["problems"] == []
    assert document["plan"]["partitions"] == 4 and document["plan"]["concurrency"] == 2
    assert document["plan"]["rate"] == 40 and document["plan"]["bug"] == "M01"
    totals, failing = document["totals"], document["failing"]
    assert totals["runs"] == totals["asked"] == 4 and totals["failed"] == len(failing) > 0
    assert totals["crashed"] == totals["hang"] == 0
    assert totals["passed"] + totals["failed"] + totals["unknown"] == 4
    assert totals["unknown"] == sum(len(group["seeds"]) for group in document["unknown"])
    assert totals["simulated_s"] > 8 and totals["wall_s"] > 0 and totals["seeds_an_hour"] > 0

    for failure in failing:
        assert failure["result"] == "fail" and failure["property"] in INVARIANTS and failure["message"]
        assert failure["time_s"] > 0 and failure["step"] > 0
        assert failure["replay"] == f"chaos replay {failure['directory']}"
        assert failure["faults"] > 0 and failure["operations"] > 0
        assert (Path(failure["directory"]) / "report.html").is_file()
    assert document["coverage"]["power-outage"]["seeds"] >= 3 and "LeaderCompleteness" in document["checked"]
    page = (directory / "index.html").read_text()
    assert failing[0]["property"] in page and f"runs/s{failing[0]['seed']}/report.html" in page
    run = Path(failing[0]["directory"])
    assert results.find(str(run), Path("results")) == run
    saved = json.loads((run / "run.json").read_text())
    assert saved["trace_hash"] == failing[0]["trace_hash"] and saved["steps"] >= failing[0]["step"]

    judged = json.loads((run / "verdict.json").read_text())
    assert judged["verdict"] == "fail" and failing[0]["property"] in judged["reason"]
    assert without_stamps(check(run.resolve(), spark)) == without_stamps(judged)
    # The same seed by itself: what the workers did is what anybody gets.
    again = simulate(Plan.load(run))
    assert again.trace_hash == failing[0]["trace_hash"]
    history = load_journal(run / "journal")
    assert {name: table.num_rows for name, table in history.items()} == {
        name: table.num_rows for name, table in again.tables.items()
    }

    capfd.readouterr()
    assert chaos("list", "runs") == 0
    name, verdict, reported = capfd.readouterr().out.rstrip("\n").split("\t")
    assert run.parents[1].name == name and verdict == "fail"
    assert reported.startswith(f"an exploration of 4 seeds: {totals['passed']} passed, {totals['failed']} failed")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_passing_seeds_leave_rows_in_the_dataset_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert chaos("explore", "--seeds", "5,7", "--nemesis", "none", "--time-limit", "5", "--partitions", "1") == 0
    assert "2 runs, 2 passed, 0 failed, 0 unknown; 1" in capfd.readouterr().out
    (directory,) = Path("results").iterdir()
    names = {path.name for path in directory.iterdir()}
    assert names <= {"dataset", "explore.json", "index.html", "seeds.json", "spark.log"}
    assert sorted(read(directory).simulated()) == read(directory).seeds == [5, 7]


# -- what can go wrong -----------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_worker_that_dies_or_hangs_costs_its_own_seed_alone(tmp_path: Path) -> None:
    # By the wall clock, and other tests share the processors: long enough for all runs but the one that sleeps.
    found = explore(PLAN, Seeds.of(PLAN, range(13)), tmp_path, workers=3, simulate=troubled, run_limit_s=20)
    assert found.runs == 13 and found.problems == () and found.passed == 0
    failing = {failure.seed: failure for failure in found.failing}
    assert {seed: failure.result for seed, failure in failing.items()} == {
        1: "crashed", 3: "crashed", 5: "hang", 7: "crashed", 9: "crashed", 11: "crashed",
    }  # fmt: skip
    assert failing[1].message == "the worker process ended by SIGKILL"
    assert failing[3].message == "the worker process ended with status 7"
    assert (
        failing[5].message.startswith("not over after 20 s by the wall clock") and "in troubled" in failing[5].message
    )
    assert failing[7].message == "ZeroDivisionError: seven"
    assert failing[9].message == "the workload failed: nine" and failing[9].trace_hash == "hash of 9"
    assert failing[11].message.startswith("its history could not be judged: KeyError")
    assert list(found.unknown.values()) == [(0, 2, 4, 6, 8, 10, 12)]
    assert "vacuous" in next(iter(found.unknown))
    assert found.exit_code == ExitCode.HARNESS_FAILURE and found.simulated_s == 5.0 * 9
    for failure in found.failing:  # each can be replayed
        assert failure.directory is not None and Plan.load(failure.directory).seed == failure.seed
        assert results.read_json(failure.directory / "run.json")["status"] == "failed"
    (log,) = (found.directory / "workers").iterdir()
    assert "time.sleep(600)" not in log.read_text() and "in troubled" in log.read_text()


def test_a_stopped_run_that_could_not_be_judged_breaks_no_property() -> None:
    plan = PLAN.model_copy(update={"seed": 3})
    failure = Failure.of(Outcome(plan, "crashed", "its history could not be judged", violated_from_3(plan)), None)
    assert (failure.result, failure.property, failure.anomaly) == ("crashed", "", "")
    assert (failure.message, failure.step) == ("its history could not be judged", 88)


def test_until_failure_and_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(exploration, "check_dataset", broken)
    monkeypatch.setattr(exploration, "_start_spark", lambda directory: SESSION)
    standings: list[Standing] = []
    found = explore(
        PLAN, Seeds.of(PLAN, range(1000)), tmp_path, workers=1, until_failure=True, simulate=violated_from_3,
        watch=standings.append,
    )  # fmt: skip
    (failure,) = found.failing
    assert (found.asked, found.runs, failure.seed) == (1000, 4, 3)
    assert (failure.property, failure.where, failure.step) == ("LeaderCompleteness", "chaos-0", 88)
    assert failure.time_s == pytest.approx(2.5)
    assert [(s.done, s.failing) for s in standings if s.judging] == [(4, 1)]
    # The history is on disk and each run was judged by its worker, so the violation stands.
    assert "Spark could not judge" in found.problems[0] and "no space left" in found.problems[0]
    assert found.exit_code == ExitCode.FAIL


def test_runs_of_a_damaged_file_keep_the_verdicts_of_their_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        exploration, "check_dataset", lambda *_: [{"run": "seed-3", "verdict": "unknown", "not_judged": ["damaged"]}]
    )
    monkeypatch.setattr(exploration, "_start_spark", lambda directory: SESSION)
    found = explore(PLAN, Seeds.of(PLAN, range(3, 5)), tmp_path, workers=1, simulate=violated_from_3)
    assert [failure.seed for failure in found.failing] == [3, 4] and found.exit_code == ExitCode.FAIL
    assert "2 runs of" in found.problems[0] and "judged alone" in found.problems[0]


def test_what_goes_wrong_with_pages_is_told_in_the_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(directory: Path) -> None:
        raise OSError(f"no space left for {directory.name}")

    monkeypatch.setattr(exploration.page, "build", broken)
    monkeypatch.setattr(exploration, "write_page", broken)
    monkeypatch.setattr(exploration, "_judge", lambda done, *rest: (done, ()))
    monkeypatch.setattr(exploration, "_start_spark", lambda directory: SESSION)
    found = explore(PLAN, Seeds.of(PLAN, range(2, 4)), tmp_path, workers=1, simulate=violated_from_3)
    report, page = found.problems
    assert "no report of" in report and "no space left for s3" in report and "no page of" in page
    told = json.loads((found.directory / "explore.json").read_text())
    assert tuple(told["problems"]) == found.problems and told["exit_code"] == found.exit_code


SESSION = type("Session", (), {"result": lambda self: None})()


def test_stopping_judges_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "_start_spark", lambda directory: SESSION)
    monkeypatch.setattr(exploration, "_judge", lambda done, *rest: (done, ()))
    before = signal.getsignal(signal.SIGINT)
    with showing.asked_to_stop(lambda line: None) as asked:

        def watch(standing: Standing) -> None:
            if standing.done == 2 and not asked():
                os.kill(os.getpid(), signal.SIGINT)

        source = Seeds.of(PLAN, range(1000))
        found = explore(PLAN, source, tmp_path, workers=1, simulate=recorded, stop=asked, watch=watch)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert found.runs == 2 and found.asked == 1000
    assert signal.getsignal(signal.SIGINT) is before


def test_workers_that_cannot_start_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(not_importable, "__module__", "tests.no_such_module")
    monkeypatch.setitem(sys.modules, "tests.no_such_module", sys.modules[__name__])
    with pytest.raises(HarnessFailure, match="workers cannot start: the worker process ended with status 1"):
        explore(PLAN, Seeds.of(PLAN, [1, 2]), tmp_path, workers=1, simulate=not_importable)
    assert "No module named 'tests.no_such_module'" in capfd.readouterr().err


# -- arguments and what is shown -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("7", [7]), ("0..3", [0, 1, 2, 3]), ("1,5,9", [1, 5, 9]), ("4..5, 0,5..6", [4, 5, 0, 6]), ("3..3", [3])],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no seed"),
        ("9..1", "runs backwards"),
        ("1...3", "neither a seed nor a range"),
        ("-1", "neither a seed nor a range"),
        ("0..", "neither a seed nor a range"),
        ("0..1000000", "1,000,001 seeds; valid are 1,000,000 at most"),
        ("0..999999,1000000", "1,000,001 seeds"),
    ],
)
def test_seeds_that_are_none(text: str, message: str) -> None:
    with pytest.raises(BadArguments, match=message):
        parse_seeds(text)


def test_the_parts_of_seeds_are_all_of_them_once() -> None:
    seeds = parse_seeds("0..9,20")
    parts = [part_of(seeds, f"{number}/3") for number in (1, 2, 3)]
    assert parts == [[0, 3, 6, 9], [1, 4, 7, 20], [2, 5, 8]]
    assert part_of(seeds, "1/1") == seeds


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0", "1/12"])
def test_a_part_that_is_none_is_refused(shard: str) -> None:
    with pytest.raises(BadArguments, match="--shard"):
        part_of(list(range(11)), shard)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seeds x", "neither a seed nor a range"),
        ("--workers 0", "--workers is 0"),
        ("--bug M99999", "--bug: unknown bug 'M99999'"),
        ("--nemesis no-such", "no nemesis 'no-such'"),
        ("--rate 0", "--rate is 0"),
    ],
)
def test_a_mistake_gets_one_sentence_and_254(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert chaos("explore", *arguments.split()) == 254
    output = capfd.readouterr()
    assert message in output.err and output.err.count("\n") == 1 and list(tmp_path.iterdir()) == []


FAILURE = Failure(
    3, "fail", "LeaderCompleteness", "violation", "broker-1 lacks offset 0", "chaos-0", ("broker-1",), 2.5, 88,
    3, 400, "abc", Path("r/runs/s3"), "chaos replay r/runs/s3",
)  # fmt: skip
FOUND = Exploration(Path("r"), PLAN, 10, 10, 8, (), {"vacuous: no fault": (4, 9)}, 600.0, 19.0, 1.0, ())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ExitCode.PASS),
        ({"passed": 0}, ExitCode.UNKNOWN),
        ({"unknown": {"evidence is missing: no trace of broker-1 was found": (4,)}}, ExitCode.UNKNOWN),
        ({"without_effect": {"kill": "none of its faults was begun"}}, ExitCode.UNKNOWN),
        (
            {
                "without_effect": {"kill": "none of its faults was begun"},
                "plan": PLAN.model_copy(update={"must_take_effect": "none"}),
            },
            ExitCode.PASS,
        ),
        ({"failing": (FAILURE,)}, ExitCode.FAIL),
        ({"failing": (FAILURE, replace(FAILURE, result="hang"))}, ExitCode.FAIL),
        ({"failing": (replace(FAILURE, result="hang"),)}, ExitCode.HARNESS_FAILURE),
        ({"problems": ("Spark could not judge",)}, ExitCode.HARNESS_FAILURE),
    ],
)
def test_exit_codes(changes: dict[str, Any], code: ExitCode) -> None:
    assert replace(FOUND, **changes).exit_code == code


def test_the_table() -> None:
    of_history = replace(FAILURE, seed=12, property="log linearizability", anomaly="lost append", where="", time_s=None)
    crashed = replace(FAILURE, seed=13, result="crashed", property="", anomaly="", message="it fell", time_s=None)
    found = replace(FOUND, failing=(FAILURE, of_history, crashed), asked=20)
    text = io.StringIO()
    showing.print_exploration(Console(file=text, width=80, soft_wrap=True), found)
    lines = text.getvalue().splitlines()
    assert lines[0].split() == ["seed", "property", "where", "at", "replay"]
    assert lines[1].split() == ["3", "LeaderCompleteness", "chaos-0", "2.500", "s", *FAILURE.replay.split()]
    assert lines[2].strip() == "broker-1 lacks offset 0"
    assert "log linearizability: lost append" in lines[3] and lines[5].split()[:2] == ["13", "crashed"]
    assert lines[8].startswith("10 of 20 runs, 8 passed, 2 failed, 1 crashed, 2 unknown; 600 s simulated in 19.0 s, ")
    assert lines[8].endswith(" 1,895 seeds an hour, judged in 1.0 s")
    assert "left      10 seeds: the same command with --resume r" in text.getvalue()
    assert lines[9].strip() == "unknown   2: vacuous: no fault (seed 4, 9)"


def test_reasons_that_differ_in_numbers_alone_are_one(tmp_path: Path) -> None:
    def unknown(seed: int, reason: str) -> exploration.Outcome:
        plan = PLAN.model_copy(update={"seed": seed})
        return exploration.Outcome(plan, "judged", verdict={"verdict": "unknown", "reason": reason})

    outcomes = [unknown(1, "no fault"), unknown(2, "not recovered after 60 s"), unknown(5, "not recovered after 61 s")]
    found = exploration._sum_up(outcomes, tmp_path, PLAN, asked=3, problems=(), simulate_s=1.0, judge_s=1.0)
    assert found.unknown == {"not recovered after 60 s": (2, 5), "no fault": (1,)}
    assert found.exit_code == ExitCode.UNKNOWN


def test_an_exploration_is_no_run_and_names_those_that_failed(tmp_path: Path) -> None:
    (tmp_path / "e" / "dataset").mkdir(parents=True)
    (tmp_path / "e" / "runs" / "s7").mkdir(parents=True)
    with pytest.raises(BadArguments, match=r"e is an exploration, not a run; .*e/runs/s7"):
        results.find("e", tmp_path)


def test_of_an_exploration_what_was_made_smaller_is_judged_beside_its_dataset(tmp_path: Path) -> None:
    (tmp_path / "e" / "dataset" / "runs").mkdir(parents=True)
    for name in ("s7", "s7-shrunk", "s7-shrunk-2"):
        (tmp_path / "e" / "runs" / name).mkdir(parents=True)
        (tmp_path / "e" / "runs" / name / "plan.json").write_text("{}")
    found = sources.find([str(tmp_path / "e")], tmp_path)
    assert [(each.kind, each.path.name) for each in found] == [
        ("dataset", "dataset"), ("run", "s7-shrunk"), ("run", "s7-shrunk-2"),
    ]  # fmt: skip


def test_what_took_no_effect_is_said_to_be_unproven_where_that_counts() -> None:
    found = replace(FOUND, without_effect={"kill": "none of its faults was begun"})
    assert "so nothing is proven of it: --allow-vacuous asks for less" in "\n".join(showing._summary(found))
    allowed = replace(found, plan=PLAN.model_copy(update={"must_take_effect": "none"}))
    told = "\n".join(showing._summary(allowed))
    assert "kill: in no run" in told and "nothing is proven" not in told
