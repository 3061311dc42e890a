"""Where a history may be: any path that Spark can read.

A plain path and file:///… are read where they are. What lies at another address, such as hdfs://…, s3a://…, gs://… or
viewfs://…, is brought into a working directory here, judged there, and what the judging wrote is sent back to the
address, so that a run looks the same wherever it is. Copying streams: it takes disk, not memory.

Three ways there, of which the first that can is taken:

    Hadoop's file systems   in this process's JVM (local and standalone masters), by Spark's own settings
    Arrow's                 s3, gs, abfs, and hdfs where libhdfs is installed; by the environment's credentials
    Spark's binaryFile      over Spark Connect, which has no JVM here: reads files of up to 2 GB that are not
                            empty, and cannot write

Disk is taken under TMPDIR. A cluster on other machines must see it: see tasks.shared().
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from spark_history.errors import HistoryError
from spark_history.spark.failures import SparkUnavailable, brief, explain
from spark_history.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//|/)")
_AS_ARROW: Final = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names for what Arrow calls by another
_LAID_OUT: Final = frozenset({"history", "history.new"})  # made again from the journal wherever it is judged
_PIECE: Final = 4 << 20  # bytes of a file in a message


def is_remote(location: str) -> bool:
    """Whether it takes more than opening a path here."""
    match = _SCHEME.match(location)
    return match is not None and match[1].lower() != "file" and not Path(location).exists()


def local_path(location: str) -> Path:
    """Of a plain path, or of file:///…; raises HistoryError for an address that names another machine."""
    match = _SCHEME.match(location)
    if match is None or match[1].lower() != "file":
        return Path(location)
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        raise HistoryError(f"{location} names the machine {parts.netloc!r}; a file of this one is file:///PATH")
    return Path(unquote(parts.path))


@dataclass(frozen=True)
class Copy:
    """A directory, or a single file, brought here from `location`."""

    location: str
    path: Path
    _before: Mapping[str, tuple[int, int]]
    _ways: Sequence[Way]

    def send_back(self) -> tuple[str, ...]:
        """What has been written since it was brought, apart from history/, which can be made again. Returns what could
        not be written, in a sentence, or nothing."""
        changed = [name for name, state in _survey(self.path).items() if self._before.get(name) != state]
        changed = [name for name in changed if not _LAID_OUT.intersection(Path(name).parts)]
        reasons = []
        for way in self._ways if changed else ():
            try:
                for name in changed:
                    way.put(self.path / name, f"{self.location}/{name}")
                return ()
            except _Cannot as error:
                reasons.append(str(error))
        if not changed:
            return ()
        return (f"{', '.join(changed)} could not be written to {self.location} ({'; '.join(reasons)})",)


