"""Consumer groups in the verdict of a run: from the recorder to verdict.json, in memory and in a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq

import checkers
from checkers.dataset import check_dataset, check_tables
from checkers.properties import GROUP_PROPERTIES
from checkers.verdict.keeping import without_stamps
from harness.plan.plan import Plan
from harness.record.history import Recorder, load_journal
from harness.report.html.page import build
from spark_history.damage import seal
from spark_history.dataset import DatasetWriter
from spark_history.ingest import ingest
from spark_history.schema import GROUP_EVENTS, TABLES
from spark_history.spark.tasks import Here
from tests import ROOT
from tests.checkers.groups.group_history import GROUP, TOPIC, Event, events
from tests.checkers.groups.test_groups import asked, at, commit, done, given, poll

PLAN: dict[str, Any] = {
    **json.loads(Plan(run="r", seed=1, topic=TOPIC, partitions=1, nemesis=(), min_insync_replicas=1).model_dump_json()),
    "inside": "", "replica_logs": False,
    "groups": {GROUP: {"commit": "after", "mode": "sync", "settle_s": 1e-6}},
}  # fmt: skip
RIGHT = (
    at(1, "join"), given(10, start=0), poll(20, 0, 4), done(22, 0, 4), commit(24, 4), poll(5000, 4, 10),
    done(5002, 4, 10), commit(5004, 10), asked(9000, 10), at(9010, "leave"),
)  # fmt: skip
HEALED = 6000


def record(recorder: Recorder, rows: list[Event]) -> None:
    for value in range(10):
        append = recorder.invoke_append(1, TOPIC, 0, 1, 2 + value, first_value=value)
        recorder.complete(append, 13 + value, "ok", offset=value)
    read = recorder.invoke(2, "final_read", TOPIC, 0, 9500)
    recorder.complete(read, 9600, "ok", offset=0, high_watermark=10, records=(list(range(10)), list(range(10))))
    recorder.add_rows("group_events", pa.Table.from_pylist(rows, schema=GROUP_EVENTS).drop(["run"]))
    recorder.close()


def run(directory: Path, rows: list[Event], plan: dict[str, Any] = PLAN, **facts: Any) -> dict[str, Any]:
    directory.mkdir()
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "run.json").write_text(json.dumps(seal({"status": "done", "healed_ns": HEALED, **facts})))
    record(Recorder(directory, "r", flush_interval=None), rows)
    return checkers.check(directory, Here())


def test_a_group_that_does_all_right_passes(tmp_path: Path) -> None:
    verdict = run(tmp_path / "run", events(RIGHT))
    assert verdict["verdict"] == "pass", verdict["reason"]
    names = [name for name in GROUP_PROPERTIES if name != "at-most-once processing"]
    assert [name for name in verdict["anomalies"] if name in GROUP_PROPERTIES] == names
    assert verdict["groups"]["events"][GROUP]["commit"] == 2 and verdict["groups"]["undecided"] == []
    assert verdict["anomalies"]["consumer groups, allowed"]["weak"]
    schema = json.loads((ROOT / "docs" / "schemas" / "verdict.json").read_text())["properties"]["groups"]
    jsonschema.validate(verdict["groups"], schema)


def test_what_a_group_does_wrong_fails_the_run_and_is_shown(tmp_path: Path) -> None:
    wrong = events([*RIGHT[:-2], commit(5100, 9), asked(9000, 9), RIGHT[-1]])
    verdict = run(tmp_path / "run", wrong)
    assert (verdict["verdict"], verdict["reason"]) == (
        "fail",
        "committed offset went back (1); the faults stayed within the contract, so this is a bug",
    )
    (row,) = pq.read_table(tmp_path / "run" / "anomalies.parquet").to_pylist()
    assert json.loads(row["witness"])["operations"][1]["what"] == f"commit of 9 of chaos-0, group {GROUP}"
    page = build(tmp_path / "run").read_text()
    assert "committed offset went back" in page and "property-committed-offsets" in page


def test_when_all_was_healed_is_not_known_the_verdict_is_not(tmp_path: Path) -> None:
    verdict = run(tmp_path / "run", events(RIGHT), healed_ns=None)
    assert verdict["verdict"] == "unknown" and "when all faults were healed is not known" in verdict["reason"]


def test_a_run_whose_group_left_nothing_on_record_is_unknown(tmp_path: Path) -> None:
    verdict = run(tmp_path / "run", [])
    assert (verdict["verdict"], verdict["reason"]) == ("unknown", "group g: nothing of it is on record")


def test_runs_without_groups_are_judged_as_before(tmp_path: Path) -> None:
    verdict = run(tmp_path / "run", [], {key: value for key, value in PLAN.items() if key != "groups"})
    assert verdict["verdict"] == "pass" and "groups" not in verdict


def test_a_history_of_before_there_was_the_table_is_read(tmp_path: Path) -> None:
    run(tmp_path / "run", [], {key: value for key, value in PLAN.items() if key != "groups"})
    history = ingest(tmp_path / "run", Here())
    (history.path / "group_events" / "group_events.parquet").unlink()
    assert history.table("group_events") is None


def test_events_that_are_damaged_are_not_judged(tmp_path: Path) -> None:
    run(tmp_path / "run", events([*RIGHT[:-2], commit(5100, 9), RIGHT[-1]]))
    (path,) = (tmp_path / "run" / "journal").glob("group_events-*.parquet")
    path.write_bytes(path.read_bytes()[:-40])
    verdict = checkers.check(tmp_path / "run", Here())
    assert verdict["verdict"] == "unknown" and "what consumer groups did was not judged" in " ".join(
        verdict["not_judged"]
    )


def test_in_memory_and_in_a_dataset_the_verdict_is_the_same(tmp_path: Path) -> None:
    wrong = events([*RIGHT[:-2], commit(5100, 9), asked(9000, 9), RIGHT[-1]])
    on_disk = run(tmp_path / "run", wrong)
    tables = load_journal(tmp_path / "run" / "journal")
    in_memory = check_tables(PLAN, tables, healed=HEALED)
    assert in_memory == without_stamps(on_disk)
    with DatasetWriter(tmp_path / "dataset", 0) as writer:
        writer.add(PLAN, tables)
        writer.add({**PLAN, "run": "older"}, {name: tables[name] for name in TABLES})
    assert [each["verdict"] for each in check_dataset(tmp_path / "dataset", Here())] == ["fail", "fail"]
