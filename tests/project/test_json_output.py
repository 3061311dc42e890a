"""`--json` of each command, held against the schema that the documentation has of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.cli import app as cli
from tests import ROOT

SCHEMAS = ROOT / "docs" / "schemas"
SUITE = '[all]\non = "simulation"\ntime_limit = "8s"\nrate = 50\npartitions = 1\n[plans.kill]\nnemesis = "kill"\n'
FAILING = ("--on", "simulation", "--nemesis", "power-outage-cluster", "--time-limit", "20", "--rate", "50", "--seed=1")


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


def test_each_output_is_as_its_schema_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(SUITE)

    def said(schema: str, *arguments: str, lines: bool = False) -> list[Any]:
        capfd.readouterr()
        chaos(*arguments, "--json")
        output = capfd.readouterr()
        documents = [json.loads(text) for text in (output.out.splitlines() if lines else [output.out])]
        assert documents, output.err
        for document in documents:
            jsonschema.validate(document, json.loads((SCHEMAS / f"{schema}.json").read_text()))
        return documents

    (failed,) = said("verdict", "run", *FAILING, "--expect", "p99 < 1ms", "--run-name", "failed", "--quiet", lines=True)
    assert failed["verdict"] == "fail" and failed["thresholds"] and failed["attribution"]
    (dry,) = said("dryrun", "run", *FAILING, "--dry-run")
    assert [each["at"] for each in dry["faults"]] and dry["how"]["power-outage-cluster"]["inject"]
    assert said("verdict", "check", "failed", lines=True)[0]["path"] == "results/failed"
    events = said("suite", "suite", "mine.toml", lines=True)
    assert [each["event"] for each in events] == ["started", "finished", "ended"]
    (tmp_path / "table.toml").write_text(SUITE.replace("plans.kill", "columns.kill") + "[rows.one]\n")
    events_of_matrix = said("suite", "matrix", "table.toml", lines=True)
    assert [each["event"] for each in events_of_matrix] == ["started", "finished", "ended"]
    (logs,) = said("logs", "logs", "failed", "--around", "V1")
    assert logs["lines"] and {line["kind"] for line in logs["lines"]} >= {"trace", "operation"}
    passed = str(Path(events[2]["directory"]) / events[1]["directory"])
    (diff,) = said("diff", "diff", "failed", passed)
    assert diff["differing"] > 0
    said("note", "note", "failed", "looked at")
    (prune,) = said("prune", "results", "prune", "--keep", "0", "--dry-run")
    assert sorted(each["kind"] for each in prune["going"]) == ["matrix", "suite"]  # a run with a note is kept
    (explored,) = said("explore", "explore", "--seeds", "1..2", "--nemesis", "power-outage-cluster", "--bug", "M01")
    assert explored["totals"]["runs"] == 2
    everywhere = ("explore", "--every", "kill", "--of", "load", "--most", "2", "--depth", "2", "--workers", "1")
    (swept,) = said("systematic", *everywhere, "--results", "swept")
    assert swept["results"] == {"pass": 4} and swept["struck"] == 4
    (proven,) = said("prove", "prove", "M67", "M30", "--searches", "1", "--most-runs", "1", "--shrinking", "2")
    assert [bug["found"] for bug in proven["bugs"]] == [True, False]
    (compared,) = said("comparison", "prove", "M67", "--compare", "--states", "0", "--searches", "1")
    assert [each["what"] for each in compared["compared"]] == ["M67"]
    (mutants,) = said("mutants", "prove", "--mutants", "kraft.broker.rules:may_join_isr:comparison:0")
    assert [each["outcome"] for each in mutants["mutants"]] == ["killed"]
    (pinned,) = said("pinned", "prove", "M67", "--pinned")
    assert [each["id"] for each in pinned["pinned"]] == ["M67"]
    (shrunk,) = said("shrink", "shrink", "failed", "--budget", "3")
    assert shrunk["runs"] == 3 and "lost append" in shrunk["broken"] and shrunk["story"]


def test_every_schema_is_well_formed_and_in_the_documentation() -> None:
    text = (ROOT / "docs" / "json.md").read_text()
    assert sorted(set(re.findall(r"schemas/(\w+)\.json", text))) == sorted(path.stem for path in SCHEMAS.iterdir())
    for path in SCHEMAS.iterdir():
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))
