"""Generated histories of registers are what their labels say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from checkers import registers
from checkers.models import bounds
from harness.errors import BadArguments
from harness.generate.registers import DEFECTS_OF, generate


def judge(directory: Path) -> Any:
    (judged,) = registers.check_directories([directory])
    return judged


SHAPES: list[dict[str, Any]] = [
    {"operations": 1_000, "processes": 5},
    {"operations": 30_000, "processes": 30, "keys": 100},
    {"operations": 100_000, "processes": 30, "info": 0.05},
    {"operations": 3_000, "processes": 5, "keys": 10, "cas": 0.5, "values": 5},
    {"operations": 30_000, "processes": 10, "keys": 3, "cas": 0.5},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("defect", [None, *DEFECTS_OF["cas-register"]])
def test_label_is_true(
    tmp_path: Path, shape: dict[str, Any], defect: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FIRST_S", 60)  # also keys that are not needed for the verdict, on whatever machine
    if defect == "lost-update" and "cas" not in shape:
        pytest.skip("needs cas")
    label = generate(tmp_path / "run", seed=7, defect=defect, **shape)
    judged = judge(tmp_path / "run")
    assert not judged.undecided
    assert label["verdict"] == ("fail" if judged.tally else "pass")
    if defect is None:
        assert judged.counts["operations"] == shape["operations"]
        return
    assert {anomaly for _, anomaly, _, _ in judged.tally} == {label["anomaly"]}
    planted = {op for place in label["at"]["places"] for op in place["ops"]}
    assert sum(witnesses for _, _, witnesses, _ in judged.tally) >= (1 if "cas" in shape else 5)
    assert all(planted & set(row["ops"]) for row in judged.rows)


def test_processes_do_one_thing_at_a_time_and_rows_are_in_order(tmp_path: Path) -> None:
    generate(tmp_path / "run", operations=20_000, processes=7, seed=3, defect="split-brain", keys=9, info=0.1)
    files = sorted((tmp_path / "run" / "history" / "registers").iterdir())
    assert len(files) > 1
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert [row["op"] for row in rows] == list(range(len(rows)))
    order = [(row["key"], row["invoke"]) for row in rows]
    assert order == sorted(order)
    assert [row["invoke"] for row in rows] == sorted(row["invoke"] for row in rows)
    keys = [{row["key"] for row in pq.read_table(file).to_pylist()} for file in files]
    assert sum(map(len, keys)) == 9, "all of a key in one file"
    busy: dict[int, dict[str, Any]] = {}
    for row in rows:
        before = busy.get(row["process"])
        assert before is None or (before["outcome"] != "info" and before["complete"] <= row["invoke"])
        busy[row["process"]] = row


def test_same_seed_same_history(tmp_path: Path) -> None:
    for name in ("a", "b"):
        generate(tmp_path / name / "run", operations=5_000, processes=5, seed=9, defect="phantom", keys=3)
    one, other = (sorted((tmp_path / name).rglob("*.parquet")) for name in ("a", "b"))
    assert [pq.read_table(path) for path in one] == [pq.read_table(path) for path in other]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"defect": "frob"}, "--defect frob is none of workload register; there are stale-read, "),
        ({"defect": "lost-update"}, "--defect lost-update is none of workload register"),
        ({"keys": 11}, "10 operations cannot be divided among 11 keys"),
        ({"info": 2.0}, "the share of info must lie between 0 and 1, not 2"),
        ({"processes": 0}, "processes must be at least 1, not 0"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArguments, match=message):
        generate(tmp_path / "run", **{"operations": 10, "processes": 2, "seed": 1, "defect": None, **options})
