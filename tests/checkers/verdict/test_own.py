"""Checkers of the user's own: which are asked, what they are given, and what becomes of what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest

import checkers
from checkers.dataset import check_dataset, check_tables
from checkers.verdict import own
from checkers.verdict.keeping import without_stamps
from harness.plan.plan import Plan
from harness.record.history import MemoryRecorder, Recorder, load_journal
from harness.report.html.page import build
from spark_history.damage import seal
from spark_history.dataset import DatasetWriter
from spark_history.spark.tasks import Here
from tests import ROOT

TOPIC = "chaos"
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "verdict.json").read_text())["properties"]["own_checkers"]


class Tickets:
    """No number is drawn twice."""

    properties: Mapping[str, str] = {"tickets differ": "No number is drawn twice."}
    tables: tuple[str, ...] = ("calls", "operations")

    def applies(self, plan: Mapping[str, Any]) -> bool:
        return plan.get("workload") == "append"

    def check(self, given: own.Given) -> own.Findings:
        assert given.run == "r" and given.plan["workload"] == "append" and given.recovered
        assert given.tables["operations"]["op"].to_pylist() == sorted(given.tables["operations"]["op"].to_pylist())
        found, drawn = given.anomalies(), [row["result"] for row in given.tables["calls"].to_pylist()]
        for number in sorted({each for each in drawn if each is not None and drawn.count(each) > 1}):
            found.add("tickets differ", "drawn twice", f"number {number} was drawn {drawn.count(number)} times")
        section = own.Section(["what was drawn"], ("number", "<i>"), [(each or "?", 1) for each in drawn])
        return own.Findings([found], [], {"drawn": len(drawn)}, section)


class Raises(Tickets):
    def check(self, given: own.Given) -> own.Findings:
        raise KeyError("no such thing")


class CannotSay(Tickets):
    def applies(self, plan: Mapping[str, Any]) -> bool:
        raise RuntimeError("not today")


class AsksForMore(Tickets):
    tables = ("reads",)


class TakesAName(Tickets):
    properties: Mapping[str, str] = {"log linearizability": "Something else."}


class SaysMore(Tickets):
    def check(self, given: own.Given) -> own.Findings:
        found = given.anomalies()
        found.add("another", "odd", "it is odd")
        return own.Findings([found])


class NotJson(Tickets):
    def check(self, given: own.Given) -> own.Findings:
        return own.Findings(facts={"what": float("nan")})


class Ragged(Tickets):
    def check(self, given: own.Given) -> own.Findings:
        return own.Findings(section=own.Section(columns=("a", "b"), rows=[("1",)]))


class Unsure(Tickets):
    def check(self, given: own.Given) -> own.Findings:
        return own.Findings(undecided=["nobody drew"])


class OfOthers(Tickets):
    def applies(self, plan: Mapping[str, Any]) -> bool:
        return False


def install(monkeypatch: pytest.MonkeyPatch, **kinds: str) -> None:
    found = {name: EntryPoint(name, f"{__name__}:{kind}", own.GROUP) for name, kind in kinds.items()}
    monkeypatch.setattr(own, "installed", lambda: found)


def plan(**changes: Any) -> dict[str, Any]:
    made = Plan(run="r", seed=1, topic=TOPIC, partitions=1, nemesis=(), min_insync_replicas=1)
    return {**json.loads(made.model_dump_json()), "inside": "", "replica_logs": False, **changes}


def record(recorder: Recorder | MemoryRecorder, drawn: tuple[str, ...]) -> None:
    for value in range(4):
        append = recorder.invoke_append(1, TOPIC, 0, 1, 2 + value, first_value=value)
        recorder.complete(append, 13 + value, "ok", offset=value)
    for time, number in enumerate(drawn):
        call = recorder.invoke_call(1, "draw", 20 + 2 * time, argument={"for": "me"})
        recorder.complete_call(call, 21 + 2 * time, "ok", result=number)
    recorder.invoke_call(1, "draw", 50, key="last")
    read = recorder.invoke(2, "final_read", TOPIC, 0, 95)
    recorder.complete(read, 96, "ok", offset=0, high_watermark=4, records=(list(range(4)), list(range(4))))
    recorder.close()


def run(directory: Path, drawn: tuple[str, ...] = ("a", "b"), of: dict[str, Any] | None = None) -> dict[str, Any]:
    directory.mkdir()
    (directory / "plan.json").write_text(json.dumps(plan() if of is None else of))
    (directory / "run.json").write_text(json.dumps(seal({"status": "done"})))
    record(Recorder(directory, "r", flush_interval=None), drawn)
    return checkers.check(directory, Here())


def test_a_plan_names_the_checkers_that_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tickets="Tickets", others="OfOthers", silent="CannotSay")
    assert plan()["checkers"] == ["silent", "tickets"]
    assert Plan.model_validate(Plan(run="r").model_dump(mode="json")).run == "r"


def test_without_one_all_is_as_before(tmp_path: Path) -> None:
    verdict = run(tmp_path / "run")
    assert verdict["verdict"] == "pass" and "own_checkers" not in verdict and plan()["checkers"] == []


def test_what_it_finds_fails_the_run_and_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tickets="Tickets")
    verdict = run(tmp_path / "run", ("a", "b", "a"))
    assert (verdict["verdict"], verdict["reason"]) == ("fail", "drawn twice (1)")
    assert verdict["anomalies"]["tickets differ"]["example"] == 'number "a" was drawn 2 times'
    jsonschema.validate(verdict["own_checkers"], SCHEMA)
    assert verdict["own_checkers"]["tickets"]["facts"] == {"drawn": 4}
    (row,) = pq.read_table(tmp_path / "run" / "anomalies.parquet").to_pylist()
    assert (row["property"], row["anomaly"], row["run"]) == ("tickets differ", "drawn twice", "r")
    page = build(tmp_path / "run").read_text()
    assert "No number is drawn twice." in page and "What was drawn." in page and "&lt;i&gt;" in page
    assert "drawn twice" in page and "<i>" not in page.split('id="own-1"')[1].split("</section>")[0]


def test_what_it_does_not_find_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tickets="Tickets", others="OfOthers")
    verdict = run(tmp_path / "run")
    assert verdict["verdict"] == "pass" and verdict["anomalies"]["tickets differ"]["count"] == 0
    assert list(verdict["own_checkers"]) == ["tickets"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("Raises", "checker mine failed: KeyError: 'no such thing'"),
        ("CannotSay", "checker mine failed: RuntimeError: not today"),
        ("NoSuchClass", "checker mine failed: AttributeError: module"),
        ("AsksForMore", "checker mine failed: it asks for the table 'reads'; there are calls, operations"),
        ("TakesAName", "checker mine failed: its property 'log linearizability' is that of another checker"),
        ("SaysMore", "checker mine failed: it reports 'odd' of 'another', which is none of its properties"),
        ("NotJson", "checker mine failed: Out of range float values are not JSON compliant"),
        ("Ragged", "checker mine failed: a row of its section has not as many entries as there are columns (2)"),
        ("Unsure", "nobody drew"),
    ],
)
def test_one_that_fails_leaves_the_run_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, why: str
) -> None:
    install(monkeypatch, mine=kind)
    verdict = run(tmp_path / "run")
    assert verdict["verdict"] == "unknown" and verdict["reason"].startswith(why), verdict["reason"]
    assert ("tickets differ" in verdict["anomalies"]) == (kind == "Unsure")
    assert check_tables(plan(), load_journal(tmp_path / "run" / "journal")) == without_stamps(verdict)
    assert "pass" not in build(tmp_path / "run").read_text().split("<h1>")[1][:40].lower()


def test_one_that_fails_takes_nothing_from_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, mine="Raises", tickets="Tickets")
    verdict = run(tmp_path / "run", ("a", "a"))
    assert verdict["verdict"] == "fail" and verdict["not_judged"] == ["checker mine failed: KeyError: 'no such thing'"]


def test_two_checkers_cannot_have_a_property_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, first="Tickets", second="Tickets")
    verdict = run(tmp_path / "run")
    assert verdict["reason"] == "checker second failed: its property 'tickets differ' is that of another checker"


def test_where_one_is_not_installed_its_runs_are_not_passed(tmp_path: Path) -> None:
    verdict = run(tmp_path / "run", of=plan(checkers=["tickets"]))
    why = "checker tickets is not installed here, so what it judges is not known"
    assert (verdict["verdict"], verdict["reason"]) == ("unknown", why)


def test_in_memory_and_in_a_dataset_the_verdict_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tickets="Tickets")
    on_disk = run(tmp_path / "run", ("a", "b", "a"))
    recorder = MemoryRecorder("r")
    record(recorder, ("a", "b", "a"))
    assert check_tables(plan(), recorder.tables()) == without_stamps(on_disk)
    with DatasetWriter(tmp_path / "dataset", 0) as writer:
        writer.add(plan(), recorder.tables())
    (verdict,) = check_dataset(tmp_path / "dataset", Here())
    assert verdict == without_stamps(on_disk)


def test_operations_that_are_damaged_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tickets="Tickets")
    run(tmp_path / "run", ("a", "a"))
    (path,) = (tmp_path / "run" / "journal").glob("calls-*.parquet")
    path.write_bytes(path.read_bytes()[:-40])
    verdict = checkers.check(tmp_path / "run", Here())
    assert verdict["verdict"] == "unknown" and verdict["not_judged"] == [
        "what the workload's own operations show was not judged: not all of them are on record",
        "checker tickets was not asked, as not all of calls is on record",
    ]
    assert "tickets differ" not in verdict["anomalies"]
