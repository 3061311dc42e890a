"""Judge many short runs: each in memory, by the functions that judge a long one in segments.

`check_dataset` is one Spark job over a dataset (spark_history/dataset.py), a task a few files, without a shuffle: a
file holds whole runs. `check_tables` judges one run and needs no Spark, e.g. to shrink a schedule that fails. The
verdicts are those of checkers.check(), but for `attribution`: which fault took each lost record is told once a run has
a directory of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers import balance, groups
from checkers.anomalies import Anomalies, examples
from checkers.inside import collected, log_matching, nodes
from checkers.inside.log_matching import InSync
from checkers.inside.violation import Violation
from checkers.log import availability, deletion
from checkers.log import linearizability as log_linearizability
from checkers.log import quick as log_quick
from checkers.log.scope import Options, Scope, lasting_topic
from checkers.log.segment import Segment
from checkers.properties import LOG_LINEARIZABILITY, LOST_APPEND
from checkers.verdict import own, verdict
from checkers.witness import explain, named_operations, steps_of
from spark_history.damage import Damage, unreadable
from spark_history.dataset import RUNS, Part, list_parts, read_run, read_whole
from spark_history.errors import HistoryError
from spark_history.files import Ints, compact, equals, integers, read_row_group
from spark_history.ingest import read_faults
from spark_history.lane import lay_out_run, split_run
from spark_history.log import NOWHERE, Log
from spark_history.regular import require_regular
from spark_history.schema import TABLES
from spark_history.spark.tasks import Engine, Unit, run_tasks, shared

if TYPE_CHECKING:
    from checkers.transactions.runs import OfTransactions

_NAMES: Final = pa.schema([RUNS.field("run")])


def check_dataset(path: Path, engine: Engine) -> list[dict[str, Any]]:
    """The verdict on every run of a dataset (see verdict.py), in the order of their names. A run that cannot be judged,
    or a part of which is damaged, is `unknown`, with the reason; the others are judged. Raises HistoryError if Spark
    does not see the dataset."""
    (path,) = shared(engine, [path])
    parts = [{"dataset": str(path), "part": name} for name in list_parts(path)]
    rows = [row for result in run_tasks(engine, check_part, parts) for row in result["verdict"].to_pylist()]
    return sorted((json.loads(row) for row in rows), key=lambda verdict_: str(verdict_["run"]))


def check_part(unit: Unit) -> pa.Table:
    """The runs of the files of one name, a row of JSON each."""
    directory, name = Path(unit["dataset"]), unit["part"]
    try:
        verdicts = _check_runs(read_whole(directory, name))
    except HistoryError as error:
        verdicts = _check_what_is_sound(directory, name, str(error))
    return pa.table({"verdict": pa.array([json.dumps(each) for each in verdicts], pa.string())})


def _check_runs(part: Part) -> list[dict[str, Any]]:
    runs = list(part.runs())
    options: list[Options] = []
    bad: dict[int, str] = {}
    for number, run in enumerate(runs):
        try:
            options.append(_options(run.plan, read_faults(run.tables["faults"])))
        except HistoryError as error:
            options.append(Options())
            bad[number] = str(error)
    operations, reads = part.tables["operations"], part.tables["reads"]
    clean = log_quick.count_clean(operations, reads, (part.lengths["operations"], part.lengths["reads"]), options)
    verdicts = []
    for number, (run, counts) in enumerate(zip(runs, clean, strict=True)):
        try:
            if number in bad:
                raise HistoryError(bad[number])
            verdicts.append(check_tables(run.plan, run.tables, run.doubts, run.violation, counts=counts))
        except HistoryError as error:
            verdicts.append(_nothing(str(run.plan.get("run")), run.plan, run.violation, str(error)))
    return verdicts


def _check_what_is_sound(directory: Path, name: str, why: str) -> list[dict[str, Any]]:
    """Of the files of that name, one of which is damaged: each run is a row group of its own in all of them."""
    paths = [directory / table / name for table in (*TABLES, "runs")]
    damaged = [
        (f"{path.parent.name}/{name}", reason) for path in paths if path.exists() for _, reason in unreadable([path])
    ]
    verdicts = []
    for number in range(max(_groups(directory / table / name) for table in ("runs", "operations"))):
        try:
            run = read_run(directory, name, number)
        except HistoryError as error:
            row = _row(directory, name, number)
            violation = json.loads(row["violation"] or "null")
            verdicts.append(_nothing(row["run"], json.loads(row["plan"]), violation, str(error), damaged))
            continue
        try:
            verdicts.append(check_tables(run.plan, run.tables, run.doubts, run.violation))
        except HistoryError as error:
            verdicts.append(_nothing(str(run.plan.get("run")), run.plan, run.violation, str(error)))
    return verdicts or [_nothing(f"the runs in {name}", {}, None, why, damaged)]


def _groups(path: Path) -> int:
    try:
        require_regular(path)
        return int(pq.read_metadata(path).num_row_groups)
    except (OSError, pa.ArrowException):
        return 0


def _row(directory: Path, name: str, number: int) -> dict[str, Any]:
    """RUNS of one run, or what another file tells of it."""
    for table, schema in (("runs", RUNS), ("operations", _NAMES)):
        try:
            rows, _ = read_row_group(directory / table / name, schema, number)
        except HistoryError:
            continue
        if rows.num_rows:
            row: dict[str, Any] = rows.slice(0, 1).to_pylist()[0]
            return {"plan": "{}", "violation": None} | row
    return {"run": f"run {number} in {name}", "plan": "{}", "violation": None}


def _nothing(
    run: str,
    plan: Mapping[str, Any],
    violation: Mapping[str, Any] | None,
    why: str,
    damaged: Sequence[Damage] = (),
) -> dict[str, Any]:
    """The verdict on a run that cannot be judged: `fail` if an invariant was violated, else `unknown`."""
    try:
        violated = None if violation is None else Violation.of(violation)
    except HistoryError as error:
        violated, damaged = None, [*damaged, ("violation.json", str(error))]
    return verdict.judge(verdict.nothing(run, plan, why, damaged=damaged, violation=violated))


def _options(plan: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> Options:
    return Options.of(plan, verdict.first_effective(faults))


@dataclass
class _Logs:
    """What was found in all logs of one run."""

    found: list[Anomalies]
    counts: Mapping[str, int]
    operations: dict[str, pa.Table]  # by the name of the log
    missing: list[str] = field(default_factory=list)  # logs whose final log is not known
    orphans: int = 0
    replica_records: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (node, partition)
    deletable: list[deletion.Log] = field(default_factory=list)  # unless the logs are known to be clean

    def match(
        self, run: str, log: Log, replica_logs: pa.Table, final: tuple[Ints, Ints], in_sync: InSync | None,
        *, sparse: bool = False,
    ) -> Anomalies:  # fmt: skip
        matched = Anomalies(run, log.topic, log.partition)
        segments = [log_matching.compare(replica_logs, final)]
        log_matching.judge(segments, matched, in_sync, sparse=sparse)
        self.replica_records.update(log_matching.records_of(f"{log.topic}-{log.partition}", segments))
        return matched


def _count_logs(run: str, tables: Mapping[str, pa.Table], counts: Mapping[str, int], in_sync: InSync | None) -> _Logs:
    """Of a run whose logs are clean: only its replica logs are still to be judged."""
    matching = tables["replica_logs"].num_rows or tables["collected"].num_rows
    split = split_run(tables, *(("operations", "reads", "replica_logs") if matching else ("operations",)))
    logs = _Logs([], counts, {f"{log.topic}-{log.partition}": own[0] for log, own in split})
    if matching:
        logs.found = [logs.match(run, log, own[2], _final_log(own[0], own[1]), in_sync) for log, own in split]
    return logs


def _final_log(operations: pa.Table, reads: pa.Table) -> tuple[Ints, Ints]:
    """Offsets and values of the final log of a clean log, in which every offset of it was read once."""
    final = integers(operations, "op", NOWHERE)[equals(operations, "kind", "final_read")]
    op, offset, value = (integers(reads, name, NOWHERE) for name in ("op", "offset", "value"))
    rows = np.flatnonzero(np.isin(op, final))
    rows = rows[np.argsort(offset[rows], kind="stable")]
    return offset[rows], value[rows]


def _judge_logs(
    run: str,
    tables: Mapping[str, pa.Table],
    options: Options,
    origin: int,
    faults: Sequence[Mapping[str, Any]],
    in_sync: InSync | None,
) -> _Logs:
    judged: list[Anomalies] = []
    settled: list[Anomalies] = []
    matched: list[Anomalies] = []
    counts: Counter[str] = Counter()
    logs = _Logs([], counts, {})
    for log, laid_out, replica_logs in lay_out_run(tables):
        scope = Scope(
            run, log.topic, log.partition, 0, None, options.final(laid_out.final_reads), laid_out.end, origin, options
        )  # fmt: skip
        of_log, of_candidates, own = log_linearizability.judge_log(Segment(scope, laid_out.operations, laid_out.reads))
        if named := [op for anomalies in (of_log, of_candidates) for row in anomalies.rows for op in row["ops"]]:
            steps = steps_of(named_operations(laid_out.operations, named))
            for row in (*of_log.rows, *of_candidates.rows):
                explain(row, steps, faults)
        judged.append(of_log)
        settled.append(of_candidates)
        counts.update(own)
        final = log_matching.final_log(laid_out.reads)
        matched.append(logs.match(run, log, replica_logs, final, in_sync, sparse=options.sparse))
        logs.operations[scope.log] = laid_out.operations
        logs.deletable.append(deletion.Log(log.topic, log.partition, [laid_out.operations], scope.final_reads))
        logs.orphans += laid_out.orphans
        if not options.complete(laid_out.final_reads):
            logs.missing.append(scope.log)
    logs.found = [*judged, *settled, *matched]
    return logs


def check_tables(
    plan: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    doubts: Sequence[str] = (),
    violation: Mapping[str, Any] | None = None,
    rows: list[dict[str, Any]] | None = None,
    counts: Mapping[str, int] | None = None,
    healed: int | None = None,
    ended: str = "",
) -> dict[str, Any]:
    """The verdict on one run whose history is in memory: that which checkers.check() gives on its directory.

    plan: the content of plan.json; tables: by the names of spark_history.schema.TABLES, the pending appends in
    `operations` (MemoryRecorder.tables() or load_journal()); doubts: see verdict.Evidence; violation: the content of
    violation.json; rows: gets the anomalies (ANOMALIES); counts: of a run whose logs are known to be clean
    (log/quick.py); healed: when all faults were, monotonic ns (of consumer groups); ended: see verdict.Evidence. Raises
    HistoryError.
    """
    faults = read_faults(tables["faults"])
    options = _options(plan, faults)
    operations = tables["operations"]
    origin = pc.min(operations["invoke"]).as_py() or 0
    until = max(pc.max(operations[name]).as_py() or 0 for name in ("invoke", "complete"))
    run = str(plan.get("run") or (operations["run"][0] if operations.num_rows else ""))

    of_nodes = nodes.judge(run, tables, nodes.Options.of(plan), faults)
    in_sync = collected.in_sync(of_nodes, options) if not doubts and violation is None else None
    if counts is None:
        logs = _judge_logs(run, tables, options, origin, faults, in_sync)
    else:
        logs = _count_logs(run, tables, counts, in_sync)
    found = [*logs.found, balance.check(run, faults, origin)]
    deleted = None
    if not doubts and violation is None and deletion.applies(plan):
        deleted = deletion.check(plan, run, logs.deletable, faults)
        found.append(deleted.anomalies)
    of_groups = None
    if groups.applies(plan):
        facts = groups.Facts(run, plan, faults, origin, until, healed)
        of_groups = groups.check(facts, tables["group_events"], groups.acknowledged(_by_log(operations)))
        found += of_groups.anomalies
    of_transactions = _judge_transactions(run, plan, tables, healed)
    of_own = own.look(
        plan, frozenset(), faults, (origin, until), partial(_whole_table, tables), run=run,
        recovered=not doubts and violation is None,
    )  # fmt: skip
    if of_own is not None:
        found += of_own.anomalies
    witnessed = [row for anomalies in found for row in anomalies.rows]
    unfinished = [*logs.missing, *verdict.absent(plan, logs.operations)]
    if of_transactions is not None:
        witnessed += of_transactions.rows
    if rows is not None:
        rows += [*witnessed, *of_nodes.rows]
    return verdict.judge(
        verdict.Evidence(
            run=run,
            plan=plan,
            tally=[
                *(entry for anomalies in found for entry in anomalies.tally),
                *of_nodes.tally,
                *(of_transactions.tally if of_transactions is not None else ()),
            ],
            counts=logs.counts,
            faults=faults,
            complete=bool(logs.operations) and not unfinished,
            missing=unfinished,
            origin=origin,
            until=until,
            replica_records=tables["replica_logs"].num_rows if logs.operations else 0,
            gaps=collected.gaps_of(plan, of_nodes, logs.replica_records, logs.operations),
            orphans=logs.orphans,
            doubts=doubts,
            ended=ended,
            violation=None if violation is None else Violation.of(violation),
            examples=examples([*witnessed, *of_nodes.rows]),
            nodes=of_nodes,
            lost_in=verdict.places_of(witnessed, "anomaly", LOST_APPEND),
            wrong_in=verdict.places_of(witnessed, "property", LOG_LINEARIZABILITY),
            availability=availability.of_tables(logs.operations.items(), faults, origin, lasting_topic(plan)),
            deletion=deleted,
            groups=of_groups,
            transactions=of_transactions,
            own=of_own,
            not_judged=[
                why for judged in (of_groups, of_transactions, of_own) if judged is not None for why in judged.undecided
            ],
        )
    )


def _judge_transactions(
    run: str, plan: Mapping[str, Any], tables: Mapping[str, pa.Table], healed: int | None
) -> OfTransactions | None:
    """Of a run whose plan has some."""
    if not plan.get("transactions"):
        return None
    from checkers.transactions import runs  # which takes long to import

    record = {} if healed is None else {"healed_ns": healed}
    return runs.check(run, plan, tables, record) if runs.applies(plan) else None


def _whole_table(tables: Mapping[str, pa.Table], name: str) -> pa.Table:
    """For a checker of the user's own: see checkers.verdict.own.TABLES."""
    table = tables[name].cast(TABLES[name])
    return table.sort_by("op") if name in ("operations", "calls") else table


def _by_log(operations: pa.Table) -> Iterator[tuple[str, int, list[pa.Table]]]:
    """The operations of each partition; texts as dictionaries."""
    operations = operations.cast(compact(operations.schema))
    appends = operations.filter(pc.equal(operations["kind"], "append"))
    for log in appends.group_by(["topic", "partition"]).aggregate([]).to_pylist():
        if log["topic"] is not None and log["partition"] is not None:
            of_log = pc.and_(pc.equal(appends["topic"], log["topic"]), pc.equal(appends["partition"], log["partition"]))
            yield log["topic"], log["partition"], [appends.filter(of_log)]
