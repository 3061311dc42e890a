"""In containers a choreography takes its steps by what brokers tell, as in simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import app as cli
from harness.record.results import list_runs, read_faults

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]


def test_a_deposed_leader_is_awaited_and_leads_again(tmp_path: Path) -> None:
    steps = "pause leader; until new-leader; resume; until in-isr leader; elect preferred; until leads leader"
    schedule = tmp_path / "steps.toml"
    schedule.write_text(
        '[[fault]]\nnemesis = "choreography"\nat = "2s"\nduration = "18s"\n'
        f'choice = {{ steps = "{steps}" }}\n'
    )
    asked = f"run --on docker --schedule {schedule} --seed 1 --time-limit 24 --partitions 3 --rate 100"
    with pytest.raises(SystemExit) as ended:
        cli.main([*asked.split(), "--results", str(tmp_path / "results")])
    assert ended.value.code == 0
    (run,) = list_runs(tmp_path / "results")
    (fault,) = read_faults(run)
    taken = fault["evidence"]["steps"]
    assert [step["step"] for step in taken] == steps.split("; ")
    assert not any("failed" in step or "skipped" in step or step.get("gave_up") for step in taken)
    assert taken[0]["struck"] == taken[3]["of"] == taken[5]["of"]
