"""`chaos matrix`: every row under every column, one table, and on from where it was interrupted."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.errors import BadArguments, Stopped
from harness.run.order import Prepared
from harness.suites.matrix import file as cells
from harness.suites.matrix import tables
from harness.suites.matrix.files import MatrixFiles
from harness.suites.parts import Planned
from harness.suites.results import judged
from harness.suites.runner import Runner, Wishes

FILE = """
seeds = "1..2"
[all]
on = "simulation"
time_limit = "8s"
rate = 50
partitions = 2
[all.settings]
"replica.lag.time.max.ms" = 5000
[rows.plain]
[rows."two producers"]
concurrency = 2
settings = { "log.segment.bytes" = 1048576 }
[columns.none]
nemesis = "none"
[columns.kill]
nemesis = "kill"
settings = { "replica.lag.time.max.ms" = 6000 }
"""


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def test_a_cell_is_its_row_and_its_column_together(file: Path) -> None:
    matrix = cells.read(file)
    assert (matrix.rows, matrix.columns) == (["plain", "two producers"], ["none", "kill"]) and len(matrix.runs) == 8
    last = matrix.runs[-1]
    assert last is matrix.cells["two producers", "kill"][1] and (last.name, last.seed) == ("two producers, kill", 2)
    assert last.fields["nemesis"] == ("kill",) and last.fields["concurrency"] == 2 and last.fields["time_limit"] == 8.0
    assert last.fields["settings"] == {"replica.lag.time.max.ms": "6000", "log.segment.bytes": "1048576"}
    assert len({planned.key for planned in matrix.runs}) == 8
    assert [planned.seed for planned in cells.read(file, [7]).runs] == [7] * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rows.a]\n", "has no columns: tables such as"),
        ("rows = 3\n[columns.a]\n", "has no rows: tables such as"),
        ("[row.a]\n", "has 'row', which no matrix has; there are seeds, all, rows, columns"),
        ("[rows.a]\nnemsis = 'kill'\n[columns.b]\n", r"\[rows.a\] has 'nemsis', which no plan has"),
        ("seeds = '2..1'\n[rows.a]\n[columns.b]\n", "runs backwards"),
        ("[rows", "the matrix .* cannot be read"),
    ],
)
def test_mistakes(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(BadArguments, match=message):
        cells.read(file)


def test_it_is_carried_out_and_goes_on_where_it_was_interrupted(
    file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save, times = MatrixFiles.save, iter(range(100))

    def saved(files: MatrixFiles, runner: Runner) -> None:
        save(files, runner)
        if next(times) == 2:  # two runs have ended
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(MatrixFiles, "save", saved)
    assert chaos("matrix", str(file), "--seeds", "1") == 255
    assert "stopped; chaos matrix" in capfd.readouterr().out
    directory = Path("results/matrix-mine")
    assert len(json.loads((directory / "matrix.json").read_text())["cells"]) == 2
    assert "not yet" in (directory / "matrix.md").read_text()
    monkeypatch.setattr(MatrixFiles, "save", save)
    assert chaos("matrix", str(file), "--seeds", "1", "--jobs", "2") == 0
    output = capfd.readouterr().out
    assert "2 of 4 runs were carried out before" in output
    rows = [line.split("\t") for line in output.splitlines() if line.count("\t") == 2]
    assert [row[0] for row in rows] == ["plain", "two producers"]
    assert all(cell.startswith("pass, ") for row in rows for cell in row[1:])
    page, text = (directory / "matrix.html").read_text(), (directory / "matrix.md").read_text()
    runs = [run for run in sorted((directory / "runs").iterdir()) if (run / "verdict.json").exists()]
    shown = [run for run in runs if f'href="runs/{run.name}/report.html"' in page]
    assert len(shown) == 4 and all(f"(runs/{run.name}/report.html)" in text for run in shown)
    assert chaos("matrix", str(file), "--seeds", "1", "--json") == 0
    (ended,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert ended == {"event": "ended", "matrix": "mine", "directory": str(directory), "exit_code": 0}


def test_what_is_expected_counts(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As in suites: a control that does not fail has tested nothing."""
    file.write_text(FILE.replace('nemesis = "kill"\n', 'nemesis = "kill"\nexpect = "fail"\n'))
    matrix = cells.read(file, [1])
    assert [planned.expect for planned in matrix.runs] == ["pass", "fail"] * 2
    results = {
        planned.key: judged(planned, {"verdict": "fail", "reason": "lost", "lost": 5}, "runs/a", 60.0)
        for planned in matrix.runs
    }
    found = tables.squares(matrix, results)
    assert found["plain", "none"].text == "fail, 5 lost, 60 s"
    assert found["plain", "kill"].text == "fail, 5 lost, as expected, 60 s"
    files = MatrixFiles(matrix, file.parent / "out", "chaos matrix")
    files.results = results
    files.write()
    _, _, said = (file.parent / "out" / "matrix.html").read_text().partition("Each cell")
    assert "seed 1: fail: lost" in said and "seed 1: fail: failed as expected: lost" in said


