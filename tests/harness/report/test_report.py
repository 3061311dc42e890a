"""The report, on run directories made up here: what each kind of run must show, and that nothing in it can bite."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from checkers.anomalies import ANOMALIES, ATTRIBUTED
from checkers.inside.of_nodes import OfNodes
from checkers.verdict import verdict
from checkers.witness import Step, encode
from harness.errors import BadArguments
from harness.plan.plan import Plan
from harness.record.history import Recorder
from harness.report import words
from harness.report.console import print_summary
from harness.report.html.aggregate import Fault, blame, summarise
from harness.report.html.data import load
from harness.report.html.page import build
from spark_history.schema import FAULTS, OPERATIONS, READS, REPLICA_LOGS

SECOND = 1_000_000_000
START = 86_400 * SECOND * 200  # a machine up for 200 days: its nanoseconds do not fit a float
HOSTILE = "<script>alert('x')</script>\"'&"


@dataclass
class SyntheticRun:
    """A run of `seconds` at `rate` appends a second over `partitions`; offsets count acknowledged appends."""

    seconds: float = 10.0
    rate: int = 200
    partitions: int = 4
    faults: list[dict[str, Any]] = field(default_factory=list)
    lost_before_cut_s: float = 0.0  # appends acknowledged this long before a fault's start are lost
    final: bool = True
    plan: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] | None = None
    anomalies: list[dict[str, Any]] = field(default_factory=list)

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        Plan(run=directory.name, seed=7, **self.plan).save(directory)
        if self.verdict is not None:
            (directory / "verdict.json").write_text(json.dumps(dict(self.verdict)))
        phases = {"start": 2.1, "ready": 2.6, "make": self.seconds, "final reads": 0.8, "collect": 1.2, "judge": 3.4}
        (directory / "run.json").write_text(
            json.dumps({"status": "done", "phases": phases, "problems": [], "started_at": "2026-01-31T12:01:02+00:00"})
        )
        operations = self.operations()
        self._write(directory, "operations", operations, OPERATIONS)
        self._write(directory, "faults", pd.DataFrame(self._fault_rows(), columns=FAULTS.names), FAULTS)
        acknowledged = operations[(operations["kind"] == "append") & (operations["outcome"] == "ok")]
        self._write(directory, "reads", acknowledged[READS.names], READS)
        if self.final:
            logs = [acknowledged.assign(node=f"broker-{number}")[REPLICA_LOGS.names] for number in (1, 2, 3)]
            self._write(directory, "replica_logs", pd.concat(logs), REPLICA_LOGS)
        lost = acknowledged[self._lost(acknowledged["complete"].to_numpy())]
        starts = np.array([START + int(fault["start"] * SECOND) for fault in self.faults] or [0])
        took = pd.array(np.searchsorted(starts, lost["complete"].to_numpy("int64"), "right") % len(starts), "Int32")
        lost = lost.assign(fault=took, node="broker-3", takers=None, cause="took the last copy, of broker-3")
        pq.write_table(_table(lost, ATTRIBUTED), directory / "lost.parquet")
        anomalies = pd.DataFrame(self.anomalies, columns=ANOMALIES.names)
        if len(lost):
            row = lost.iloc[0]
            witness = {"property": "log linearizability", "anomaly": "lost append", "ops": [row["op"]]}
            witness |= {"count": len(lost)} | {name: row[name] for name in ("topic", "partition", "offset", "value")}
            witness["message"] = f"{len(lost)} acknowledged records are not in the final log"
            anomalies = pd.DataFrame([witness, *self.anomalies], columns=ANOMALIES.names)
        pq.write_table(_table(anomalies, ANOMALIES), directory / "anomalies.parquet")
        return directory

    def operations(self) -> pd.DataFrame:
        draw = np.random.default_rng(7)
        count = int(self.seconds * self.rate)
        invoke = np.sort(draw.uniform(0, self.seconds, count))
        latency = draw.lognormal(np.log(0.004), 0.5, count)
        outcome, error = np.full(count, "ok", dtype=object), np.full(count, None, dtype=object)
        for fault in self.faults:
            # The first part of a fault is the time without a leader; after it, clients go on against the others.
            leaderless = (invoke >= fault["start"]) & (invoke < fault["start"] + 0.6 * (fault["end"] - fault["start"]))
            struck = leaderless & (draw.random(count) < fault.get("struck", 0.5))
            kind = draw.random(count)
            failed, unclear = struck & (kind < 0.4), struck & (kind > 0.97)
            outcome[failed], error[failed] = "fail", "NOT_LEADER_OR_FOLLOWER"
            outcome[unclear], error[unclear] = "info", "CONNECTION_LOST"
            slow = struck & (outcome == "ok")
            latency[slow] += np.maximum(fault["start"] + 0.6 * (fault["end"] - fault["start"]) - invoke[slow], 0)
        frame = pd.DataFrame({"op": np.arange(count), "invoke": _ns(invoke), "complete": _ns(invoke + latency)})
        frame = frame.assign(
            run="r", process=np.arange(count) % 4, kind="append", topic=self.plan.get("topic", "chaos"),
            partition=np.arange(count) % self.partitions, value=pd.array(np.arange(count) + 2**60),
            outcome=outcome, error=error,
        )  # fmt: skip
        done = frame["outcome"] == "ok"
        frame["offset"] = frame[done].groupby("partition").cumcount()
        frame["leader_epoch"] = pd.array(np.where(done, 3, 0), dtype="Int32")
        frame["high_watermark"] = pd.array([None] * count, dtype="Int64")
        unanswered = frame.index[(frame["outcome"] == "info")][::2]
        frame["complete"] = frame["complete"].astype("Int64")
        frame.loc[unanswered, "complete"] = pd.NA
        if not self.final:
            return frame[OPERATIONS.names]
        ends = frame[done].groupby(["topic", "partition"], as_index=False)["offset"].max()
        reads = ends.assign(
            run="r", process=9, op=np.arange(count, count + len(ends)), kind="final_read", offset=0,
            high_watermark=(ends["offset"] + 1).astype("Int64"), outcome="ok",
            invoke=_ns(self.seconds + 3), complete=_ns(self.seconds + 3.01),
        )  # fmt: skip
        reads = reads.reindex(columns=OPERATIONS.names).astype(frame.dtypes[list(OPERATIONS.names)])
        return pd.concat([frame[OPERATIONS.names], reads], ignore_index=True)

    def _lost(self, complete: np.ndarray) -> np.ndarray:
        lost = np.zeros(len(complete), dtype=bool)
        for fault in self.faults:
            cut = START + int(fault["start"] * SECOND)
            lost |= (complete > cut - int(self.lost_before_cut_s * SECOND)) & (complete <= cut)
        return lost

    def _fault_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "run": "r", "fault": number, "nemesis": fault["nemesis"], "targets": fault["targets"],
                "start": int(_ns(fault["start"])), "end": None if fault.get("open") else int(_ns(fault["end"])),
                "effective": fault.get("effective", True), "evidence": json.dumps(fault.get("evidence", {})),
            }
            for number, fault in enumerate(self.faults)
        ]  # fmt: skip

    def _write(self, directory: Path, name: str, frame: pd.DataFrame, schema: pa.Schema) -> None:
        folder = directory / "history" / name
        folder.mkdir(parents=True)
        pq.write_table(_table(frame, schema), folder / "part-0.parquet")


def _ns(seconds: Any) -> Any:
    return START + (np.asarray(seconds) * 1e6).astype("int64") * 1000


def _table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pandas(frame.reindex(columns=schema.names), schema=schema, preserve_index=False)


def power_cut(start: float, end: float, nodes: list[str], records: int = 40) -> dict[str, Any]:
    seen = {"unsynced_bytes": 83 * records, "unsynced_files": 9, "unsynced_records": records, "exit_status": 137}
    lost = {f"chaos-{number}": records // 4 for number in range(4)}
    each = {node: seen | {"cut_ns": 41_000_000, "lost_by_partition": lost} for node in nodes}
    total = {key: value * len(nodes) for key, value in seen.items() if key.startswith("unsynced")}
    in_sync = {"in_sync_at": int(_ns(end + 1.4))}
    return {
        "nemesis": "power-outage", "targets": nodes, "start": start, "end": end,
        "evidence": {"nodes": each} | total | in_sync,
    }  # fmt: skip


def passing() -> SyntheticRun:
    return SyntheticRun(
        faults=[
            power_cut(2.0, 3.5, ["broker-1", "controller-101"]), power_cut(6.0, 7.0, ["broker-3", "controller-103"])
        ],
        verdict={
            "verdict": "pass", "exit_code": 0, "reason": "every property held through 2 faults that lost data",
            "anomalies": {"log linearizability": {"count": 0}, "log matching": {"count": 0}},
            "contract": {"within": True, "limit": 1, "worst": 1}, "complete": True, "judged_until_s": 13.0,
        },
    )  # fmt: skip


def failing(lost_s: float = 0.5, **changes: Any) -> SyntheticRun:
    brokers = ["broker-1", "broker-2", "broker-3"]
    cuts = [power_cut(2.0, 3.5, brokers), power_cut(6.0, 7.0, brokers)]
    defaults: dict[str, Any] = {
        "faults": [cut | {"nemesis": "power-outage-cluster", "struck": 1.0} for cut in cuts],
        "lost_before_cut_s": lost_s,
        "plan": {"nemesis": ("power-outage-cluster",)},
        "verdict": {
            "verdict": "fail", "exit_code": 1, "reason": "acknowledged records were lost",
            "anomalies": {"log linearizability": {"count": 1}, "log matching": {"count": 0}},
            "contract": {"within": False, "limit": 1, "worst": 3}, "complete": True,
        },
    }  # fmt: skip
    return SyntheticRun(**(defaults | changes))


class _Page(HTMLParser):
    """Text, tags and ids of a page; checks that every element that must be closed is."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})
    IMPLIED_END = frozenset({"td", "tr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()
        assert [tag for tag in self.open if tag not in self.IMPLIED_END] == []
        self.text = re.sub(r"\s+", " ", " ".join(self.pieces))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] != tag and self.open[-1] in self.IMPLIED_END:
            self.open.pop()
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not (self.open and self.open[-1] in ("style", "script")):
            self.pieces.append(data)


def page_of(directory: Path) -> _Page:
    path = build(directory)
    assert path == directory / "report.html"
    return _Page(path.read_text())


def test_a_passing_run_says_so_with_its_command_and_its_faults(tmp_path: Path) -> None:
    directory = passing().write(tmp_path / "run")
    page = page_of(directory)
    assert "PASS Every property held through 2 faults" in page.text
    assert "The faults stayed within the contract" in page.text
    assert Plan.load(directory).command() in page.text
    assert "lost 80 unsynced records" in page.text and "exit status 137 (SIGKILL)" in page.text
    assert "in sync 1.4 s later" in page.text
    assert "violations" not in {attributes.get("id") for _, attributes in page.tags}


def test_the_first_screen_names_the_fault_the_range_and_who_had_it_last(tmp_path: Path) -> None:
    directory = failing().write(tmp_path / "run")
    lost = pq.read_table(directory / "lost.parquet")
    attribution = [{
        "fault": 1, "node": "broker-3", "takers": [1], "cause": "took the last copy, of broker-3",
        "records": lost.num_rows, "acknowledged": lost.num_rows, "first_s": 1.0, "last_s": 9.0,
        "partitions": {"chaos-0": [[3, 17]]},
    }]  # fmt: skip
    verdict_ = json.loads((directory / "verdict.json").read_text()) | {"attribution": attribution}
    thresholds = [
        {"expect": "p99 < 500ms", "measured": "728 ms", "held": False},
        {"expect": "recovery < 1s", "measured": "not measured", "held": None},
    ]
    (directory / "verdict.json").write_text(json.dumps(verdict_ | {"thresholds": thresholds}))
    (directory / "note.txt").write_text(f"see https://example.org/issues/7 and javascript:alert(1) {HOSTILE}")
    page = page_of(directory)
    assert f"the power cut F1 at {failing().faults[1]['start']:.1f} s took".lower() in page.text.lower()
    assert f"{lost.num_rows:,} acknowledged ones never came back; broker-3 had them last" in page.text
    assert "Lost are the offsets chaos-0 " in page.text
    assert "? not measured recovery < 1s" in page.text
    assert "✕ broken p99 < 500ms : measured 728 ms" in page.text.replace("p99 < 500ms:", "p99 < 500ms :")
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a" and "rel" in attributes]
    assert links == ["https://example.org/issues/7"], "nothing else of a note is a link"
    attribution[0]["cause"] = (
        "took it from broker-1, which was elected leader without it; broker-2 and broker-3 dropped it to follow"
    )
    contract = {**verdict_["contract"], "within": True, "promised": False, "explanation": "there is no ELR"}
    (directory / "verdict.json").write_text(json.dumps(verdict_ | {"attribution": attribution, "contract": contract}))
    page = page_of(directory)
    assert "; broker-1 was elected leader without them, and broker-2 and broker-3 dropped them to" in page.text
    assert "Nothing was promised with these settings: of " in page.text and "within the contract" not in page.text
    assert "Yes: nothing better is promised with the settings of this run: there is no ELR" in page.text


def test_every_lost_record_is_listed_and_the_contract_named(tmp_path: Path) -> None:
    run = failing()
    directory = run.write(tmp_path / "run")
    page = page_of(directory)
    lost = pq.read_table(directory / "lost.parquet").to_pylist()
    assert len(lost) > 100
    assert page.text.count("nothing: the log ends before") == len(lost)
    assert "The faults went beyond the contract" in page.text
    assert "does not promise to survive these faults" in page.text
    for record in lost:
        at = f"{(record['complete'] - _origin(directory)) / 1e9:.3f} s"
        assert record["value"] == record["op"] + 2**60
        assert f" {record['offset']} {record['value']} {at} " in page.text


def _origin(directory: Path) -> int:
    return int(pq.read_table(directory / "history" / "operations")["invoke"].to_pandas().min())


def test_the_checkers_own_verdict_is_understood(tmp_path: Path) -> None:
    """The shapes of checkers.verdict.verdict, not the ones made up above."""
    run = failing()
    directory = run.write(tmp_path / "run")
    faults = [fault | {"evidence": json.loads(fault["evidence"])} for fault in run._fault_rows()]
    tally = [("log linearizability", "lost append", 4, 3210), ("watermark freshness", "lagging watermark", 1, 2)]
    evidence = verdict.Evidence(
        run="run", plan=json.loads((directory / "plan.json").read_text()), tally=tally, counts={"acknowledged": 9000},
        faults=faults, complete=True, missing=[], origin=START, until=START + 12 * SECOND, replica_records=27_000,
    )  # fmt: skip
    (directory / "verdict.json").write_text(json.dumps(verdict.judge(evidence)))
    page = page_of(directory)
    assert "FAIL 3,210 lost appends" in page.text
    assert "At worst 3 brokers (broker-1, broker-2, broker-3) had lost unsynced data" in page.text
    assert "log linearizability ✕ violated lost append (3,210)" in page.text
    assert "log matching ✓ holds none" in page.text
    assert "watermark freshness ⚠ reported, never fails a run lagging watermark (2)" in page.text
    assert "Judged until 12.000 s" in page.text


def test_what_was_checked_inside_the_cluster_and_each_unclean_recovery_is_told(tmp_path: Path) -> None:
    recovery = {
        "topic": "chaos", "partition": 3, "leader": 2, "leader_epoch": 7, "time": START + 4 * SECOND, "offset": 31,
        "strategy": "balanced", "candidates": [2, 3], "recovering": True,
    }  # fmt: skip
    nodes = OfNodes([], [], 1234, 56, ["LeaderCompleteness"], ["controllers slept"], [recovery])
    directory = passing().write(tmp_path / "run")
    evidence = verdict.Evidence(
        run="run", plan={"nemesis": []}, tally=[], counts={"acknowledged": 9000}, faults=[], complete=True, missing=[],
        origin=START, until=START + 12 * SECOND, replica_records=27_000, nodes=nodes,
    )  # fmt: skip
    judged = verdict.judge(evidence)
    assert judged["verdict"] == "pass", "a possible loss is no loss"
    assert judged["anomalies"]["LeaderCompleteness"]["count"] == 0 and judged["nodes"]["trace_rows"] == 1234
    (directory / "verdict.json").write_text(json.dumps(judged))
    page = page_of(directory)
    sentence = (
        "ossible loss: unclean recovery of chaos-3 at 4.000 s: broker 2 leads from leader epoch 7 on, strategy "
        "balanced, of the logs on brokers 2, 3"
    )
    assert f"P{sentence}." in page.text
    assert "LeaderCompleteness ✓ holds" in page.text and "ElectionSafety" not in page.text
    assert "Nodes’ traces 1,234 lines" in page.text and "Not checked inside the cluster controllers slept" in page.text
    written = Console(record=True, width=300, file=StringIO())
    print_summary(written, directory, judged, [], [])
    assert f"recoveries  p{sentence}" in written.export_text()


def test_a_summary_says_which_fault_took_what(tmp_path: Path) -> None:
    group = {"fault": 0, "node": "broker-3", "takers": [0], "cause": "took the last copy, of broker-3", "records": 12,
             "acknowledged": 10, "partitions": {"chaos-0": [[26, 35], [40, 40]], "chaos-1": [[7, 7]]}}  # fmt: skip
    written = Console(record=True, width=300, file=StringIO())
    verdict = {"verdict": "fail", "reason": "12 lost appends", "attribution": [group, group | {"records": 0}]}
    print_summary(written, tmp_path, verdict, [], [])
    told = "12 records, 10 of them acknowledged: fault 0 took the last copy, of broker-3; chaos-0 26–35, 40, chaos-1 7"
    said = [line.strip() for line in written.export_text().splitlines() if line.startswith("  lost ")]
    assert said == [f"lost        {told}"]


def test_a_summary_says_once_that_the_run_was_cut_short(tmp_path: Path) -> None:
    how = "the run was cut short by SIGINT after 3.1 s of 60 s"
    for reason in (f"{how}: no violation in the 3.1 s on record", "3 lost appends"):
        written = Console(record=True, width=300, file=StringIO())
        verdict = {"verdict": "unknown", "reason": reason, "ended_early": how}
        print_summary(written, tmp_path, verdict, [], [how, "another problem"])
        reported = written.export_text()
        assert reported.count(how) == 1 and "another problem" in reported


def test_a_run_that_its_user_cut_short_says_so(tmp_path: Path) -> None:
    directory = failing().write(tmp_path / "run")
    assert "cut short by" not in page_of(directory).text
    run = json.loads((directory / "run.json").read_text())
    how = "the run was cut short by SIGINT after 3.1 s of 60 s"
    (directory / "run.json").write_text(json.dumps({**run, "status": "interrupted", "ended_early": how}))
    assert page_of(directory).text.count(how) >= 2


def test_a_lost_record_names_the_fault_that_the_verdict_found(tmp_path: Path) -> None:
    summary = summarise(load(failing(lost_s=0.1).write(tmp_path / "run")))
    assert set(summary.lost["fault_name"]) == {"F0", "F1"}


def test_thousands_of_lost_records_are_capped_with_a_pointer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.report.html.page.LISTED_LOST", 60)
    directory = failing().write(tmp_path / "run")
    page = page_of(directory)
    total = pq.read_metadata(directory / "lost.parquet").num_rows
    assert f"This page lists the first 60; all {total} are in lost.parquet" in page.text
    assert f"{total} records" in page.text


def test_a_vacuous_run_is_unknown_and_its_idle_fault_marked(tmp_path: Path) -> None:
    idle = {
        "nemesis": "partition", "targets": ["broker-2"], "start": 3.0, "end": 5.0, "effective": False,
        "evidence": {"packets_dropped": 0}, "struck": 0.0,
    }  # fmt: skip
    vacuous = {"verdict": "unknown", "exit_code": 2, "reason": "vacuous: no fault took effect"}
    directory = SyntheticRun(faults=[idle], verdict=vacuous, plan={"nemesis": ("partition",)}).write(tmp_path / "run")
    page = page_of(directory)
    assert "UNKNOWN Vacuous: no fault took effect" in page.text
    assert "no evidence of an effect" in page.text and "0 of 1" in page.text
    assert ("rect", "band idle") in {(tag, attributes.get("class")) for tag, attributes in page.tags}


def test_a_skipped_fault_is_told_but_not_drawn(tmp_path: Path) -> None:
    run = passing()
    skipped = {"nemesis": "kill", "targets": [], "start": 9.0, "end": 9.0, "effective": False}
    run.faults.append(skipped | {"evidence": {"skipped": "no time left: busy"}})
    page = page_of(run.write(tmp_path / "run"))
    assert "F2 kill: no time left: busy" in page.text and "2 of 2" in page.text
    assert sum(attributes.get("class", "").startswith("fault") for tag, attributes in page.tags if tag == "a") == 2


def test_a_run_killed_in_the_middle_is_reported_from_its_journal(tmp_path: Path) -> None:
    directory = tmp_path / "killed"
    directory.mkdir()
    Plan(run="killed").save(directory)
    recorder = Recorder(directory, "killed", flush_interval=None)
    done = recorder.invoke_append(0, "chaos", 0, 5, START)
    recorder.complete(done, START + SECOND, "ok", offset=0, leader_epoch=1)
    recorder.invoke_append(0, "chaos", 1, 3, START + SECOND)
    recorder.record_fault(0, "kill", ["broker-1"], START, None, effective=True, evidence="{}")
    recorder.flush()
    page = page_of(directory)
    assert "NOT JUDGED" in page.text
    assert "the journal: the run was cut short" in page.text
    assert "Final reads 0 of 2 partitions" in page.text
    assert "Appends never answered 3" in page.text
    assert "never healed" in page.text


def test_a_plan_alone_makes_a_report_and_no_run_is_one_sentence(tmp_path: Path) -> None:
    Plan(run="only-planned").save(tmp_path)
    assert "No append is on record." in page_of(tmp_path).text
    (tmp_path / "empty").mkdir()
    for wrong in (tmp_path / "empty", tmp_path / "absent"):
        with pytest.raises(BadArguments, match=str(wrong)) as error:
            build(wrong)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [
    {}, {"verdict": 3}, {"verdict": "fail", "contract": [], "anomalies": {"x": None}},
    {"attribution": 3, "losses": "x"},
    {"attribution": [3, {}, {"records": 1, "partitions": 3}, {"records": 1, "partitions": {"chaos-0": [[1], ["a"]]}}]},
    {"attribution": [{"records": 1, "fault": "x", "node": 3, "acknowledged": "q"}], "thresholds": [3, {}]},
])  # fmt: skip
def test_a_verdict_of_unexpected_shape_still_makes_a_report(tmp_path: Path, content: dict[str, Any]) -> None:
    directory = passing().write(tmp_path / "run")
    (directory / "verdict.json").write_text(json.dumps(content))
    page_of(directory)


