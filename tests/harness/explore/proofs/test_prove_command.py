"""`chaos prove` from its arguments to what it prints and keeps."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.explore.proofs import mutation
from harness.explore.proofs.mutation import sample, settings
from harness.explore.proofs.pinned import FILE
from harness.explore.proofs.search import Search
from harness.explore.source import Seeds
from harness.plan import registry
from harness.plan.plan import Plan
from harness.runtimes.simulation.mutants.places import mutants_of


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


def options_of(bug: str) -> str:
    return next(options for target in registry.targets() for id_, options, _ in target.bugs() if id_ == bug)


def test_a_bug_is_found_shrunk_repeated_and_gone_without_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, pin = tmp_path / "bugs.md", tmp_path / FILE
    asked = ("M67", "--searches", "2", "--most-runs", "3", "--shrinking", "8", "--workers", "1", "--page", str(page))
    assert chaos("prove", *asked, "--pin", str(pin), "--results", str(tmp_path / "results")) == 0
    printed = capsys.readouterr().out
    assert "| M67 |" in printed and "QuorumState" in printed and "1 of 1 found, 1 proven" in printed
    (file,) = (tmp_path / "results").glob("*/proofs.json")
    (row,) = json.loads(file.read_text())["bugs"]
    assert [search["runs"] for search in row["searches"]] == [1, 1]
    assert [search["found"]["seed"] for search in row["searches"]] == [0, 1000]
    assert row["smallest"]["repeats"] and row["smallest"]["without"] == "pass" and row["smallest"]["story"]
    assert "`chaos prove M67 --budget 300 --searches 2 --most-runs 3 --shrinking 8`" in page.read_text()
    assert "**M67**" in page.read_text()
    assert json.loads(pin.read_text())["M67"]["broken"] == "QuorumState"
    other = ("M67", "--searches", "1", "--most-runs", "3", "--resume", str(file.parent))
    assert chaos("prove", *other, "--results", str(tmp_path / "other")) == 254
    assert "was made with --searches 2, not 1" in capsys.readouterr().err and not (tmp_path / "other").exists()
    goes_on = ("M67", "M30", *asked[1:7], "--workers", "2", "--resume", str(file.parent))
    assert chaos("prove", *goes_on, "--page", str(page), "--results", str(tmp_path / "next")) == 2
    (next_file,) = (tmp_path / "next").glob("*/proofs.json")
    before, after = json.loads(next_file.read_text())["bugs"]
    assert before == row and (after["id"], after["found"]) == ("M30", False)
    assert "1 of 2 found" in page.read_text() and "**M67**" in page.read_text()


def test_a_bug_that_is_not_found_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("M30", "--searches", "1", "--most-runs", "1", "--workers", "1")
    assert chaos("prove", *asked, "--results", str(tmp_path)) == 2
    printed = capsys.readouterr().out
    assert "not found" in printed and "> 1" in printed


@pytest.mark.parametrize(("arguments", "said"), [
    (("M00",), "there is no bug M00"),
    (("M15", "--searches", "0"), "--searches is 0; valid is 1 to 100"),
    (("M15", "--most-runs", "1001"), "--most-runs is 1001; valid is 1 to 1,000"),
    (("M15", "--corpus", "nowhere"), "needs --guided or --compare"),
    (("M15", "--budget", "0"), "--budget is 0; it must be above 0"),
    (("M15", "--budget", "abc"), "--budget: 'abc' is no time"),
    (("M15", "--shrinking", "0"), "--shrinking is 0; valid is 1 to 100,000"),
    (("M15", "--states", "5"), "--states is of --compare"),
    (("--pinned", "--mutants"), "--mutants and --pinned do not go together"),
    (("--pinned", "M15", "--pin", "x.json"), "--pinned does not go by --pin"),
    (("--mutants", "--searches", "2"), "--mutants does not go by --searches"),
    (("--compare", "M15", "--resume", "x"), "--compare does not go by --resume"),
    (("--pinned", "M30"), "no smallest run of M30 is kept"),
    (("M15", "--page", "/nowhere/x.md"), "--page /nowhere/x.md: there is no directory /nowhere"),
    (("M15", "--guided", "--corpus", "/nowhere"), "--corpus /nowhere has no runs to begin with"),
    (("--mutants", "kraft.nothing"), "no mutant's id begins with kraft.nothing"),
    (("--mutants", "kraft.broker.rules", "zzz"), "no mutant's id begins with zzz"),
    (("M15", "--resume", "nowhere"), "nowhere/proofs.json cannot be read"),
    (("--mutants", "kraft.broker.rules", "--resume", "nowhere"), "nowhere/mutants.json cannot be read"),
])  # fmt: skip
def test_bad_arguments_get_one_sentence(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chaos("prove", *arguments, "--results", str(tmp_path / "results")) == 254
    assert said in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("damaged", [
    '{"bugs": [{"id": "M15"}]}', '{"bugs": 5}', "[]", "{",
    '{"bugs": [{"id": "M15", "holds": true, "options": "OPTIONS", "searches": [{"found": null, "runs": 1}]}]}',
])  # fmt: skip
def test_what_another_wrote_is_refused_at_once(
    damaged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "proofs.json").write_text(damaged.replace("OPTIONS", options_of("M15")))
    assert chaos("prove", "M15", "--resume", str(tmp_path), "--results", str(tmp_path / "results")) == 254
    assert "is not what chaos prove writes" in capsys.readouterr().err
    (tmp_path / FILE).write_text(damaged[:1])
    assert chaos("prove", "M15", "--pin", str(tmp_path / FILE), "--results", str(tmp_path / "results")) == 254
    assert "is not what chaos prove --pin writes" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_search_for_a_mutant_that_was_given_up_has_not_shown_that_it_survives() -> None:
    (mutant,) = (each.mutant for each in sample(("kraft.broker.rules:may_join_isr:comparison:0",)))
    search = Search(mutant.id, Seeds.of(Plan(run="r", on="simulation"), [0, 3, 5, 9]), 1.0)
    search._looked_at = 2
    measured = mutation.Measured.by(search, mutant, 40, 4)
    assert (measured.outcome, measured.runs) == ("given up", 5), "of the seeds 0 to 4"
    assert mutation.Measured.read(measured.as_dict(), mutant) == measured
    told = list(mutation.summary([measured]))
    assert told[-1].startswith(f"given up  {mutant.id}") and told[-1].endswith("after 5 runs")
    assert "all          0 of 0 killed: none, 1 given up" in told
    page = mutation.page([measured], "today", 1)
    assert "0 of 0 are killed (none)" in page and "and 1 were given up before their runs were made" in page


def test_a_search_for_a_mutant_that_was_given_up_is_made_again(tmp_path: Path) -> None:
    asked = ("--mutants", "kraft.broker.rules:may_join_isr:comparison:0", "--workers", "1")
    (mutant,) = (each.mutant for each in sample(asked[1:2]))
    given_up = mutation.Measured(mutant, 40, 1.0, 1.0, None, None, given_up=True)
    (tmp_path / "mutants.json").write_text(json.dumps({"mutants": [given_up.as_dict()]}))
    assert chaos("prove", *asked, "--resume", str(tmp_path), "--results", str(tmp_path / "next")) == 0


def test_what_is_stopped_keeps_what_is_complete_and_says_how_to_go_on(tmp_path: Path) -> None:
    """Without a bug more: not even the results of an earlier one, which it went on from."""
    row = {"id": "M15", "title": "", "target": "kraft", "found": True, "holds": True, "clients_saw": {},
           "smallest": None, "problem": "", "options": options_of("M15"),
           "searches": [{"runs": 1, "simulated_s": 1.0, "wall_s": 1.0, "found": None}]}  # fmt: skip
    (tmp_path / "proofs.json").write_text(json.dumps({"bugs": [row]}))
    command = [sys.executable, "-m", "harness", "prove", "M15", "L03", "--resume", str(tmp_path), "--workers", "1"]
    process = subprocess.Popen(
        [*command, "--results", str(tmp_path / "next")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while not (files := list(tmp_path.glob("next/*/workers"))) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2 and "Traceback" not in err, err
    assert f"goes on with --resume {files[0].parent}" in out
    assert [each["id"] for each in json.loads((files[0].parent / "proofs.json").read_text())["bugs"]] == ["M15"]


def test_mutants_that_are_named_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--mutants", "kraft.broker.rules:may_join_isr:comparison:0", "--workers", "1")
    assert chaos("prove", *asked, "--results", str(tmp_path)) == 0
    assert "1 of 1 killed: 100.0%" in capsys.readouterr().out
    (file,) = tmp_path.glob("*/mutants.json")
    (told,) = json.loads(file.read_text())["mutants"]
    assert told["outcome"] == "killed" and told["property"] == "IsrExpands"
    page = tmp_path / "mutants.md"
    goes_on = (*asked, "--resume", str(file.parent), "--results", str(tmp_path / "next"), "--page", str(page))
    assert chaos("prove", *goes_on) == 0
    assert "1 of 1 killed: 100.0%" in capsys.readouterr().out
    (next_file,) = tmp_path.glob("next/*/mutants.json")
    assert json.loads(next_file.read_text())["mutants"] == [told]  # its time, too: it was not searched for again
    assert "1 of 1 are killed (100.0%)" in page.read_text() and "Killed by IsrExpands 1." in page.read_text()
    when = r"\(20\d\d-\d\d-\d\d, (commit [0-9a-f]{12}( with changes)?|checkers [0-9a-f]{12})\)"
    assert re.search(when, page.read_text())


def test_the_page_lists_what_survives_and_what_is_argued() -> None:
    of_rules = mutants_of("kraft.broker.partition")
    argued = next(each for each in of_rules if mutation.key(each) in mutation.argued())
    broken = next(each for each in of_rules if each.operator == "condition")
    measured = [mutation.Measured(argued, 40, 1.0, 1.0, None, None, mutation.argued()[mutation.key(argued)], 7),
                mutation.Measured(broken, 40, 1.0, 1.0, None, None, "", 9)]  # fmt: skip
    page = mutation.page(measured, "today", 360)
    assert "of 360 mutants drawn, 2 were measured; 0 of 1 are killed (0.0%), 1 more are argued" in page
    survived, equivalent = page.split("## Those that are argued")
    assert f"| {broken.id} | `{broken.before}` |" in survived and "| 9 |" in survived
    assert argued.id in equivalent and mutation.argued()[mutation.key(argued)] in equivalent


def test_the_sample_is_as_the_file_says_and_each_module_is_there() -> None:
    told, drawn = settings(), sample()
    assert len(drawn) == told["mutants"] >= 300
    share = told["mutants"] // len(told["operators"])
    for operator in told["operators"]:
        assert sum(each.mutant.operator == operator for each in drawn) == share
    assert len({each.mutant.id for each in drawn}) == len(drawn)
    assert all(mutants_of(module) for target in mutation.TARGETS for module in told[target]["modules"])
    assert sample() == drawn


def test_what_is_argued_is_there() -> None:
    """Code that has changed is argued anew."""
    modules = {function.partition(":")[0] for function in mutation.argued()}
    there = {mutation.key(mutant) for module in modules for mutant in mutants_of(module)}
    assert set(mutation.argued()) <= there
