"""What `chaos check` can judge, and how: runs, datasets of many runs, and foreign histories.

| a path to                                           | is judged by                                                |
| --------------------------------------------------- | ----------------------------------------------------------- |
| a run of a log                                      | checkers.check, on Spark                                    |
| a run of registers, of other objects, transactions  | its family: in memory, or on Spark if it is large           |
| a directory with a dataset (an exploration)         | checkers.dataset.check_dataset, one Spark job for all runs  |
| a history of Jepsen's, or a directory with one     | as a run of its workload, in memory or a scratch directory  |
| any other directory                                 | all of these in it                                          |
| an address, such as hdfs://… or s3a://…             | what is there, brought here; verdicts are sent back         |

What is there but cannot be judged at all is an Outcome with an `error`, so that it costs the others nothing.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness import results, witnesses
from harness.errors import BadArguments, ExitCode, HarnessFailure, describe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from spark_history.jepsen import Imported

#: Up to so many operations are judged in memory, in this process: Spark takes longer to start than these take.
IN_MEMORY: Final = 200_000

_HISTORY: Final = re.compile(r"\.(edn|jsonl?|ndjson|txt|log)(\.gz)?$")
#: What Jepsen writes into a run's directory: the history, and what says the same once more or is no history.
_OF_JEPSEN: Final = ("history.edn", "history.edn.gz", "history.jsonl", "history.json", "history.txt", "history.txt.gz")


@dataclass(frozen=True)
class Asked:
    """The options of `chaos check`. plan: entries that override those of plans."""

    workload: str | None = None
    keyed: bool | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    spark_ui_port: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Of one run or history. error: why it could not be judged; else there is a verdict (verdict.json's content)."""

    path: str
    verdict: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    witnesses: Sequence[str] = ()  # lines: sentences and drawings
    directory: Path | None = None  # of a run with a summary of its own: a log's
    error: str | None = None

    @property
    def exit_code(self) -> int:
        return ExitCode.HARNESS_FAILURE if self.error is not None else int(self.verdict["exit_code"])


@dataclass(frozen=True)
class Subject:
    path: Path
    kind: str  # run, dataset, history or address
    address: str = ""


def find(paths: Sequence[str], results_directory: Path) -> list[Subject]:
    """What is at the paths, each once. Raises BadArguments for the first that is nothing."""
    found: dict[Path, Subject] = {}
    for text in paths:
        for subject in _find(text, results_directory):
            found.setdefault(subject.path.resolve(), subject)
    return list(found.values())


def _find(text: str, results_directory: Path) -> list[Subject]:
    path = Path(text)
    if ":" in text:  # else Arrow and Spark need not be imported to know
        from spark_history.files import HistoryError
        from spark_history.locations import is_remote, local_path

        if is_remote(text):
            return [Subject(path, "address", text)]
        try:
            path = local_path(text)
        except HistoryError as error:
            raise BadArguments(str(error)) from None
        text = str(path)
    if text and path.is_file():
        return [Subject(path, "history")]
    places = [results_directory / text, path] if text and text != "latest" else []
    for place in places:
        if not results.is_run(place) and place.is_dir():
            inside = list(_inside(place))
            if inside:
                return inside
    return [Subject(results.find(text, results_directory), "run")]


def _inside(directory: Path) -> Iterator[Subject]:
    """What a directory that is no run holds."""
    if (directory / "dataset" / "runs").is_dir():
        yield Subject(directory / "dataset", "dataset")
        return
    if (directory / "runs").is_dir() and (directory / "operations").is_dir():
        yield Subject(directory, "dataset")
        return
    for name in _OF_JEPSEN:
        if (directory / name).is_file():
            yield Subject(directory / name, "history")
            return
    for each in sorted(directory.iterdir()):
        if each.is_dir():
            if each.is_symlink():  # e.g. Jepsen's `latest`
                continue
            if results.is_run(each):
                yield Subject(each, "run")
            else:
                yield from _inside(each)
        elif _HISTORY.search(each.name):
            yield Subject(each, "history")


