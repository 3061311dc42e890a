"""Of sections 3, 6 and 8 of the description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

_BROKER: Final = "kraft/broker/rules.py"
_REPLICATION: Final = "replication/rules.py"
_PARTITION: Final = "kraft/broker/partition.py"
_EPOCHS: Final = "storage/epoch_cache.py"
_CONTROLLER: Final = "kraft/controller/rules.py"
_BROKERS: Final = "kraft/controller/brokers.py"
_SERVER: Final = "kraft/controller/server.py"
_CHANGE: Final = "kraft/controller/partition_change.py"
_LIFECYCLE: Final = "kraft/broker/lifecycle.py"

_NO_DIVERGENCE: Final = Returns(_BROKER, "has_diverged", "False")
_CUT_TO_LEADERS_END: Final = Returns(_REPLICATION, "truncation_offset", "leaders[1]")
#: The lookup names the epoch that was asked for.
_EPOCH_AS_ASKED: Final = Text(_EPOCHS, "(entries[next_index - 1].epoch if next_index else epoch), end", "epoch, end")
#: Where the log knows no epoch so low, the lookup gives the end of the log.
_NO_LOWEST_EPOCH: Final = Text(_EPOCHS, "if next_index < len(entries) else", "if 0 < next_index < len(entries) else")
#: The leader alone says what is committed.
_HIGHEST_END: Final = Returns(_BROKER, "next_high_watermark", "max(current, max(end_offsets))")
_ANYBODY_LEADS: Final = Returns(_CONTROLLER, "may_lead", "broker is not None and broker.active")
_NOT_BELOW_WATERMARK: Final = Text(_BROKER, "follower_end >= high_watermark and ", "")
_NOT_BELOW_EPOCH_START: Final = Text(_BROKER, " and follower_end >= epoch_start", "")
#: Once it has been unfenced, a broker that is fenced must register anew.
_FENCING_ENDS_THE_EPOCH: Final = Text(
    _BROKERS,
    "if broker is None or broker.epoch != request.broker_epoch:",
    "if (\n"
    "            broker is None\n"
    "            or broker.epoch != request.broker_epoch\n"
    "            or (broker.fenced and self._metadata_offsets.get(broker.id, -1) >= broker.epoch)\n"
    "        ):",
)
_MAXIMAL_ISR_WITHOUT_PROPOSED: Final = Returns(_BROKER, "maximal_isr", "frozenset(isr)")

DROPS: Final[Mapping[str, Drop]] = {
    "3-1": _NO_DIVERGENCE,
    "3-2": Text(
        _PARTITION,
        "        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.end_offset)\n",
        "        self._truncate_to(self._high_watermark)\n"
        "        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.end_offset)\n",
    ),
    "3-3": _NO_DIVERGENCE,
    "3.1-1": Returns(_BROKER, "start_following", "FollowerStart(high_watermark, names_epoch=True)"),
    "3.2-1": Returns("replication/replica.py", "Replica.last_fetched_epoch", "-1"),
    "3.2-2": _EPOCH_AS_ASKED,
    "3.2-3": _NO_LOWEST_EPOCH,
    "3.2-4": Returns(_BROKER, "has_diverged", "end_of_epoch[1] < fetch_offset"),
    "3.2-5": Returns(_BROKER, "has_diverged", "end_of_epoch[0] < last_fetched_epoch"),
    "3.2-6": Text(
        "replication/fetch.py",
        '        values["diverging_epoch"] = module.EpochEndOffset(epoch=i32(epoch), end_offset=i64(end_offset))\n',
        "",
    ),
    "3.2-7": Returns(_REPLICATION, "truncation_offset", "max(leaders[1], own[1])"),
    "3.2-8": Returns("storage/log.py", "Log.assign_epoch_start_offset", "None"),
    "3.2-9": _NO_DIVERGENCE,
    "3.3.1-A": Returns(
        _BROKER, "has_diverged", "end_of_epoch[0] < last_fetched_epoch or end_of_epoch[1] != fetch_offset"
    ),
    "3.3.2-B": Returns(
        _BROKER, "has_diverged", "end_of_epoch[0] < last_fetched_epoch or end_of_epoch[1] <= fetch_offset"
    ),
    "3.3.3-C": Returns(_REPLICATION, "truncation_offset", "own[1]"),
    "3.3.4-D": _EPOCH_AS_ASKED,
    "3.3.5-E": Text(
        _EPOCHS, "entries[next_index].start_offset if next_index < len(entries) else log_end_offset", "log_end_offset"
    ),
    "3.3.6-F": _CUT_TO_LEADERS_END,
    "3.3.7-G": _NO_LOWEST_EPOCH,
    "6.1-1": _HIGHEST_END,
    "6.1-2": Text("storage/producer_state.py", "for batch in producer.batches:", "for batch in ():"),
    "6.1-3": Text(_PARTITION, "        leadership.answer_up_to(advanced, verdict)\n", ""),
    "6.2-1": Returns(_BROKER, "may_commit", "True"),
    "6.2-2": Returns(_CONTROLLER, "is_unclean", "False"),
    "6.2-3": Returns("kraft/metadata/rules.py", "is_earlier_session", "False"),
    # A controller that does not lead decides on what it knows.
    "6.3-1": Text(
        _SERVER,
        "            raise NotLeader\n        # Offsets also go",
        "            controller = Controller(\n"
        '                self._committed.copy(), self._config, self._config["cluster.id"], self._random,\n'
        "                asyncio.get_running_loop().time(),\n"
        "            )\n        # Offsets also go",
    ),
    "6.3-2": Text(
        _SERVER,
        "            await raft.committed(raft.end_offset - 1, _COMMIT_TIMEOUT_SECONDS)\n",
        "            pass\n",
    ),
    # Each change is decided on what is committed.
    "6.3-3": Text(
        _SERVER,
        "step = operation(controller,",
        "controller.image.become(self._committed.copy())\n        step = operation(controller,",
    ),
    "6.3-4": Text(
        _CONTROLLER,
        "    if partition_epoch < partition.partition_epoch:\n        return ErrorCode.invalid_update_version\n",
        "",
    ),
    # A new leader takes all that it has for committed.
    "6.4-1": Text(
        _PARTITION,
        "        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.end_offset)\n",
        "        self.log.assign_epoch_start_offset(self.leader_epoch, self.log.end_offset)\n"
        "        self._set_high_watermark(self.log.end_offset)\n",
    ),
    "6.4-2": Returns(_BROKER, "next_high_watermark", "min(end_offsets)"),
    "6.4-3": Text(
        "replication/replica.py",
        "max(min(leaders_watermark, self.log.end_offset), self.log.start_offset)",
        "max(min(leaders_watermark, self.log.end_offset), self._high_watermark)",
    ),
    "6.4.1-1": _HIGHEST_END,
    "6.4.2-1": Text(_PARTITION, "Leadership.begin(self.log.end_offset,", "Leadership.begin(self._high_watermark,"),
    "6.4.2-2": Returns(_BROKER, "may_tell_end_of_log", "high_watermark > epoch_start and lease_held"),
    "6.4.2-3": _NOT_BELOW_EPOCH_START,
    "6.4.2-4": Returns(_BROKER, "may_tell_end_of_log", "lease_held"),
    "6.4.2-5": Returns(_BROKER, "may_tell_end_of_log", "high_watermark >= epoch_start"),
    "6.4.2-6": Text(
        _LIFECYCLE, "self.lease_until = sent +", "self.lease_until = asyncio.get_running_loop().time() +"
    ),
    "6.4.2-7": Text(_LIFECYCLE, "not self.fenced and in_session", "not self.fenced"),
    "6.5-1": Text(_CONTROLLER, "if r not in isr and r != unclean)", "if r not in isr)"),
    "6.5-2": _ANYBODY_LEADS,
    "6.5.1-1": Returns(_CONTROLLER, "may_register", "True"),
    "6.5.1-2": _FENCING_ENDS_THE_EPOCH,
    "6.5.1-3": Text(_BROKERS, "if broker is None or broker.epoch != request.broker_epoch:", "if broker is None:"),
    "6.5.1-4": Text(_CONTROLLER, "if r not in isr and r != unclean)", "if r not in isr)"),
    "6.5.1-5": Text(_CONTROLLER, "if r not in isr and r != unclean)", "if r not in isr)"),
    "6.5.1-6": Returns("kraft/metadata/rules.py", "is_earlier_session", "False"),
    "6.5.2-1": _MAXIMAL_ISR_WITHOUT_PROPOSED,
    "6.5.2-2": _MAXIMAL_ISR_WITHOUT_PROPOSED,
    "6.5.2-3": Returns(_BROKER, "maximal_isr", "frozenset(proposed)"),
    "6.5.2-4": Text(
        _PARTITION,
        "        return rules.may_commit(\n            self.isr,",
        "        return rules.may_commit(\n            self.leadership.maximal_isr if self.leadership else self.isr,",
    ),
    "6.5.2-5": _HIGHEST_END,
    "6.5.2-6": Text(
        _PARTITION,
        "            self._recovering = False\n            self._commit_isr(isr, partition_epoch)\n",
        "            self._recovering = False\n",
    ),
    "6.5.2-7": Returns(_BROKER, "may_roll_back", "False"),
    "6.5.2-8": _MAXIMAL_ISR_WITHOUT_PROPOSED,
    "6.5.2-9": Text(_PARTITION, "leadership.proposal is None and rules.may_join_isr(", "rules.may_join_isr("),
    "6.5.2-10": Text(
        _PARTITION,
        "        if leadership.proposal is not None:\n            return\n        lagging",
        "        lagging",
    ),
    "6.5.3-1": _NOT_BELOW_WATERMARK,
    "6.5.3-2": _NOT_BELOW_EPOCH_START,
    "6.5.4-1": Text(_BROKER, "if theirs == -1 or theirs == ours:", "if theirs == -1 or theirs <= ours:"),
    # What is known of followers outlives the term.
    "6.5.4-2": Text(
        _PARTITION,
        "            self.leadership.waiting = before.waiting\n",
        "            self.leadership.waiting = before.waiting\n"
        "            self.leadership.followers = before.followers\n",
    ),
    "6.5.4-3": Text(
        "kraft/broker/replica_manager.py",
        "        self._to_delete |= {(p.topic, p.index): p.key[0] for p in gone}\n",
        "",
    ),
    # A replica that does not lead takes records too.
    "6.6-1": Text(
        _PARTITION,
        "        leadership = self._require_leadership()\n        if acks == -1 and",
        "        leadership = self.leadership\n"
        "        if leadership is None:\n"
        "            return Appended(self.log.append_as_leader(records, max(self.leader_epoch, 0)), None)\n"
        "        if acks == -1 and",
    ),
    "6.6-2": _ANYBODY_LEADS,
    "6.6-5": _NO_DIVERGENCE,
    "6.6-3": _CUT_TO_LEADERS_END,
    "6.6-4": Text("storage/log.py", "if not continues(header, next_offset, last_epoch):", "if False:"),
    "6.7-1": Text(_CONTROLLER, " and len(members) >= min_isr", ""),
    "6.7-2": Text(
        "kraft/controller/reassignments.py",
        "isr = tuple(r for r in partition.isr if r not in dropped)",
        "isr = assignment.replicas",
    ),
    "6.7-3": Returns(_CONTROLLER, "may_complete_reassignment", "len([r for r in isr if r in target]) >= min_isr"),
    "6.7-4": Text(_CHANGE, "assigned = _completed(partition, isr, electorate, asked)", "assigned = asked"),
    "6.7-5": Text(_CHANGE, "members = _kept(isr, assigned.replicas)", "members = tuple(isr)"),
    "6.7-6": Returns(_CONTROLLER, "may_drop_replicas", "True"),
    "6.8-1": Text(_CONTROLLER, "everyone or (strategy != BALANCED and timed_out", "everyone or (timed_out"),
    "6.8-2": Text(
        _CONTROLLER,
        "sorted({*partition.isr, *partition.elr, *partition.last_known_elr})",
        "sorted({*partition.isr, *partition.elr})",
    ),
    "8.1-13": Text(
        _LIFECYCLE,
        "        while True:\n            try:\n                answer = await self._channel.request(request)\n",
        "        self.state = State.RECOVERY\n"
        "        while True:\n            try:\n                answer = await self._channel.request(request)\n",
    ),
    "8.1-1": Text(_LIFECYCLE, "uuid.UUID(int=random.getrandbits(128), version=4)", "uuid.UUID(int=1)"),
    "8.1-2": Returns(
        _CONTROLLER, "may_register", "registration is not None and (same_incarnation or not session_alive)"
    ),
    "8.1-3": Returns(_CONTROLLER, "may_register", "registration is None or same_incarnation"),
    "8.1-4": Returns(_CONTROLLER, "may_register", "registration is None or not session_alive"),
    "8.1-5": Returns(_CONTROLLER, "may_register", "True"),
    # A counter of its own.
    "8.1-6": Text(
        _BROKERS,
        "        epoch = image.end_offset\n",
        "        epoch = 1 + max((b.epoch for b in image.brokers.values()), default=0)\n",
    ),
    "8.1-7": Text(
        "kraft/metadata/image.py",
        "in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,",
        "in_controlled_shutdown=broker.in_controlled_shutdown,",
    ),
    "8.1-8": Text(_LIFECYCLE, "        self.state = State.RECOVERY\n", ""),
    "8.1-9": Text("kraft/broker/server.py", "while self._image.end_offset <= lifecycle.broker_epoch:", "while False:"),
    "8.1-14": Text(_LIFECYCLE, "want_fence=not self._ready", "want_fence=False"),
    "8.1-15": Text(
        _BROKERS,
        "        if request.cluster_id != self._term.cluster_id:\n"
        "            return Step((), _registration_answer(ErrorCode.inconsistent_cluster_id))\n",
        "",
    ),
    "8.1-10": Returns(_CONTROLLER, "may_unfence", "registration.fenced"),
    "8.1-11": Text(
        _BROKERS,
        "return Step(self._unfence(broker), _heartbeat_answer(ErrorCode.none, caught_up, fenced=False))",
        "return Step(self._unfence(broker), _heartbeat_answer(ErrorCode.none, caught_up))",
    ),
    "8.1-12": Text(
        _LIFECYCLE, "            if self.state is State.RECOVERY:\n                self.state = State.RUNNING\n", ""
    ),
    "8.2-1": Text(
        _LIFECYCLE,
        "        self.fenced = answer.is_fenced\n",
        "        self.fenced = answer.is_fenced\n"
        "        if self.fenced and self.state is State.RUNNING:\n"
        "            self.state = State.RECOVERY\n",
    ),
    "8.2-2": _FENCING_ENDS_THE_EPOCH,
    "8.3-1": Text(_LIFECYCLE, "want_shut_down=self.state is State.PENDING_CONTROLLED_SHUTDOWN", "want_shut_down=False"),
    "8.3-2": Text(
        _BROKERS, "[_change(broker, in_controlled_shutdown=1), *self._leave(broker)]", "[*self._leave(broker)]"
    ),
    "8.3-3": Text(
        _BROKERS,
        "[_change(broker, in_controlled_shutdown=1), *self._leave(broker)]",
        "[_change(broker, in_controlled_shutdown=1)]",
    ),
    "8.3-4": Text(_BROKERS, "if broker.active and leads and not at_once:", "if broker.active and not at_once:"),
    "8.3-5": Returns(_CONTROLLER, "may_shut_down", "seen is None or seen >= moved_below - 1"),
    "8.3-6": Returns(_CONTROLLER, "may_shut_down", "not leads"),
    "8.3-8": Text(_BROKERS, "if b.active and b.id != broker.id]", "if b.id != broker.id]"),
    "8.3-7": Text(_LIFECYCLE, "while not self._may_shut_down.is_set():", "while True:"),
}
