"""How acknowledged records were lost: told by evidence of faults and by who led next."""

from __future__ import annotations

from typing import Any

from checkers.inside.losses import explain
from checkers.inside.metadata.memberships import Memberships, Step

S = 1_000_000_000


def cut(number: int, at_s: float, node: str, **lost: int) -> dict[str, Any]:
    by_partition = {log.replace("_", "-"): count for log, count in lost.items()}
    evidence = {"nodes": {node: {"lost_by_partition": by_partition}}}
    return {"fault": number, "nemesis": "power:leader", "start": int(at_s * S), "evidence": evidence}


def held(*steps: tuple[float, int] | tuple[float, int, int]) -> Memberships:
    """steps: (second, leader) of t-0, or (second, leader, leader epoch)."""
    made = [
        Step(int(at * S), number, (1, 2, 3), (1, 2, 3), leader, 2, *epoch)
        for number, (at, leader, *epoch) in enumerate(steps)
    ]
    return Memberships({("t", 0): made}, ids={"broker-1": 1, "broker-2": 2, "broker-3": 3})


def test_who_lost_them_and_led_again_without_them() -> None:
    faults = [cut(0, 2.0, "broker-2", t_0=7), cut(1, 5.0, "broker-1", t_0=1200)]
    told = explain(["t-0"], faults, held((0.0, 1), (5.1, -1), (8.0, 1)), origin=S)
    assert told == [
        "fault 1, power:leader at 4.0 s, took records from broker-1 that it had not synced: 1,200 of t-0; it was "
        "elected leader of t-0 without them, from 7.0 s on"
    ]


def test_what_was_decided_before_the_cut_and_seen_after_it_is_no_election() -> None:
    faults = [cut(1, 5.0, "broker-1", t_0=1200)]
    (told,) = explain(["t-0"], faults, held((0.0, 1, 0), (6.0, 1, 0), (7.0, -1, 1), (9.0, 1, 2)), origin=0)
    assert told.endswith("it was elected leader of t-0 without them, from 9.0 s on")


def test_who_was_elected_without_power_and_replaced_before_it_was_back_has_decided_nothing() -> None:
    faults = [cut(0, 5.0, "broker-2", t_0=7) | {"end": 9 * S}, cut(1, 5.0, "broker-1", t_0=9) | {"end": 9 * S}]
    told = explain(["t-0"], faults, held((0.0, 1, 0), (6.0, 2, 1), (6.1, -1, 2), (9.5, 1, 3)), origin=0)
    assert [text for text in told if "elected leader" in text] == [
        "fault 1, power:leader at 5.0 s, took records from broker-1 that it had not synced: 9 of t-0; it was elected "
        "leader of t-0 without them, from 9.5 s on"
    ]


def test_whoever_follows_another_leader_first_has_explained_nothing() -> None:
    faults = [cut(0, 2.0, "broker-1", t_0=7)]
    (told,) = explain(["t-0"], faults, held((0.0, 1), (2.5, 2), (9.0, 1)), origin=0)
    assert told == "fault 0, power:leader at 2.0 s, took records from broker-1 that it had not synced: 7 of t-0"


def test_without_metadata_all_who_took_any_are_named_and_others_are_not() -> None:
    faults = [cut(0, 2.0, "broker-1", t_0=7), cut(1, 3.0, "broker-2", t_1=5), cut(2, 4.0, "broker-3", t_0=1, t_1=1)]
    told = explain(["t-0"], faults, None, origin=0)
    assert [text.partition(",")[0] for text in told] == ["fault 0", "fault 2"] and "t-1" not in "".join(told)
    assert explain([], faults, None, origin=0) == []
