"""Labelled histories of logs, of any size: linearizable by construction, or with one defect planted.

Written as `chaos check` reads it (spark_history/ingest.py), without a journal; or as a journal, to be laid out; or many
runs as one dataset (spark_history/dataset.py). No replica's log is part of it, which plan.json says. Memory is bounded
by a chunk of one partition. The label is in plan.json:

    {"verdict": "pass", "fail" or, where no append is acknowledged, "unknown",
     "anomaly": what must be found, or null, "defect": name or null,
     "at": the first place, "places": [{"topic", "partition", "offset", "value"}, …]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from harness.errors import BadArguments
from harness.generate import check_defect, log_defects
from harness.generate.log_model import (
    APPEND,
    FINAL_READ,
    KINDS,
    NULLS,
    OK,
    ORIGIN,
    OUTCOMES,
    Chunk,
    LogModel,
    Shape,
    concatenate,
)
from spark_history import damage
from spark_history.dataset import DatasetWriter
from spark_history.files import compact, nullable, write_parquet
from spark_history.ingest import write_manifest
from spark_history.layout import lay_out_reads
from spark_history.log import NEVER, FinalReads, Log
from spark_history.schema import LAID_OUT_OPERATIONS, OPERATIONS, READS, TABLES

DEFECTS_OF: Final[Mapping[str, Mapping[str, str]]] = {
    "append": {name: f"{defect.what}: {defect.anomaly}" for name, defect in log_defects.DEFECTS.items()}
}
TOPIC: Final = "chaos"
MAX_PLACES: Final = 5
OPERATIONS_A_LOG: Final = 250  # at least: fewer operations have fewer partitions


def generate(
    directory: Path,
    *,
    operations: int,
    processes: int,
    seed: int,
    defect: str | None = None,
    partitions: int = 64,
    journal: bool = False,
) -> dict[str, Any]:
    """Write one run and return its label. journal: as it is recorded, not laid out. Raises BadArguments."""
    history = _History(directory.name, operations, processes, partitions, seed, defect)
    directory.mkdir(parents=True, exist_ok=True)
    finish = _write_journal(directory, history) if journal else _write_laid_out(directory, history)
    plan = history.plan()
    (directory / "plan.json").write_text(json.dumps(plan, indent=2) + "\n")
    finish()
    label: dict[str, Any] = plan["label"]
    return label


def generate_runs(
    directory: Path,
    *,
    runs: int,
    operations: int,
    processes: int,
    seed: int,
    defect: str | None = None,
    partitions: int = 64,
) -> dict[str, Any]:
    """A dataset of `runs` runs. With a defect every tenth run has it; labels are in each run's plan. Returns how many
    are labelled with each verdict. Raises BadArguments."""
    labels = {"pass": 0, "fail": 0}
    with DatasetWriter(directory, 0) as writer:
        for number in range(runs):
            planted = defect if number % 10 == 0 else None
            history = _History(f"run-{number:06}", operations, processes, partitions, (seed, number), planted)
            tables = {name: schema.empty_table() for name, schema in TABLES.items()}
            parts = [(operations_, reads) for _, operations_, reads in history.tables()]
            tables["operations"] = pa.concat_tables([part[0] for part in parts])
            tables["reads"] = pa.concat_tables([part[1] for part in parts])
            plan = history.plan()
            writer.add(plan, tables)
            verdict = plan["label"]["verdict"]
            labels[verdict] = labels.get(verdict, 0) + 1
    return labels


@dataclass
class _History:
    """What is to be written, log by log."""

    run: str
    operations: int
    processes: int
    partitions: int
    seed: Any
    defect: str | None
    places: list[dict[str, Any]] = field(default_factory=list)
    acknowledged: int = 0  # appends

    def __post_init__(self) -> None:
        check_defect("append", self.defect, DEFECTS_OF)
        self.partitions = min(self.partitions, max(self.operations // OPERATIONS_A_LOG, 1))
        share, rest = divmod(self.operations, self.partitions)
        self.shares = [share + (partition < rest) for partition in range(self.partitions)]
        self.shapes = [Shape.of(each) for each in self.shares]
        self._ops = count(self.operations)
        self._random = np.random.default_rng([7, *np.atleast_1d(self.seed).tolist()])
        self._strikes = self._choose() if self.defect is not None else {}

    def _choose(self) -> dict[int, list[int]]:
        """By partition, at about which offsets the defect strikes. One append lost is all after it lost, so that is
        done once a log."""
        places = min(MAX_PLACES, self.partitions) if self.defect == "lost-append" else MAX_PLACES
        once = self.defect == "lost-append"
        strikes: dict[int, list[int]] = {}
        for partition in self._random.choice(self.partitions, places, replace=not once).tolist():
            appends = self.shapes[partition].appends
            low = max(appends - log_defects.MAX_LOST, 0) if once else 0
            strikes.setdefault(partition, []).append(int(self._random.integers(low, max(appends, low + 1))))
        return strikes

    def chunks(self) -> Iterator[tuple[Chunk, LogModel]]:
        first_op = 0
        for partition, shape in enumerate(self.shapes):
            random = np.random.default_rng([*np.atleast_1d(self.seed).tolist(), partition])
            model = LogModel(partition, shape, self.processes, first_op, random)
            first_op += self.shares[partition]
            for chunk in model.chunks():
                self._plant(chunk, model)
                appended = (chunk.rows["kind"] == APPEND) & (chunk.rows["outcome"] == OK)
                self.acknowledged += int(np.count_nonzero(appended))
                if chunk.last:
                    chunk.rows = concatenate([chunk.rows, model.final_reads()], NULLS)
                yield chunk, model
        if self.defect is not None and not self.places:
            raise BadArguments(f"--operations {self.operations} leaves no place for --defect {self.defect}; give more")

    def _plant(self, chunk: Chunk, model: LogModel) -> None:
        wanted = sorted(o for o in self._strikes.get(chunk.partition, ()) if chunk.low <= o < chunk.high)
        if self.defect is None or not wanted:
            return
        free = log_defects.candidates(chunk)
        if self.defect == "lost-append":  # the nearest acknowledged one before, so that one is lost for certain
            free = np.flatnonzero(chunk.rows["outcome"][: chunk.high - chunk.low] == OK)
        for offset in wanted:
            if not len(free):
                return
            row = int(free[np.abs(free - (offset - chunk.low)).argmin()])
            free = free[np.abs(free - row) > 2 * log_defects.MAX_LOST]
            self.places.append({"topic": TOPIC, **chunk.place(row)})
            log_defects.DEFECTS[self.defect].plant(chunk, row, self._ops, model)

    def plan(self) -> dict[str, Any]:
        """Of a history whose chunks have all been made."""
        defect = log_defects.DEFECTS[self.defect] if self.defect else None
        verdict = "pass" if self.acknowledged else "unknown"
        label = {
            "verdict": "fail" if defect is not None and not defect.weak else verdict,
            "anomaly": defect.anomaly if defect is not None else None,
            "defect": self.defect,
            "at": self.places[0] if self.places else None,
            "places": self.places,
        }
        return {
            "run": self.run, "workload": "append", "source": "generated", "nemesis": [], "acks": "all",
            "min_insync_replicas": 2, "topic": TOPIC, "partitions": self.partitions, "operations": self.operations,
            "processes": self.processes, "seed": self.seed, "settings": {}, "replica_logs": False, "label": label,
        }  # fmt: skip

    def tables(self) -> Iterator[tuple[Chunk, pa.Table, pa.Table]]:
        """OPERATIONS and READS, a chunk at a time."""
        for chunk, _ in self.chunks():
            rows, records = chunk.rows, chunk.records
            order = np.flatnonzero(rows["kind"] >= APPEND)
            where = {"topic": _repeated(TOPIC, len(order)), "partition": np.full(len(order), chunk.partition, np.int32)}
            operations = self._operations({name: column[order] for name, column in rows.items()}) | where
            size = len(records["op"])
            reads = {
                "run": _repeated(self.run, size), "topic": _repeated(TOPIC, size),
                "partition": np.full(size, chunk.partition, np.int32),
            }  # fmt: skip
            reads |= {name: records[name] for name in ("op", "offset", "value")}
            yield chunk, _table(operations, OPERATIONS), _table(reads, READS)

    def _operations(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        size = len(rows["kind"])
        columns: dict[str, Any] = {
            "run": _repeated(self.run, size), "error": pa.nulls(size, pa.string()),
            "kind": _named(rows["kind"], KINDS), "outcome": _named(rows["outcome"], OUTCOMES),
            "leader_epoch": np.zeros(size, np.int32), "process": rows["process"].astype(np.int32),
        }  # fmt: skip
        plain = ("op", "invoke")
        return columns | {
            name: column if name in plain else nullable(column, NULLS[name])
            for name, column in rows.items()
            if name not in columns
        }


def _table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    schema = compact(schema)
    return pa.table([pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names], schema=schema)


def _repeated(text: str, size: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), [text])


def _named(codes: Any, names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), list(names))


_LAID_OUT: Final = pa.schema([each for each in LAID_OUT_OPERATIONS if each.name not in ("topic", "partition")])


def _write_laid_out(directory: Path, history: _History) -> Callable[[], None]:
    """What is to be called once plan.json is there: it writes the checksums."""
    path = directory / "history"
    segments, until = [], 0
    for chunk, model in history.chunks():
        rows, records = chunk.rows, chunk.records
        kept = np.flatnonzero(rows["kind"] >= APPEND)
        order = kept[np.argsort((2 * rows["position"] + (rows["kind"] == APPEND))[kept], kind="stable")]
        rows = {name: column[order] for name, column in rows.items()}
        torn = rows["op"][(rows["records"] > 0) & (rows["records"] != rows["last"] - rows["first"] + 1)]
        log = Log(TOPIC, chunk.partition)
        paths = {table: f"{table}/{log.folder}/{chunk.low:015}.parquet" for table in ("operations", "reads")}
        write_parquet(path / paths["operations"], _table(history._operations(rows), _LAID_OUT))
        write_parquet(path / paths["reads"], lay_out_reads(**records, torn=torn))
        sure = (rows["outcome"] == OK) & (rows["position"] >= 0)
        finals = FinalReads()
        if chunk.last:
            mine = np.flatnonzero(rows["kind"] == FINAL_READ)
            latest = int(mine[np.argmax(rows["invoke"][mine])])
            covered = ((0, model.end),) if model.end else ()
            time, op = (int(rows[name][latest]) for name in ("invoke", "op"))
            finals = FinalReads(covered, 0, model.end, time, op, first=0 if model.end else NEVER)
        completed = rows["complete"][rows["complete"] != NEVER]
        until = max(until, int(rows["invoke"].max()), int(completed.max(initial=0)))
        segments.append(
            {
                "topic": TOPIC, "partition": chunk.partition, "low": chunk.low,
                "high": None if chunk.last else chunk.high, "paths": paths, "final_reads": asdict(finals),
                "end": int((rows["position"] + (rows["kind"] == APPEND))[sure].max(initial=0)), "orphans": 0,
            }
        )  # fmt: skip
    return lambda: write_manifest(directory, history.run, segments, origin=ORIGIN, until=until)


def _write_journal(directory: Path, history: _History) -> Callable[[], None]:
    """As _write_laid_out()."""
    journal, number = directory / "journal", 0
    for number, (_, operations, reads) in enumerate(history.tables()):
        for name, table in (("operations", operations.cast(OPERATIONS)), ("reads", reads.cast(READS))):
            write_parquet(journal / f"{name}-{number:06}.parquet", table.replace_schema_metadata(damage.MARK))
    for table in ("faults", "replica_logs"):
        write_parquet(journal / f"{table}-000000.parquet", TABLES[table].empty_table())
    pending = OPERATIONS.empty_table().replace_schema_metadata(damage.MARK)
    write_parquet(journal / f"pending-{number:06}.parquet", pending)
    return lambda: damage.write_checks(directory, number)
