"""What `chaos check` can judge, and how: runs, datasets of many runs, and foreign histories.

| a path to                                           | is judged by                                                |
| --------------------------------------------------- | ----------------------------------------------------------- |
| a run of a log                                      | checkers.check: in this process, or on Spark if it is long  |
| a run of registers, of other objects, transactions  | its family: in memory, or on Spark if it is large           |
| a directory with a dataset (an exploration)         | checkers.dataset.check_dataset, one Spark job for all runs  |
| a foreign history                                   | as a run of its workload, in memory or a scratch directory  |
| any other directory                                 | all of these in it: see sources.py                         |
| an address, such as hdfs://… or s3a://…             | what is there, brought here; verdicts are sent back         |

What is there but cannot be judged at all, even by a mistake of ours, is an Outcome with an `error`, so that it costs
the others nothing; so is what an option was given for that its workload does not have. Of a run or dataset of which a
part is damaged the rest is judged, whatever its size, and the verdict names what is not.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.errors import BadArguments, ExitCode, HarnessFailure, describe
from harness.record import results, room
from harness.record.results import NOT_JUDGED
from harness.record.sources import HistorySource, find
from harness.report import witnesses

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from checkers.verdict.judged import Judged
    from spark_history.jepsen import Imported

#: Up to so many operations are judged in memory, in this process: Spark takes longer to start than these take.
IN_MEMORY: Final = 200_000


@dataclass(frozen=True)
class Asked:
    """The options of `chaos check`. plan: entries that override those of plans."""

    workload: str | None = None
    keyed: bool | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    spark_ui_port: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Of one run or history. error: why it could not be judged; else there is a verdict (verdict.json's content).
    refused: because of what was asked."""

    path: str
    verdict: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    witnesses: Sequence[str] = ()  # lines: sentences and drawings
    directory: Path | None = None  # of a run with a summary of its own: a log's
    error: str | None = None
    refused: bool = False

    @property
    def exit_code(self) -> int:
        if self.error is not None:
            return ExitCode.BAD_ARGUMENTS if self.refused else ExitCode.HARNESS_FAILURE
        return int(self.verdict["exit_code"])

    @property
    def word(self) -> str:
        return NOT_JUDGED if self.error is not None else str(self.verdict["verdict"])


class Judge:
    """Judges one source after the other, with one Spark session at most."""

    def __init__(
        self, asked: Asked, say: Callable[[str], None], judge_log: Callable[[Path], Mapping[str, Any]]
    ) -> None:
        """say: what is going on. judge_log: the verdict on a run of a log, as harness.run.run.check gives it."""
        self._asked = asked
        self._say = say
        self._judge_log = judge_log

    def judge(self, source: HistorySource) -> list[Outcome]:
        """A dataset has many outcomes, anything else one. Raises only what is not of the source."""
        if source.kind == "address":
            return self._brought(source.address)
        self._say(f"{'reading' if source.kind == 'history' else 'checking'} {source.path}")
        try:
            if source.kind == "dataset":
                return self._dataset(source.path)
            return [self._history(source.path) if source.kind == "history" else self._run(source.path)]
        except Exception as error:
            if _is_spark_unavailable(error):
                raise HarnessFailure(str(error)) from error
            return [_not_judged(str(source.path), error)]

    def _brought(self, address: str) -> list[Outcome]:
        """What lies at an address, under its own name, and what was written of it sent back there."""
        from spark_history.spark.locations import brought_here
        from spark_history.spark.session import SparkUnavailable

        self._say(f"bringing {address} here")
        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            try:
                with brought_here(address, self._spark(Path(scratch) / "spark.log")) as copy:
                    inside = find([str(copy.path)], Path(scratch))
                    outcomes = [each for source in inside for each in self.judge(source)]
                    notes = copy.send_back()
            except SparkUnavailable as error:
                raise HarnessFailure(str(error)) from error
            except HarnessFailure:
                raise
            except Exception as error:
                return [_not_judged(address, error)]
        here = str(copy.path)

        def there(text: str) -> str:
            return text.replace(here, address)

        return [
            replace(
                each,
                path=there(each.path),
                notes=[*each.notes, *notes],
                directory=None,
                error=each.error and there(each.error),
            )
            for each in outcomes
        ]

    def _run(self, directory: Path) -> Outcome:
        plan = results.read_json(directory / "plan.json")
        # Without a plan that can be read, the family says so.
        manifest = results.read_json(directory / "history" / "manifest.json")
        plan = {"workload": manifest.get("workload"), **plan}
        check_choices(plan["workload"], self._asked.plan)
        family = family_of(plan["workload"])
        if family is None:
            return Outcome(str(directory), self._judge_log(directory), directory=directory)
        import pyarrow as pa

        from checkers.anomalies import ANOMALIES
        from checkers.verdict import judged, keeping
        from spark_history.files import write_parquet

        found: list[Judged] = []

        def judge(place: Path) -> dict[str, Any]:
            spark = self._spark(place / "spark.log") if _count(place) > IN_MEMORY else None
            found.extend(family.check_directories([place], spark, self._asked.plan))
            verdict = judged.verdict(found[0], {**plan, **self._asked.plan})
            rows = pa.Table.from_pylist(found[0].rows, schema=ANOMALIES)
            write_parquet(place / "anomalies.parquet", rows)
            return keeping.keep(place, verdict, asked=self._asked.plan)

        verdict = room.judged(directory, judge)
        return Outcome(str(directory), verdict, witnesses=witnesses.lines_of(found[0].rows, found[0].origin))

    def _dataset(self, directory: Path) -> list[Outcome]:
        from checkers.dataset import check_dataset

        check_choices(None, self._asked.plan)
        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            verdicts = check_dataset(directory.resolve(), self._spark(Path(scratch) / "spark.log"))
        if not verdicts:
            raise HarnessFailure(f"{directory} lists no run: what was to be judged was not written, or is gone")
        return [Outcome(f"{directory}:{verdict['run']}", verdict, witnesses=examples(verdict)) for verdict in verdicts]

    def _history(self, path: Path) -> Outcome:
        from spark_history.jepsen import read_history

        imported = read_history(path, workload=self._asked.workload, keyed=self._asked.keyed, given=self._asked.plan)
        count, workload = imported.operations, imported.plan["workload"]
        check_choices(workload, self._asked.plan)
        reported = f"{count:,} operation{'s' * (count != 1)}"
        self._say(f"checking {path}: {reported} of {workload}, in {imported.notation}")
        family = family_of(workload)
        if family is None:
            verdict, rows, origin = self._imported_log(imported)
        else:
            from checkers.verdict import judged

            found = self._imported(family, imported)
            found.undecided += imported.doubts
            verdict, rows, origin = judged.verdict(found, imported.plan), found.rows, found.origin
        verdict = {**verdict, "workload": workload, "source": str(path)}
        return Outcome(str(path), verdict, imported.notes, witnesses.lines_of(rows, origin))

    def _imported(self, family: Any, imported: Imported) -> Judged:
        if imported.operations <= IN_MEMORY:
            judged: Judged = family.check_tables(imported.plan, imported.tables)
            return judged
        with tempfile.TemporaryDirectory(prefix="chaos-check-") as scratch:
            directory = Path(scratch) / "run"
            family.write_history(directory, imported.plan, imported.tables)
            (judged,) = family.check_directories([directory], self._spark(directory / "spark.log"))
            return judged

    def _imported_log(self, imported: Imported) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
        """Verdict, anomalies and the first invocation."""
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

    def _spark(self, log: Path) -> SparkSession:
        from spark_history.spark.session import start_in_background

        return start_in_background(ui_port=self._asked.spark_ui_port, log=log).result()