def test_damaged_files_are_named_on_the_page(tmp_path: Path) -> None:
    directory = passing().write(tmp_path / "run")
    (directory / "history" / "reads" / "part-0.parquet").write_bytes(b"PAR1 no more")
    (directory / "verdict.json").write_text("{")
    page = page_of(directory)
    assert "part-0.parquet cannot be read" in page.text and "verdict.json cannot be read" in page.text
    assert "2,000 appends" in page.text


def test_a_layout_that_keeps_topic_and_partition_in_folder_names_is_read(tmp_path: Path) -> None:
    directory = passing().write(tmp_path / "run")
    file = directory / "history" / "operations" / "part-0.parquet"
    operations = pq.read_table(file)
    file.unlink()
    pq.write_to_dataset(operations, directory / "history" / "operations", partition_cols=["topic", "partition"])
    again = load(directory).operations
    assert again.kinds.total() == operations.num_rows
    read = operations.group_by("partition").aggregate([([], "count_all")]).to_pylist()
    assert {f"chaos-{row['partition']}": row["count_all"] for row in read} == {f"chaos-{n}": 501 for n in range(4)}
    appends = operations.filter(pc.equal(operations["kind"], "append")).group_by("partition")
    due = {f"chaos-{row['partition']}": row["count_all"] for row in appends.aggregate([([], "count_all")]).to_pylist()}
    assert {name: sum(len(part.invoke) for part in parts) for name, parts in again.appends.items()} == due