class Judge:
    """Judges one subject after the other, with one Spark session at most."""

    def __init__(
        self, asked: Asked, say: Callable[[str], None], judge_log: Callable[[Path], Mapping[str, Any]]
    ) -> None:
        """say: what is going on. judge_log: the verdict on a run of a log, as harness.run.check gives it."""
        self._asked = asked
        self._say = say
        self._judge_log = judge_log

    def judge(self, subject: Subject) -> list[Outcome]:
        """A dataset has many outcomes, anything else one. Raises only what is not of the subject."""
        from spark_history.files import HistoryError
        from spark_history.session import SparkUnavailable

        if subject.kind == "address":
            return self._brought(subject.address)
        self._say(f"checking {subject.path}")
        try:
            if subject.kind == "dataset":
                return self._dataset(subject.path)
            return [self._history(subject.path) if subject.kind == "history" else self._run(subject.path)]
        except SparkUnavailable as error:
            raise HarnessFailure(str(error)) from error
        except (HistoryError, HarnessFailure, OSError) as error:
            text = str(error) if isinstance(error, HistoryError) else describe(error)
            return [Outcome(str(subject.path), error=" ".join(text.split()))]

    def _brought(self, address: str) -> list[Outcome]:
        """What lies at an address, under its own name, and what was written of it sent back there."""
        from spark_history.files import HistoryError
        from spark_history.locations import brought_here
        from spark_history.session import SparkUnavailable

        self._say(f"bringing {address} here")
        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            try:
                with brought_here(address, self._spark(Path(scratch) / "spark.log")) as copy:
                    inside = find([str(copy.path)], Path(scratch))
                    outcomes = [each for subject in inside for each in self.judge(subject)]
                    notes = copy.send_back()
            except SparkUnavailable as error:
                raise HarnessFailure(str(error)) from error
            except (HistoryError, BadArguments, OSError) as error:
                text = str(error) if isinstance(error, HistoryError) else describe(error)
                return [Outcome(address, error=" ".join(text.split()))]
        here = str(copy.path)
        return [
            replace(each, path=each.path.replace(here, address), notes=[*each.notes, *notes], directory=None)
            for each in outcomes
        ]

    def _run(self, directory: Path) -> Outcome:
        plan = results.read_json(directory / "plan.json")
        if family_of(plan.get("workload")) is None:
            return Outcome(str(directory), self._judge_log(directory), directory=directory)
        from checkers import keeping
        from checkers.anomalies import ANOMALIES
        from spark_history.files import write_parquet

        judged = self._family(directory, plan)
        verdict = self._verdict(judged, {**plan, **self._asked.plan})
        rows: list[dict[str, Any]] = judged.rows
        import pyarrow as pa

        write_parquet(directory / "anomalies.parquet", pa.Table.from_pylist(rows, schema=ANOMALIES))
        verdict = keeping.keep(directory, verdict)
        return Outcome(str(directory), verdict, witnesses=witnesses.lines_of(rows, judged.origin))

    def _family(self, directory: Path, plan: Mapping[str, Any]) -> Any:
        """What the family finds in a run on disk."""
        import pyarrow.parquet as pq

        from spark_history.jepsen.export_tables import files, load

        family = family_of(plan["workload"])
        assert family is not None
        try:
            tables = ("registers", "calls", "transactions", "micro_operations")
            rows = sum(pq.read_metadata(path).num_rows for table in tables for path in files(directory, table))
        except Exception:  # the family says what is damaged, and judges the rest
            rows = IN_MEMORY + 1
        asked = {**plan, **self._asked.plan}
        if rows <= IN_MEMORY:
            return family.check_tables(asked, load(directory))
        if asked == plan:
            (judged,) = family.check_directories([directory], self._spark(directory / "spark.log"))
            return judged
        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            copy = Path(scratch) / directory.name
            copy.mkdir()
            (copy / "plan.json").write_text(json.dumps(asked))
            (copy / "history").symlink_to((directory / "history").resolve(), target_is_directory=True)
            (judged,) = family.check_directories([copy], self._spark(copy / "spark.log"))
            return judged

    def _dataset(self, directory: Path) -> list[Outcome]:
        from checkers.dataset import check_dataset

        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            verdicts = check_dataset(directory.resolve(), self._spark(Path(scratch) / "spark.log"))
        return [Outcome(f"{directory}:{verdict['run']}", verdict, witnesses=_examples(verdict)) for verdict in verdicts]

    def _history(self, path: Path) -> Outcome:
        from spark_history.jepsen import read_history

        imported = read_history(path, workload=self._asked.workload, keyed=self._asked.keyed, given=self._asked.plan)
        count, workload = imported.operations, imported.plan["workload"]
        self._say(f"checking {path}: {count:,} operations of {workload}, in {imported.notation}")
        verdict, rows, origin = self._imported(imported)
        verdict = {**verdict, "workload": workload, "source": str(path)}
        return Outcome(str(path), verdict, imported.notes, witnesses.lines_of(rows, origin))

    def _imported(self, imported: Imported) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
        """Verdict, anomalies and the first invocation."""
        family = family_of(imported.plan["workload"])
        if imported.operations <= IN_MEMORY and family is not None:
            judged = family.check_tables(imported.plan, imported.tables)
            return self._verdict(judged, imported.plan), judged.rows, judged.origin
        if family is None:
            return self._imported_log(imported)
        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            directory = Path(scratch) / "run"
            directory.mkdir()
            family.write_history(directory, imported.plan, imported.tables)
            (judged,) = family.check_directories([directory], self._spark(directory / "spark.log"))
            return self._verdict(judged, imported.plan), judged.rows, judged.origin

    def _imported_log(self, imported: Imported) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
        import pyarrow.compute as pc

        origin = pc.min(imported.tables["operations"]["invoke"]).as_py() or 0
        if imported.operations <= IN_MEMORY:
            from checkers.dataset import check_tables

            rows: list[dict[str, Any]] = []
            verdict = check_tables(imported.plan, imported.tables, imported.doubts, imported.violation, rows)
            return verdict, rows, origin
        import pyarrow.parquet as pq

        from checkers import check

        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            directory = Path(scratch) / "run"
            write_journal(directory, imported)
            verdict = check(directory, self._spark(directory / "spark.log"))
            return verdict, pq.read_table(directory / "anomalies.parquet").to_pylist(), origin

    def _verdict(self, judged: Any, plan: Mapping[str, Any]) -> dict[str, Any]:
        from checkers.judged import verdict

        return verdict(judged, plan)

    def _spark(self, log: Path) -> SparkSession:
        from spark_history.session import start_in_background

        return start_in_background(ui_port=self._asked.spark_ui_port, log=log).result()


