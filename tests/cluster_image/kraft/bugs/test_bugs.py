"""Each historical bug, switched on, changes what its rule is there for, and switched off leaves nothing behind."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.response import FetchableTopicResponse, FetchResponse, PartitionData

import cluster_image.__main__
from checkers.properties import INVARIANTS, LOG_LINEARIZABILITY
from cluster_image.config import ConfigError
from cluster_image.config.throttling import FOLLOWER
from cluster_image.kraft import bugs
from cluster_image.kraft.broker import rules
from cluster_image.kraft.broker.partition import Refused
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import RECOVERED, RECOVERING
from cluster_image.kraft.raft.quorum import Role
from cluster_image.network import Address
from cluster_image.replication.fetcher import Fetcher
from cluster_image.replication.quotas import ReplicationQuota
from cluster_image.wire.messages import NO_THROTTLE
from tests.cluster_image.kraft.broker.test_partition import (
    EVERYONE,
    LAG,
    Replica,
    append,
    batch,
    config,
    follow,
    future,
    leaders_batch,
    registration,
)
from tests.cluster_image.kraft.bugs import (
    idempotence,
    of_assignments,
    of_controllers,
    of_disks,
    of_log_starts,
    of_partitions,
)
from tests.cluster_image.kraft.controller.test_controller import SESSION, three_brokers
from tests.cluster_image.kraft.controller.test_unclean_recovery import all_unclean, recover, reported
from tests.cluster_image.kraft.raft.test_raft_quorum import CONFIG, boot, disk_with, elect, fetch, granted, vote
from tests.cluster_image.kraft.raft.test_raft_snapshot import append as append_metadata
from tests.cluster_image.kraft.raft.test_raft_snapshot import filled
from tests.cluster_image.replication.fetches import fetch_as_follower
from tests.cluster_image.storage.simulated_disk import simulated_disk


def follower_cuts_what_may_be_committed(directory: Path) -> Any:
    replica = Replica(directory)
    follow(replica, 1, 0)
    replica.partition.apply_fetch(1, 0, leaders_batch(0, 1), 1, None)
    replica.partition.apply_fetch(1, 1, leaders_batch(1, 1), 1, None)
    follow(replica, 2, 1)
    return replica.partition.log.end_offset, replica.partition.last_fetched_epoch


def epoch_unknown_to_the_leader(directory: Path) -> Any:
    """The leader has five records of epoch 1, the follower two of them and two of epoch 2."""
    leader = Replica(directory)
    for _ in range(5):
        leader.partition.log.append_as_leader(batch(), 1)
    leader.lead(leader_epoch=4)
    read = fetch_as_follower(leader.partition, 2, 1, 4, 4, 2, 1 << 20, 0.0, lambda replica, epoch: True)
    return read.diverging


def fetch_of_an_earlier_leader_epoch(directory: Path) -> Any:
    replica = Replica(directory)
    partition = replica.lead(isr=(1, 2), leader_epoch=3)
    append(partition)
    try:
        replica.fetched(2, 1, epoch=1)
    except Refused as refused:
        return refused.error, partition.high_watermark
    return ErrorCode.none, partition.high_watermark


def answer_that_comes_after_the_leader_was_deposed(directory: Path) -> Any:
    """The answer is on its way while this replica moves to another leader's fetcher."""

    async def scenario() -> int:
        replica = Replica(directory)
        follow(replica, 1, 0)
        asked, answered = asyncio.Event(), asyncio.Event()

        class Link:
            closed = False

            async def connect(self, *_: Any, **__: Any) -> Link:
                return self

            async def request(self, request: Any, timeout: float) -> Any:
                asked.set()
                await answered.wait()
                data = PartitionData(
                    partition_index=0,
                    error_code=ErrorCode.none,
                    high_watermark=1,
                    records=leaders_batch(0, 1),
                    aborted_transactions=None,
                )
                topics = (FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=(data,)),)
                return FetchResponse(
                    throttle_time=NO_THROTTLE, error_code=ErrorCode.none, session_id=0, responses=topics
                )

            def close(self) -> None:
                self.closed = True

        errors: list[BaseException] = []
        link: Any = Link()
        quota = ReplicationQuota(MetadataImage(), 1, FOLLOWER)
        fetcher = Fetcher(config(), link, 2, lambda: Address("h", 1), lambda: 10, quota, errors.append, lambda: None)
        fetcher.add(replica.partition)
        await asked.wait()
        follow(replica, 2, 1)
        fetcher.remove(replica.partition.key)
        answered.set()
        while not link.closed and not errors:  # it hangs up once it has no more to ask
            await asyncio.sleep(0)
        fetcher.close()
        assert errors == []
        return replica.partition.log.end_offset

    return asyncio.run(asyncio.wait_for(scenario(), 5))


