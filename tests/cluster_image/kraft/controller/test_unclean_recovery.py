"""Unclean recovery: whose logs are asked for, which answers count, who is elected and when (002, 5.3; KIP-966)."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from cluster_image.config import ConfigError
from cluster_image.kraft.broker.handlers.replica_log_info import replica_log_info
from cluster_image.kraft.controller import rules
from cluster_image.kraft.controller.log_inspection import ask_for_logs
from cluster_image.kraft.controller.rules import LogInfo
from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.controller.unclean_recovery import Recovery
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import RECOVERED, RECOVERING
from cluster_image.network import Address
from cluster_image.replication.replica import PartitionKey
from cluster_image.storage.records import build_batch
from cluster_image.wire.own_messages import MAX_PARTITIONS, GetReplicaLogInfoRequest, TopicPartitions
from tests.cluster_image.kraft.broker.test_partition import EVERYONE, Replica, config, registration
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers
from tests.cluster_image.network.test_hostile_clients import leader_of_t, produce_request, topic_request
from tests.clusters.local_cluster import LocalCluster, local_cluster, node_network

#: Later than all that the helpers below do.
NOW = 10 * SESSION
#: When a session of NOW has run out.
LATER = NOW + SESSION
TIMEOUT = config()["unclean.recovery.timeout.ms"] / 1000

# -- steps ------------------------------------------------------------------------------------------------------


def all_fenced(**settings: str) -> Quorum:
    """As steps 3 to 5 of 002, 5.3.3: 1 left while the ISR was large enough, then 2, then 3."""
    quorum = three_brokers(**settings)
    for broker in (1, 2, 3):
        quorum.fence(broker, broker * SESSION)
    return quorum


def all_unclean(**settings: str) -> Quorum:
    """All have come back uncleanly: nobody is known to be complete."""
    quorum = all_fenced(**settings)
    for broker in (1, 2, 3):
        quorum.comes_back(broker, NOW - 1)
    return quorum


def key(quorum: Quorum) -> PartitionKey:
    return quorum.partition().topic_id, 0


def asked(quorum: Quorum, now: float = NOW) -> list[int]:
    """Which brokers are asked for their log now."""
    recovery = quorum.controller.unclean_recovery
    recovery.look()
    return sorted(recovery.questions(now))


def reported(
    quorum: Quorum, broker: int, epoch: int, end: int, broker_epoch: int | None = None, leader_epoch: int | None = None
) -> None:
    """This broker has been asked, and answers; as the process and with the metadata of now, if nothing else is said."""
    recovery = quorum.controller.unclean_recovery
    recovery.look()
    recovery.questions(NOW)
    info = LogInfo(
        quorum.epochs[broker] if broker_epoch is None else broker_epoch,
        quorum.partition().leader_epoch if leader_epoch is None else leader_epoch,
        epoch,
        end,
    )
    recovery.hear(broker, {key(quorum): quorum.partition().partition_epoch}, {key(quorum): info})


def recover(quorum: Quorum, now: float = NOW) -> list[Recovery]:
    recoveries = quorum.controller.recover(now)
    quorum.do(Step([recovery.record for recovery in recoveries]))
    return recoveries


# -- balanced ---------------------------------------------------------------------------------------------------


def test_an_election_from_the_elr_is_not_unclean() -> None:
    """Who was eligible beside whoever leads stays so."""
    quorum = all_fenced()
    quorum.comes_back(3, NOW, clean=True)
    partition = quorum.partition()
    assert (partition.leader, partition.elr, partition.leader_recovery_state) == (3, (2,), RECOVERED)


def test_balanced_recovery_as_002_tells_it() -> None:
    """002, 5.3.3: a power outage of the whole cluster."""
    quorum = three_brokers()
    quorum.fence(1, SESSION)
    assert quorum.state() == (2, (2, 3), (), ())
    quorum.fence(2, 2 * SESSION)
    assert quorum.state() == (3, (3,), (2,), ())
    quorum.fence(3, 3 * SESSION)
    assert quorum.state() == (-1, (), (2, 3), ())
    quorum.comes_back(1, 4 * SESSION)
    assert quorum.state() == (-1, (), (2, 3), ()), "1 was not eligible, and may not lead"
    assert quorum.register(2, 4 * SESSION, 99) is ErrorCode.none
    assert quorum.state() == (-1, (), (3,), (2,))
    quorum.heartbeat(2, 4 * SESSION)
    assert asked(quorum) == [], "3 may come back clean"
    assert quorum.register(3, 4 * SESSION, 98) is ErrorCode.none
    assert quorum.state() == (-1, (), (), (2, 3))
    assert asked(quorum) == [2], "3 is not there to be asked"
    reported(quorum, 2, 1, 12)
    assert not recover(quorum, NOW + 3600), "3 has not told: its log may be the better one"
    quorum.heartbeat(3, 4 * SESSION)
    assert asked(quorum) == [3], "2 has told, and 1 was not eligible"
    reported(quorum, 3, 1, 9)
    (recovery,) = recover(quorum)
    assert (recovery.leader, recovery.strategy, sorted(recovery.logs)) == (2, "balanced", [2, 3])
    assert quorum.state() == (2, (2,), (), (3,))
    assert quorum.partition().leader_epoch == recovery.leader_epoch
    assert not recover(quorum), "it is led now"
    assert quorum.alter(2, {2: quorum.epochs[2], 3: quorum.epochs[3]}) is ErrorCode.none
    assert quorum.state() == (2, (2, 3), (), ())


def test_the_later_epoch_is_elected_and_not_the_longer_log() -> None:
    quorum = all_unclean()
    reported(quorum, 2, 1, 12)
    reported(quorum, 3, 2, 9)
    recover(quorum)
    assert quorum.partition().leader == 3


def test_who_restarts_after_it_has_told_is_asked_again() -> None:
    """Its second power cut may have taken what it told of."""
    quorum = all_unclean()
    reported(quorum, 2, 1, 12)
    quorum.fence(2, LATER)
    quorum.comes_back(2, LATER)
    reported(quorum, 3, 1, 9)
    assert not recover(quorum, LATER)
    assert asked(quorum) == [2]
    reported(quorum, 2, 1, 8)
    recover(quorum, LATER)
    assert quorum.partition().leader == 3


def test_an_answer_of_an_earlier_process_that_comes_late_does_not_count() -> None:
    quorum = all_unclean()
    before = quorum.epochs[2]
    quorum.fence(2, LATER)
    quorum.comes_back(2, LATER)
    reported(quorum, 2, 1, 12, broker_epoch=before)
    reported(quorum, 3, 1, 9)
    assert not recover(quorum, LATER)


def test_an_answer_of_somebody_who_still_follows_a_leader_does_not_count() -> None:
    """Until it has replayed that there is none, its log may grow, or be cut."""
    quorum = all_unclean()
    reported(quorum, 2, 1, 12, leader_epoch=quorum.partition().leader_epoch - 1)
    reported(quorum, 3, 1, 9)
    assert not recover(quorum)
    assert asked(quorum) == [2]


def test_balanced_waits_for_the_best_log_and_does_not_take_the_second_best() -> None:
    quorum = all_unclean()
    reported(quorum, 2, 1, 12)
    reported(quorum, 3, 1, 9)
    quorum.fence(2, LATER)
    assert not recover(quorum, NOW + 3600)
    quorum.heartbeat(2, LATER)
    assert asked(quorum) == [], "it is the same process, and its log the same"
    recover(quorum)
    assert quorum.partition().leader == 2


def test_answers_from_before_a_change_of_the_partition_are_asked_for_again() -> None:
    quorum = all_fenced(unclean_recovery_strategy="proactive")
    quorum.comes_back(1, NOW - 1)
    reported(quorum, 1, 1, 9)
    assert quorum.register(2, NOW - 1, 99) is ErrorCode.none
    assert asked(quorum) == [1]


def test_an_answer_that_crosses_a_change_of_the_partition_does_not_count() -> None:
    quorum = all_fenced(unclean_recovery_strategy="proactive")
    quorum.comes_back(1, NOW - 1)
    recovery = quorum.controller.unclean_recovery
    recovery.look()
    question = recovery.questions(NOW)[1]
    assert quorum.register(2, NOW - 1, 99) is ErrorCode.none
    recovery.look()
    recovery.hear(1, question, {key(quorum): LogInfo(quorum.epochs[1], quorum.partition().leader_epoch, 1, 9)})
    assert asked(quorum) == [1]


def test_a_new_controller_asks_anew() -> None:
    quorum = all_unclean()
    reported(quorum, 2, 1, 12)
    reported(quorum, 3, 1, 9)
    other = Quorum()
    other.controller = type(quorum.controller)(quorum.image.copy(), config(), "test", None, NOW)  # type: ignore[arg-type]
    assert asked(other) == [2, 3]
    assert not other.controller.recover(NOW)


def test_the_elected_leader_may_be_lost_too() -> None:
    """MinISR Recovery Quorum (002, 5.3.2): with the LastKnownELR kept until the ISR has MinISR members, there are
    always so many to ask."""
    quorum = all_unclean()
    reported(quorum, 2, 1, 12)
    reported(quorum, 3, 1, 9)
    recover(quorum)
    quorum.fence(2, LATER)
    assert quorum.state() == (-1, (), (2,), (3,))
    quorum.comes_back(2, LATER)
    assert quorum.state() == (-1, (), (), (2, 3))


# -- proactive --------------------------------------------------------------------------------------------------


def test_proactive_does_not_wait_for_those_who_are_eligible() -> None:
    quorum = all_fenced(unclean_recovery_strategy="proactive")
    assert quorum.state() == (-1, (), (2, 3), ())
    assert asked(quorum, NOW - 5) == [], "nobody is there"
    quorum.comes_back(1, NOW - 1)
    assert asked(quorum, NOW) == [1]
    reported(quorum, 1, 1, 9)
    assert not recover(quorum, NOW + TIMEOUT - 0.01), "the others get the time that there is to come back"
    (recovery,) = recover(quorum, NOW + TIMEOUT)
    assert (recovery.leader, recovery.strategy) == (1, "proactive")
    assert quorum.state() == (1, (1,), (), (2, 3)), "what 2 and 3 have may contradict the new leader's log"
    quorum.heartbeat(2, NOW)
    assert quorum.state() == (1, (1,), (), (2, 3)), "2 is eligible no more"
    assert quorum.alter(1, {1: quorum.epochs[1], 2: quorum.epochs[2]}) is ErrorCode.none
    assert quorum.state() == (1, (1, 2), (), ())


def test_proactive_does_not_wait_when_all_have_told() -> None:
    quorum = all_unclean(unclean_recovery_strategy="proactive")
    assert asked(quorum) == [1, 2, 3], "not only those who were eligible once"
    reported(quorum, 1, 2, 5)
    reported(quorum, 2, 1, 12)
    assert not recover(quorum, NOW)
    reported(quorum, 3, 1, 9)
    recover(quorum, NOW)
    assert quorum.partition().leader == 1


def test_a_clean_election_comes_before_a_proactive_one() -> None:
    quorum = all_fenced(unclean_recovery_strategy="proactive")
    quorum.comes_back(1, NOW - 1)
    reported(quorum, 1, 1, 9)
    quorum.heartbeat(3, NOW)
    assert quorum.state() == (3, (3,), (2,), ())
    assert not recover(quorum, NOW + TIMEOUT)
    assert quorum.partition().leader_recovery_state == RECOVERED


def test_proactive_takes_the_best_log_of_those_who_are_still_there() -> None:
    quorum = all_unclean(unclean_recovery_strategy="proactive")
    reported(quorum, 2, 1, 12)
    reported(quorum, 3, 1, 9)
    quorum.fence(2, LATER)
    recover(quorum, LATER)
    assert quorum.partition().leader == 3


def test_the_time_that_others_get_begins_with_the_first_who_can_be_asked() -> None:
    quorum = all_fenced(unclean_recovery_strategy="proactive")
    asked(quorum, NOW)
    quorum.comes_back(1, NOW + 3600)
    assert asked(quorum, NOW + 3600) == [1]
    reported(quorum, 1, 1, 9)
    assert not recover(quorum, NOW + 3600)
    assert recover(quorum, NOW + 3600 + TIMEOUT)


def test_the_time_that_others_get_begins_anew_with_a_new_leader_epoch() -> None:
    """3 has led since, and may have left more behind than could be told of before: who has it gets the time to come
    back, however long ago the controller began to ask."""
    quorum = all_fenced(unclean_recovery_strategy="proactive")
    quorum.comes_back(1, NOW - 1)
    assert asked(quorum, NOW) == [1]
    quorum.heartbeat(3, NOW)
    assert quorum.partition().leader == 3
    quorum.fence(3, LATER)
    assert asked(quorum, LATER) == [1]
    reported(quorum, 1, 1, 9)
    assert LATER >= NOW + TIMEOUT
    assert not recover(quorum, LATER)
    assert recover(quorum, LATER + TIMEOUT)


# -- manual, and at an operator's word --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["manual", "balanced"])
def test_an_operator_may_have_the_best_log_elected(strategy: str) -> None:
    quorum = all_fenced(unclean_recovery_strategy=strategy)
    quorum.comes_back(1, NOW - 1)
    assert asked(quorum) == []
    assert not recover(quorum, NOW + 3600)
    assert quorum.controller.unclean_recovery.request(quorum.partition())
    assert asked(quorum) == [1]
    reported(quorum, 1, 0, 3)
    (recovery,) = recover(quorum, NOW + TIMEOUT)
    assert (recovery.leader, recovery.strategy) == (1, "operator")
    assert quorum.state() == (1, (1,), (), (2, 3))
    quorum.fence(1, 2 * NOW)
    assert asked(quorum, 2 * NOW) == [], "one word, one election"


def test_an_operator_need_not_wait_for_whom_a_balanced_recovery_waits_for() -> None:
    """Which may be for ever. The recovery has begun, and its answers so far were for another question."""
    quorum = all_unclean()
    quorum.fence(3, LATER)
    reported(quorum, 2, 1, 12)
    assert not recover(quorum, LATER + 3600), "3 may have the better log"
    assert quorum.controller.unclean_recovery.request(quorum.partition())
    assert asked(quorum, LATER) == [1, 2], "any replica that is there"
    reported(quorum, 1, 0, 3)
    reported(quorum, 2, 1, 12)
    assert not recover(quorum, LATER)
    (recovery,) = recover(quorum, LATER + TIMEOUT)
    assert (recovery.leader, recovery.strategy) == (2, "operator")


def test_manual_does_nothing_by_itself() -> None:
    quorum = all_unclean(unclean_recovery_strategy="manual")
    assert quorum.state() == (-1, (), (), (2, 3))
    assert asked(quorum) == [] and not recover(quorum, NOW + 3600)


def test_an_operator_is_told_that_there_is_nothing_to_recover() -> None:
    quorum = three_brokers()
    assert not quorum.controller.unclean_recovery.request(quorum.partition())
    without_elr = three_brokers(eligible_leader_replicas_version="0")
    without_elr.fence_expired(SESSION)
    assert without_elr.partition().leader == -1
    assert not without_elr.controller.unclean_recovery.request(without_elr.partition())
    last = without_elr.partition().isr[0]
    without_elr.comes_back(next(b for b in (1, 2, 3) if b != last), NOW - 1)
    assert asked(without_elr) == [], "as before KIP-966, the last member of the ISR is waited for"


# -- settings ---------------------------------------------------------------------------------------------------


def test_the_strategy_is_the_topics_own_if_it_has_one() -> None:
    quorum = all_unclean(unclean_recovery_strategy="manual")
    quorum.image.topics["t"].settings["unclean.recovery.strategy"] = "balanced"
    assert asked(quorum) == [2, 3]
    with pytest.raises(ConfigError, match="proactive, balanced or manual expected"):
        config(unclean_recovery_strategy="none")
    assert config()["unclean.recovery.strategy"] == "balanced"


# -- leader recovery state (KIP-704) ----------------------------------------------------------------------------


def test_a_leader_elected_uncleanly_recovers_before_its_isr_grows() -> None:
    quorum = all_unclean()
    reported(quorum, 2, 1, 12)
    reported(quorum, 3, 1, 9)
    recover(quorum)
    assert quorum.partition().leader_recovery_state == RECOVERING
    both = {2: quorum.epochs[2], 3: quorum.epochs[3]}
    assert quorum.alter(2, both, leader_recovery_state=RECOVERING) is ErrorCode.invalid_request
    stale = {**both, 3: both[3] - 1}
    assert quorum.alter(2, stale, leader_recovery_state=RECOVERING) is ErrorCode.invalid_request, "first"
    assert quorum.alter(2, stale) is ErrorCode.ineligible_replica
    assert quorum.alter(2, {2: both[2]}, leader_recovery_state=RECOVERING) is ErrorCode.none, "no change"
    assert quorum.alter(2, {2: both[2]}) is ErrorCode.none
    assert quorum.partition().leader_recovery_state == RECOVERED
    assert quorum.alter(2, {2: both[2]}, leader_recovery_state=RECOVERING) is ErrorCode.invalid_request, "no way back"
    assert quorum.alter(2, both) is ErrorCode.none


def test_a_clean_election_says_nothing_of_recovery() -> None:
    quorum = three_brokers()
    quorum.fence(1, SESSION)
    assert quorum.partition().leader_recovery_state == RECOVERED


def test_a_leader_elected_uncleanly_says_that_it_has_recovered(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    uncleanly = replace(registration(1, (1,), 1, 1), leader_recovery_state=RECOVERING)
    partition = replica.partition
    partition.apply(uncleanly, 0.0)
    assert partition.leadership is not None
    partition.consider_shrinking(1.0, EVERYONE)
    proposal = partition.leadership.proposal
    assert proposal is not None
    assert (proposal.leader_recovery_state, [r for r, _ in proposal.isr]) == (RECOVERED, [1])
    partition.proposal_accepted(proposal, (1,), 1, 2)
    partition.consider_shrinking(2.0, EVERYONE)
    assert partition.leadership.proposal is None


# -- rules ------------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.integers(1, 5), st.tuples(st.integers(-1, 4), st.integers(0, 9)), min_size=1),
    st.permutations([1, 2, 3, 4, 5]),
)
def test_nobody_who_has_told_has_a_better_log_than_the_elected(
    logs: dict[int, tuple[int, int]], candidates: list[int]
) -> None:
    best = rules.best_log(candidates, {r: LogInfo(0, 0, *log) for r, log in logs.items()})
    assert best is not None and logs[best] == max(logs.values())
    equals = [r for r in candidates if logs.get(r) == logs[best]]
    assert best == equals[0], "the order of the partition decides among equals: the outcome is always the same"


def test_without_candidates_nobody_is_elected() -> None:
    for strategy in (rules.BALANCED, rules.PROACTIVE, rules.OPERATOR):
        assert not rules.heard_enough(strategy, (), (), timed_out=True)


# -- on the wire ------------------------------------------------------------------------------------------------


def test_any_replica_tells_how_far_its_log_goes_and_an_empty_one_never_looks_best(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with local_cluster(tmp_path) as cluster:
            network = node_network()
            somebody = await network.connect(address(cluster, 1), client_id="test", timeout=5)
            await somebody.request(topic_request(), timeout=5)
            leader = await network.connect(await leader_of_t(cluster, network), client_id="test", timeout=5)
            (partition,) = (p for p in cluster.nodes[1].broker.image.partitions())

            async def ends() -> dict[int, tuple[int, int]]:
                found = {}
                for broker in (1, 2, 3):
                    key = (partition.topic_id, partition.index)
                    for info in (await ask_for_logs(network, address(cluster, broker), [key])).values():
                        assert info.broker_epoch == cluster.nodes[broker].broker.broker_epoch
                        assert info.current_leader_epoch == partition.leader_epoch
                        found[broker] = info.last_epoch, info.end_offset
                return found

            while len(await ends()) < 3:  # each broker learns of the topic in its own time
                await asyncio.sleep(0.05)
            assert await ends() == {1: (-1, 0), 2: (-1, 0), 3: (-1, 0)}
            batch = build_batch([b"a", b"b"], timestamp_ms=0)
            await leader.request(produce_request(batch), timeout=5)
            assert await ends() == {1: (0, 2), 2: (0, 2), 3: (0, 2)}
            assert await ask_for_logs(network, Address("127.0.0.1", 1), []) == {}, "nobody answers"
            await network.close()

    asyncio.run(scenario())


def test_what_a_broker_cannot_tell_of_it_says_why(tmp_path: Path) -> None:
    quorum = three_brokers()
    mine, other = key(quorum), (uuid.UUID(int=99), 0)
    replica = Replica(tmp_path)

    def ask(*keys: PartitionKey) -> list[ErrorCode]:
        request = GetReplicaLogInfoRequest(
            topic_partitions=tuple(TopicPartitions(topic_id=topic, partitions=(index,)) for topic, index in keys)
        )
        hosted = {replica.partition.key: replica.partition}
        answer = replica_log_info(quorum.image, hosted.get, 5, request)
        assert (answer.broker_epoch, answer.truncated) == (5, False)
        return [info.error_code for topic in answer.topic_partition_log_info_list for info in topic.partition_log_info]

    assert ask(replica.partition.key, mine, (mine[0], 9), other) == [
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    ]


def test_an_answer_is_limited_and_says_so() -> None:
    partitions = tuple(range(MAX_PARTITIONS - 1))
    request = GetReplicaLogInfoRequest(
        topic_partitions=tuple(TopicPartitions(topic_id=uuid.UUID(int=n), partitions=partitions) for n in (1, 2, 3))
    )
    answer = replica_log_info(MetadataImage(), lambda key: None, 5, request)
    assert [len(t.partition_log_info) for t in answer.topic_partition_log_info_list] == [MAX_PARTITIONS - 1, 1]
    assert answer.truncated
    nothing = replica_log_info(MetadataImage(), lambda key: None, 5, GetReplicaLogInfoRequest(topic_partitions=None))
    assert (nothing.topic_partition_log_info_list, nothing.truncated) == ((), False)


def test_more_partitions_than_fit_are_asked_for_in_turn() -> None:
    quorum = three_brokers()
    partition = quorum.partition()
    partitions = quorum.image.topics["t"].partitions
    for index in range(MAX_PARTITIONS + 5):
        partitions[index] = replace(partition, index=index, leader=-1, isr=(), last_known_elr=(2,))
    recovery = quorum.controller.unclean_recovery
    recovery.look()
    question = recovery.questions(NOW)[2]
    assert len(question) == MAX_PARTITIONS
    info = LogInfo(quorum.epochs[2], partition.leader_epoch, 0, 1)
    recovery.hear(2, question, dict.fromkeys(question, info))
    assert len(recovery.questions(NOW)[2]) == 5


def address(cluster: LocalCluster, broker: int) -> Address:
    return Address("127.0.0.1", cluster.ports[broker])
