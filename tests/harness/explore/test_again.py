"""`chaos replay` of a run in containers: its plan is run again, and counted how often its violation comes back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.cli import app as cli
from harness.errors import BadArguments, ExitCode, HarnessFailure, RuntimeUnavailable, Stopped
from harness.explore.replaying import again
from harness.explore.replaying.again import Again, Attempt, Broken, broken_by, prepare, repeat
from harness.plan import registry, schedule_file
from harness.plan import schedule as schedules
from harness.plan.plan import Plan
from harness.record.results import RunRecord
from harness.run.order import Done, Prepared
from tests import ROOT

LOST = {"log linearizability": ["lost append"]}
LOST_AND_INVERTED = {"log linearizability": ["lost append", "real-time inversion"]}


def plan(run: str, **changes: Any) -> Plan:
    fields: dict[str, Any] = {"run": run, "nemesis": ("kill",), "seed": 3, "time_limit": 20.0, "acks": "1"}
    return Plan(**fields | changes)


def verdict(word: str, **broken: list[str]) -> dict[str, Any]:
    anomalies = {
        name: {"count": len(of), "weak": False, "anomalies": dict.fromkeys(of, 1)} for name, of in broken.items()
    }
    anomalies["watermark freshness"] = {"count": 1, "weak": True, "anomalies": {"stale watermark": 1}}
    return {"verdict": word, "reason": f"it is {word}", "anomalies": anomalies}


def fail(broken: dict[str, list[str]]) -> dict[str, Any]:
    return verdict("fail", **broken)


PASS, UNKNOWN = verdict("pass"), verdict("unknown")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run in containers that lost records."""
    return make(tmp_path / "results" / "lossy", fail(LOST))


def make(directory: Path, judged: dict[str, Any] | None, **changes: Any) -> Path:
    directory.mkdir(parents=True)
    made = plan(directory.name, **changes)
    made.save(directory)
    nemeses = registry.make_nemeses(made.nemesis, made.acks, made.timing)
    schedule_file.save(schedules.build(nemeses, made.seed, made.time_limit, made.pace), directory)
    if judged is not None:
        (directory / "verdict.json").write_text(json.dumps(judged))
    return directory


Outcome = dict[str, Any] | BaseException


def runner(directory: Path, *outcomes: Outcome, stopped_in: int | None = None) -> Callable[[], Done]:
    """Carries out runs that end so, one after the other. stopped_in: the run in which the user asked to stop."""
    made: list[Path] = []

    def carry_out(*_: object) -> Done:
        outcome = outcomes[len(made)]
        made.append(directory / f"again-{len(made) + 1}")
        if isinstance(outcome, BaseException):
            raise outcome
        made[-1].mkdir()
        stop = {"stopped_by": "SIGINT"} if stopped_in == len(made) else {}
        RunRecord(made[-1], facts=stop).finish("done")
        return Done(made[-1], plan(made[-1].name), outcome)

    return carry_out


def repeated(run: Path, *outcomes: Outcome, times: int | None = None, stopped_in: int | None = None) -> Again:
    carry_out = runner(run.parent, *outcomes, stopped_in=stopped_in)
    return repeat(run, times or len(outcomes), carry_out, lambda *_: None)


def test_how_often_it_came_back_is_said_with_what(run: Path) -> None:
    found = repeated(run, fail(LOST_AND_INVERTED), PASS, fail(LOST), UNKNOWN, HarnessFailure("no room"))
    assert found.summary() == (
        "the violation came back in 2 of 5 runs: log linearizability: lost append (in 2); 1 passed, 1 unknown, "
        "1 not judged"
    )
    assert found.exit_code == ExitCode.FAIL and found.back == 2 and not found.stopped


def test_the_same_is_the_same_property_and_anomaly(run: Path) -> None:
    """Another violation is one too: the exit code says so."""
    found = repeated(run, fail({"log linearizability": ["phantom"]}), fail({"LogMatching": ["lost append"]}))
    assert found.summary() == (
        "the violation came back in none of 2 runs: log linearizability: lost append (in 0); 2 failed of something "
        "else: LogMatching: lost append (in 1), log linearizability: phantom (in 1)"
    )
    assert found.exit_code == ExitCode.FAIL