@pytest.mark.nightly
def test_a_cell_that_fails_links_to_its_story(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.replace('"8s"', '"20s"').replace('nemesis = "kill"\n', 'nemesis = "power-outage-cluster"\n'))
    assert chaos("matrix", str(file), "--seeds", "1", "--jobs", "2") == 1
    directory = Path("results/matrix-mine")
    assert "<details" not in (directory / "matrix.html").read_text()
    assert chaos("matrix", str(file), "--seeds", "1", "--stories", "2", "--jobs", "2") == 1
    said = capfd.readouterr().out
    assert "4 of 4 runs were carried out before, 2 of them without their story" in said
    assert len([run for run in (directory / "runs").iterdir() if (run / "report.html").exists()]) == 4
    page, text = (directory / "matrix.html").read_text(), (directory / "matrix.md").read_text()
    for row in ("plain", "two-producers"):
        assert f'<a href="#{row}--kill">' in page and f'id="{row}--kill"' in page and f"](#{row}--kill)" in text
    assert page.count("<details") == text.count("<details") == 2
    assert page.count("the power of broker-1, broker-2 and broker-3 is cut") >= 2
    cells_of = json.loads((directory / "matrix.json").read_text())["cells"].values()
    for story in [each["story"] for each in cells_of if each["verdict"] == "fail"]:
        assert story["runs"] == 2 and (directory / story["directory"] / "plan.json").exists()


def test_what_is_wrong_is_told_before_the_first_run(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.replace("concurrency = 2", "brokers = 2"))
    assert chaos("matrix", str(file)) == 254
    said = capfd.readouterr().err
    assert said.startswith("chaos: two producers, ") and "--replication-factor 3 needs as many brokers" in said
    assert not Path("results").exists()


def test_a_table_that_cannot_be_written_is_told_before_the_first_run(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("results").write_text("no folder")
    assert chaos("matrix", str(file)) == 255
    assert "the table cannot be written to results/matrix-mine: Not a directory" in capfd.readouterr().err


def test_a_run_that_cannot_be_judged_is_no_reason_not_to_go_on(
    file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(runner: Runner, planned: Planned, name: str, log: Path) -> str:
        return "the machine is tired"

    record = Runner._record
    monkeypatch.setattr(Runner, "_record", fail)
    assert chaos("matrix", str(file)) == 255
    assert "not judged 2 of 2" in capfd.readouterr().out
    assert "the machine is tired" in Path("results/matrix-mine/matrix.html").read_text()
    monkeypatch.setattr(Runner, "_record", record)
    assert chaos("matrix", str(file), "--seeds", "1", "--jobs", "2") == 0  # all of it, as nothing was judged yet
    assert "were carried out before" not in capfd.readouterr().out


def test_who_asks_to_stop_while_a_cluster_starts_asks_all_seeds_to(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(prepared: Prepared) -> object:
        raise Stopped("stopped before the workload began: there is nothing to judge")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Prepared, "carry_out", stop)
    assert chaos("run", "--on", "simulation", "--seeds", "1..3") == 255
    told = capfd.readouterr()
    assert "seed 1, 1 of 3" in told.out + told.err and "seed 2" not in told.out + told.err


def test_a_square_of_several_seeds_is_the_worst_of_them() -> None:
    passed, failed = (
        judged(Planned("a, b", seed, {}), {"verdict": word, "reason": "", "lost": lost}, "runs/a", took_s)
        for seed, word, lost, took_s in ((1, "pass", 0, 60.0), (2, "fail", 9334, 85.4))
    )
    assert tables.square([passed, failed, failed]).text == "fail 2 of 3, 9,334 lost, 85 s"
    assert tables.square([passed]).text == "pass, 60 s" and tables.square([None]).text == "not yet"


def test_text_from_elsewhere_stays_text(file: Path) -> None:
    file.write_text('[rows."<b>|x"]\n[columns.none]\nnemesis = "none"\n')
    matrix = cells.read(file)
    assert "<b>" not in tables.page(matrix, {}, "made") + (text := tables.markdown(matrix, {}, "made"))
    assert "&lt;b&gt;\\|x" in text


def test_of_runs_that_were_cut_short_only_a_fail_is_kept(file: Path, tmp_path: Path) -> None:
    """More time would have made no pass of it; of a pass it might have made a fail."""
    matrix = cells.read(file, [1])
    for word, kept in (("pass", 0), ("unknown", 0), ("fail", 1)):
        files = MatrixFiles(matrix, tmp_path / word, "chaos matrix")
        runner = Runner(matrix.runs, tmp_path / word, Wishes(), print, files.save, over="it was stopped by SIGINT")
        planned = matrix.runs[0]
        runner.results[planned] = judged(planned, {"verdict": word, "reason": ""}, "", 1.0)
        files.save(runner)
        assert len(json.loads((tmp_path / word / "matrix.json").read_text())["cells"]) == kept


def test_each_cell_has_an_anchor_of_its_own_whatever_its_name(file: Path) -> None:
    file.write_text('[rows."v2, a"]\n[rows."v2 a"]\n[rows."`x` [z](http://e)"]\n[columns.none]\nnemesis = "none"\n')
    matrix = cells.read(file)
    assert [*tables.anchors(matrix).values()] == ["v2-a--none", "v2-a--none-2", "x-z-http-e--none"]
    assert "\\`x\\` \\[z\\](http://e)" in tables.markdown(matrix, {}, "made")


@pytest.mark.parametrize("story", [{"broken": 1, "lines": "abc"}, 5, {"lines": []}])
def test_a_story_that_is_damaged_is_none(file: Path, story: object) -> None:
    matrix = cells.read(file, [1])
    files = MatrixFiles(matrix, file.parent / "out", "chaos matrix")
    planned = matrix.runs[0]
    files.results = {planned.key: judged(planned, {"verdict": "fail", "reason": "lost", "lost": 5}, "runs/a", 60.0)}
    files.write()
    state = file.parent / "out" / "matrix.json"
    found = json.loads(state.read_text())
    found["cells"][planned.key]["story"] = story
    state.write_text(json.dumps(found))
    again = MatrixFiles(matrix, file.parent / "out", "chaos matrix")
    again.load()
    again.write()
    assert again.results[planned.key].story is None and planned in again.left(with_stories=True)