def test_a_witness_is_drawn_with_the_faults_in_force(tmp_path: Path) -> None:
    steps = [
        Step(3, 1, "append 17 at offset 4", int(_ns(2)), int(_ns(3))),
        Step(9, 2, f"read from 4: {HOSTILE}", int(_ns(4)), None, "info"),
    ]
    fault = {"fault": 0, "nemesis": "pause", "targets": ["broker-2"], "start": int(_ns(1)), "end": int(_ns(9))}
    row = {
        "property": "log linearizability", "anomaly": "stale end of log", "topic": "chaos", "partition": 0, "offset": 4,
        "value": 17, "ops": [3, 9], "count": 1, "message": "m", "witness": encode(steps, faults=[fault]),
    }  # fmt: skip
    directory = failing(anomalies=[row, row | {"anomaly": "torn prefix", "witness": "{"}]).write(tmp_path / "run")
    page = page_of(directory)
    bars = [each for tag, each in page.tags if tag == "rect" and each.get("class") in ("ok", "info open", "fault")]
    assert [bar["class"] for bar in bars] == ["ok", "info open", "fault"]
    first, second, band = ((float(bar["x"] or 0), float(bar["width"] or 0)) for bar in bars)
    assert first[0] + first[1] < second[0] and band[0] <= first[0] and sum(band) >= sum(second)
    assert re.search(r"[34]\.\d{3} s to \?", page.text)
    for text in ("process 1, op 3: append 17 at offset 4", "pause of broker-2", HOSTILE):
        assert text in page.text
    assert "alert" not in " ".join(name for tag, attributes in page.tags for name in (tag, *attributes))