def _is_spark_unavailable(error: Exception) -> bool:
    """Without importing Spark, which most of what is checked has no need of."""
    session = sys.modules.get("spark_history.spark.session")
    return session is not None and isinstance(error, session.SparkUnavailable)


def family_of(workload: Any) -> Any:
    """What judges histories of the workload: check_tables, check_directories, write_history. None: it is a log's."""
    from spark_history.jepsen import FAMILY

    module = FAMILY.get(workload) if isinstance(workload, str) else None
    return None if module is None else import_module(module)


def _count(directory: Path) -> int:
    """Rows of the history of a run that is no log's, as far as it can be read: the checkers say what cannot."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from spark_history.errors import HistoryError
    from spark_history.jepsen.export.tables import SCHEMAS, files
    from spark_history.regular import require_regular

    rows = 0
    for table in SCHEMAS:
        with suppress(HistoryError):
            for path in files(directory, table):
                with suppress(OSError, ValueError, pa.ArrowException):
                    require_regular(path)
                    rows += pq.read_metadata(path).num_rows
    return rows


def _not_judged(path: str, error: Exception) -> Outcome:
    from spark_history.errors import HistoryError
    from spark_history.jepsen.guess import Undecided

    text = str(error) if isinstance(error, HistoryError) else describe(error)
    if not isinstance(error, HistoryError | HarnessFailure | BadArguments | OSError):
        logging.getLogger(__name__).debug("%s was not judged", path, exc_info=error)
        text = f"internal error: {text}"
    elif isinstance(error, HistoryError) and path not in text:  # it is of some operation
        text = f"{path}: {text}"
    return Outcome(path, error=" ".join(text.split()), refused=isinstance(error, BadArguments | Undecided))


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


def examples(verdict: Mapping[str, Any]) -> list[str]:
    """A sentence for each property that does not hold."""
    return [each["example"] for each in verdict.get("anomalies", {}).values() if each.get("example")]


def worst(outcomes: Sequence[Outcome]) -> ExitCode:
    """Not judged > refused > fail > unknown > pass."""
    order = (ExitCode.HARNESS_FAILURE, ExitCode.BAD_ARGUMENTS, ExitCode.FAIL, ExitCode.UNKNOWN)
    return next((code for code in order if any(each.exit_code == code for each in outcomes)), ExitCode.PASS)


def check_workload(workload: str | None) -> None:
    """Raises BadArguments."""
    if workload is None:
        return
    from spark_history.jepsen import WORKLOADS

    if workload not in WORKLOADS:
        raise BadArguments(f"--workload {workload!r} is none that a history can be of; valid: {', '.join(WORKLOADS)}")


#: Entries of plans that only some workloads have.
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "consistency": ("list-append", "rw-register"),
    "wfr_keys": ("rw-register",),
    "sequential_keys": ("rw-register",),
    "linearizable_keys": ("rw-register",),
    "initial": ("register", "cas-register", "kv", "counter", "multi-register", "rw-register"),
    "total_amount": ("bank",),
    "negative_balances": ("bank",),
    "group_size": ("long-fork",),
    "linearizable": ("set-full",),
    "nil_reads": ("register", "cas-register"),
    "failed_cas": ("register", "cas-register"),
}


#: Of such an entry, the option, where it is called otherwise.
_FLAGS: Final = {"negative_balances": "allow-negative-balances"}


def check_choices(workload: Any, asked: Mapping[str, Any]) -> None:
    """asked: entries that override the plan's. Raises BadArguments for one that would change nothing."""
    for name in asked:
        if workload not in CHOICES.get(name, (workload,)):
            raise BadArguments(
                f"--{_FLAGS.get(name, name).replace('_', '-')} is for {', '.join(CHOICES[name])}, and this is of "
                f"{workload or 'logs'}; leave it out"
            )
