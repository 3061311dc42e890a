"""What a terminal shows while clients work, and what stands for it without one."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from harness.report import console
from harness.report.console import Counts, Progress
from harness.report.live import Board, Moment, sparkline
from harness.report.terminal import Terminal


def fault(nemesis: str, *targets: str, in_force: bool) -> Any:
    return SimpleNamespace(nemesis=nemesis, targets=list(targets), in_force=in_force)


def moment(elapsed: float, acknowledged: int, **more: Any) -> Moment:
    counts = Counts(acknowledged=acknowledged, failed=7, indeterminate=3)
    return Moment(elapsed, 60.0, counts, more.pop("errors", {}), more.pop("faults", ()), **more)


def shown(board: Board, of: Moment) -> str:
    terminal = Terminal(file=io.StringIO(), width=100)
    terminal.print(board.draw(of))
    file = terminal.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_board_shows_time_throughput_records_faults_and_leaders() -> None:
    board = Board()
    for second in range(10):
        shown(board, moment(float(second), 1000 * second))
    text = shown(
        board,
        moment(
            10.0, 9_500, errors={"NO_LEADER": 12, "TIMED_OUT": 84}, leaders={"broker-2": 5, "broker-1": 3},
            faults=[
                fault("power-outage", "broker-1", "controller-1", in_force=True),
                fault("kill", "broker-2", in_force=False),
            ],
        ),
    )  # fmt: skip
    assert "10 s of 60 s" in text and "500 records a second acknowledged" in text
    assert "9,500 acknowledged, 7 failed, 3 indeterminate" in text and "TIMED_OUT 84, NO_LEADER 12" in text
    assert "power-outage on broker-1, controller-1" in text and "kill on broker-2, healed" in text
    assert "broker-1 3, broker-2 5" in text
    assert "none in force" in shown(board, moment(11.0, 9_500)) and "no partition has one" in shown(
        board, moment(12.0, 1, leaders={})
    )


def test_a_spark_line_is_as_high_as_its_values() -> None:
    assert sparkline([0.0, 4.0, 8.0]) == " ▄█" and sparkline([0.0, 0.0]) == "  " and sparkline([]) == ""


def test_a_terminal_is_drawn_anew_and_others_get_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "REDRAW_S", 0.0)
    for is_terminal, expected in ((True, "records a second acknowledged"), (False, "the line")):
        file = io.StringIO()
        with Progress(Terminal(file=file, force_terminal=is_terminal, width=100)) as progress:
            assert progress.redraws == is_terminal
            assert progress.moment(moment(1.0, 5), "the line")
            assert progress.moment(moment(2.0, 9), "the line") == is_terminal  # a line only now and then
            progress.update("healing")
            progress.say("over")
        assert expected in file.getvalue() and "healing" in file.getvalue() and "over" in file.getvalue()


def test_it_is_not_drawn_more_often_than_anybody_can_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "REDRAW_S", 60.0)
    with Progress(Terminal(file=io.StringIO(), force_terminal=True)) as progress:
        assert [progress.moment(moment(at, 5), "") for at in (1.0, 2.0)] == [True, False]


def test_a_line_of_another_thread_does_not_come_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hosts do is told by threads of their own."""
    progress = Progress(Terminal(file=io.StringIO(), width=100, force_terminal=True))
    telling = threading.Thread(target=progress.update, args=("host a is lost for now",))

    class Interrupted(console.Live):
        def start(self, refresh: bool = False) -> None:
            super().start(refresh)
            telling.start()
            telling.join(0.3)

    monkeypatch.setattr(console, "Live", Interrupted)
    with progress:
        assert progress.moment(moment(1.0, 1), "")
        telling.join()