def test_what_is_weak_is_no_violation_and_a_threshold_is() -> None:
    slow = verdict("fail") | {"thresholds": [{"expect": "p99 < 1ms", "held": False}, {"expect": "a", "held": True}]}
    assert broken_by(slow) == {Broken("threshold", "p99 < 1ms")}
    assert broken_by(PASS) == broken_by({}) == broken_by({"verdict": "fail", "anomalies": None}) == frozenset()


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((PASS, PASS), ExitCode.PASS),
        ((PASS, UNKNOWN), ExitCode.UNKNOWN),
        ((PASS, HarnessFailure("x"), UNKNOWN), ExitCode.HARNESS_FAILURE),
        ((HarnessFailure("x"), fail(LOST), PASS), ExitCode.FAIL),
    ],
)
def test_the_exit_code_is_the_worst_of_the_runs(run: Path, outcomes: tuple[Outcome, ...], code: ExitCode) -> None:
    assert repeated(run, *outcomes).exit_code == code


def test_a_run_that_passed_can_be_repeated_too(tmp_path: Path) -> None:
    held = make(tmp_path / "held", PASS)
    assert repeated(held, PASS, PASS).summary() == "held passed; of 2 runs: 2 passed"
    other = make(tmp_path / "more" / "held", PASS)
    found = repeated(other, PASS, fail(LOST), PASS)
    assert found.summary() == "held passed; of 3 runs: 1 failed: log linearizability: lost append (in 1), 2 passed"
    unjudged = make(tmp_path / "last" / "unjudged", None)
    assert repeated(unjudged, UNKNOWN).summary() == "unjudged was not judged; of 1 run: 1 unknown"


def test_an_interrupt_tells_what_was_seen_so_far(run: Path, tmp_path: Path) -> None:
    """Once: the run that goes on is judged, and is the last. Twice: it does not count."""
    found = repeated(run, fail(LOST), UNKNOWN, PASS, times=10, stopped_in=2)
    assert found.stopped and [each.verdict for each in found.attempts] == ["fail", "unknown"]
    assert found.summary().startswith("the violation came back in 1 of 2 runs (of 10, it was stopped): ")
    for number, stop in enumerate((Stopped("stopped at once"), KeyboardInterrupt())):
        other = make(tmp_path / str(number) / "lossy", fail(LOST))
        found = repeated(other, fail(LOST), stop, times=10)
        assert found.stopped and len(found.attempts) == 1 and found.exit_code == ExitCode.FAIL
        with pytest.raises(type(stop)):
            repeated(make(tmp_path / str(number) / "first", fail(LOST)), stop)


def test_where_nothing_can_run_it_is_not_tried_ten_times(run: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="no Docker"):
        repeated(run, RuntimeUnavailable("no Docker"), times=10)
    found = repeated(run, PASS, RuntimeUnavailable("no Docker"), times=10)
    last = found.attempts[-1]
    assert (len(found.attempts), last.verdict, last.reason) == (2, "not judged", "RuntimeUnavailable: no Docker")
    assert found.exit_code == ExitCode.HARNESS_FAILURE
    assert found.summary().startswith("the violation came back in none of 2 runs (of 10, no other could be made): ")


def test_it_is_the_same_plan_with_the_saved_faults(tmp_path: Path) -> None:
    run = make(tmp_path / "r", None, brokers=4, settings={"replica.lag.time.max.ms": "4000"}, expect=("p99 < 1s",))
    prepared = prepare(run, Plan.load(run), tmp_path / "results", quiet=True)
    assert prepared.tried.model_copy(update={"run": "r"}) == Plan.load(run)
    assert prepared.faults == schedule_file.load(run) and prepared.tried.schedule is None
    assert dict(prepared.order.facts) == {"replay_of": "r"} and prepared.order.results == tmp_path / "results"
    # Edited, or drawn otherwise by an earlier version: what was saved counts.
    path = run / "schedule.toml"
    path.write_text(path.read_text().replace(f"at = {schedule_file.load(run)[0].at}", "at = 4.5", 1))
    edited = prepare(run, Plan.load(run), tmp_path / "results", quiet=True)
    assert edited.faults[0].at == 4.5 and edited.tried.schedule == str(path.absolute())


