"""Runs parts of which are damaged: what is damaged is named, nothing passes, and nothing fails that is not wrong."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import checkers
from checkers.dataset import check_tables
from checkers.inside import log_matching
from checkers.log import availability
from checkers.log.linearizability import judge_log
from checkers.log.scope import Scope
from checkers.log.segment import Segment
from checkers.properties import WEAK
from checkers.verdict import keeping, salvage
from harness.explore.simulate import simulate
from harness.generate import log
from harness.plan.plan import Plan
from harness.record.history import Recorder, load_journal
from harness.record.results import RunRecord
from spark_history import damage, ingest
from spark_history.errors import HistoryError
from spark_history.files import compact, integers, write_parquet
from spark_history.layout import ReadIndex, lay_out
from spark_history.log import WHOLE, FinalReads
from spark_history.schema import OPERATIONS, TABLES
from tests.checkers.histories.histories import TOPIC, Op, mutate, random_history, tables
from tests.checkers.histories.random_histories import HISTORIES


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run that passes, as its recorder leaves it after four flushes."""
    plan = Plan(run="run", on="simulation", seed=3, time_limit=8, rate=60, partitions=2, nemesis=("kill",))
    simulated = simulate(plan, traced=True)
    assert simulated.judge()["verdict"] == "pass"
    return recorded(tmp_path_factory.mktemp("sound") / "run", plan, simulated.tables)


def recorded(directory: Path, plan: Plan, rows: dict[str, pa.Table] | Any) -> Path:
    directory.mkdir()
    plan.save(directory)
    RunRecord(directory).finish("done")
    recorder = Recorder(directory, plan.run, flush_interval=None)
    operations = rows["operations"].cast(OPERATIONS)
    flush = integers(operations, "op", 0) * 3 // (int(integers(operations, "op", 0).max()) + 1) + 1
    ends = zip(operations["complete"].to_pylist(), operations["outcome"].to_pylist(), strict=True)
    done = np.array([not (at is None and how == "info") for at, how in ends])
    of_op = dict(zip(operations["op"].to_pylist(), flush.tolist(), strict=True))
    of_read = np.array([of_op[op] for op in rows["reads"]["op"].to_pylist()])
    for number in (1, 2, 3):
        files = {
            f"operations-{number:06}.parquet": operations.filter(pa.array(done & (flush == number))),
            f"reads-{number:06}.parquet": rows["reads"].filter(pa.array(of_read == number)).cast(TABLES["reads"]),
        }
        if number == 3:
            rest = ("replica_logs", "trace", "metadata_log", "collected")
            files |= {f"{name}-{number:06}.parquet": rows[name].cast(TABLES[name]) for name in rest}
            files["faults-000000.parquet"] = rows["faults"].cast(TABLES["faults"])
        files[f"pending-{number:06}.parquet"] = operations.filter(pa.array(~done))
        recorder._write(files, number)
        (directory / "journal" / f"pending-{number - 1:06}.parquet").unlink()
    return directory


