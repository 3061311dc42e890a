"""Transactions of real clients on Apache Kafka, in one process of Java: what right transactors do is not blamed, and
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
from workloads.transactional import TransactionsWorkload


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {
        "offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "3", "transaction.state.log.num.partitions": "4",
        "transaction.state.log.min.isr": "2", "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }  # fmt: skip
    with apache_kafka(tmp_path_factory.mktemp("kafka"), 3, **settings) as started:
        yield started


def carry_out(kafka: ApacheKafka, directory: Path, client: str, **settings: str) -> Mapping[str, Any]:
    """The verdict. settings: of the workload."""
    wishes = {"timeout": "6", "zombies": "4", "settle": "26", "loops": "1", **settings}
    return on_kafka.carry_out(
        kafka, directory, TransactionsWorkload, client, wishes, 12, 100, workload="transactions", partitions=4,
        concurrency=2,
    )  # fmt: skip


@needs_kafka
@pytest.mark.parametrize("client", [
    "librdkafka", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("java", "kafka-python", "aiokafka")),
])  # fmt: skip
def test_right_transactors_are_not_blamed(kafka: ApacheKafka, tmp_path: Path, client: str) -> None:
    verdict = carry_out(kafka, tmp_path, client)
    assert anomalies(verdict) == set(), verdict["reason"]
    counts = verdict["transactions"]["counts"]
    assert not verdict["transactions"]["undecided"]
    assert counts["transaction ok"] > 10 and counts["transaction fail"] > 2 and counts["of these committed"] > 10
    assert verdict["reason"].startswith("evidence is missing: what was collected of the nodes")  # there are none


FOUND: Final = {
    "aborts": {"lost-write"}, "commits": {"G1a"}, "forgets": {"processed twice"},
}  # fmt: skip


@needs_kafka
@pytest.mark.parametrize("fault", FOUND)
def test_what_a_transactor_does_wrong_is_found(
    kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:  # fmt: skip
    def command(self: Any, python: str) -> list[str]:
        return [python, "-m", "tests.workloads.clients.faulty_transactors", fault]

    monkeypatch.setattr(DrivenInPython, "command", command)
    verdict = carry_out(kafka, tmp_path, "librdkafka", zombies="0")
    assert verdict["verdict"] == "fail"
    assert FOUND[fault] <= anomalies(verdict)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"client": "kio"}, "client kio has no transactions here"),
        ({"target": "kraft"}, "it has no transaction coordinator"),
        ({"acks": "1"}, "transactions need --acks all, and not 1"),
        ({"partitions": 3}, "2 loops have an input and an output each at least, and --partitions is 3"),
        ({"workload_settings": {"timeout": "30"}}, "its setting settle is 40 s, and a transaction may rightly be open"),
        ({"client_settings": {"transactional.id": "x"}}, "it has the setting transactional.id of its clients itself"),
        ({"workload_settings": {"aborts": "2"}}, "valid: a number from 0 to 1"),
    ],
)
def test_what_is_not_possible_is_one_sentence(fields: dict[str, Any], why: str) -> None:
    given = {"run": "r", "target": TARGET, "client": "librdkafka", "workload": "transactions"}
    with pytest.raises(BadArguments, match=why):
        make_plan(**{**given, **fields})
