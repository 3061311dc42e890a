"""What becomes of a suite's runs, and what CI reads of it: outcomes, JUnit's XML, Markdown, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import xmlschema
from junitparser import Error, Failure, JUnitXml, Properties

from harness.errors import BadArguments, ExitCode
from harness.record.results import MOST_OF_A_NAME
from harness.suites import artifacts, junit, results, summary
from harness.suites.artifacts import Keep, parse_size, size_of
from harness.suites.parts import Planned
from harness.suites.results import Ran, exit_code, judged, not_judged, not_run
from harness.suites.runner import run_name

KILL, CONTROL = Planned("kill", 1, {}), Planned("control", 2, {}, "fail")
HOSTILE = "<script>alert(1)</script> | ]]> & \x1b[2J \u202e *x* `y` \ufffe\x00"


def verdict(word: str, safety: str | None = None, thresholds: tuple[bool, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"verdict": word, "reason": "so it is", "operations": {"acknowledged": 5}, "lost": 3}
    if safety is not None:
        found["safety"] = safety
        found["thresholds"] = [{"expect": f"p99 < {number}ms", "held": held} for number, held in enumerate(thresholds)]
    return found


@pytest.mark.parametrize(
    ("planned", "found", "outcome", "broken"),
    [
        (KILL, verdict("pass"), "passed", ""),
        (KILL, verdict("fail"), "failed", "safety"),
        (KILL, verdict("fail", "pass", (False,)), "failed", "thresholds"),
        (KILL, verdict("fail", "fail", (False,)), "failed", "safety"),
        (KILL, verdict("unknown"), "error", ""),
        (CONTROL, verdict("fail"), "passed", "safety"),
        (CONTROL, verdict("pass"), "failed", ""),
        (CONTROL, verdict("unknown"), "error", ""),
        (CONTROL, verdict("fail", "pass", (False,)), "failed", "thresholds"),  # that is not what was expected
        (CONTROL, verdict("fail", "fail", (True,)), "passed", "safety"),
        (CONTROL, verdict("fail", "fail", (True, False)), "failed", "safety"),
    ],
)  # fmt: skip
def test_an_outcome_is_the_verdict_by_what_was_expected(
    planned: Planned, found: dict[str, Any], outcome: str, broken: str
) -> None:
    ran = judged(planned, found, "runs/x", 1.26)
    assert (ran.outcome, ran.broken, ran.acknowledged, ran.lost, ran.took_s) == (outcome, broken, 5, 3, 1.3)
    assert "so it is" in ran.reason
    if planned is CONTROL and outcome == "failed" and found["verdict"] == "pass":
        assert "expected to break a property, and it did not" in ran.reason


def test_no_two_runs_have_one_name_or_one_result() -> None:
    long = [Planned(f"sizes[nemesis=kill, settings.replica.lag.time.max.ms={ms}]" + "x" * 60, 7, {}) for ms in (4, 8)]
    names = {run_name(planned, f"ab12-{number}") for number, planned in enumerate(long)}
    assert len(names) == 2 and all(len(name) <= MOST_OF_A_NAME for name in names)
    assert KILL.key != Planned("kill", 1, {}, "fail").key, "what was judged by another expectation is judged again"


def test_the_exit_code_is_that_of_the_worst() -> None:
    passed, failed = judged(KILL, verdict("pass"), "", 1), judged(KILL, verdict("fail"), "", 1)
    unknown, lost = judged(KILL, verdict("unknown"), "", 1), not_judged(KILL, "no Docker", "", 1)
    assert exit_code([passed]) == ExitCode.PASS
    assert exit_code([passed, unknown]) == ExitCode.UNKNOWN
    assert exit_code([unknown, lost]) == exit_code([passed, not_run(KILL, "no time")]) == ExitCode.HARNESS_FAILURE
    assert exit_code([unknown, lost, failed, passed]) == ExitCode.FAIL


def everything(name: str = "kill", reason: str = "so it is") -> list[Ran]:
    plan, control = Planned(name, 1, {}), Planned(name, 2, {}, "fail")
    return [
        judged(plan, {**verdict("pass"), "reason": reason}, "runs/a", 1.0),
        judged(control, {**verdict("pass"), "reason": reason}, "runs/b", 1.0, "runs/b/report.html"),
        judged(Planned("other", 3, {}), {**verdict("fail", "pass", (False,)), "reason": reason}, "runs/c", 1.0),
        judged(Planned("unknown", 3, {}), {**verdict("unknown"), "reason": reason}, "runs/d", 1.0),
        not_judged(Planned("broken", 3, {}), reason, "", 1.0),
        not_run(Planned("late", 3, {}), reason),
    ]


@pytest.mark.parametrize("name", ["kill", HOSTILE])
def test_junit_is_valid_and_says_of_each_what_it_came_to(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sub" / "junit.xml"
    junit.write(path, name, everything(name, f"because {name}"), tmp_path)
    xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd")).validate(path)
    (suite,) = list(JUnitXml.fromfile(str(path)))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 2, 3, 0)
    cases = list(suite)
    kinds = [(type(case.result[0]), case.result[0].type) if case.result else None for case in cases]
    assert kinds == [
        None, (Failure, "unexpected"), (Failure, "thresholds"), (Error, "unknown"), (Error, "not judged"),
        (Error, "not run"),
    ]  # fmt: skip
    assert f"report: {tmp_path / 'runs/b/report.html'}" in cases[1].result[0].message
    assert "because" in cases[1].result[0].message
    # Two seeds of one plan are told apart; of a plan with one the name is the plan's.
    assert cases[2].name == "other" and cases[0].name.endswith(", seed 1") and cases[1].name.endswith(", seed 2")
    assert {each.name: each.value for each in cases[0].child(Properties)}["seed"] == "1"
    if name == HOSTILE:
        assert "<script>" in cases[0].name and "\\x1b[2J" in cases[0].name and "\x1b" not in path.read_text()


def test_markdown_shows_names_and_reasons_as_text() -> None:
    text = summary.markdown(HOSTILE, everything(HOSTILE, HOSTILE + "x" * 10_000))
    lines = text.splitlines()
    assert len(lines) == 6 + 6 and max(map(len, lines)) < 2000
    assert all(line.replace("\\|", "").count("|") == 9 for line in lines[4:]), lines
    assert "<script>" not in text and "\x1b" not in text and "*x*" not in text.replace("\\*", "")
    assert "6 runs: 1 passed, 2 failed, 2 error, 1 not run" in lines[2]


def test_what_is_saved_is_found_and_read(tmp_path: Path) -> None:
    ran = everything()
    for number, name in enumerate(("first", "second")):
        (tmp_path / name).mkdir()
        results.save(tmp_path / name, {"suite": name}, ran[: number + 1])
    assert results.load(results.find("first", tmp_path, "second")) == ("first", ran[:1])
    assert [results.find("latest", tmp_path, name).name for name in ("first", "second")] == ["first", "second"]
    assert results.find(str(tmp_path / "first"), Path("elsewhere"), "first") == tmp_path / "first"
    for given, message in (("third", "there is no suite 'third'"), (".", "there is no suite")):
        with pytest.raises(BadArguments, match=message):
            results.find(given, tmp_path, "first")
    with pytest.raises(BadArguments, match="the suite 'first' was not carried out"):
        results.find("latest", tmp_path / "first", "first")
    (tmp_path / "first" / "suite.json").write_text('{"suite": "first", "runs": [3]}')
    with pytest.raises(BadArguments, match="cannot be read"):
        results.load(tmp_path / "first")


def suite_with(directory: Path) -> list[Ran]:
    ran = []
    for name, word in (("a", "pass"), ("b", "fail"), ("c", "pass"), ("d", "unknown")):
        run = directory / "runs" / name
        (run / "history").mkdir(parents=True)
        for file in ("report.html", "verdict.json", "history/part", "lost.parquet"):
            (run / file).write_bytes(bytes(1000))
        ran.append(judged(Planned(name, 1, {}), verdict(word), f"runs/{name}", 1.0))
    return ran


def evidence(directory: Path) -> str:
    """Of which runs there is any left."""
    kept = sorted(run.name for run in (directory / "runs").iterdir() if (run / "history").exists())
    for run in (directory / "runs").iterdir():
        assert (run / "report.html").exists() and (run / "verdict.json").exists()
        assert (run / "evidence-removed.txt").exists() == (run.name not in kept)
    return "".join(kept)


def test_evidence_goes_as_asked_and_reports_stay(tmp_path: Path) -> None:
    for which, kept in (("all", "abcd"), ("failed", "bd"), ("none", "")):
        directory = tmp_path / which
        artifacts.tidy(directory, suite_with(directory), Keep(which))  # type: ignore[arg-type]
        assert evidence(directory) == kept


def test_evidence_of_what_passed_goes_first_where_there_is_too_much(tmp_path: Path) -> None:
    for limit, kept in ((16_000, "abcd"), (15_000, "bcd"), (13_000, "bd"), (11_999, "d"), (1, "")):
        directory = tmp_path / str(limit)
        artifacts.tidy(directory, suite_with(directory), Keep(limit=limit))
        assert evidence(directory) == kept, limit
        assert limit < 10_000 or size_of(directory / "runs") <= limit


def test_sizes() -> None:
    assert [parse_size(text) for text in ("7", "2GB", "1.5 KiB", "3mb")] == [7, 2 * 10**9, 1536, 3 * 10**6]
    for text in ("", "2XB", "-1", "MB"):
        with pytest.raises(ValueError, match="is no size"):
            parse_size(text)
