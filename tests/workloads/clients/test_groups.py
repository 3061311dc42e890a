"""Consumer groups of real clients on Apache Kafka, in one process of Java: what right members do is not blamed, and
what wrong ones do is found and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from harness.errors import BadArguments
from harness.plan.plan import make_plan
from tests.clusters.apache_kafka import ApacheKafka, apache_kafka
from tests.clusters.kafka_jvm import needs_kafka
from tests.workloads.clients import on_kafka
from tests.workloads.clients.on_kafka import TARGET, anomalies
from workloads.clients.driven.driven import DrivenInPython
from workloads.consumer_group import ConsumerGroupWorkload


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {
        "group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "1000",
        "offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "4",
        "group.consumer.min.session.timeout.ms": "2000", "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "700",
    }  # fmt: skip
    with apache_kafka(tmp_path_factory.mktemp("kafka"), 3, **settings) as started:
        yield started


def carry_out(
    kafka: ApacheKafka, directory: Path, client: str, enough: int = 0, **settings: str
) -> Mapping[str, Any]:  # fmt: skip
    """The verdict. enough: as on_kafka has it; settings: of the workload."""
    wishes = {"members": "2", "churn": "2", "session": "2", "settle": "20", **settings}
    return on_kafka.carry_out(
        kafka, directory, ConsumerGroupWorkload, client, wishes, workload="consumer-group", partitions=3, concurrency=1,
        enough=enough,
    )  # fmt: skip


@needs_kafka
@pytest.mark.parametrize(
    ("client", "protocol", "commits"),
    [
        ("librdkafka", "classic", "after-async+before-sync"),
        ("java", "consumer", "after-sync+after-auto"),
        pytest.param("kafka-python", "classic", "after-sync", marks=pytest.mark.nightly),
        pytest.param("aiokafka", "classic", "after-sync", marks=pytest.mark.nightly),
    ],
)
def test_right_members_are_not_blamed(
    kafka: ApacheKafka, tmp_path: Path, client: str, protocol: str, commits: str
) -> None:  # fmt: skip
    # A poll hands over 500 records at most, so that each group polls more than three times. On a slow machine the
    # clients of Java take most of the run to start.
    verdict = carry_out(kafka, tmp_path, client, 3000, protocol=protocol, commits=commits)
    assert anomalies(verdict) == set(), verdict["reason"]
    assert not verdict["groups"]["undecided"]
    assert verdict["operations"]["acknowledged"] > 20, "of thousands, where the machine has nothing else to do"
    for events in verdict["groups"]["events"].values():
        assert events["poll"] > 3 and events["assign"] > 3, "partitions have moved"


FOUND: Final = {
    "commits-early": "committed before processing", "skips": "skipped after rebalance",
    "commits-back": "committed offset went back",
}  # fmt: skip


@needs_kafka
@pytest.mark.parametrize("fault", FOUND)
def test_what_a_member_does_wrong_is_found(
    kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:  # fmt: skip
    def command(self: Any, python: str) -> list[str]:
        return [python, "-m", "tests.workloads.clients.faulty_members", fault]

    monkeypatch.setattr(DrivenInPython, "command", command)
    verdict = carry_out(kafka, tmp_path, "librdkafka", commits="after-sync")
    assert verdict["verdict"] == "fail"
    assert FOUND[fault] in anomalies(verdict)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"client": "kio"}, "client kio has no consumer groups"),
        ({"client": "aiokafka", "workload_settings": {"commits": "after-async"}}, "aiokafka does not commit async"),
        ({"client": "kafka-python", "workload_settings": {"protocol": "consumer"}}, "no group protocol consumer"),
        ({"target": "kraft"}, "it has no group coordinator"),
        ({"workload_settings": {"commits": "later"}}, "valid: one of after-sync"),
        ({"workload_settings": {"members": "none"}}, "valid: a number from 1 to 20"),
        ({"workload_settings": {"nonsense": "1"}}, "workload consumer-group has no such setting"),
        ({"workload_settings": {"assignor": "uniform"}}, "no assignor uniform of protocol classic"),
    ],
)
def test_what_is_not_possible_is_one_sentence(fields: dict[str, Any], why: str) -> None:
    given = {"run": "r", "target": TARGET, "client": "librdkafka", "workload": "consumer-group"}
    with pytest.raises(BadArguments, match=why):
        make_plan(**{**given, **fields})