def copy(run: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(run, to)
    return to


def judge(directory: Path) -> dict[str, Any]:
    return checkers.check(directory, None)  # type: ignore[arg-type]


def test_undamaged_it_passes_and_names_nothing(no_spark: None, sound: Path, tmp_path: Path) -> None:
    verdict = judge(copy(sound, tmp_path / "run"))
    assert (verdict["verdict"], verdict["damaged"], verdict["not_judged"]) == ("pass", [], [])
    assert verdict["availability"]["latency_ms"]["p50"] > 0


FILES = (
    "operations-000001", "operations-000003", "reads-000002", "faults-000000", "replica_logs-000003", "trace-000003",
    "metadata_log-000003", "collected-000003", "pending-000003",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_whatever_happens_to_a_file_of_the_journal(no_spark: None, sound: Path, tmp_path: Path, name: str) -> None:
    """Every class of position: magic, page headers, pages, footer, its length; and every way of being cut short."""
    content = (sound / "journal" / f"{name}.parquet").read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    random = Random(name)
    flips = [0, footer // 2, footer + 1, (footer + len(content)) // 2, len(content) - 7]
    flips += [random.randrange(len(content)) for _ in range(max(1, HISTORIES // 2500))]
    cuts: list[bytes | None] = [b"", content[: len(content) // 2], content[:-1], None, content + b"x"]
    changes = [content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :] for at in flips]
    for number, changed in enumerate([*changes, *cuts]):
        directory = copy(sound, tmp_path / "run")
        path = directory / "journal" / f"{name}.parquet"
        path.unlink() if changed is None else path.write_bytes(changed)
        verdict = judge(directory)
        assert verdict["verdict"] == "unknown", (number, verdict["reason"])
        assert f"journal/{name}.parquet" in {entry["file"] for entry in verdict["damaged"]}, number
        assert name in verdict["reason"] and "damaged" in verdict["reason"]
    assert keeping.without_stamps(judge(directory)) == keeping.without_stamps(verdict), "from the history laid out"
    assert not verdict["contract"]["partitions"] or name != "faults-000000"


def test_without_checksums_a_file_that_cannot_be_read_is_still_named(
    no_spark: None, sound: Path, tmp_path: Path
) -> None:
    """Journals of before they were written."""
    directory = unchecked(sound, tmp_path / "run")
    shutil.copy(directory / "journal" / "reads-000002.parquet", directory / "journal" / "operations-000002.parquet")
    assert judge(directory)["damaged"] == [
        {"file": "journal/operations-000002.parquet", "why": "it lacks the column 'complete'"}
    ]
    for name in FILES:
        directory = unchecked(sound, tmp_path / "run")
        path = directory / "journal" / f"{name}.parquet"
        content = path.read_bytes()
        broken = [content[:-9], b""]
        if name.startswith("operations"):  # of large files most is pages, which have checksums of their own
            at = len(content) // 3
            broken.append(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
        for changed in broken:
            path.write_bytes(changed)
            verdict = judge(directory)
            assert verdict["verdict"] == "unknown" and verdict["damaged"][0]["file"] == f"journal/{name}.parquet", name


def unchecked(run: Path, to: Path) -> Path:
    """As a journal was before there were checksums."""
    for path in (copy(run, to) / "journal").iterdir():
        if path.suffix == ".json":
            path.unlink()
        else:
            pq.write_table(pq.read_table(path).replace_schema_metadata(None), path, write_page_checksum=True)
    return to


def test_of_a_journal_that_had_checksums_none_may_be_missing(no_spark: None, sound: Path, tmp_path: Path) -> None:
    """Neither all of them, nor those of a flush of which everything is gone."""
    directory = copy(sound, tmp_path / "run")
    for path in (directory / "journal").glob("checks-*"):
        path.unlink()
    verdict = judge(directory)
    assert verdict["verdict"] == "unknown" and verdict["damaged"][0]["file"] == "journal/checks-000000.json"
    directory = copy(sound, tmp_path / "run")
    for path in (directory / "journal").glob("*-000002.*"):
        path.unlink()
    verdict = judge(directory)
    assert (verdict["verdict"], [each["file"] for each in verdict["damaged"]]) == (
        "unknown", ["journal/checks-000002.json"],
    )  # fmt: skip


def test_without_checksums_what_is_missing_is_seen_by_numbers_and_by_reads(
    no_spark: None, sound: Path, tmp_path: Path
) -> None:
    assert judge(unchecked(sound, tmp_path / "run"))["verdict"] == "pass"
    for gone, named in (
        (["operations-000002", "reads-000002"], "operations-000002"),
        (["operations-000002"], "operations-000002"),
        (["operations-000001"], "operations-000001"),
        (["operations-000003"], "operations-000003"),
    ):
        directory = unchecked(sound, tmp_path / "run")
        for name in gone:
            (directory / "journal" / f"{name}.parquet").unlink()
        for _ in range(2):  # also from the history as it is laid out
            verdict = judge(directory)
            assert verdict["verdict"] == "unknown", gone
            assert [each["file"] for each in verdict["damaged"]] == [f"journal/{named}.parquet"], gone
    directory = unchecked(sound, tmp_path / "run")
    for name in ("operations-000003", "reads-000003"):
        (directory / "journal" / f"{name}.parquet").unlink()
    verdict = judge(directory)
    assert verdict["verdict"] == "unknown" and "its final reads are not on record" in verdict["reason"]


def test_a_letter_of_a_column_that_is_no_letter_any_more(no_spark: None, sound: Path, tmp_path: Path) -> None:
    path = unchecked(sound, tmp_path / "run") / "journal" / "operations-000002.parquet"
    path.write_bytes(path.read_bytes().replace(b"complete", b"comp\xecete"))
    assert judge(tmp_path / "run")["damaged"][0]["file"] == "journal/operations-000002.parquet"


def test_a_partition_of_which_nothing_is_on_record_is_missing(no_spark: None, tmp_path: Path) -> None:
    log.generate(tmp_path / "gen", operations=900, processes=4, seed=1, partitions=3, journal=True)
    directory = unchecked(tmp_path / "gen", tmp_path / "run")
    for table in ("operations", "reads"):
        (directory / "journal" / f"{table}-000002.parquet").unlink()
    verdict = judge(directory)
    assert (verdict["verdict"], verdict["complete"]) == ("unknown", False) and "chaos-2" in verdict["reason"]
    plan, rows = json.loads((directory / "plan.json").read_text()), load_journal(directory / "journal")
    assert check_tables(plan, rows)["verdict"] == "unknown"


def test_a_generated_journal_has_checksums(no_spark: None, tmp_path: Path) -> None:
    log.generate(tmp_path / "gen", operations=900, processes=4, seed=1, partitions=3, journal=True)
    assert judge(copy(tmp_path / "gen", tmp_path / "run"))["verdict"] == "pass"
    for path in sorted((tmp_path / "gen").rglob("*.*")):
        (copy(tmp_path / "gen", tmp_path / "run") / path.relative_to(tmp_path / "gen")).unlink()
        verdict = judge(tmp_path / "run")
        assert verdict["verdict"] == "unknown" and verdict["damaged"], path


def test_of_a_history_without_a_journal_only_the_log_that_is_damaged_is_left_out(
    no_spark: None, tmp_path: Path
) -> None:
    """The defect lies in other logs, and is found whatever becomes of this one."""
    log.generate(tmp_path / "gen", operations=2_000, processes=4, seed=1, partitions=8, defect="lost-append")
    expected = judge(copy(tmp_path / "gen", tmp_path / "run"))
    lost = {each["partition"] for each in json.loads((tmp_path / "gen" / "plan.json").read_text())["label"]["places"]}
    paths = sorted((tmp_path / "gen" / "history").rglob("*.parquet"))
    assert expected["verdict"] == "fail" and len(lost) == 5 and len(paths) == 8 * 2 + len(TABLES) - 3
    for number, path in enumerate(paths):
        content = path.read_bytes()
        flipped = content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]
        changed = [b"", content[: len(content) // 2], flipped, None][number % 4]
        directory = copy(tmp_path / "gen", tmp_path / "run")
        name = path.relative_to(tmp_path / "gen")
        (directory / name).unlink() if changed is None else (directory / name).write_bytes(changed)
        verdict = judge(directory)
        of = {f"partition={partition}" for partition in lost}
        assert [each["file"] for each in verdict["damaged"]] == [str(name)]
        assert verdict["verdict"] == "fail"
        assert (verdict["lost"] < expected["lost"]) == any(part in of for part in path.parts), name
        if path.parent.parent.parent.name == "operations":
            assert path.parent.name.partition("=")[2] in verdict["not_judged"][0]


def test_a_history_without_a_journal_never_passes_when_it_is_damaged(
    no_spark: None, sound: Path, tmp_path: Path
) -> None:
    """The journal is gone; the history that was laid out from it is judged, and what is missing is named."""
    run = copy(sound, tmp_path / "sound")
    expected = judge(run)["operations"]
    shutil.rmtree(run / "journal")
    verdict = judge(copy(run, tmp_path / "run"))
    assert (verdict["verdict"], verdict["operations"]) == ("unknown", expected)
    assert [each["file"] for each in verdict["damaged"]] == ["journal"]
    paths = [path for path in sorted((run / "history").rglob("*.*")) if path.is_file()]
    for path in (*paths, run / "plan.json", run / "run.json"):
        content = path.read_bytes()
        for changed in (b"", content[: len(content) // 2], content[:-5] + b"\1" + content[-4:], None):
            directory = copy(run, tmp_path / "run")
            name = path.relative_to(run)
            (directory / name).unlink() if changed is None else (directory / name).write_bytes(changed)
            verdict = judge(directory)
            assert (verdict["verdict"], verdict["damaged"][0]["file"]) == ("unknown", str(name))


def test_a_history_of_something_else_is_not_judged_as_a_log(no_spark: None, tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "manifest.json").write_text('{"format": 1, "workload": "register", "tables": {}}')
    with pytest.raises(HistoryError, match=r"plan\.json is damaged .it is missing.*of a history of register"):
        judge(tmp_path)


@pytest.mark.parametrize("name", ["plan.json", "run.json"])
def test_what_is_told_of_a_run_must_be_what_was_written(no_spark: None, sound: Path, tmp_path: Path, name: str) -> None:
    """A letter of a name decides whether the faults had to take effect, or what the harness doubts."""
    text = (sound / name).read_text()
    for changed in (text.replace('"nemesis"', '"nemesjs"').replace('"status"', '"statvs"'), None):
        path = copy(sound, tmp_path / "run") / name
        path.unlink() if changed is None else path.write_text(changed)
        verdict = judge(tmp_path / "run")
        assert (verdict["verdict"], verdict["damaged"][0]["file"]) == ("unknown", name)


def test_damaged_checksums_vouch_for_nothing(no_spark: None, sound: Path, tmp_path: Path) -> None:
    for content in (b"", b"[1]", b'{"operations-000002.parquet": [1e999, 2]}', b"[" * 9999, None):
        directory = copy(sound, tmp_path / "run")
        path = directory / "journal" / "checks-000002.json"
        path.unlink() if content is None else path.write_bytes(content)
        verdict = judge(directory)
        assert verdict["verdict"] == "unknown" and verdict["damaged"]


@pytest.mark.parametrize(
    "content", [None, b"", b'{"run": "ru', b"[]", b"null", b'{"min_insync_replicas": "x"}', b"\xff\xfe", b"[" * 99999]
)
def test_a_plan_that_is_missing_or_half_written(
    no_spark: None, sound: Path, tmp_path: Path, content: bytes | None
) -> None:
    directory = copy(sound, tmp_path / "run")
    path = directory / "plan.json"
    path.unlink() if content is None else path.write_bytes(content)
    verdict = judge(directory)
    assert (verdict["verdict"], verdict["damaged"][0]["file"]) == ("unknown", "plan.json")
    assert verdict["contract"]["within"] is None and verdict["operations"]["acknowledged"] > 0


@pytest.mark.parametrize("name", ["run.json", "violation.json"])
def test_what_else_lies_in_the_directory(no_spark: None, sound: Path, tmp_path: Path, name: str) -> None:
    directory = copy(sound, tmp_path / "run")
    (directory / name).write_bytes(b'{"half')
    verdict = judge(directory)
    assert (verdict["verdict"], verdict["damaged"][0]["file"]) == ("unknown", name)


def test_what_a_killed_flush_leaves_is_no_damage(no_spark: None, sound: Path, tmp_path: Path) -> None:
    """Killed while it wrote, between its renames, and before the older pending file went."""
    expected = keeping.without_stamps(judge(copy(sound, tmp_path / "run")))
    directory = copy(sound, tmp_path / "run")
    journal = directory / "journal"
    (journal / ".operations-000004.parquet.tmp").write_bytes(b"PAR1 half")
    shutil.copy(journal / "operations-000003.parquet", journal / "operations-000004.parquet")
    shutil.copy(journal / "pending-000003.parquet", journal / "pending-000002.parquet")
    (journal / "checks-000004.json").write_text(json.dumps({"faults-000000.parquet": [1, 2]}))
    sums = {"operations-000004.parquet": [7, 7], "reads-000004.parquet": [8, 8], "pending-000004.parquet": [9, 9]}
    (journal / "checks-000004.json").write_text(json.dumps(sums))
    pending = {"pending-000002.parquet": damage.checksum(journal / "pending-000002.parquet")}
    known = json.loads((journal / "checks-000002.json").read_text())
    (journal / "checks-000002.json").write_text(json.dumps(known | pending))
    assert keeping.without_stamps(judge(directory)) == expected


def test_faults_of_a_flush_that_was_cut_off_are_not_missing(tmp_path: Path) -> None:
    """Their file has the number 0 whichever flush is the first to write it."""
    sums = []
    for flush in range(2):
        (tmp_path / f"pending-{flush:06}.parquet").write_bytes(b"pending")
        sums.append({f"pending-{flush:06}.parquet": damage.checksum(tmp_path / f"pending-{flush:06}.parquet")})
    (tmp_path / "checks-000000.json").write_text(json.dumps(sums[0]))
    (tmp_path / "checks-000001.json").write_text(json.dumps({"faults-000000.parquet": [1, 2], **sums[1]}))
    (cut_off, whole) = sorted(tmp_path.glob("pending-*"))
    assert damage.find(tmp_path, [cut_off], newest=0) == []
    assert damage.find(tmp_path, [whole], newest=1) == [("faults-000000.parquet", "it is missing")]


def test_a_history_that_was_damaged_is_laid_out_again(no_spark: None, sound: Path, tmp_path: Path) -> None:
    directory = copy(sound, tmp_path / "run")
    expected = keeping.without_stamps(judge(directory))
    for path in sorted((directory / "history").rglob("*.*")):
        content = path.read_bytes()
        for changed in (b"", content[: len(content) // 2], content[:-5] + b"\0" + content[-4:]):
            path.write_bytes(changed)
            assert keeping.without_stamps(judge(directory)) == expected, path
        path.unlink()
        assert keeping.without_stamps(judge(directory)) == expected, path


def test_a_digit_of_the_manifest_is_not_believed(no_spark: None, sound: Path, tmp_path: Path) -> None:
    directory = copy(sound, tmp_path / "run")
    expected = keeping.without_stamps(judge(directory))
    path = directory / "history" / "manifest.json"
    text = path.read_text()
    assert '"end": ' in text
    path.write_text(text.replace('"end": ', '"end": 1'))
    assert keeping.without_stamps(judge(directory)) == expected


@pytest.mark.parametrize(
    "manifest", ['{"format": 3}', '{"format": 3, "segments": [5]}', '{"format": 3, "segments": 5}']
)
def test_a_manifest_that_describes_no_history_is_one_sentence(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "manifest.json").write_text(manifest)
    with pytest.raises(HistoryError, match=r"manifest\.json describes no history: "):
        ingest.ingest(tmp_path, None)  # type: ignore[arg-type]


def test_a_manifest_that_describes_nothing_of_a_journal_is_made_again(
    no_spark: None, sound: Path, tmp_path: Path
) -> None:
    directory = copy(sound, tmp_path / "run")
    expected = keeping.without_stamps(judge(directory))
    path = directory / "history" / "manifest.json"
    known = json.loads(path.read_text())
    for damaged in ({"segments": 5}, {"files": 5}, {"files": {"faults/faults.parquet": 5}}):
        path.write_text(json.dumps({key: value for key, value in (known | damaged).items() if key != "crc"}))
        assert keeping.without_stamps(judge(directory)) == expected


def test_what_fails_leaves_no_temporary_files(
    no_spark: None, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table.parquet").write_text("old")
    with pytest.raises(pa.ArrowException):  # of a type that Parquet does not have
        write_parquet(tmp_path / "table.parquet", pa.table({"a": pa.array([None], pa.month_day_nano_interval())}))
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]
    assert (tmp_path / "table.parquet").read_text() == "old"

    directory = copy(sound, tmp_path / "run")

    def failing(history: ingest.History, *_: Any, **__: Any) -> None:
        (history.path / "candidates").mkdir()
        raise HistoryError("contradicts itself")

    monkeypatch.setattr(log_matching, "check", failing)
    with pytest.raises(HistoryError):
        judge(directory)
    assert not (directory / "history" / "candidates").exists()


def test_a_violation_in_the_rest_still_fails(no_spark: None, sound: Path, tmp_path: Path) -> None:
    plan = Plan.load(sound)
    rows = dict(simulate(plan, traced=True).tables)
    operations = rows["operations"].cast(OPERATIONS).to_pylist()
    first, second = [row for row in operations if row["kind"] == "append" and row["outcome"] == "ok"][:2]
    second["offset"], second["partition"] = first["offset"], first["partition"]
    rows["operations"] = pa.Table.from_pylist(operations, schema=OPERATIONS)
    directory = recorded(tmp_path / "broken", plan, rows)
    (directory / "journal" / "operations-000003.parquet").write_bytes(b"")
    verdict = judge(directory)
    assert verdict["verdict"] == "fail" and "inconsistent offset" in verdict["reason"]
    assert verdict["damaged"][0]["file"] == "journal/operations-000003.parquet"


def test_what_is_no_run_is_still_no_run(no_spark: None, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="has no plan"):
        judge(tmp_path)


def found_without(history: list[Op], random: Random) -> set[tuple[str, str]]:
    """What is found, and counts, when some operations, or what some reads returned, are not on record."""
    operations, reads = (table.cast(compact(table.schema)) for table in tables(history))
    keep = np.array([random.random() < 0.7 for _ in range(operations.num_rows)], bool)
    read = {op for op in range(operations.num_rows) if random.random() < 0.7}
    operations = operations.filter(pa.array(keep))
    reads = reads.filter(pa.array([op in read for op in reads["op"].to_pylist()], pa.bool_()))
    index = ReadIndex(operations, WHOLE)
    index.add(*(integers(reads, name, -1) for name in ("op", "offset", "value")))
    laid_out = lay_out(operations, index, WHOLE)
    scope = Scope("r", TOPIC, 0, 0, None, FinalReads(), laid_out.end, 0)
    of_log, settled, _ = judge_log(Segment(scope, laid_out.operations, laid_out.reads))
    tally = {entry[:2] for entry in (*of_log.tally, *settled.tally) if entry[0] not in WEAK}
    return set(salvage.keep(tally, lambda entry: entry, {"operations", "reads"}))


def test_no_missing_file_makes_a_good_history_wrong() -> None:
    for seed in range(HISTORIES // 3):
        random = Random(seed)
        assert found_without(random_history(random), random) == set(), seed


def test_much_of_what_is_wrong_is_still_found() -> None:
    found: set[tuple[str, str]] = set()
    for seed in range(400):
        random = Random(seed)
        found |= found_without(mutate(mutate(random_history(random), random), random), random)
    assert {anomaly for _, anomaly in found} >= {"real-time inversion", "stale end of log", "inconsistent offset"}


def test_latencies_are_exact_up_to_so_many_operations(
    no_spark: None, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations, that is: the counts of a verdict name many other things."""
    directory = copy(sound, tmp_path / "run")
    counts = judge(directory)["operations"]
    operations = sum(count for name, count in counts.items() if name.endswith((" ok", " fail", " info")))
    monkeypatch.setattr(availability, "EXACT_APPENDS", operations)
    assert judge(directory)["availability"]["exact"]


# -- verdicts that are kept -----------------------------------------------------------------------------------------


def test_an_earlier_verdict_of_other_checkers_is_kept(
    no_spark: None, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy(sound, tmp_path / "run")
    first = judge(directory)
    assert first["checkers"] == keeping.checkers_version() and first["earlier"] == []
    judge(directory)
    assert not (directory / "verdicts").exists(), "the same checkers on the same history replace their own"
    monkeypatch.setattr(keeping, "checkers_version", lambda: {"version": "9.9", "source": "abc"})
    (directory / "violation.json").write_text("{")
    second = judge(directory)
    (kept,) = second["earlier"]
    assert json.loads((directory / kept["file"]).read_text())["verdict"] == "pass" == kept["verdict"]
    assert kept["file"].startswith("verdicts/0001-") and kept["checkers"] == first["checkers"]
    said = keeping.change(second)
    assert said is not None and said.startswith("was pass by checkers ") and "now unknown by checkers 9.9 (abc)" in said
    assert json.loads((directory / "verdict.json").read_text()) == second
    monkeypatch.setattr(keeping, "checkers_version", lambda: {"version": "10", "source": "abd"})
    third = judge(directory)
    assert [entry["verdict"] for entry in third["earlier"]] == ["pass", "unknown"] and keeping.change(third) is None


def test_a_verdict_by_other_options_is_kept_and_says_which(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"workload": "register", "consistency": "serializable"}')
    first = keeping.keep(tmp_path, {"verdict": "fail"}, asked={"consistency": "serializable"})
    assert first["asked"] == {}, "as planned"
    second = keeping.keep(tmp_path, {"verdict": "pass"}, asked={"consistency": "read-uncommitted"})
    assert second["asked"] == {"consistency": "read-uncommitted"} and second["history"] != first["history"]
    assert [(entry["verdict"], entry["asked"]) for entry in second["earlier"]] == [("fail", {})]
    said = keeping.change(second)
    assert said is not None and said.endswith("asked for consistency read-uncommitted")
    third = keeping.keep(tmp_path, {"verdict": "fail"})
    assert [entry["verdict"] for entry in third["earlier"]] == ["fail", "pass"]


def test_another_verdict_on_what_looks_the_same_is_kept(tmp_path: Path) -> None:
    """A byte flipped: neither size nor the checksum on record changes."""
    (tmp_path / "plan.json").write_text("{}")
    history = tmp_path / "history" / "registers"
    history.mkdir(parents=True)
    (history / "000.parquet").write_bytes(b"sound")
    first = keeping.keep(tmp_path, {"verdict": "fail"})
    (history / "000.parquet").write_bytes(b"wrong")
    second = keeping.keep(tmp_path, {"verdict": "unknown"})
    assert second["history"] == first["history"]
    assert [entry["verdict"] for entry in second["earlier"]] == ["fail"]
    (history / "000.parquet").write_bytes(b"longer")
    assert keeping.keep(tmp_path, {"verdict": "unknown"})["history"] != first["history"]


@pytest.mark.parametrize("old", [b"", b"{", b"[]", b'{"verdict": "fail"}'])
def test_a_verdict_of_before_they_were_stamped_or_a_damaged_one_is_kept_too(tmp_path: Path, old: bytes) -> None:
    (tmp_path / "verdict.json").write_bytes(old)
    (entry,) = keeping.keep(tmp_path, {"verdict": "pass"})["earlier"]
    assert (tmp_path / entry["file"]).read_bytes() == old and "unknown" in entry["file"]
    reported = keeping.change(json.loads((tmp_path / "verdict.json").read_text()))
    assert reported is not None and "by checkers of unknown version" in reported


def test_nothing_is_lost_wherever_it_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each rename, and after it."""

    class Killed(Exception): ...

    replace = Path.replace
    for at in range(4):
        run = tmp_path / str(at)
        run.mkdir()
        (run / "verdict.json").write_text('{"verdict": "fail", "reason": "old"}')
        calls = []

        def dying(self: Path, to: Any, at: int = at, calls: list[int] = calls) -> Any:
            calls.append(1)
            if len(calls) * 2 - 2 == at:
                raise Killed
            result = replace(self, to)
            if len(calls) * 2 - 1 == at:
                raise Killed
            return result

        monkeypatch.setattr(Path, "replace", dying)
        with pytest.raises(Killed):
            keeping.keep(run, {"verdict": "pass"})
        monkeypatch.setattr(Path, "replace", replace)
        texts = [path.read_text() for path in run.rglob("[!.]*.json")]
        assert any(json.loads(text).get("reason") == "old" for text in texts), at
        result = keeping.keep(run, {"verdict": "pass"})
        assert [entry["verdict"] for entry in result["earlier"]] == ["fail"], at
        assert sum(name.endswith(".json") and name[0] != "." for name in os.listdir(run / "verdicts")) == 1