def family_of(workload: Any) -> Any:
    """What judges histories of the workload: check_tables, check_directories, write_history. None: it is a log's."""
    from spark_history import jepsen

    modules = {
        "checkers.registers": jepsen.REGISTERS, "checkers.models": jepsen.MODELS,
        "checkers.transactions": jepsen.TRANSACTIONS,
    }  # fmt: skip
    for module, workloads in modules.items():
        if workload in workloads:
            return import_module(module)
    return None


def write_journal(directory: Path, imported: Imported) -> None:
    """A log's history as a run that `checkers.check` can judge."""
    from spark_history.files import write_parquet
    from spark_history.schema import OPERATIONS, TABLES

    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps(imported.plan))
    (directory / "run.json").write_text(json.dumps({"doubts": list(imported.doubts)}))
    if imported.violation is not None:
        (directory / "violation.json").write_text(json.dumps(imported.violation))
    for table, schema in TABLES.items():
        rows: pa.Table = imported.tables[table].cast(schema)
        size = 1 << 20
        # As of flushes: the records of a read may lie in another part than the read.
        for number, low in enumerate(range(0, rows.num_rows, size)):
            write_parquet(directory / "journal" / f"{table}-{number:06}.parquet", rows.slice(low, size))
    last = max(rows_.num_rows for rows_ in imported.tables.values()) // (1 << 20)
    write_parquet(directory / "journal" / f"pending-{last:06}.parquet", OPERATIONS.empty_table())


def _examples(verdict: Mapping[str, Any]) -> list[str]:
    """A sentence for each property that does not hold."""
    return [each["example"] for each in verdict.get("anomalies", {}).values() if each.get("example")]


def worst(outcomes: Sequence[Outcome]) -> ExitCode:
    """Not judged > fail > unknown > pass."""
    order = (ExitCode.HARNESS_FAILURE, ExitCode.FAIL, ExitCode.UNKNOWN)
    return next((code for code in order if any(each.exit_code == code for each in outcomes)), ExitCode.PASS)


def check_workload(workload: str | None) -> None:
    """Raises BadArguments."""
    from spark_history.jepsen import WORKLOADS

    if workload is not None and workload not in WORKLOADS:
        raise BadArguments(f"--workload {workload!r} is none that a history can be of; valid: {', '.join(WORKLOADS)}")
