"""AcknowledgedOnceCommitted: lies about what is committed are found by this name, and other checks go on beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from checkers.inside.kraft.simulated.answering.acknowledging import Acknowledging
from cluster_image.kraft.broker.leadership import Leadership
from cluster_image.kraft.broker.partition import Partition
from harness.explore.simulate import simulate
from harness.explore.swarm import DRAWN, Swarm
from tests.checkers.inside.invariants.lies import EXPLORED, Lies, check_found


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader acknowledges what it has itself."""
    append = Partition.append

    def lie(self: Partition, batch: bytes, acks: int, new_future: Any) -> Any:
        return append(self, batch, acks, new_future)._replace(done=None)

    monkeypatch.setattr(Partition, "append", lie)


def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader forgets who waits for an acknowledgement."""
    monkeypatch.setattr(Leadership, "wait", lambda self, *waiting: None)


LITTLE_AT_A_TIME: Final = {
    "nemesis": ("pause", "partition", "kill"), "strike": "leaders", "rate": 300.0, "partitions": 2, "concurrency": 20,
    "delete_records": 3.0, "time_limit": 30.0,
    "settings": {"replica.fetch.max.bytes": "100", "replica.fetch.response.max.bytes": "100"},
}  # fmt: skip
LIES: Final[Lies] = {
    "acknowledged at once": (at_once, "AcknowledgedOnceCommitted", 0),
    "never acknowledged": (never, "AcknowledgedOnceCommitted", 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_what_it_breaks(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    check_found(LIES, lie, monkeypatch)


@pytest.mark.parametrize(
    ("seed", "update"),
    [
        # A leader's ISR shrinks, and with it the last record is committed; in the same step it is deposed.
        (4, {"time_limit": 60.0}),
        # Broker 1 is paused past the producers' time-out, and comes to the fetch that commits only after the timer.
        (1, LITTLE_AT_A_TIME),
        # A log that is not known yet starts above all that is known of it.
        (4, LITTLE_AT_A_TIME),
    ],
    ids=["committed and deposed at once", "paused", "a log that starts above what is known"],
)
def test_who_is_only_late_is_not_blamed(seed: int, update: dict[str, Any]) -> None:
    plan = EXPLORED.model_copy(update=update)
    drawn = DRAWN if "settings" in update else ("settings", "latency_ms")
    done = simulate(Swarm(drawn)(plan, seed))
    assert (done.violation, done.crash) == (None, "")


def leader_of_nine() -> tuple[Acknowledging, Any, Any]:
    leading = SimpleNamespace(key=("t", 0), is_leader=True, leader_epoch=4, high_watermark=9)
    nodes: Any = {"broker-1": SimpleNamespace(broker=SimpleNamespace(partitions={"a": leading}))}
    return Acknowledging(), nodes, leading


def test_what_a_process_led_says_nothing_of_the_next_one_on_its_node() -> None:
    acknowledging, nodes, leading = leader_of_nine()
    for now in (1.0, 2.0, 3.0):
        acknowledging.answered("broker-1")
        acknowledging.look(nodes, now)
    assert acknowledging.before("broker-1", leading) == 9
    again = SimpleNamespace(key=("made again", 0), is_leader=True, leader_epoch=4, high_watermark=0)
    assert acknowledging.before("broker-1", again) == -1  # type: ignore[arg-type]
    acknowledging.node_started("broker-1")
    assert acknowledging.before("broker-1", leading) == -1
    acknowledging.answered("broker-1")
    acknowledging.look(nodes, 4.0)
    assert acknowledging.before("broker-1", leading) == -1, "it has led for less than was looked back"


def test_while_a_process_is_paused_no_time_passes_for_it() -> None:
    """It is paused once its high watermark has moved, and comes to a producer's time-out as soon as it goes on."""
    acknowledging, nodes, leading = leader_of_nine()
    acknowledging.answered("broker-1")
    for now in (1.0, 1.1, 1.2, 1.3, 9.0):
        acknowledging.look(nodes, now)
    acknowledging.answered("broker-1")
    acknowledging.look(nodes, 9.5)
    assert acknowledging.before("broker-1", leading) == -1
    acknowledging.answered("broker-1")
    acknowledging.look(nodes, 9.9)
    assert acknowledging.before("broker-1", leading) == 9
