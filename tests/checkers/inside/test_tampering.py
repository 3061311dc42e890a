"""One good run, and each piece of its evidence removed or altered: never a pass that says more than was looked at."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import checkers
from checkers.verdict import keeping
from harness.errors import HarnessFailure
from harness.explore.simulate import simulate
from harness.plan import registry, schedule_file
from harness.plan.plan import Plan
from harness.record.history import Recorder
from harness.record.results import RunRecord
from harness.report.console import Progress
from harness.run.components import LogAnalysis
from harness.run.run import run
from harness.run.simulated import SimulationComponents
from harness.targets.kraft.target import Kraft
from spark_history.files import integers
from spark_history.schema import TABLES

PLAN = Plan(run="run", on="simulation", seed=3, time_limit=8, rate=60, partitions=2, nemesis=("kill",),
            settings={"metadata.log.max.record.bytes.between.snapshots": "600"})  # fmt: skip
Tables = dict[str, pa.Table]


class Silent(Progress):
    def say(self, line: str) -> None: ...
    def update(self, line: str) -> None: ...


class Components(SimulationComponents):
    """Judged by the tests themselves, without Spark."""

    def start_analysis(self, directory: Path, spark_ui_port: int | None) -> Any:
        return self

    def judge(self) -> dict[str, Any]:
        return {"verdict": "unknown"}

    def build_report(self, directory: Path) -> None: ...


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run, as `chaos run --on simulation` leaves it before it is judged."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    directory.mkdir()
    parts = Components(Kraft())
    parts.runtime.run(run(PLAN, registry.make_nemeses(PLAN.nemesis), directory, parts, Silent()))
    return directory


@pytest.fixture(scope="module")
def tables() -> Tables:
    simulated = simulate(PLAN, traced=True)
    assert simulated.judge()["verdict"] == "pass", simulated.judge()["reason"]
    return {name: table.cast(TABLES[name]) for name, table in simulated.tables.items()}


def judge(directory: Path) -> dict[str, Any]:
    return checkers.check(directory, None)  # type: ignore[arg-type]


def copy(whole: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(whole, to))


def test_untouched_it_passes_and_says_what_it_was_judged_from(no_spark: None, whole: Path, tmp_path: Path) -> None:
    verdict = judge(copy(whole, tmp_path / "run"))
    assert (verdict["verdict"], verdict["evidence_missing"], verdict["complete"]) == ("pass", [], True), verdict
    assert verdict["nodes"]["trace_of"] == verdict["nodes"]["metadata_of"] == sorted(PLAN.node_names)


# -- what lies in the run's directory -------------------------------------------------------------------------------

JUDGED_FROM = ("journal", "disks", "trace", "plan.json", "run.json")


def pieces(whole: Path) -> list[Path]:
    """Every file that the verdict rests on, in all folders."""
    return sorted(
        path.relative_to(whole)
        for path in whole.rglob("*")
        if path.is_file() and path.relative_to(whole).parts[0] in JUDGED_FROM
    )  # fmt: skip


def test_no_file_can_be_removed_or_altered_unnoticed(no_spark: None, whole: Path, tmp_path: Path) -> None:
    """Also if size and time stay what they were, and the history was laid out before."""
    judged = copy(whole, tmp_path / "judged")
    assert judge(judged)["verdict"] == "pass"
    random = Random(1)
    for number, piece in enumerate(pieces(whole)):
        content = (whole / piece).read_bytes()
        ways = [None, content[: len(content) // 2], _flipped(content, random) if content else b"x"]
        # What is not laid out is looked at one way each, in turn: the history need not be laid out again.
        elsewhere = piece.parts[0] in ("disks", "trace")
        for change in [ways[number % 3]] if elsewhere else ways:
            if change == content or (piece == Path("run.json") and change is not None and not _parses(change)):
                continue
            directory = judged if elsewhere else copy(judged, tmp_path / "run")
            path, stat = directory / piece, (directory / piece).stat()
            if change is None:
                path.unlink()
            else:
                path.write_bytes(change)
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            verdict = judge(directory)
            assert verdict["verdict"] != "pass", f"{piece} {'removed' if change is None else 'altered'}"
            named = [each["file"] for each in verdict["damaged"]]
            assert named and (str(piece) in named or piece.name.startswith("checks-")), (piece, named)
            if elsewhere:
                path.write_bytes(content)


def test_what_is_no_regular_file_is_not_waited_for(no_spark: None, whole: Path, tmp_path: Path) -> None:
    """Opening a pipe does not end before somebody writes into it."""
    everything = pieces(whole)
    first = [next(piece for piece in everything if piece.parts[0] == folder) for folder in ("disks", "trace")]
    for piece in [*first, *(piece for piece in everything if piece.parts[0] not in ("disks", "trace"))]:
        run_directory = copy(whole, tmp_path / "run")
        (run_directory / piece).unlink()
        os.mkfifo(run_directory / piece)
        verdict = LogAnalysis(run_directory, None).judge()
        assert verdict["verdict"] == "unknown", piece
        assert "it is no regular file" in str(verdict["damaged"]), piece
    (run_directory / "verdict.json").unlink()
    os.mkfifo(run_directory / "verdict.json")
    with pytest.raises(HarnessFailure, match=r"verdict.json is where the verdict goes, and it is no regular file"):
        LogAnalysis(run_directory, None).judge()


def test_of_logs_without_operations_it_is_told_once_what_could_not_be_compared(
    no_spark: None, whole: Path, tmp_path: Path
) -> None:
    run_directory = copy(whole, tmp_path / "run")
    for path in (run_directory / "journal").glob("operations-*.parquet"):
        path.unlink()
    (gap,) = judge(run_directory)["evidence_missing"]
    assert gap == (
        "of chaos-0, chaos-1 no operation is left, so 6 collected replica logs of them could be compared with nothing"
    )


def _flipped(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _parses(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return True  # it is damaged in a way that shows


def test_the_sums_of_a_journal_cannot_be_taken_away(no_spark: None, whole: Path, tmp_path: Path) -> None:
    directory = copy(whole, tmp_path / "run")
    assert judge(directory)["verdict"] == "pass"
    for path in (directory / "journal").glob("checks-*.json"):
        path.unlink()
    assert judge(directory)["verdict"] == "unknown"


def test_the_whole_journal_cannot_be_taken_away(no_spark: None, whole: Path, tmp_path: Path) -> None:
    """Though what was laid out of it is there."""
    directory = copy(whole, tmp_path / "run")
    assert judge(directory)["verdict"] == "pass"
    shutil.rmtree(directory / "journal")
    verdict = judge(directory)
    assert verdict["verdict"] == "unknown" and verdict["damaged"][0]["file"] == "journal"


# -- what was collected: the tables as the harness has recorded them, with checksums of their own --------------------


def record(directory: Path, rows: Tables, **facts: Any) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    PLAN.save(directory)
    schedule_file.save((), directory)
    RunRecord(directory, facts=facts).finish("done")
    recorder = Recorder(directory, PLAN.run, flush_interval=None)
    files = {f"{name}-000001.parquet": table for name, table in rows.items() if name != "faults"}
    files["faults-000000.parquet"] = rows["faults"]
    files["pending-000001.parquet"] = TABLES["operations"].empty_table()
    recorder._write(files, 1)
    (directory / "journal" / "pending-000000.parquet").unlink()
    return directory


def without(table: pa.Table, mask: Any) -> pa.Table:
    return table.filter(pc.invert(mask))


def changes(tables: Tables) -> Iterator[tuple[str, Tables]]:
    """Every way in which a piece of what nodes left may be gone, or other than it was, its notes being as they were."""
    for name, what in (("trace", "trace"), ("metadata_log", "metadata log"), ("replica_logs", "replica log")):
        table, notes = tables[name], tables["collected"]
        yield f"no {name} at all", tables | {name: table.slice(0, 0)}
        for node in sorted(pc.unique(table["node"]).to_pylist()):
            mine, noted = pc.equal(table["node"], node), pc.equal(notes["node"], node)
            yield f"{name} of {node}, as if it had been collected", tables | {name: without(table, mine)}
            of_it = pc.and_(noted, pc.equal(notes["what"], what))
            gone = {name: without(table, mine), "collected": without(notes, of_it)}
            yield f"{name} of {node}, as if nobody had looked", tables | gone
            rows = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
            kept = np.ones(table.num_rows, bool)
            kept[rows[len(rows) // 2 :]] = False
            yield f"the second half of the {name} of {node}", tables | {name: table.filter(pa.array(kept))}


def test_nothing_that_a_node_left_can_be_missing_unnoticed(no_spark: None, tables: Tables, tmp_path: Path) -> None:
    assert judge(record(tmp_path / "run", tables))["verdict"] == "pass"
    for what, changed in changes(tables):
        verdict = judge(record(tmp_path / "run", changed))
        assert verdict["verdict"] in ("unknown", "fail"), what
        if verdict["verdict"] == "unknown":
            assert not verdict["complete"] and verdict["evidence_missing"], what


def test_a_run_without_notes_of_what_was_collected_does_not_pass(
    no_spark: None, tables: Tables, tmp_path: Path
) -> None:
    """Though all that they would tell of is there: of what is gone, too, nothing would tell."""
    verdict = judge(record(tmp_path / "run", tables | {"collected": tables["collected"].slice(0, 0)}))
    assert verdict["verdict"] == "unknown"
    assert verdict["evidence_missing"] == ["what was collected of the nodes was not noted"]


def test_a_log_that_was_not_read_to_its_end_is_named(no_spark: None, tables: Tables, tmp_path: Path) -> None:
    """One broker's copied log is cut short, and another's is missing for a partition: `pass`, once."""
    notes = tables["collected"].to_pylist()
    of_log = next(each for each in notes if each["what"] == "replica log" and each["records"] > 3)
    of_log["problem"] = "the log of chaos-0 on broker-1 could not be read to its end: the last batch is cut off"
    of_log["records"] -= 3
    mine = [(row["node"], row["topic"], row["partition"]) == (of_log["node"], of_log["topic"], of_log["partition"])
            for row in tables["replica_logs"].to_pylist()]  # fmt: skip
    rows = np.flatnonzero(mine)
    kept = np.ones(len(mine), bool)
    kept[rows[-3:]] = False
    changed = tables | {
        "collected": pa.Table.from_pylist(notes, schema=TABLES["collected"]),
        "replica_logs": tables["replica_logs"].filter(pa.array(kept)),
    }
    verdict = judge(record(tmp_path / "run", changed))
    assert verdict["verdict"] == "unknown" and of_log["problem"] in verdict["reason"], verdict["reason"]


REPLICAS: list[tuple[str, str, Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], Any]]] = [
    ("values on every replica", "differs from the final log", lambda offset, value: (offset, value + 1_000_000)),
    ("the last record on every replica", "missing on a replica", lambda offset, value: (offset[:-1], value[:-1])),
    ("a record in the midst", "missing on a replica", lambda offset, value: (np.delete(offset, 3), value[:-1])),
]


@pytest.mark.parametrize(("what", "anomaly", "change"), REPLICAS, ids=[each[0] for each in REPLICAS])
def test_what_replicas_hold_is_compared_with_the_final_log(
    no_spark: None, tables: Tables, tmp_path: Path, what: str, anomaly: str, change: Callable[..., Any]
) -> None:
    """All replicas alike, so that they match each other."""
    table = tables["replica_logs"]
    parts, notes = [], tables["collected"].to_pylist()
    for node in pc.unique(table["node"]).to_pylist():
        for partition in range(PLAN.partitions):
            mine = table.filter(pc.and_(pc.equal(table["node"], node), pc.equal(table["partition"], partition)))
            offset, value = integers(mine, "offset", 0), integers(mine, "value", 0)
            offset, value = change(offset, value)
            mine = mine.slice(0, len(offset))
            columns = {name: mine[name] for name in mine.schema.names} | {"offset": offset, "value": value}
            parts.append(pa.table(columns, schema=table.schema))
            for each in notes:
                if (each["what"], each["node"], each["partition"]) == ("replica log", node, partition):
                    each["records"] = len(offset)
    changed = tables | {
        "replica_logs": pa.concat_tables(parts),
        "collected": pa.Table.from_pylist(notes, schema=TABLES["collected"]),
    }
    verdict = judge(record(tmp_path / "run", changed))
    assert verdict["verdict"] == "fail", (what, verdict["reason"])
    assert anomaly in verdict["anomalies"]["log matching"]["anomalies"], verdict["anomalies"]["log matching"]
    assert checkers.dataset.check_tables(PLAN.model_dump(mode="json"), changed)["verdict"] == "fail"


def test_a_killed_harness_is_named_whatever_else_is_missing(no_spark: None, tables: Tables, tmp_path: Path) -> None:
    directory = record(tmp_path / "run", tables | {name: tables[name].slice(0, 0) for name in ("faults", "collected")})
    RunRecord(directory, status="running", phase="workload", phases={"start": 1.0}).save()
    verdict = judge(directory)
    assert verdict["verdict"] == "unknown"
    assert "the harness was killed, or is still at work, in the phase 'workload'" in verdict["reason"]
    assert keeping.without_stamps(verdict)["ended_early"]
