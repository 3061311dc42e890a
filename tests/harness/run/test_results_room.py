"""Runs whose results have little room, or may not be written at all."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest

from checkers.verdict import keeping
from harness.cli.app import main
from harness.generate import log, registers
from harness.plan.plan import Plan
from harness.record import results, room
from harness.record.history import Recorder
from harness.record.judging import Asked, Judge
from harness.record.results import RunRecord
from harness.record.sources import find
from harness.report.console import print_summary
from harness.report.terminal import Terminal
from spark_history.errors import HistoryError


def test_a_record_that_cannot_be_written_keeps_nobody_from_going_on(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "gone")
    with record.survived("tear down"):
        record.problem("something")
    record.end_early("the run was ended: the volume is full")
    record.finish("interrupted")
    assert "could not be written" in record.unsaved and record.problems[-1].startswith("the run was ended")


def test_what_was_reserved_is_given_up_for_what_must_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = RunRecord(tmp_path)
    record.reserve()
    write = RunRecord._write

    def full(self: RunRecord, text: str) -> None:
        if (tmp_path / ".reserve").exists():
            raise OSError(28, "No space left on device")
        write(self, text)

    monkeypatch.setattr(RunRecord, "_write", full)
    record.finish("done")
    assert results.read_json(tmp_path / "run.json")["status"] == "done" and not record.unsaved
    record.release()


def test_short_room_is_said_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(run="r", time_limit=100.0, rate=1000.0)
    monkeypatch.setattr(room, "free", lambda _: 1 << 40)
    assert room.short(tmp_path, plan) is None
    monkeypatch.setattr(room, "free", lambda _: 20_000_000)
    assert "has 20 MB left" in (room.short(tmp_path, plan) or "")


def test_what_is_needed_to_end_grows_with_journal_and_disks(tmp_path: Path) -> None:
    assert room.needed_now(1000, 0, 3) == room.needed_now(0, 0, 3) + 2000
    assert room.needed_now(0, 10, 3) - room.needed_now(0, 0, 3) == 10 * 3 * 40
    recorder = Recorder(tmp_path, "run", flush_interval=None)
    for value in range(3):
        recorder.complete(recorder.invoke_append(1, "t", 0, 1, value), value + 1, "ok", offset=value)
        recorder.flush()
    recorder.close()
    components = (tmp_path / "journal").glob("operations-*.parquet")
    assert recorder.written == sum(path.stat().st_size for path in components) > 0


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder of generated runs that may not be written."""
    folder = tmp_path / "runs"
    folder.mkdir()
    registers.generate(folder / "register", operations=300, processes=4, seed=1, defect=None)
    log.generate(folder / "append", operations=300, processes=4, seed=1, partitions=2, defect=None)
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False).returncode:
        pytest.skip("mounting takes root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("name", ["register", "append"])
def test_a_run_that_may_not_be_written_is_judged_all_the_same(
    no_spark: None, read_only: Path, tmp_path: Path, name: str
) -> None:
    import checkers

    def judge_log(directory: Path) -> dict[str, object]:
        return room.judged(directory, lambda place: checkers.check(place, None))  # type: ignore[arg-type]

    (subject,) = find([str(read_only / name)], tmp_path)
    (outcome,) = Judge(Asked(None, None, {}, None), lambda _: None, judge_log).judge(subject)
    assert outcome.error is None and outcome.verdict["verdict"] == "pass", (outcome.error, outcome.verdict)
    assert not (read_only / name / "verdict.json").exists() and json.dumps(outcome.verdict)
    assert f"not on record in {read_only / name}: " in outcome.verdict["unsaved"]
    assert "Read-only file system" in outcome.verdict["unsaved"]


def test_what_cannot_be_judged_is_told_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free", lambda _: 0)

    def judge(place: Path) -> dict[str, object]:
        raise HistoryError(f"{place / 'history'} is damaged")

    with pytest.raises(HistoryError, match=f"^{tmp_path / 'history'} is damaged$"):
        room.judged(tmp_path, judge)


def test_what_is_no_file_among_earlier_verdicts_costs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free", lambda _: 0)
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "verdicts").mkdir()
    os.mkfifo(tmp_path / "verdicts" / "0001-pipe.json")
    verdict = room.judged(tmp_path, lambda place: keeping.keep(place, {"verdict": "pass", "reason": "all is well"}))
    assert verdict["verdict"] == "pass" and "unsaved" not in verdict


def test_where_nothing_can_be_laid_out_it_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free", lambda _: 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(HistoryError, match=rf"^{tmp_path} could not be judged under {tmp_path}/gone: .*No such file"):
        room.judged(tmp_path, lambda place: {})


def test_a_run_that_cannot_even_begin_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(room, "free", lambda _: 1 << 20)
    with pytest.raises(SystemExit) as ended:
        main(["run", "--on", "simulation", "--results", str(tmp_path / "results")])
    reported = capsys.readouterr().err
    assert ended.value.code == 255 and "has 1 MB left, and the least that a run takes is 6 MB" in reported
    assert list((tmp_path / "results").iterdir()) == []


def test_a_report_of_another_verdict_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("")
    now = datetime.now(UTC)
    for age, shown in ((-60, True), (60, False)):
        checked_at = (now + timedelta(seconds=age)).isoformat(timespec="seconds")
        written = StringIO()
        verdict = {"verdict": "pass", "checked_at": checked_at}
        print_summary(Terminal(file=written, width=200), tmp_path, verdict, [], [])
        assert ("report.html" in written.getvalue()) == shown, age


def test_a_verdict_for_which_there_is_little_room_keeps_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.json").write_text("{}")
    keeping.keep(tmp_path, {"verdict": "fail", "reason": "2 lost appends"})
    monkeypatch.setattr(room, "free", lambda _: 0)
    room.judged(tmp_path, lambda place: keeping.keep(place, {"verdict": "pass", "reason": "all is well"}))
    now = json.loads((tmp_path / "verdict.json").read_text())
    (earlier,) = now["earlier"]
    assert (now["verdict"], earlier["verdict"]) == ("pass", "fail")
    assert json.loads((tmp_path / earlier["file"]).read_text())["reason"] == "2 lost appends"
