"""--short-lived-topics: topics that are made, changed, written, read and deleted beside the one that a run is about."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster_image.v2.bugs import MENDED
from harness.errors import BadArguments
from harness.explore.simulate import Simulated, simulate
from harness.explore.swarm import Swarm
from harness.plan import plan_file
from harness.plan.plan import Plan, make_plan
from workloads.clients.kio.reading import Reader

V2 = dict.fromkeys(MENDED, "true")


def plan(**fields: object) -> Plan:
    defaults = {
        "run": "r", "on": "simulation", "nemesis": (), "seed": 5, "time_limit": 25.0, "rate": 20, "partitions": 2,
        "concurrency": 2, "short_lived_topics": 0.3,
    }  # fmt: skip
    return make_plan(**{**defaults, **fields})


def short_lived_in(done: Simulated) -> dict[str, list[dict[str, Any]]]:
    """Operations on them, by topic."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in done.tables["operations"].to_pylist():
        if row["topic"] != "chaos":
            found.setdefault(row["topic"], []).append(row)
    return found


@pytest.mark.parametrize(
    ("fields", "did"),
    [
        ({}, {"made", "assigned", "deleted", "more partitions", "looked up", "settings", "throttled", "asked in vain"}),
        ({"target": "v2", "settings": V2}, {"made", "assigned", "deleted", "more partitions", "looked up"}),
        ({"racks": 1}, {"made", "deleted", "more partitions", "looked up", "settings", "throttled", "asked in vain"}),
    ],
    ids=["kraft", "v2", "who shares a rack is not known"],
)
def test_topics_come_and_go(fields: dict[str, Any], did: set[str]) -> None:
    done = simulate(plan(**fields))
    assert (done.crash, done.violation, list(done.problems)) == ("", None, [])
    assert done.facts["short_lived_topics"].keys() == did
    verdict = done.judge()
    assert verdict["verdict"] == "pass", verdict["reason"]
    topics = short_lived_in(done)
    assert len(topics) >= 5
    for rows in topics.values():
        count = Counter((row["partition"], row["kind"]) for row in rows if row["outcome"] == "ok")
        for partition in {row["partition"] for row in rows if row["kind"] == "append"}:
            assert count[partition, "append"] >= 1 and count[partition, "final_read"] >= 1
    partitions = {each["partition"] for each in verdict["availability"]["partitions"]}
    assert partitions == {"chaos-0", "chaos-1"}, "for most of a run the others are not there"


def test_their_logs_are_gone_from_every_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.runtimes.simulation.cluster import SimulatedCluster

    clusters: list[SimulatedCluster] = []
    begin = SimulatedCluster.__init__

    def kept(self: SimulatedCluster, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        clusters.append(self)

    monkeypatch.setattr(SimulatedCluster, "__init__", kept)
    done = simulate(plan(nemesis=("kill",), time_limit=20.0))
    assert done.violation is None and done.facts["short_lived_topics"]["deleted"] >= 2
    deleted = done.facts["short_lived_topics"]["deleted"]
    left = {name for node in clusters[0].machines for name in node.disk.list("") if name.startswith("chaos-short")}
    assert len({name.rpartition("-")[0] for name in left}) <= len(short_lived_in(done)) - deleted


def test_an_old_leader_does_not_say_where_a_topic_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers, once a log, with the end that it had."""
    ends, old = Reader.end_offsets, set()

    async def as_of_before(self: Reader, connection: Any, epochs: dict[int, int]) -> dict[int, int]:
        found = dict(await ends(self, connection, epochs))
        for partition in epochs:
            if (log := (self._client.topic, partition)) not in old and self._client.topic != "chaos":
                old.add(log)
                found[partition] = 0
        return found

    monkeypatch.setattr(Reader, "end_offsets", as_of_before)
    done = simulate(plan())
    assert len(old) > 5 and done.judge()["verdict"] == "pass"


def test_what_a_topic_has_lost_before_it_was_deleted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it does not see the first record that was acknowledged."""
    from workloads.clients.kio import reading

    decode, read = reading.decode, Reader.read_all
    topics: list[str] = []  # that are being read

    def without_the_first(records: bytes, at: int, compacted: bool) -> Any:
        offsets, values, following = decode(records, at, compacted)
        return (offsets[1:], values[1:], following) if topics and at == 0 else (offsets, values, following)

    monkeypatch.setattr(reading, "decode", without_the_first)

    async def noted(self: Reader, partition: int, kind: str, at_least: int = 0) -> None:
        topics.extend([self._client.topic] if at_least else [])
        await read(self, partition, kind, at_least)
        topics.clear()

    monkeypatch.setattr(Reader, "read_all", noted)
    done = simulate(plan())
    verdict = done.judge()
    assert verdict["verdict"] == "fail"
    example = verdict["anomalies"]["log linearizability"]["example"]
    assert "at offset 0 of chaos-short-0-0; the final log does not hold that offset" in example


def test_it_changes_nothing_of_the_other_topic(tmp_path: Path) -> None:
    of = plan()
    of.save(tmp_path)
    assert Plan.load(tmp_path) == of and "--short-lived-topics 0.3" in of.command()
    assert plan_file.fields_of({"short_lived_topics": "500ms"}, "plan") == {"short_lived_topics": 0.5}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"short_lived_topics": 0.0}, "--short-lived-topics is 0; it must be a number of seconds from 0.1"),
        ({"acks": "1"}, "an append tells that the whole ISR has, and --acks is 1"),
        (
            {"workload": "compacted", "target": "kafka:4.2.0", "on": "docker"},
            "workload compacted has no topics but its own; append does",
        ),
    ],
)
def test_what_makes_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArguments, match=message):
        plan(**fields)


@pytest.mark.parametrize(
    ("seed", "fields"),
    [
        # A broker is a replica of a topic that was made after it was added, and is to be taken out; and a plan of moves
        # is judged by the partitions that there were when it was made.
        (2, {"nemesis": ("membership:add", "membership:remove", "membership:rebalance", "kill"), "brokers": 5,
             "racks": 3, "spare_brokers": 1, "partitions": 8}),
        # A topic was made while a broker had both its own id and another.
        (3, {"nemesis": ("membership", "kill", "partition"), "brokers": 4, "partitions": 6}),
    ],
    ids=["a broker that was added is taken out", "a broker with two ids"],
)  # fmt: skip
def test_a_cluster_is_healed_that_has_got_topics_meanwhile(seed: int, fields: dict[str, Any]) -> None:
    more = {"strike": "leaders", "rate": 40, "time_limit": 30.0, "short_lived_topics": 1.0, "must_take_effect": "any"}
    done = simulate(Swarm()(plan(**fields, **more), seed))
    assert (done.crash, done.violation, list(done.problems)) == ("", None, [])
    assert done.judge()["verdict"] == "pass", done.judge()["reason"]
