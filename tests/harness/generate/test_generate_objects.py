"""Generated histories of objects are what their labels say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkers.verdict.judged import verdict
from harness.errors import BadArguments
from harness.generate.object_defects import DEFECTS_OF
from harness.generate.objects import generate
from harness.record.judging import family_of

CASES = [(workload, defect) for workload, defects in DEFECTS_OF.items() for defect in (None, *defects)]


@pytest.mark.parametrize(("workload", "defect"), CASES)
def test_label_is_true(tmp_path: Path, workload: str, defect: str | None) -> None:
    for number, (operations, processes) in enumerate(((1, 1), (20, 3), (2000, 7))):
        directory = tmp_path / str(number)
        label = generate(
            directory, operations=operations, processes=processes, seed=number, defect=defect, workload=workload
        )
        assert label == json.loads((directory / "plan.json").read_text())["label"]
        (judged,) = family_of(workload).check_directories([directory])
        word = verdict(judged, {})["verdict"]
        found = {anomaly for of, anomaly, _, _ in judged.tally if not of.endswith(", allowed")}
        if defect is None:
            assert not found and (word == "pass" or operations < 2000), (judged.rows, judged.undecided)
            continue
        assert label["anomaly"] in found and word == "fail", (found, judged.undecided)
        planted = {op for place in label["places"] for op in place["ops"]}
        assert all(planted & set(row["ops"]) for row in judged.rows if row["anomaly"] == label["anomaly"])


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match="--defect lost is none of workload bank; there are wrong-total"):
        generate(tmp_path, operations=10, processes=1, seed=0, defect="lost", workload="bank")
    with pytest.raises(BadArguments, match="at least one operation"):
        generate(tmp_path, operations=0, processes=1, seed=0, workload="bank")