def test_nothing_in_a_run_can_become_markup(tmp_path: Path) -> None:
    run = failing(
        anomalies=[{
            "property": HOSTILE, "anomaly": HOSTILE, "topic": HOSTILE, "partition": 0, "offset": 1, "value": 2,
            "ops": [0, 1], "count": 2, "message": HOSTILE,
        }],
        verdict={"verdict": "fail", "reason": HOSTILE, "contract": {"within": True, "explanation": HOSTILE}},
    )  # fmt: skip
    evidence = {"nodes": {HOSTILE: {"exit_status": HOSTILE, HOSTILE: HOSTILE}}}
    run.faults[0] |= {"nemesis": HOSTILE, "targets": [HOSTILE], "evidence": evidence}
    directory = run.write(tmp_path / "run")
    plan = json.loads((directory / "plan.json").read_text())
    (directory / "plan.json").write_text(json.dumps(plan | {"run": HOSTILE, "settings": {HOSTILE: HOSTILE}}))
    page = page_of(directory)
    assert [attributes.get("type") for tag, attributes in page.tags if tag == "script"] == ["application/json", None]
    assert "alert" not in " ".join(name for tag, attributes in page.tags for name in (tag, *attributes))
    assert page.text.count("alert('x')") >= 8


def test_the_page_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    directory = failing().write(tmp_path / "run")
    page = page_of(directory)
    for _, attributes in page.tags:
        for name in ("src", "href", "action"):
            reference = attributes.get(name) or ""
            assert not re.match(r"[a-z]+:|//", reference) or reference.startswith("data:")
    assert "url(http" not in (directory / "report.html").read_text()