def test_a_schedule_that_was_given_is_taken_from_the_run(tmp_path: Path) -> None:
    run = make(tmp_path / "r", None)
    made = Plan.load(run).model_copy(update={"schedule": "/gone.toml"})
    made.save(run)
    prepared = prepare(run, made, tmp_path / "results", quiet=True)
    assert [fault.at for fault in prepared.faults] == [
        each["at"] for each in tomllib.loads((run / "schedule.toml").read_text())["fault"]
    ]
    assert prepared.tried.schedule == str((run / "schedule.toml").absolute()) and prepared.nemeses.keys() == {"kill"}


def test_a_run_on_hosts_is_prepared_for_the_same_hosts(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    hosts.write_text("".join(f'[hosts.h{number}]\naddress = "10.0.0.{number}"\n' for number in (1, 2, 3)))
    run = make(tmp_path / "r", None, on="ssh", hosts=str(hosts), combined=True)
    prepared = prepare(run, Plan.load(run), tmp_path, quiet=True)
    assert (prepared.tried.on, prepared.tried.hosts, prepared.tried.combined) == ("ssh", str(hosts), True)


def test_only_of_real_nodes(tmp_path: Path) -> None:
    run = make(tmp_path / "r", None, on="simulation")
    with pytest.raises(BadArguments, match="r ran on simulation, where it repeats exactly"):
        prepare(run, Plan.load(run), tmp_path, quiet=True)


def chaos(results: Path, *words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--results", str(results)])
    return int(end.value.code or 0)


def test_the_command_tells_each_run_and_sums_up(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Prepared, "carry_out", runner(run.parent, fail(LOST), PASS, fail({"LogMatching": ["x"]})))
    assert chaos(run.parent, "replay", "lossy", "--times", "3") == ExitCode.FAIL
    assert capsys.readouterr().out.splitlines() == [
        f"1 of 3: fail, it came back: it is fail ({run.parent}/again-1)",
        f"2 of 3: pass: it is pass ({run.parent}/again-2)",
        f"3 of 3: fail, but of something else: it is fail ({run.parent}/again-3)",
        "the violation came back in 1 of 3 runs: log linearizability: lost append (in 1); 1 failed of something else: "
        "LogMatching: x (in 1), 1 passed",
    ]


def test_ten_times_unless_told_otherwise_and_as_json(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Prepared, "carry_out", runner(run.parent, *[PASS] * 9, HarnessFailure("no room")))
    assert chaos(run.parent, "replay", "lossy", "--json") == ExitCode.HARNESS_FAILURE
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, json.loads((ROOT / "docs" / "schemas" / "replay.json").read_text()))
    assert (told["came_back"], told["times"], len(told["runs"])) == (0, 10, 10)
    assert told["runs"][9] == {
        "directory": None, "verdict": "not judged", "reason": "no room", "came_back": False, "broken": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--times", "0"), "--times is 0; valid is 1 to 1,000"),
        (("--story",), "--story is for simulated runs, which repeat exactly; lossy ran on docker"),
        (("--trace",), "--trace is for simulated runs"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Path, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chaos(run.parent, "replay", "lossy", *words) == ExitCode.BAD_ARGUMENTS
    assert why in capsys.readouterr().err


def test_a_line_of_a_run_that_itself_was_judged_otherwise() -> None:
    so_far = Again("r", "pass", frozenset(), 2, [Attempt(None, "fail", "why", frozenset({Broken("p", "a")}))])
    assert so_far.line() == "1 of 2: fail: why"
    so_far.attempts.append(so_far.attempts[0])
    assert so_far.line() == "2 of 2: fail: why"
    assert again.MOST_TIMES == 1000
