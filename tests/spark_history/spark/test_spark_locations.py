"""Histories at addresses that are no paths: brought here by each way there is, judged, and the verdict sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest

import checkers
from checkers.verdict.keeping import without_stamps
from harness.cli.app import main
from spark_history.errors import HistoryError
from spark_history.spark import locations
from spark_history.spark.locations import brought_here, is_remote, local_path
from tests.checkers.histories.histories import LongHistory

TREE = {"plan.json": b"{}", "journal/reads-00000.parquet": b"x" * 9_000_000, "a b/%7E": b"2", "history/old": b"1"}
EMPTY = {"empty": b""}  # which Spark's binaryFile does not show


def test_tells_addresses_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(map(is_remote, ("hdfs://name:8020/runs", "s3a://bucket/run", "viewfs:///data")))
    assert not any(map(is_remote, ("runs/7", "/runs/7", "file:///runs/7", "file:/runs/7", "C:", "latest")))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd:").mkdir()
    (tmp_path / "odd:" / "name").touch()
    assert not is_remote("odd:/name")
    assert local_path("file:///runs/a%20b") == local_path("file:/runs/a b") == Path("/runs/a b")
    assert local_path("results/a%20b") == Path("results/a%20b")
    with pytest.raises(HistoryError, match=r"file://other/runs names the machine 'other'"):
        local_path("file://other/runs")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """What the addresses of these tests stand for."""
    directory = tmp_path / "there"
    for name, content in (TREE | EMPTY).items():
        (directory / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / "run" / name).write_bytes(content)
    return directory


@pytest.fixture
def viewfs(spark: Any, there: Path) -> Iterator[str]:
    """An address under a scheme of Hadoop's that Arrow does not know, for `there`."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    link = f"fs.viewfs.mounttable.{there.parent.name}.link./data"
    settings.set(link, there.as_uri())
    yield f"viewfs://{there.parent.name}/data"
    settings.unset(link)


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def use(monkeypatch: pytest.MonkeyPatch, way: str, there: Path) -> None:
    """That way alone; Arrow's with `there` as s3://bucket."""
    for other in {"_Hadoop", "_Arrow", "_BinaryFiles"} - {way}:
        monkeypatch.setattr(locations, other, Nowhere)
    if way == "_BinaryFiles":
        monkeypatch.setattr(locations, "is_connect", lambda spark: True)

    def from_uri(location: str) -> tuple[Any, str]:
        assert location.startswith("s3a://bucket/")
        return pa.fs.SubTreeFileSystem(str(there), pa.fs.LocalFileSystem()), location.removeprefix("s3a://bucket/")

    if way == "_Arrow":
        monkeypatch.setattr(locations._Arrow, "_open", staticmethod(from_uri))


class Nowhere:
    def __init__(self, *_: Any) -> None: ...

    def get(self, *_: Any) -> None:
        raise locations._Cannot("not this way")

    put = get


@pytest.mark.spark
@pytest.mark.parametrize("way", ["_Hadoop", "_Arrow", "_BinaryFiles"])
def test_a_tree_is_brought_and_what_is_new_sent_back(
    way: str, spark: Any, viewfs: str, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, way, there)
    address = "s3a://bucket/run" if way == "_Arrow" else f"{viewfs}/run"
    with brought_here(address, spark) as copy:
        assert copy.path.name == "run"
        assert tree(copy.path) == TREE | ({} if way == "_BinaryFiles" else EMPTY)
        assert copy.send_back() == ()  # nothing is new
        (copy.path / "verdict.json").write_text("7")
        (copy.path / "plan.json").write_text("{1}")
        (copy.path / "history" / "new.parquet").write_text("made again anywhere")
        (copy.path / ".half.tmp").write_text("no")
        (copy.path / "more").mkdir()
        (copy.path / "more" / "deep.json").write_text("8")
        reported = copy.send_back()
    assert not copy.path.exists()
    if way == "_BinaryFiles":
        assert reported == (
            f"more/deep.json, plan.json, verdict.json could not be written to {viewfs}/run "
            "(Spark Connect cannot write single files; not this way)",
        )
        assert tree(there / "run") == TREE | EMPTY
    else:
        assert reported == ()
        new = {"verdict.json": b"7", "plan.json": b"{1}", "more/deep.json": b"8"}
        assert {
            name: each for name, each in tree(there / "run").items() if not name.endswith(".crc")
        } == TREE | EMPTY | new


@pytest.mark.spark
@pytest.mark.parametrize("way", ["_Hadoop", "_Arrow", "_BinaryFiles"])
def test_a_single_file_is_brought(
    way: str, spark: Any, viewfs: str, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, way, there)
    base = "s3a://bucket" if way == "_Arrow" else viewfs
    with brought_here(f"{base}/run/journal/reads-00000.parquet", spark) as copy:
        assert copy.path.name == "reads-00000.parquet"
        assert copy.path.read_bytes() == TREE["journal/reads-00000.parquet"]


@pytest.mark.spark
def test_what_cannot_be_read_is_one_sentence(
    spark: Any, viewfs: str, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, said in (
        (f"{viewfs}/none", "does not exist"),
        ("nosuch://host/run", r"cannot be read \(No FileSystem for scheme \"nosuch\"; .*nosuch"),
    ):
        with pytest.raises(HistoryError, match=said) as error, brought_here(address, spark):
            pass
        assert "\n" not in str(error.value)
    monkeypatch.setattr(locations.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_000_000}))
    with pytest.raises(HistoryError, match=r"takes 0\.0 GB .* TMPDIR"), brought_here(f"{viewfs}/run", spark):
        pass


@pytest.mark.spark
def test_a_run_elsewhere_is_judged_as_here(spark: Any, viewfs: str, there: Path, tmp_path: Path) -> None:
    history = LongHistory(2_000, partitions=2, seconds=2)
    history.in_final[-40:] = False
    here = checkers.check(history.write(tmp_path / "here"), spark)
    history.write(there / "judged")
    with brought_here(f"{viewfs}/judged", spark) as copy:
        assert without_stamps(checkers.check(copy.path, spark)) == without_stamps(here)
        assert copy.send_back() == ()
    assert without_stamps(json.loads((there / "judged" / "verdict.json").read_text())) == without_stamps(here)
    assert here["verdict"] == "fail"
    assert (there / "judged" / "anomalies.parquet").is_file()
    assert not (there / "judged" / "history").exists()


@pytest.mark.spark
def test_the_command_judges_what_lies_at_an_address(
    spark: Any, viewfs: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = LongHistory(2_000, partitions=2, seconds=2)
    history.in_final[-40:] = False
    history.write(there / "broken")
    with pytest.raises(SystemExit) as ended:
        main(["check", f"{viewfs}/broken"])
    reported = capsys.readouterr().out
    assert ended.value.code == 1 and "lost appends" in reported and f"{viewfs}/broken" in reported
    assert json.loads((there / "broken" / "verdict.json").read_text())["verdict"] == "fail"
    with pytest.raises(SystemExit) as ended:
        main(["check", f"{viewfs}/nothing"])
    assert ended.value.code == 255 and "nothing does not exist" in capsys.readouterr().err