def last_replica_standing(directory: Path) -> Any:
    partition = Replica(directory).lead(isr=(1,))
    partition.append(batch(), 1, future)
    return partition.high_watermark


def proposed_member_is_behind(directory: Path) -> Any:
    replica = Replica(directory)
    partition = replica.lead(isr=(1, 2))
    replica.fetched(3, 0)
    append(partition)
    # The watermark waits for 3 because it keeps up, too; once it does not, because it was proposed.
    replica.fetched(2, 1, now=LAG + 1)
    partition.consider_shrinking(LAG + 1, EVERYONE)
    return partition.high_watermark


def led_again(directory: Path) -> Replica:
    """Leader epoch start offset 2, and a high watermark of 0 as far as this leader knows."""
    replica = Replica(directory)
    partition = replica.lead(isr=(1,))
    partition.append(batch(b"a", b"b"), 1, future)
    partition.apply(registration(2, (2,), 1, 1), now=0.0)
    partition.restore_high_watermark(0)
    partition.apply(registration(1, (1, 2), 2, 2), now=0.0)
    return replica


def end_of_log_after_an_election(directory: Path) -> Any:
    try:
        return led_again(directory).partition.end_of_committed_log(-1, lease_held=True)
    except Refused as refused:
        return refused.error


def proposal_after(replica: Replica) -> Any:
    leadership = replica.partition.leadership
    assert leadership is not None
    return [r for r, _ in leadership.proposal.isr] if leadership.proposal is not None else None


def join_below_the_epoch_start(directory: Path) -> Any:
    replica = led_again(directory)
    replica.fetched(3, 1, epoch=2, last=0)
    return proposal_after(replica)


def join_below_the_high_watermark(directory: Path) -> Any:
    replica = Replica(directory)
    append(replica.lead(isr=(1, 2)), -1, b"a")
    append(replica.partition, -1, b"b")
    replica.fetched(2, 2)
    assert replica.partition.high_watermark == 2
    replica.fetched(3, 1)
    return proposal_after(replica)


def proposal_from_before_a_fencing(directory: Path) -> Any:
    quorum = three_brokers()
    known = quorum.partition()
    quorum.fence(3, SESSION)
    answer = quorum.alter(1, quorum.epochs, partition_epoch=known.partition_epoch)
    return answer, quorum.partition().isr


def replica_that_restarted_since_it_fetched(directory: Path) -> Any:
    quorum = three_brokers()
    caught_up = dict(quorum.epochs)
    quorum.fence(3, SESSION)
    quorum.comes_back(3, SESSION)
    return quorum.alter(1, caught_up), quorum.partition().isr


def replica_of_a_fenced_broker(directory: Path) -> Any:
    quorum = three_brokers()
    quorum.fence(3, SESSION)
    return quorum.alter(1, quorum.epochs), quorum.partition().isr


def elr_beside_a_whole_isr(directory: Path) -> Any:
    quorum = three_brokers()
    everyone = dict(quorum.epochs)
    for isr in ((1, 3), (1,), (1, 3)):
        assert quorum.alter(1, {r: everyone[r] for r in isr}) is ErrorCode.none
    return quorum.partition().isr, quorum.partition().elr


def unclean_return_of_an_eligible_replica(directory: Path) -> Any:
    quorum = three_brokers()
    quorum.fence(1, SESSION)
    quorum.fence(2, 2 * SESSION)
    assert quorum.partition().elr == (2,)
    quorum.register(2, 3 * SESSION, incarnation=99)
    return quorum.partition().elr


def recovery_from_two_logs(directory: Path) -> Any:
    quorum = all_unclean()
    reported(quorum, 2, 1, 12)
    reported(quorum, 3, 2, 9)
    recover(quorum)
    return quorum.partition().leader


def clean_return_of_an_eligible_replica(directory: Path) -> Any:
    """ISR and ELR have been left by all, 3 the first; who comes back was eligible."""
    quorum = three_brokers()
    for broker in (3, 2, 1):
        quorum.fence(broker, (4 - broker) * SESSION)
    quorum.comes_back(2, 4 * SESSION, clean=True)
    partition = quorum.partition()
    return partition.leader, partition.leader_recovery_state, partition.elr


def recovery_of_a_log_whose_broker_is_gone(directory: Path) -> Any:
    quorum = all_unclean()
    reported(quorum, 2, 1, 9)
    reported(quorum, 3, 1, 12)
    quorum.fence(3, 11 * SESSION)
    recover(quorum)
    return quorum.partition().leader


def old_records_on_a_majority(directory: Path) -> Any:
    """Two records of epoch 1 on nodes 1 and 2, and node 1 leads a later epoch."""
    quorum = elect(boot(disk_with(1, 1)))
    quorum.receive(fetch(2, quorum.epoch, 2, 1), 1.0)
    quorum.poll(1.0)
    return quorum.replica.high_watermark


