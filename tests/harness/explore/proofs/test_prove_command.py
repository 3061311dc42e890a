"""`chaos prove` from its arguments to what it prints and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.explore.proofs import mutation
from harness.explore.proofs.mutation import sample, settings
from harness.explore.proofs.pinned import FILE
from harness.runtimes.simulation.mutants.places import mutants_of


def chaos(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)  # type: ignore[arg-type]


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
    assert "`chaos prove M67 --budget" in page.read_text() and "**M67**" in page.read_text()
    assert json.loads(pin.read_text())["M67"]["broken"] == "QuorumState"
    goes_on = ("M67", "M30", "--searches", "1", "--most-runs", "1", "--workers", "1", "--resume", str(file.parent))
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
    (("--mutants", "kraft.nothing"), "no mutant's id begins with kraft.nothing"),
    (("M15", "--resume", "nowhere"), "nowhere/proofs.json cannot be read"),
    (("--mutants", "kraft.broker.rules", "--resume", "nowhere"), "nowhere/mutants.json cannot be read"),
])  # fmt: skip
def test_bad_arguments_get_one_sentence(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chaos("prove", *arguments, "--results", str(tmp_path / "results")) == 254
    assert said in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


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
