"""Guided exploring and random are held against each other by medians and by counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.explore.proofs.comparing import markdown, of_bug, of_states
from harness.explore.proofs.search import Found, Search
from harness.explore.source import Seeds
from harness.plan.plan import Plan

PLAN = Plan(run="compared", on="simulation")


def ended(*runs: int | None) -> list[Search]:
    """None: it has found nothing in 40."""
    searches = []
    for each in runs:
        search = Search("M00", Seeds.of(PLAN, range(40)), 1.0)
        search._looked_at = each or 40
        if each is not None:
            search.found = Found(0, each, "LogMatching", "", "two logs differ", PLAN)
        searches.append(search)
    return searches


@pytest.mark.parametrize(("random", "guided", "met", "holds"), [
    ((8, 2, 30, 9, 7), (4, 1, 40, 4, 9), True, True),
    ((8, 2, 30, 9, 7), (5, 1, 40, 5, 9), False, False),
    ((15, 12, None, None, 22), (None, None, None, 1, 2), False, False),
    ((None, None, None, 1, 2), (20, 20, 20, 40, 40), True, True),
    # Random exploring may need 41, or 60.
    ((None, None, None, 1, 2), (30, 30, 30, 30, 30), None, False),
    ((None, None, None, 1, 2), (None, None, None, 1, 2), None, False),
    ((5, 5, 5, 40, 40), (5, 5, 5, 5, 5), None, True),
])  # fmt: skip
def test_a_bug_takes_at_most_half_the_runs_or_the_aim_is_missed(
    random: tuple[int | None, ...], guided: tuple[int | None, ...], met: bool | None, holds: bool
) -> None:
    compared = of_bug("M00", ended(*random), ended(*guided))
    assert (compared.met, compared.holds) == (met, holds)


def test_states_are_held_against_each_other_of_both_kinds() -> None:
    random, guided = {"distinct": 1000, "under_faults": 100}, {"distinct": 1500, "under_faults": 149}
    assert [each.met for each in of_states(random, guided, 500)] == [True, False]


def test_what_was_not_found_is_said_to_be() -> None:
    compared = of_bug("M00", ended(8, 8, 8, 8, 8), ended(None, None, None, 1, 2))
    assert list(markdown([compared]))[-1] == "| M00 | 8 | more than 40 |  | at most half the runs: missed |"
    assert (compared.as_dict()["guided"], compared.as_dict()["guided_more_than"]) == (None, 40)


def test_a_bug_and_states_are_measured_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("M67", "--compare", "--states", "3", "--searches", "1", "--most-runs", "2", "--workers", "1")
    with pytest.raises(SystemExit):
        cli.main(["prove", *asked, "--results", str(tmp_path)])
    assert "| M67 | 1 | 1 | 1.00 | none" in capsys.readouterr().out
    (file,) = tmp_path.glob("*/comparison.json")
    bug, states, under_faults = json.loads(file.read_text())["compared"]
    assert (bug["what"], bug["random"], bug["guided"]) == ("M67", 1, 1)
    assert states["random"] > 100 and states["guided"] > 100 and under_faults["random"] > 20


def test_what_is_compared_is_kept_before_all_of_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(searches: list[Search], *_: object) -> Iterator[Search]:
        for search in searches:
            if search.subject == "M67":
                search.ended = True
                yield search
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.explore.proofs.search.search_all", interrupted)
    asked = ("M67", "M01", "--compare", "--searches", "1", "--most-runs", "2", "--workers", "1")
    with pytest.raises(SystemExit):
        cli.main(["prove", *asked, "--results", str(tmp_path)])
    (file,) = tmp_path.glob("*/comparison.json")
    assert [each["what"] for each in json.loads(file.read_text())["compared"]] == ["M67"]