def second_vote_after_a_restart(directory: Path) -> Any:
    disk = simulated_disk()
    assert granted(boot(disk), vote(2, epoch=5))
    disk.lose_power(Random(0))
    return granted(boot(disk), vote(3, epoch=5))


def voter_about_to_fetch(directory: Path) -> Any:
    quorum = boot(simulated_disk())
    append_metadata(quorum.replica, 1)
    quorum.poll(1.0)
    return quorum.replica.log.flushed_offset


def leader_without_a_majority(directory: Path) -> Any:
    quorum = elect(boot(simulated_disk()))
    quorum.poll(1.0 + 2 * CONFIG.fetch_timeout)
    return quorum.role


def name_of_a_snapshot(directory: Path) -> Any:
    replica = filled(simulated_disk(), 1, 1, 2)
    replica.make_snapshot(3, [], 0)
    return replica.snapshots.latest


def start_of_a_trimmed_log(directory: Path) -> Any:
    """Snapshots end at 2 and 3, and all below 4 is committed."""
    replica = filled(simulated_disk(), 1, 1, 2, 2)
    for end in (2, 3):
        replica.make_snapshot(end, [], 0)
    return replica.log.start_offset


#: What leads to it, and what comes of it without the bug and with it.
CASES: dict[str, tuple[Callable[[Path], Any], Any, Any]] = {
    "L01": (of_log_starts.retention_of_what_is_not_committed, 2, 3),
    "L02": (of_log_starts.leader_starts_beyond_the_followers_end, 1, "fails"),
    "L03": (of_log_starts.retention_of_a_follower, 0, 2),
    "M01": (follower_cuts_what_may_be_committed, (2, 1), (1, -1)),
    "M02": (epoch_unknown_to_the_leader, (1, 5), None),
    "M04": (fetch_of_an_earlier_leader_epoch, (ErrorCode.fenced_leader_epoch, 0), (ErrorCode.none, 1)),
    "M06": (of_partitions.follower_of_no_epoch, ErrorCode.offset_out_of_range, None),
    "M12": (of_log_starts.log_that_parts_below_its_start, (0, 0), "fails"),
    "M13": (answer_that_comes_after_the_leader_was_deposed, 0, 1),
    "M15": (last_replica_standing, 0, 1),
    "M16": (proposed_member_is_behind, 0, 1),
    "M18": (of_partitions.follower_whose_broker_shuts_down, 1, 0),
    "M19": (end_of_log_after_an_election, ErrorCode.offset_not_available, 0),
    "M20": (of_partitions.read_after_a_roll, (1, False), (1, True)),
    "M22": (of_partitions.log_that_begins_anew, (7, 7), (7, 0)),
    "M24": (join_below_the_epoch_start, None, [1, 2, 3]),
    "M25": (join_below_the_high_watermark, None, [1, 2, 3]),
    "M27": (proposal_from_before_a_fencing, (ErrorCode.invalid_update_version, (1, 2)), (ErrorCode.none, (1, 2, 3))),
    "M28": (replica_that_restarted_since_it_fetched, (ErrorCode.ineligible_replica, (1, 2)),
            (ErrorCode.none, (1, 2, 3))),
    "M29": (replica_of_a_fenced_broker, (ErrorCode.ineligible_replica, (1, 2)), (ErrorCode.none, (1, 2, 3))),
    "M30": (of_controllers.leader_is_ahead, (ErrorCode.not_controller, ErrorCode.not_controller),
            (ErrorCode.fenced_leader_epoch, ErrorCode.invalid_update_version)),
    "M33": (of_partitions.fetch_from_who_does_not_lead, ErrorCode.not_leader_or_follower,
            ErrorCode.unknown_leader_epoch),
    "M35": (of_partitions.follower_that_lags_below_min_isr, (None, [1, 2]), ([1, 2], [1, 2])),
    "M36": (elr_beside_a_whole_isr, ((1, 3), ()), ((1, 3), (2,))),
    "M37": (unclean_return_of_an_eligible_replica, (), (2,)),
    "M38": (of_disks.two_starts_after_one_shutdown, (7, None), (7, 7)),
    "M40": (recovery_of_a_log_whose_broker_is_gone, -1, 3),
    "M42": (of_controllers.isr_falls_below_the_minimum, (2,), ()),
    "M44": (recovery_from_two_logs, 3, 2),
    "M45": (clean_return_of_an_eligible_replica, (2, RECOVERED, (1,)), (2, RECOVERING, ())),
    "M47": (of_controllers.registration_that_comes_twice, (True, False, (1, 2, 3)), (False, True, (1, 2))),
    "M49": (of_controllers.added_replica_is_in_sync_and_the_rest_of_the_target_is_not, ((4, 3, 1, 2), (1, 2, 4)),
            ((4, 3), (4,))),
    "M53": (of_controllers.record_that_contradicts_the_state, "stops", "goes on"),
    "M56": (of_disks.power_cut_after_a_segment_was_flushed, 2, 1),
    "M59": (of_disks.append_after_one_that_failed, "refused", (2, 1)),
    "M60": (idempotence.retry_after_a_crash, 0, None),
    "M61": (of_disks.metadata_log_of_a_killed_process, (1, 1), (1, 0)),
    "M62": (of_disks.power_cut_after_a_file_was_replaced, b"after", b""),
    "M63": (voter_about_to_fetch, 1, 0),
    "M65": (old_records_on_a_majority, 0, 2),
    "M67": (second_vote_after_a_restart, False, True),
    "M69": (leader_without_a_majority, Role.RESIGNED, Role.LEADER),
    "M71": (name_of_a_snapshot, (3, 2), (2, 1)),
    "M72": (start_of_a_trimmed_log, 2, 4),
    "M73": (idempotence.retry_of_five_in_flight, ["out of order", 1, 2, 3, 4, 5, None],
            [*["out of order"] * 5, 5, None]),
    "M76": (idempotence.producer_unknown_to_a_follower, 4, "refused"),
    "P01": (of_assignments.three_replicas_on_four_brokers, (1, 2, 3), (1, 2, 2)),
    "P02": (of_assignments.two_replicas_in_two_racks, (1, 3), (1, 2)),
    "R01": (of_assignments.cancelled_while_the_added_replica_is_one_of_two_in_sync,
            (ErrorCode.invalid_replica_assignment, (1, 4)), (ErrorCode.none, (1,))),
    "R02": (of_assignments.moved_from_three_to_four, 1, 0),
    "R03": (of_assignments.removed_while_in_sync, ((1, 2), (1, 2)), ((1, 2), (1, 2, 3))),
}  # fmt: skip


