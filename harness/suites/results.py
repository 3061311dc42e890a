"""What became of the runs of a suite, and the file that says so: suite.json in the suite's directory.

| outcome | when |
| --- | --- |
| passed | the verdict is what was expected: `pass`, or of a plan with expect = "fail" that a property was broken |
| failed | a property or a threshold was broken; or a plan that was expected to fail did not |
| error | the verdict is `unknown`, or the harness could not do its part |
| not run | the suite ended before |

A run that was expected to fail has failed only by a property: a threshold that it breaks as well is a failure of its
own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from harness.errors import BadArguments, ExitCode
from harness.record.results import NOT_JUDGED
from harness.suites.parts import Planned
from spark_history.regular import read_object, replacing

Outcome = Literal["passed", "failed", "error", "not run"]
SUITE_FILE: Final = "suite.json"


@dataclass(frozen=True)
class Ran:
    """One run of a suite. verdict, reason: of the run, or why there is none; the reason also says what was expected
    instead. directory: relative to the suite's; "": there is none. took_s: until its verdict."""

    name: str
    seed: int
    expect: str
    outcome: Outcome
    verdict: str
    reason: str
    acknowledged: int = 0
    lost: int = 0
    directory: str = ""
    took_s: float = 0.0
    broken: str = ""  # "safety" or "thresholds", of what failed by its verdict
    report: str = ""  # relative to the suite's directory; "": there is none
    story: Mapping[str, Any] | None = None  # see harness.suites.stories

    @property
    def title(self) -> str:
        return f"{self.name}, seed {self.seed}"


def judged(planned: Planned, verdict: Mapping[str, Any], directory: str, took_s: float, report: str = "") -> Ran:
    """verdict: content of verdict.json."""
    outcome, reason = _outcome(planned, verdict)
    safety = str(verdict.get("safety", verdict["verdict"]))
    return Ran(
        planned.name, planned.seed, planned.expect, outcome, str(verdict["verdict"]), reason,
        int((verdict.get("operations") or {}).get("acknowledged", 0)), int(verdict.get("lost", 0)), directory,
        round(took_s, 1), "" if verdict["verdict"] != "fail" else "safety" if safety == "fail" else "thresholds",
        report,
    )  # fmt: skip


def _outcome(planned: Planned, verdict: Mapping[str, Any]) -> tuple[Outcome, str]:
    word, reason = str(verdict["verdict"]), str(verdict["reason"])
    safety = str(verdict.get("safety", word))
    if word not in ("pass", "fail"):
        return "error", reason
    if planned.expect == "pass":
        return ("passed" if word == "pass" else "failed"), reason
    if safety != "fail":
        return "failed", f"expected to break a property, and it did not: {reason}"
    broken = [each["expect"] for each in verdict.get("thresholds") or () if each["held"] is False]
    if broken:
        return "failed", f"expected to fail, but within its thresholds, and {', '.join(broken)} was broken: {reason}"
    return "passed", f"failed as expected: {reason}"


def not_judged(planned: Planned, reason: str, directory: str, took_s: float) -> Ran:
    return Ran(planned.name, planned.seed, planned.expect, "error", NOT_JUDGED, reason, directory=directory,
               took_s=round(took_s, 1))  # fmt: skip


def not_run(planned: Planned, reason: str) -> Ran:
    return Ran(planned.name, planned.seed, planned.expect, "not run", NOT_JUDGED, reason)


def exit_code(of: Iterable[Ran]) -> ExitCode:
    """That of the worst."""
    ran = list(of)
    if any(each.outcome == "failed" for each in ran):
        return ExitCode.FAIL
    if any(each.outcome == "not run" or (each.outcome == "error" and each.verdict == NOT_JUDGED) for each in ran):
        return ExitCode.HARNESS_FAILURE
    return ExitCode.UNKNOWN if any(each.outcome == "error" for each in ran) else ExitCode.PASS


def save(directory: Path, facts: Mapping[str, Any], of: Sequence[Ran]) -> None:
    """facts: of the suite: its name, file, command, when it began … Raises OSError."""
    content = {**facts, "runs": [asdict(each) for each in of]}
    with replacing(directory / SUITE_FILE) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n")


def load(directory: Path) -> tuple[str, list[Ran]]:
    """(the suite's name, what became of its runs). Raises BadArguments."""
    try:
        found = read_object(directory / SUITE_FILE)
        return str(found["suite"]), [Ran(**each) for each in found["runs"]]
    except FileNotFoundError:
        raise BadArguments(f"{directory} is not of a suite: it has no {SUITE_FILE}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadArguments(f"{directory / SUITE_FILE} cannot be read: {error}") from None


def _suite_of(path: Path) -> Any:
    with suppress(OSError, ValueError):
        return read_object(path).get("suite")
    return None


def find(given: str, results: Path, suite: str) -> Path:
    """The directory of a suite that was carried out, by path, by name under `results`, or `latest`: the newest of the
    suite of that name. Raises BadArguments."""
    if given == "latest":
        for path in sorted(results.glob(f"*/{SUITE_FILE}"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            if _suite_of(path) == suite:
                return path.parent
        raise BadArguments(f"the suite {suite!r} was not carried out under {results} yet")
    for directory in (results / given, Path(given)):
        if (directory / SUITE_FILE).is_file():
            return directory
    raise BadArguments(f"there is no suite {given!r} under {results}, nor a directory of that name with a {SUITE_FILE}")
