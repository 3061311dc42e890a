"""Of 000, the KRaft replication algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

#: What a leader knows of its followers goes over into its next epoch.
CARRIED_OVER: Final = Text(
    "kraft/broker/partition.py",
    "            self.leadership.waiting = before.waiting\n",
    "            self.leadership.waiting = before.waiting\n            self.leadership.followers = before.followers\n",
)

DROPS: Final[Mapping[str, Drop]] = {
    # -- 1.2.1 ---------------------------------------------------------------------------------------------------
    "000-1.2.1-1": Returns("kraft/raft/rules.py", "is_majority", "count > 0"),
    "000-1.2.1-2": Text(
        "kraft/node.py",
        """        if "broker" in config["process.roles"]:
""",
        """        if "broker" in config["process.roles"] and self._controller is None:
""",
    ),
    # It acts on what it knows.
    "000-1.2.1-3": Text(
        "kraft/controller/server.py",
        """            raise NotLeader
        # Offsets also go""",
        """            committed = self._committed.copy()
            controller = Controller(committed, self._config, self._config["cluster.id"], self._random, 0.0)
        # Offsets also go""",
    ),
    "000-1.2.1-4": Text(
        "kraft/controller/server.py",
        "            await raft.committed(raft.end_offset - 1, _COMMIT_TIMEOUT_SECONDS)\n",
        "            pass\n",
    ),
    # Only the controller that leads sees what is committed.
    "000-1.2.1-5": Text(
        "kraft/raft/driver.py",
        "if self.listener is not None and not header.is_control:",
        "if leadership is not None and self.listener is not None and not header.is_control:",
    ),
    # What it had is gone at each start.
    "000-1.2.1-6": Text(
        "kraft/raft/snapshots.py",
        "    if log.start_offset > start.end_offset:\n",
        "    log.truncate_fully_and_start_at(0)\n    if log.start_offset > start.end_offset:\n",
    ),
    "000-1.2.1-7": Text(
        "kraft/broker/server.py",
        """        if self._ready:
            self._replicas.apply(changed)
""",
        "",
    ),
    "000-1.2.1-8": Returns("kraft/raft/rules.py", "is_majority", "count >= voters"),
    "000-1.2.1-9": Returns("kraft/raft/rules.py", "is_log_up_to_date", "True"),
    # -- 1.2.2 ---------------------------------------------------------------------------------------------------
    "000-1.2.2-1": Text(
        "kraft/controller/brokers.py",
        "        epoch = image.end_offset\n",
        "        epoch = image.end_offset if known is None else known.epoch\n",
    ),
    "000-1.2.2-2": Text(
        "kraft/controller/brokers.py",
        "        epoch = image.end_offset\n",
        "        epoch = 0 if known is None else known.epoch + 1\n",
    ),
    "000-1.2.2-3": Text(
        "kraft/controller/brokers.py",
        "leaving = list(self._leave(known, unclean)) if known is not None else []",
        "leaving: list[MetadataRecord] = []",
    ),
    "000-1.2.2-4": Text(
        "kraft/controller/server.py", "Controller(self._committed.copy(), ", "Controller(MetadataImage(), "
    ),
    "000-1.2.2-5": Text("kraft/controller/rules.py", " and metadata_offset >= registration.epoch", ""),
    "000-1.2.2-6": Text(
        "kraft/broker/lifecycle.py",
        "pause = interval if answered and not waiting",
        "pause = None if answered and not waiting",
    ),
    "000-1.2.2-7": Returns("kraft/controller/brokers.py", "Brokers.fence_one_expired", "Step(())"),
    "000-1.2.2-8": Text(
        "kraft/controller/rules.py", "candidates and broker is not None and broker.active", "candidates"
    ),
    # It must register again.
    "000-1.2.2-9": Text(
        "kraft/controller/brokers.py",
        "        if broker is None or broker.epoch != request.broker_epoch:\n",
        "        alive = broker is not None and self.session_alive(broker.id, now)\n"
        "        if broker is None or broker.epoch != request.broker_epoch or not alive:\n",
    ),
    "000-1.2.2-10": Text(
        "kraft/metadata/image.py",
        "                    fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,\n",
        "                    epoch=broker.epoch + (record.fenced < 0),\n"
        "                    fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,\n",
    ),
    # -- 2.2 -----------------------------------------------------------------------------------------------------
    "000-2.2-1": Returns("replication/fetcher.py", "Fetcher.add", "None"),
    "000-2.2.1-1": Returns("replication/fetcher.py", "fetcher_of", "0"),
    # One fetcher for each partition.
    "000-2.2.1-2": Text(
        "kraft/broker/replica_manager.py",
        'number = fetcher_of(partition.key, self._config["num.replica.fetchers"])',
        "number = partition.index",
    ),
    # From any replica.
    "000-2.2.1-3": Text(
        "kraft/broker/replica_manager.py",
        "leader = partition.leader\n",
        "leader = max(r for r in partition.replicas if r != self._me)\n",
    ),
    "000-2.2.1-4": Text(
        "replication/fetch_session_handler.py",
        "            if each in self._delayed:\n",
        "            if topics or each in self._delayed:\n",
    ),
    "000-2.2.1-5": Text(
        "replication/fetch_session_handler.py", "full = self.epoch == INITIAL_EPOCH\n", "full = True\n"
    ),
    "000-2.2.1-6": Text(
        "replication/fetch.py", "                if not news:\n", "                if asked.key[1] < 0:\n"
    ),
    "000-2.2.2-1": Text(
        "storage/log.py",
        "        start_offset: int = 0,\n        start_epoch: int = -1,\n    ) -> Log:",
        "        start_offset: int = 1,\n        start_epoch: int = -1,\n    ) -> Log:",
    ),
    # Inclusive.
    "000-2.2.2-2": Text(
        "kraft/broker/rules.py", "return max(current, min(end_offsets))", "return max(current, min(end_offsets) - 1)"
    ),
    "000-2.2.2-3": Text(
        "storage/log.py",
        """        if not self._start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {self._start_offset}..{end_offset}")
        limit""",
        """        if not 0 <= offset <= end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {self._start_offset}..{end_offset}")
        offset = max(offset, self._start_offset)
        limit""",
    ),
    "000-2.2.2-4": Text(
        "replication/fetch.py", "last_stable_offset=i64(watermark)", "last_stable_offset=i64(start)"
    ),
    # As its last record has it.
    "000-2.2.2-5": Text(
        "kraft/broker/partition.py",
        "self.log.append_as_leader(records, self.leader_epoch)",
        "self.log.append_as_leader(records, max(self.log.last_epoch, 0))",
    ),
    "000-2.2.2-6": Text(
        "replication/replica.py",
        "return Position(log.end_offset, log.start_offset, ",
        "return Position(self.high_watermark, log.start_offset, ",
    ),
    "000-2.2.2-7": Text(
        "replication/fetcher.py", "replica_epoch=i64(self._broker_epoch())", "replica_epoch=i64(-1)"
    ),
    "000-2.2.2-8": Text("replication/follower_state.py", "        self.broker_epoch = broker_epoch\n", ""),
    "000-2.2.2-9": Text(
        "replication/fetch_session_handler.py",
        "epoch, (end, start, last_epoch) = partition.leader_epoch, partition.position",
        "epoch, (end, start, last_epoch) = -1, partition.position",
    ),
    "000-2.2.2-10": Returns("kraft/broker/partition.py", "Partition.read_as_follower", 'b""'),
    "000-2.2.2-11": Text("replication/follower_state.py", "        self.end_offset = offset\n", ""),
    "000-2.2.2-12": Text(
        "replication/replica.py",
        "self._set_high_watermark(max(min(leaders_watermark, self.log.end_offset), self.log.start_offset))",
        "self._set_high_watermark(self.log.end_offset)",
    ),
    "000-2.2.2-13": Returns("replication/replica.py", "Replica.last_fetched_epoch", "-1"),
    "000-2.2.2-14": Returns("replication/replica.py", "Replica.leader_starts_at", "None"),
    "000-2.2.2-15": Text(
        "storage/log.py", "self._start_offset = max(start_offset, bases[0])", "self._start_offset = start_offset"
    ),
    "000-2.2.2-16": Text(
        "replication/log_manager.py", "        if starts != self._starts:\n", "        if not starts:\n"
    ),
    "000-2.2.2-17": Text(
        "replication/log_manager.py",
        " or opened.lacks_from is not None",
        "",
    ),
    "000-2.2.3-1": Text(
        "kraft/broker/replica_manager.py",
        """            fetcher.remove(partition.key)
        if partition.is_leader or""",
        """            fetcher.remove(partition.key) if partition.leader < 0 else None
        if partition.is_leader or""",
    ),
    "000-2.2.3-2": Text(
        "kraft/broker/replica_manager.py",
        """            fetcher.remove(partition.key)
        if partition.is_leader or""",
        """            fetcher.remove(partition.key) if not partition.is_leader else None
        if partition.is_leader or""",
    ),
    "000-2.2.3-3": Text(
        "kraft/broker/replica_manager.py",
        """            for fetcher in self._fetchers.values():
                fetcher.remove(partition.key)
            exists""",
        """            exists""",
    ),
    # -- 2.3 -----------------------------------------------------------------------------------------------------
    "000-2.3-1": Text(
        "kraft/metadata/image.py",
        "                    tuple(map(int, record.removing_replicas)),\n",
        "                    (),\n",
    ),
    "000-2.3-2": Text(
        "kraft/metadata/image.py", "leader_epoch=partition.leader_epoch + elects", "leader_epoch=partition.leader_epoch"
    ),
    "000-2.3-3": Text(
        "kraft/metadata/image.py",
        "partition_epoch=partition.partition_epoch + 1",
        "partition_epoch=partition.partition_epoch + elects",
    ),
    "000-2.3-4": Text(
        "kraft/controller/rules.py",
        """    if partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
""",
        "",
    ),
    "000-2.3-5": Text(
        "kraft/metadata/image.py",
        "    leader_recovery_state: int = RECOVERED\n",
        "    leader_recovery_state: int = RECOVERED\n    log_end_offset: int = 0\n",
    ),
    # That of its first session.
    "000-2.3-6": Text(
        "kraft/metadata/image.py",
        "                    int(record.broker_epoch),\n",
        "                    self.brokers[record.broker_id].epoch if record.broker_id in self.brokers"
        " else int(record.broker_epoch),\n",
    ),
    "000-2.3-7": Text("kraft/controller/rules.py", "(in_progress and not still_in_progress) or ", ""),
    "000-2.3-8": Returns("kraft/controller/rules.py", "members_kept", "tuple(members)"),
    # What has no leader goes on in the epoch of the last one.
    "000-2.3.1-1": Text(
        "kraft/metadata/image.py",
        "leader_epoch=partition.leader_epoch + elects",
        "leader_epoch=partition.leader_epoch + (elects and record.leader != NO_LEADER)",
    ),
    "000-2.3.1-2": Returns("kraft/controller/rules.py", "is_new_assignment", "False"),
    "000-2.3.1-3": Text("kraft/controller/rules.py", " or not set(before) <= set(after)", ""),
    # Each names everything.
    "000-2.3.2-1": Text(
        "kraft/metadata/image.py", "return before if after is None else", "return () if after is None else"
    ),
    "000-2.3.2-2": Text(
        "kraft/broker/server.py",
        """            changed |= dict.fromkeys(self._image.replay(offset, decode(value)))
        self._replayed.set()
        if self._ready:
            self._replicas.apply(changed)
""",
        """            changed = dict.fromkeys(self._image.replay(offset, decode(value)))
            self._replayed.set()
            if self._ready:
                self._replicas.apply(changed)
""",
    ),
    "000-2.3.2-3": CARRIED_OVER,
    # -- 2.4 -----------------------------------------------------------------------------------------------------
    "000-2.4-1": Text("kraft/controller/rules.py", " or not set(isr) <= set(partition.replicas)", ""),
    # The leader's word changes nothing.
    "000-2.4-2": Text(
        "kraft/controller/partitions.py",
        """                if record is not None:
                    records.append(record)
            except Refused as refused:
                answer = _refusal""",
        """            except Refused as refused:
                answer = _refusal""",
    ),
    # Nor does the controller's.
    "000-2.4-5": Returns("kraft/controller/partition_change.py", "broker_gone", "iter(())"),
    "000-2.4-3": Text("kraft/controller/rules.py", "return replica in candidates and broker", "return broker"),
    # By offset alone.
    "000-2.4-4": Text(
        "kraft/broker/rules.py", "return epoch < last_fetched_epoch or end < fetch_offset", "return end < fetch_offset"
    ),
    "000-2.4.1-1": Text("kraft/broker/rules.py", "max(current, min(end_offsets))", "max(current, max(end_offsets))"),
    # Only the first two of its replicas are ever elected.
    "000-2.4.1-2": Text(
        "kraft/controller/partition_change.py",
        "for r in partition.replicas if rules.may_lead",
        "for r in partition.replicas[:2] if rules.may_lead",
    ),
    "000-2.4.1-3": Returns("kraft/broker/rules.py", "maximal_isr", "frozenset(isr)"),
    "000-2.4.1-4": Returns("kraft/controller/rules.py", "is_unclean", "False"),
    # Then nobody leads any more.
    "000-2.4.1-5": Returns("kraft/controller/rules.py", "isr_without", "tuple(r for r in isr if r != broker)"),
    "000-2.4.2-1": Returns("kraft/controller/rules.py", "eligible_leader_replicas", "()"),
    # A majority, whatever MinISR is.
    "000-2.4.2-2": Returns("kraft/broker/rules.py", "enough_replicas", "len(isr) > replication_factor // 2"),
    "000-2.4.2-3": Returns("kraft/broker/rules.py", "may_commit", "True"),
    # -- 2.5, 2.6 ------------------------------------------------------------------------------------------------
    "000-2.5-1": Text(
        "kraft/broker/partition.py",
        "        if end_offset <= self._high_watermark:\n            done",
        "        if end_offset <= self.log.end_offset:\n            done",
    ),
    "000-2.5-2": Text("kraft/broker/partition.py", "        if acks != -1:\n", "        if acks == 0:\n"),
    "000-2.5-3": Text(
        "replication/produce.py",
        "            return None\n        only_waits()\n        await self._commit(",
        "        only_waits()\n        await self._commit(",
    ),
    # What nobody waits for is not written.
    "000-2.5-4": Text(
        "kraft/broker/partition.py",
        "        duplicate = self._check_producer(header)\n",
        "        if acks == 0:\n"
        "            return Appended(self.log.end_offset, None)\n"
        "        duplicate = self._check_producer(header)\n",
    ),
    "000-2.6-1": Text(
        "kraft/broker/partition.py",
        "        if lagging or self._recovering:\n",
        '        if len(self.isr) - len(lagging) < self._config["min.insync.replicas"]:\n'
        "            lagging = []\n"
        "        if lagging or self._recovering:\n",
    ),
    "000-2.6-2": Text(
        "kraft/broker/partition.py",
        """        if acks == -1 and not self._enough_replicas():
            raise Refused(ErrorCode.not_enough_replicas)
""",
        "",
    ),
    "000-2.6-3": Text(
        "kraft/broker/partition.py",
        "            leadership.answer_all(ErrorCode.not_enough_replicas_after_append)\n",
        "            pass\n",
    ),
    "000-2.6-4": Returns("kraft/broker/partition.py", "Partition._check_producer", "None"),
    # -- 2.7 -----------------------------------------------------------------------------------------------------
    "000-2.7-1": Text(
        "kraft/broker/partition.py",
        """        if offset >= readable or max_bytes <= 0:
            return b""
        return self.log.read(offset, max_bytes, readable)
""",
        """        return b"" if max_bytes <= 0 else self.log.read(offset, max_bytes)
""",
    ),
    # What is proposed replaces what is.
    "000-2.7-2": Returns("kraft/broker/rules.py", "maximal_isr", "frozenset(proposed)"),
    "000-2.7-3": CARRIED_OVER,
    # A majority is enough.
    "000-2.7-4": Text(
        "kraft/broker/rules.py", "max(current, min(end_offsets))", "max(current, sorted(end_offsets)[-2:][0])"
    ),
    "000-2.7-5": Text("kraft/broker/partition.py", "        leadership.answer_up_to(advanced, verdict)\n", ""),
    "000-2.7-6": Text(
        "kraft/broker/partition.py",
        """        if advanced:
            self._advance_high_watermark()
        if follower.deleted_below""",
        """        if follower.deleted_below""",
    ),
    "000-2.7-7": Text(
        "kraft/broker/partition.py",
        """    def _minimum_or_isr_changed(self, leadership: Leadership) -> None:
        self._advance_high_watermark()
""",
        """    def _minimum_or_isr_changed(self, leadership: Leadership) -> None:
""",
    ),
    "000-2.7-8": Text(
        "kraft/broker/partition.py",
        """            self._advance_high_watermark()
            return Appended(base_offset, None)
""",
        """            return Appended(base_offset, None)
""",
    ),
    # One record later.
    "000-2.7-9": Text(
        "kraft/broker/partition.py",
        "if offset >= readable or",
        "if offset + 1 >= readable or",
    ),
    "000-2.7-10": Text("replication/replica.py", "            self._tell(Change.HIGH_WATERMARK)\n", ""),
    # What is refused is taken out again.
    "000-2.7-11": Text(
        "kraft/broker/partition.py",
        "            leadership.answer_all(ErrorCode.not_enough_replicas_after_append)\n",
        "            leadership.answer_all(ErrorCode.not_enough_replicas_after_append)\n"
        "            self.log.truncate_to(self._high_watermark)\n",
    ),
    "000-2.7-12": Returns("kraft/broker/replica_manager.py", "ReplicaManager._checkpoint", "None"),
    "000-2.7-13": Text(
        "kraft/broker/replica_manager.py",
        "self._logs.high_watermarks.get(name, 0)",
        "0",
    ),
    "000-2.7-14": Text(
        "replication/replica.py",
        "min(max(checkpointed, self.log.start_offset), self.log.end_offset)",
        "max(checkpointed, self.log.start_offset)",
    ),
    "000-2.7-15": Text(
        "replication/replica.py",
        "min(max(checkpointed, self.log.start_offset), self.log.end_offset)",
        "min(checkpointed, self.log.end_offset)",
    ),
    # -- 2.8 -----------------------------------------------------------------------------------------------------
    "000-2.8-1": Text(
        "kraft/controller/rules.py",
        """    if sender != partition.leader:
        return ErrorCode.invalid_request
""",
        "",
    ),
    "000-2.8-2": Text(
        "kraft/controller/partition_change.py", "return able[0] if able else NO_LEADER", "return NO_LEADER"
    ),
    "000-2.8-3": Returns("kraft/controller/partition_change.py", "broker_available", "iter(())"),
    "000-2.8-4": Returns("kraft/controller/brokers.py", "Brokers.fence_one_expired", "Step(())"),
    # The leader alone changes.
    "000-2.8-5": Text(
        "kraft/controller/partition_change.py", "        isr=changed(before.isr, after.isr),\n", "        isr=None,\n"
    ),
    "000-2.8-10": Text(
        "kraft/metadata/image.py",
        "return not self.fenced and not self.in_controlled_shutdown",
        "return not self.fenced",
    ),
    # The fencing alone: nothing follows from it.
    "000-2.8-6": Returns("kraft/controller/brokers.py", "Brokers._fence", "[_change(broker, fenced=1)]"),
    "000-2.8-7": Returns("kraft/controller/rules.py", "isr_without", "tuple(r for r in isr if r != broker)"),
    "000-2.8-8": Text(
        "kraft/metadata/image.py",
        """                topic.partitions[index] = changed_partition(topic.partitions[index], record)
                changed = ((topic.id, index),)
""",
        """                topic.partitions[index] = changed_partition(topic.partitions[index], record)
""",
    ),
    "000-2.8-9": Text(
        "kraft/controller/brokers.py",
        "records = [] if broker.fenced else self._fence(broker)",
        "records: list[MetadataRecord] = []",
    ),
    # -- 2.9 -----------------------------------------------------------------------------------------------------
    "000-2.9-1": Text(
        "kraft/controller/rules.py",
        """    if partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
""",
        "",
    ),
    "000-2.9-2": Returns("kraft/controller/rules.py", "isr_without", "tuple(isr)"),
    "000-2.9-3": Returns("kraft/broker/rules.py", "may_join_isr", "False"),
    # Without the slowest.
    "000-2.9-4": Text(
        "kraft/broker/rules.py", "max(current, min(end_offsets))", "max(current, sorted(end_offsets)[-2:][0])"
    ),
    "000-2.9-5": Returns("replication/rules.py", "is_out_of_sync", "follower_end != leader_end"),
    "000-2.9-6": Returns("replication/rules.py", "is_out_of_sync", "False"),
    "000-2.9-7": Text("kraft/broker/rules.py", "follower_end >= high_watermark and ", ""),
    "000-2.9-8": Text("kraft/broker/rules.py", " and follower_end >= epoch_start", ""),
    "000-2.9-9": CARRIED_OVER,
    # A member that has all that is committed may stay.
    "000-2.9-10": Text(
        "kraft/broker/partition.py",
        "if r in self.isr and self._lags(f, now)]",
        "if r in self.isr and self._lags(f, now) and f.end_offset < self._high_watermark]",
    ),
    "000-2.9-11": Returns("kraft/broker/rules.py", "waits_to_join_isr", "False"),
    # Who comes back is in sync.
    "000-2.9-12": Text(
        "kraft/controller/partition_change.py",
        """        if partition.leader == NO_LEADER and broker in partition.replicas:
            record = change(partition, partition.isr, electorate)
""",
        """        if broker in partition.replicas and broker not in partition.isr:
            record = change(partition, (*partition.isr, broker), electorate)
""",
    ),
    # Who lags stays out.
    "000-2.9-13": Text(
        "kraft/broker/partition.py",
        "            self._consider_joining(leadership, replica, follower, lags, eligible)\n",
        """            if not lags:
                self._consider_joining(leadership, replica, follower, lags, eligible)
""",
    ),
    "000-2.9-14": Returns("kraft/broker/rules.py", "may_join_lagging", "True"),
    "000-2.9.1-1": Returns("kraft/controller/partition_change.py", "broker_gone", "iter(())"),
    "000-2.9.1-2": Text(
        "kraft/controller/partition_change.py",
        "BrokerId(NO_LEADER_CHANGE if after.leader == before.leader and not new_epoch else after.leader)",
        "BrokerId(after.leader)",
    ),
    "000-2.9.2-1": Returns("kraft/broker/isr_manager.py", "IsrManager.proposals_changed", "None"),
    "000-2.9.2-2": Text(
        "kraft/broker/leadership.py", "        self.maximal_isr = rules.maximal_isr(committed, isr)\n", ""
    ),
    "000-2.9.2-3": Returns("kraft/broker/rules.py", "maximal_isr", "frozenset(isr)"),
    "000-2.9.2-4": Text(
        "kraft/broker/isr_manager.py", "i64(self._broker_epoch() if r == self._broker_id else epoch)", "i64(-1)"
    ),
    "000-2.9.2-5": Text(
        "kraft/controller/partitions.py",
        "    if broker is None or broker.epoch != request.broker_epoch:\n",
        "    if broker is None:\n",
    ),
    "000-2.9.2-6": Text(
        "kraft/controller/rules.py",
        """    if partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
""",
        "",
    ),
    "000-2.9.2-7": Text(
        "kraft/metadata/rules.py",
        """        and replica_epoch <= broker.epoch
        and not is_earlier_session(replica_epoch, broker.epoch)
""",
        "",
    ),
    "000-2.9.2-8": Returns("kraft/broker/partition.py", "Partition.proposal_accepted", "None"),
    "000-2.9.2-9": Returns("kraft/broker/rules.py", "may_roll_back", "False"),
    "000-2.9.2-10": Text(
        "kraft/broker/partition.py",
        "the controller may refuse for long\n            self._advance_high_watermark()\n",
        "the controller may refuse for long\n",
    ),
    "000-2.9.2-11": Text(
        "kraft/broker/partition.py",
        "if new.partition_epoch <= self.partition_epoch:",
        "if new.partition_epoch < 0:",
    ),
    "000-2.9.2-12": Returns("kraft/broker/rules.py", "may_roll_back", "True"),
    "000-2.9.2-13": Text(
        "kraft/broker/partition.py", " and partition_epoch > self.partition_epoch and self.is_leader", ""
    ),
    # -- 2.10 ----------------------------------------------------------------------------------------------------
    # A leader goes on serving.
    "000-2.10-1": Text(
        "kraft/broker/partition.py",
        "        self.leadership = None\n        leadership.answer_all(error)\n",
        "        leadership.answer_all(error)\n",
    ),
    "000-2.10-2": Returns("kraft/broker/rules.py", "refuse_leader_epoch", "None"),
    "000-2.10-3": Text(
        "kraft/broker/partition.py",
        """        self.leader = -1
        if self.leadership is not None:
            self._resign(self.leadership, error)
        self._tell(Change.ROLE)
""",
        """        self._tell(Change.ROLE)
""",
    ),
    # It must see each.
    "000-2.10-4": Text(
        "kraft/broker/partition.py",
        "new_epoch = new.leader_epoch > self.leader_epoch\n",
        "new_epoch = new.leader_epoch == self.leader_epoch + 1\n",
    ),
    "000-2.10-5": Text("replication/rules.py", " and requested_epoch == current_epoch", ""),
    "000-2.10.1-1": Text(
        "kraft/broker/replica_manager.py",
        """            fetcher.remove(partition.key)
        if partition.is_leader or""",
        """            fetcher.remove(partition.key) if not partition.is_leader else None
        if partition.is_leader or""",
    ),
    # They are taken to have everything.
    "000-2.10.1-2": Text(
        "kraft/broker/leadership.py",
        "{r: FollowerState(last_caught_up=now",
        "{r: FollowerState(end_offset=epoch_start, last_caught_up=now",
    ),
    "000-2.10.1-3": Text(
        "kraft/broker/partition.py",
        "Leadership.begin(self.log.end_offset, ",
        "Leadership.begin(self._high_watermark, ",
    ),
    "000-2.10.1-4": Text(
        "kraft/broker/partition.py",
        "        self._minimum_or_isr_changed(leadership)\n\n",
        "        if not new_role:\n            self._minimum_or_isr_changed(leadership)\n\n",
    ),
    "000-2.10.2-1": Text(
        "kraft/broker/partition.py",
        "        self._minimum_or_isr_changed(leadership)\n\n",
        "        if new_role:\n            self._minimum_or_isr_changed(leadership)\n\n",
    ),
    "000-2.10.3-1": CARRIED_OVER,
    "000-2.10.3-2": Text(
        "kraft/broker/partition.py",
        "            self.leadership.waiting = before.waiting\n",
        "            self.leadership.waiting = before.waiting\n"
        "            self.leadership.epoch_start = before.epoch_start\n",
    ),
    "000-2.10.4-1": Text(
        "kraft/broker/replica_manager.py", "        self._fetchers[leader, number].add(partition)\n", ""
    ),
    # Whatever changes.
    "000-2.10.5-1": Text(
        "kraft/broker/replica_manager.py",
        "if before != (partition.leader, partition.leader_epoch):",
        "if not partition.is_leader:",
    ),
    # Only to another leader.
    "000-2.10.6-1": Text(
        "kraft/broker/replica_manager.py",
        "if before != (partition.leader, partition.leader_epoch):",
        "if before[0] != partition.leader:",
    ),
}