@contextmanager
def brought_here(location: str, spark: SparkSession) -> Iterator[Copy]:
    """What lies at a remote location, for as long as the context lasts. Raises HistoryError if nothing can be read."""
    location = location.rstrip("/")
    scheme = location.partition(":")[0]
    root = Path(tempfile.mkdtemp(prefix="chaos-brought-"))
    try:
        path = root / (unquote(urlsplit(location).path).rpartition("/")[2] or scheme)
        ways: list[Way] = [_Arrow(), _BinaryFiles(spark)] if is_connect(spark) else [_Hadoop(spark), _Arrow()]
        reasons = []
        for number, way in enumerate(ways):
            try:
                way.get(location, path)
                ways.insert(0, ways.pop(number))  # what could read it is the first to try and write
                break
            except _Cannot as error:
                reasons.append(str(error))
                with suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            raise HistoryError(f"{location} cannot be read ({'; '.join(dict.fromkeys(reasons))})")
        yield Copy(location, path, _survey(path), ways)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _survey(path: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file below, by its relative name; hidden ones are being written."""
    if not path.is_dir():
        return {}
    files = [each for each in path.rglob("*") if each.is_file() and not each.name.startswith(".")]
    return {str(each.relative_to(path)): (each.stat().st_size, each.stat().st_mtime_ns) for each in sorted(files)}


class _Cannot(Exception):
    """This way does not lead there: why, in a few words."""


class Way(Protocol):
    def get(self, location: str, path: Path) -> None:
        """Copy a file, or a directory and all below it. path: does not exist yet."""

    def put(self, path: Path, location: str) -> None:
        """Copy a file over there, in the place of what is there."""


def _check_room(needed: int, path: Path, location: str) -> None:
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise HistoryError(
            f"{location} takes {needed / 1e9:,.1f} GB and {path.parent} has {free / 1e9:,.1f} GB free; "
            "set TMPDIR to where there is more"
        )


class _Hadoop:
    """By py4j, in the JVM of a session here."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext

    def get(self, location: str, path: Path) -> None:
        def copy(there: Any, source: Any) -> None:
            if not there.exists(source):
                raise HistoryError(f"{location} does not exist")
            _check_room(int(there.getContentSummary(source).getLength()), path, location)
            there.copyToLocalFile(False, source, self._path(str(path)), True)  # raw: without checksum files

        self._do(location, copy)

    def put(self, path: Path, location: str) -> None:
        self._do(location, lambda there, to: there.copyFromLocalFile(False, True, self._path(str(path)), to))

    def _do(self, location: str, work: Callable[[Any, Any], None]) -> None:
        try:
            remote = self._path(location)
            work(remote.getFileSystem(self._context._jsc.hadoopConfiguration()), remote)
        except HistoryError:
            raise
        except Exception as error:
            java = getattr(error, "java_exception", None)
            text = str(java.toString()) if java is not None else brief(error)
            raise _Cannot(text.splitlines()[0].rpartition("Exception: ")[2].rstrip(".")) from error

    def _path(self, text: str) -> Any:
        return self._context._jvm.org.apache.hadoop.fs.Path(text)


class _Arrow:
    def get(self, location: str, path: Path) -> None:
        with _arrow_errors():
            there, source = self._open(location)
            found = there.get_file_info(source)
            if found.type == pa.fs.FileType.NotFound:
                raise HistoryError(f"{location} does not exist")
            is_file = found.type == pa.fs.FileType.File
            files = [found] if is_file else there.get_file_info(pa.fs.FileSelector(source, recursive=True))
            _check_room(sum(each.size or 0 for each in files), path, location)
            pa.fs.copy_files(source, str(path), there, pa.fs.LocalFileSystem())

    def put(self, path: Path, location: str) -> None:
        with _arrow_errors():
            there, target = self._open(location)
            there.create_dir(target.rpartition("/")[0], recursive=True)
            pa.fs.copy_files(str(path), target, pa.fs.LocalFileSystem(), there)

    @staticmethod
    def _open(location: str) -> tuple[Any, str]:
        scheme, _, rest = location.partition(":")
        there, path = pa.fs.FileSystem.from_uri(f"{_AS_ARROW.get(scheme, scheme)}:{rest}")
        return there, path


@contextmanager
def _arrow_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ImportError) as error:
        raise _Cannot(brief(error)) from error


class _BinaryFiles:
    """By a job that reads the files, whose rows come back a piece at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def get(self, location: str, path: Path) -> None:
        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            files = reader.load(location)
            needed = files.groupBy().sum("length").toArrow().column(0)[0].as_py()
            if needed is None:
                raise HistoryError(f"{location} holds no files")
            _check_room(int(needed), path, location)
            columns = "path string, offset long, piece binary"
            pieces = files.select("path", "content").mapInArrow(_cut, columns).toLocalIterator()
            base = _path_of(location)
            for row in pieces:
                within = _path_of(row["path"]).removeprefix(base).lstrip("/")
                target = path / within if within else path
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("r+b" if row["offset"] else "wb") as file:
                    file.seek(row["offset"])
                    file.write(row["piece"])
        except (HistoryError, SparkUnavailable):
            raise
        except Exception as error:
            raise _Cannot(explain(error) or brief(error)) from error

    def put(self, path: Path, location: str) -> None:
        raise _Cannot("Spark Connect cannot write single files")


def _path_of(address: str) -> str:
    """Hadoop does not escape what its addresses name: a % in one is a %."""
    return _AUTHORITY.sub("", address)


_AUTHORITY: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


def _cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Files as pieces, so that what comes back at a time is small; an empty file is one empty piece."""
    for batch in batches:
        for path, content in zip(batch["path"], batch["content"], strict=True):
            whole = content.as_buffer()
            for offset in range(0, max(whole.size, 1), _PIECE):
                piece = whole.slice(offset, min(_PIECE, whole.size - offset)).to_pybytes()
                yield pa.record_batch(
                    [[path.as_py()], pa.array([offset], pa.int64()), pa.array([piece], pa.binary())],
                    names=["path", "offset", "piece"],
                )