@pytest.mark.parametrize("bug", CASES)
def test_a_bug_has_its_consequence_while_it_is_on(tmp_path: Path, bug: str) -> None:
    scenario, sound, broken = CASES[bug]
    assert scenario(tmp_path / "before") == sound
    with bugs.switched_on(bug):
        assert scenario(tmp_path / "with") == broken
    assert scenario(tmp_path / "after") == sound


def test_every_bug_replaces_a_rule_that_there_is_and_fits_its_place() -> None:
    assert [bug.id for bug in bugs.all_bugs()] == sorted(CASES)
    for bug in bugs.all_bugs():
        rule = getattr(importlib.import_module(f"cluster_image.{bug.module}"), bug.rule)
        assert rule.__module__ == f"cluster_image.{bug.module}", bug.id
        assert inspect.signature(rule) == inspect.signature(bug.replacement), bug.id
        assert set(bug.properties) <= {*INVARIANTS, LOG_LINEARIZABILITY}, bug.id
        assert bug.title and bug.source and bug.nemesis, bug.id


def test_the_rule_is_back_even_after_an_error() -> None:
    rule = rules.may_commit
    with pytest.raises(RuntimeError), bugs.switched_on("M15"):
        assert rules.may_commit is not rule  # type: ignore[comparison-overlap]
        raise RuntimeError
    assert rules.may_commit is rule
    with bugs.switched_on(None):
        assert rules.may_commit is rule


def test_an_unknown_bug_is_refused_with_those_there_are() -> None:
    with pytest.raises(bugs.UnknownBug, match=r"'M99'; valid are L01, "), bugs.switched_on("M99"):
        pass
    with pytest.raises(ConfigError, match=r"chaos\.bug=M99"):
        config(chaos_bug="M99")
    assert config()["chaos.bug"] == config(chaos_bug="")["chaos.bug"] == ""


@pytest.mark.parametrize(("setting", "has_bug"), [("chaos.bug=M15\n", True), ("", False)])
def test_a_process_has_the_bug_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, has_bug: bool
) -> None:
    seen = []

    def run(main: Any) -> None:
        main.close()
        seen.append(rules.may_commit({1}, 2, 3, True))

    monkeypatch.setattr(uvloop, "run", run)
    monkeypatch.setattr(cluster_image.__main__, "logging", SimpleNamespace(**_NO_LOGGING))
    properties = tmp_path / "node.properties"
    properties.write_text(
        "node.id=1\nprocess.roles=broker\ncluster.id=c\ncontroller.quorum.voters=101@h:1\nlisteners=h:2\nlog.dirs=/d\n"
        + setting
    )
    assert cluster_image.__main__.main(str(properties)) == 0
    assert seen == [has_bug]


_NO_LOGGING = {
    "StreamHandler": lambda stream: SimpleNamespace(setFormatter=lambda f: None),
    "basicConfig": lambda **_: 0,
}