def test_links_within_the_page_lead_somewhere_and_ids_are_unique(tmp_path: Path) -> None:
    page = page_of(failing().write(tmp_path / "run"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {attributes["href"] for _, attributes in page.tags if (attributes.get("href") or "").startswith("#")}
    assert anchors <= {f"#{name}" for name in ids}


def test_the_figure_is_well_formed_and_its_numbers_add_up(tmp_path: Path) -> None:
    directory = failing().write(tmp_path / "run")
    html = build(directory).read_text()
    figure = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    titles = [rect.findtext("title") or "" for rect in figure.iter("rect") if rect.get("class") == "hit"]
    counts = re.findall(r"acknowledged: .*\((.*)\)", "\n".join(titles))
    shown = sum(int(count.replace(",", "")) for count in counts)
    operations = pq.read_table(directory / "history" / "operations").to_pandas()
    assert shown == ((operations["kind"] == "append") & (operations["outcome"] == "ok")).sum()
    for rect in figure.iter("rect"):
        assert float(rect.get("width", "0")) >= 0 and float(rect.get("height", "0")) >= 0


def test_rates_and_latencies_agree_with_a_plain_computation(tmp_path: Path) -> None:
    directory = passing().write(tmp_path / "run")
    operations = pq.read_table(directory / "history" / "operations").to_pylist()
    appends = [row for row in operations if row["kind"] == "append"]
    latencies = sorted((row["complete"] - row["invoke"]) / 1e9 for row in appends if row["outcome"] == "ok")
    summary = summarise(load(directory))
    whole, calm, struck = summary.conditions
    assert whole["ok"] == len(latencies) == calm["ok"] + struck["ok"]
    assert whole["max"] == pytest.approx(latencies[-1], abs=1e-12)
    assert whole["p50"] == pytest.approx(latencies[(len(latencies) + 1) // 2 - 1], abs=1e-12)
    assert struck["seconds"] == pytest.approx(2.5, abs=1e-3)
    assert calm["seconds"] + struck["seconds"] == pytest.approx(whole["seconds"])


def test_the_longest_silence_of_a_partition_is_found(tmp_path: Path) -> None:
    """In the second cut nothing is acknowledged for 0.6 s after the last append before it."""
    directory = failing().write(tmp_path / "run")
    rows = pq.read_table(directory / "history" / "operations").to_pylist()
    gaps = {}
    for partition in range(4):
        done = sorted(
            row["complete"] for row in rows
            if row["kind"] == "append" and row["outcome"] == "ok" and row["partition"] == partition
        )  # fmt: skip
        cut, healed = START + 6 * SECOND, START + 7 * SECOND
        around = [end - start for start, end in pairwise(done) if end >= cut and start <= healed]
        gaps[f"chaos-{partition}"] = max(around) / 1e9
    fault = summarise(load(directory)).faults[1]
    assert fault.gap_at == max(gaps, key=lambda name: gaps[name])
    assert fault.gap == pytest.approx(max(gaps.values()))
    assert fault.gap >= 0.6


def test_values_and_offsets_never_pass_through_a_float(tmp_path: Path) -> None:
    directory = failing().write(tmp_path / "run")
    expected = pq.read_table(directory / "lost.parquet")["value"].to_pylist()
    assert expected[0] > 2**53 and len(set(expected)) == len(expected)
    assert sorted(load(directory).lost["value"].tolist()) == sorted(expected)


def test_a_moment_is_placed_among_the_faults() -> None:
    faults = [Fault(0, "kill", [], 1.0, 2.0, True, {}), Fault(1, "kill", [], 1.5, 4.0, True, {})]
    assert blame(1.7, faults) == ("F0, F1", 0.0)
    assert blame(0.5, faults) == ("F0", 0.5)
    assert blame(9.0, faults)[0] == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0041234, "4.12 ms"), (0.00085, "850 µs"), (12.345, "12.3 s"), (125, "2 min 05 s"), (None, "—"), (0.0, "0 µs")],
)
def test_durations_read_well(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


def test_evidence_of_one_node_is_said_once_and_of_several_summed() -> None:
    one = {"nodes": {"broker-1": {"frozen_ns": 2_500_000_000}}, "frozen_ns": 2_500_000_000, "deferred_s": 2}
    assert words.evidence(one) == "waited 2 s for its turn"
    assert words.evidence_by_node(one) == [("broker-1", "frozen for 2.5 s")]
    two = {"nodes": {"a": {"unsynced_records": 2}, "b": {"unsynced_records": 1}}, "unsynced_records": 3}
    assert words.evidence(two) == "lost 3 unsynced records"
    assert words.evidence_by_node(two) == [("a", "lost 2 unsynced records"), ("b", "lost 1 unsynced record")]
    assert words.evidence({"packets_dropped": "many", "nodes": 3}) == "packets dropped: many"


def test_a_full_minute_of_300_000_operations_is_reported_within_two_seconds(tmp_path: Path) -> None:
    directory = failing(seconds=60.0, rate=5000, lost_s=0.1).write(tmp_path / "run")
    build(directory)  # imports and first-use costs are not the report's
    start = time.process_time()  # of all threads; unlike wall time it does not depend on what else the machine does
    path = build(directory)
    assert time.process_time() - start <= 2.0
    assert path.stat().st_size < 1_500_000


def test_availability_damage_and_a_changed_verdict_are_on_the_page(tmp_path: Path) -> None:
    run = failing()
    by = {"version": "0.1.0", "source": "abc"}
    of_partition = {"worst": 3, "limit": 1, "at_s": 2.0, "until_s": None, "brokers": ["broker-1"], "within": False}
    partitions = {"chaos-0": of_partition}
    run.verdict = {
        "verdict": "fail", "reason": "lost", "checkers": {"version": "0.2.0", "source": "def"},
        "earlier": [
            {"verdict": "pass", "reason": "all held", "checked_at": "2026-01-31T12:00:00+00:00", "checkers": by,
             "asked": {"acks": "1"}}
        ],
        "damaged": [{"file": "journal/reads-000002.parquet", "why": "it is missing"}], "not_judged": ["faults unknown"],
        "contract": {"within": False, "limit": 1, "worst": 3, "partitions": partitions},
    }  # fmt: skip
    page = page_of(run.write(tmp_path / "run"))
    assert "The verdict was pass by checkers 0.1.0 (abc) asked for acks 1 on 2026-01-31; now fail by " in page.text
    assert "pass by checkers 0.1.0 (abc) asked for acks 1, 2026-01-31T12:00:00+00:00: All held." in page.text
    assert "Journal/reads-000002.parquet is damaged: it is missing." in page.text and "Faults unknown." in page.text
    assert "chaos-0 3 1 broker-1 2.000 s the end ⚠ beyond" in page.text
    heats = [attributes for tag, attributes in page.tags if tag == "td" and "heat" in (attributes.get("class") or "")]
    assert len(heats) == 4 * 3, "four partitions, beside all faults and in two"
    assert "n heat2" in {cell["class"] for cell in heats} and "sustained after" in (heats[1]["title"] or "")


def test_text_that_obeys_nobody_is_shown_and_long_names_are_cut(tmp_path: Path) -> None:
    hostile = "\x1b[2J\u202eevil\x00</script><!--" + "n" * 10_000
    row = {
        "property": "log linearizability", "anomaly": "stale end of log", "topic": "chaos", "partition": 0, "offset": 4,
        "value": 17, "ops": [3], "count": 1, "message": hostile, "witness": None,
    }  # fmt: skip
    directory = failing(anomalies=[row]).write(tmp_path / "run")
    (directory / "logs").mkdir()
    (directory / "logs" / "broker-1.log").write_text(
        json.dumps({"time": int(_ns(3)), "level": "ERROR", "message": hostile})
    )
    text = build(directory).read_text()
    assert not re.search("[\x00\x1b\u202e]", text) and "\\x1b[2J\\u202eevil" in text
    assert "n" * 9_000 not in text and text.count("<script") == 2 and "evil\\x00</script" not in text


def test_the_fault_that_took_records_stands_out(tmp_path: Path) -> None:
    directory = failing().write(tmp_path / "run")
    group = {"fault": 1, "node": "broker-3", "takers": [1], "cause": "took the last copy, of broker-3", "records": 30,
             "acknowledged": 28, "first_s": 1.0, "last_s": 9.0, "partitions": {"chaos-0": [[3, 32]]}}  # fmt: skip
    known = json.loads((directory / "verdict.json").read_text())
    (directory / "verdict.json").write_text(json.dumps(known | {"attribution": [group, {"records": "many"}]}))
    page = page_of(directory)
    assert "took 30 lost records, 28 of which had been acknowledged" in page.text
    assert [attributes["href"] for tag, attributes in page.tags if "culprit" in (attributes.get("class") or "")] == [
        "#F1"
    ]
