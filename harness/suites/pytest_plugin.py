"""A plugin for pytest: runs and explorations as tests of a project, e.g. of a patched Kafka or a target of its own.

    def test_acknowledged_records_survive_a_power_cut(chaos):
        chaos.run(nemesis="power-outage", time_limit=20).assert_passed()

    @pytest.mark.chaos(on="simulation", rate=200)
    def test_fifty_seeds(chaos):
        chaos.explore(seeds=range(50), nemesis="kill,partition").assert_passed()

What a plan may have (harness/plan/plan_file.py) may be given by name; what a marker `chaos` of the test, its class or
its module says holds unless the call says otherwise. Each run is a process of its own and has its directory below
`--chaos-results`. This module imports little: pytest loads it wherever the package is installed.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

#: Characters of a test's name in the names of directories.
_STEM: Final = 40
#: Of an exploration's seeds, in a failure.
_SHOWN: Final = 10
#: Verdicts by exit code; with another there is none.
#: Of a plan, that explorations do not take.
_OF_RUNS: Final = ("expect", "features", "must_take_effect")
_JUDGED: Final = {0: "pass", 1: "fail", 2: "unknown"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos", "chaos: runs of a replicated log under faults")
    group.addoption("--chaos-results", metavar="DIR", default="chaos-results", help="Where runs and reports are kept.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos(**fields): fields of the plans of this test's runs, e.g. on='simulation'")


@pytest.fixture
def chaos(request: pytest.FixtureRequest, record_property: Any) -> Chaos:
    """Runs and explorations of this test."""
    fields: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("chaos"))):  # the closest counts before others
        fields |= marker.kwargs
    directory = request.config.rootpath / request.config.getoption("--chaos-results")
    return Chaos(directory, request.node.name, fields, record_property)


class NotJudged(Exception):
    """The harness could not do its part, or what was asked for makes no sense."""


@dataclass(frozen=True)
class Result:
    """Of a run or an exploration. verdict: pass, fail or unknown. document: verdict.json, or that of an exploration.
    report: for people; None: there is none."""

    verdict: str
    reason: str
    directory: Path
    report: Path | None
    document: Mapping[str, Any]
    again: str  # the command that repeats it

    def assert_passed(self) -> None:
        __tracebackhide__ = True
        self._assert("pass")

    def assert_failed(self) -> None:
        """For a control: what must break a property, or the test tests nothing."""
        __tracebackhide__ = True
        self._assert("fail")
        if self.document.get("safety", "fail") != "fail":
            raise AssertionError(f"a property was to be broken, and only thresholds were: {self._told()}")

    def _assert(self, verdict: str) -> None:
        __tracebackhide__ = True
        if self.verdict != verdict:
            raise AssertionError(self._told())

    def _told(self) -> str:
        report = f"\nreport: {self.report}" if self.report else ""
        return f"{self.verdict}: {self.reason}{report}\nresults: {self.directory}\nagain: {self.again}"


@dataclass
class Chaos:
    """directory: where runs are kept. test: its name. fields: of each plan, unless a call says otherwise. record: of a
    property of the test, for JUnit's XML."""

    directory: Path
    test: str
    fields: Mapping[str, Any]
    record: Any

    def run(self, **fields: Any) -> Result:
        """One run. fields: of a plan, e.g. nemesis="kill,pause", time_limit="30s", expect=["p99 < 1s"]. Raises
        NotJudged."""
        from harness.record.results import read_json
        from harness.suites.child_runs import plan_toml

        name, checked = self._name(), self._checked(fields)
        plan = self.directory / f"{name}.toml"
        plan.write_text(plan_toml(checked))
        code, _, said = self._carry_out(name, "run", "--plan", plan, "--results", self.directory, "--run-name", name)
        directory = self.directory / name
        verdict = read_json(directory / "verdict.json")
        if code not in _JUDGED or not verdict:
            raise NotJudged(said)
        again = str(read_json(directory / "run.json").get("command", ""))
        return self._result(verdict, directory, directory / "report.html", again)

    def explore(self, seeds: Iterable[int], **fields: Any) -> Result:
        """Many simulated runs, one for each seed. Raises NotJudged."""
        checked = self._checked(fields)
        if checked.pop("on", "simulation") != "simulation":
            raise NotJudged("an exploration is of simulated runs: leave out on, or say on='simulation'")
        if unfit := [name for name in _OF_RUNS if checked.get(name)]:
            raise NotJudged(f"an exploration has no {unfit[0]}: leave it out, or use chaos.run")
        asked = ["explore", "--seeds", ",".join(map(str, seeds)), *_options(checked), "--results", str(self.directory)]
        code, output, said = self._carry_out(self._name(), *asked, "--json")
        if code not in _JUDGED:
            raise NotJudged(said)
        document = json.loads(output)
        directory = Path(document["directory"])
        judged = {"verdict": _JUDGED[code], "reason": _of_exploration(document), **document}
        return self._result(judged, directory, directory / "index.html", shlex.join(["chaos", *asked]))

    def _carry_out(self, name: str, *arguments: object) -> tuple[int, str, str]:
        """(exit code, standard output, why it could not be judged, if so)"""
        from harness.suites.child_runs import last_words, run

        log = self.directory / f"{name}.log"
        code, output = run(arguments, log)
        return code, output, f"{last_words(log) or f'chaos ended with status {code}'}\nlog: {log}"

    def _checked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Of the marker and the call together; None stands for the default. Makes the directory."""
        from harness.errors import BadArguments
        from harness.plan.plan_file import fields_of

        try:
            given = {name: value for name, value in {**self.fields, **fields}.items() if value is not None}
            checked = fields_of(given, f"the plan of {self.test}")
        except BadArguments as error:
            raise NotJudged(str(error)) from None
        self.directory.mkdir(parents=True, exist_ok=True)
        return checked

    def _name(self) -> str:
        """Of a run of this test: one of its own, also where several processes test at once."""
        stem = re.sub(r"[^a-z0-9.]+", "-", self.test.lower()).strip("-.")[:_STEM].rstrip("-.")
        return f"{stem or 'test'}-{secrets.token_hex(3)}"

    def _result(self, document: Mapping[str, Any], directory: Path, report: Path, again: str) -> Result:
        self.record("chaos_results", str(directory))
        return Result(
            str(document["verdict"]), str(document["reason"]), directory, report if report.exists() else None, document,
            again,
        )  # fmt: skip


def _options(fields: Mapping[str, Any]) -> list[str]:
    """A plan's fields as options of a command."""
    words: list[str] = []
    for name, value in fields.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "settings":
            words += [word for setting in value.items() for word in ("--set", "=".join(setting))]
        elif name == "nemesis":
            words += [flag, ",".join(value) or "none"]
        elif value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, str(value)]
    return words


def _of_exploration(document: Mapping[str, Any]) -> str:
    totals = document["totals"]
    counts = ", ".join(f"{totals[name]} {name}" for name in ("passed", "failed", "unknown"))
    reasons = [f"seed {each['seed']}: {each['message']}; {each['replay']}" for each in document["failing"]]
    reasons += [f"seeds {each['seeds']}: {each['reason']}" for each in document["unknown"]]
    return "".join([f"{totals['runs']} seeds, {counts}", *(f"\n  {each}" for each in reasons[:_SHOWN])])
