"""Of 002, asynchronous storage and recovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

_LOG: Final = "storage/log.py"
_MANAGER: Final = "replication/log_manager.py"
_CLEAN_FILE: Final = "storage/checkpoints.py"
_BROKER: Final = "kraft/broker/rules.py"
_CONTROLLER: Final = "kraft/controller/rules.py"
_CHANGE: Final = "kraft/controller/partition_change.py"
_RECOVERY: Final = "kraft/controller/unclean_recovery.py"
_CONFIGS: Final = "kraft/controller/configs.py"

#: An election asks only whether a broker is there.
_ANYBODY_LEADS: Final = Returns(_CONTROLLER, "may_lead", "broker is not None and broker.active")
#: Nobody is asked how its last session ended.
_ALL_ARE_CLEAN: Final = Returns(_CONTROLLER, "is_unclean", "False")
#: Who leaves an ISR below MinISR is out, as any other.
_NOBODY_BECOMES_ELIGIBLE: Final = Text(_CONTROLLER, "in sorted({*isr_before, *elr_before})", "in sorted(elr_before)")
#: It stays eligible though its disk may have lost something.
_UNCLEAN_STAY_ELIGIBLE: Final = Text(_CONTROLLER, "if r not in isr and r != unclean)", "if r not in isr)")
#: There is an ELR beside an ISR of any size.
_ELR_AT_ANY_SIZE: Final = Returns(_CONTROLLER, "needs_elr", "elr_enabled")
_ISR_WITHOUT_CATCHING_UP: Final = Text(
    _BROKER, "follower_end >= high_watermark and follower_end >= epoch_start and eligible", "eligible"
)
#: Any that has told is as good as another.
_LAST_LOG: Final = Returns(_CONTROLLER, "best_log", "next((r for r in reversed(candidates) if r in logs), None)")
#: Balanced recovery, too, takes whom it has heard of in time.
_NOBODY_IS_WAITED_FOR: Final = Text(
    _CONTROLLER, "everyone or (strategy != BALANCED and timed_out", "everyone or (timed_out"
)

DROPS: Final[Mapping[str, Drop]] = {
    "002-5-1": Text(_LOG, "if interval is not None and self.end", "if interval not in (None, 1) and self.end"),
    "002-5-2": Text(_LOG, "if interval is not None and self.end", "if interval == 1 and self.end"),
    "002-5-3": Text(_LOG, "self._last_timed_flush = now\n        self.flush()", "self._last_timed_flush = now"),
    "002-5-4": Text(_LOG, "self.flush()\n        self._segments.add", "self._segments.add"),
    "002-5.1.1-1": Text(_MANAGER, "callback(partition_log.close)", "callback(partition_log.abandon)"),
    "002-5.1.1-2": Text(
        _CLEAN_FILE,
        "except FileNotFoundError:\n            return None\n        use_up",
        "except FileNotFoundError:\n            return 0\n        use_up",
    ),
    # After an unclean end, only what was known to be durable is kept.
    "002-5.1.1-3": Text(
        _LOG,
        "        if tuple(noted)",
        "        if not clean:\n"
        "            self.truncate_to(min(recovery_point or 0, self.end_offset))\n"
        "        if tuple(noted)",
    ),
    "002-5.1.1-4": Text(
        _MANAGER,
        "        self.checkpoint(high_watermarks)\n        self._clean_shutdown.write(broker_epoch)",
        "        self._clean_shutdown.write(broker_epoch)\n        self.checkpoint(high_watermarks)",
    ),
    "002-5.1.1-5": Text(
        "kraft/broker/replica_manager.py",
        "        if self._stopped or self._resting:\n",
        "        if self._resting:\n",
    ),
    "002-5.1.1-6": Returns("storage/segment.py", "believe_the_disk", "None"),
    "002-5.1.2-1": _ALL_ARE_CLEAN,
    "002-5.1.2-2": _LAST_LOG,
    "002-5.1.2-3": _ANYBODY_LEADS,
    "002-5.1.2-4": Text(_MANAGER, "if clean and (not whole or any(", "if clean and (any("),
    "002-5.1.2-5": Text(_MANAGER, "return bool(repaired) or lost_its_end or", "return"),
    "002-5.1.2-6": Text(_MANAGER, " or opened.lacks_from is not None", ""),
    "002-5.1.2-7": Text(_MANAGER, "            self._verify_all()\n", ""),
    "002-5.2-1": Text(
        "kraft/controller/brokers.py",
        "leaving = list(self._leave(known, unclean)) if known is not None else []",
        "leaving: list[MetadataRecord] = []",
    ),
    "002-5.2-2": _ISR_WITHOUT_CATCHING_UP,
    "002-5.2-3": _NOBODY_BECOMES_ELIGIBLE,
    "002-5.2-4": Returns(_BROKER, "may_commit", "True"),
    "002-5.2-5": Text(
        "kraft/broker/lifecycle.py", "previous_broker_epoch=i64(self.previous_epoch)", "previous_broker_epoch=i64(-1)"
    ),
    "002-5.2-6": Returns(_CLEAN_FILE, "use_up", "None"),
    "002-5.2-7": Text(
        _CONTROLLER, "previous_epoch != registration.epoch", "previous_epoch not in (-1, registration.epoch)"
    ),
    "002-5.2-8": Returns(_CONTROLLER, "isr_without", "tuple(r for r in isr if r != broker) or tuple(isr)"),
    "002-5.2-9": _ISR_WITHOUT_CATCHING_UP,
    "002-5.2-10": Text(_CONTROLLER, "previous_epoch != registration.epoch", "previous_epoch == -1"),
    "002-5.2-11": Text(
        _CONFIGS, "replace(term.electorate(), min_insync_replicas=lambda _: min_isr)", "term.electorate()"
    ),
    "002-5.2-12": Text(
        _CONFIGS,
        "yield record or PartitionChangeRecord(partition_id=i32(partition.index), topic_id=partition.topic_id)",
        "yield from [record] if record else ()",
    ),
    "002-5.2-13": Text(
        _CONFIGS,
        "PartitionChangeRecord(partition_id=i32(partition.index), topic_id=partition.topic_id)",
        "PartitionChangeRecord(\n"
        "            partition_id=i32(partition.index), topic_id=partition.topic_id, eligible_leader_replicas=()\n"
        "        )",
    ),
    "002-5.2.1-A": _NOBODY_BECOMES_ELIGIBLE,
    "002-5.2.1-B": Text(_CHANGE, "isr = (*isr, leader)  # case B", "isr = tuple(isr)  # case B"),
    "002-5.2.1-C": _NOBODY_BECOMES_ELIGIBLE,
    "002-5.2.1-D": _ELR_AT_ANY_SIZE,
    "002-5.2.1-E": Returns(_BROKER, "may_join_isr", "False"),
    "002-5.2.1-F": _ELR_AT_ANY_SIZE,
    "002-5.2.1-G": _ELR_AT_ANY_SIZE,
    "002-5.2.2-1": Text(_CHANGE, "if leader == NO_LEADER and elr:", "if False:"),
    "002-5.3-1": _NOBODY_BECOMES_ELIGIBLE,
    "002-5.3-2": _ANYBODY_LEADS,
    "002-5.3-3": Returns(_RECOVERY, "UncleanRecovery._strategy", "rules.PROACTIVE"),
    "002-5.3.1-1": Text(_CONTROLLER, "if strategy != BALANCED:", "if strategy not in (BALANCED, PROACTIVE):"),
    "002-5.3.1-2": Text(
        _CONTROLLER, "return everyone or (strategy != BALANCED and timed_out and bool(heard))", "return everyone"
    ),
    "002-5.3.1-3": Text(_CONTROLLER, "    if partition.isr or partition.elr:\n        return ()\n", ""),
    "002-5.3.1-4": Text(_CONTROLLER, "(logs[r].last_epoch, logs[r].end_offset)", "logs[r].end_offset"),
    "002-5.3.1-5": Text("kraft/metadata/image.py", "tuple(map(int, record.last_known_elr or ()))", "()"),
    "002-5.3.1-6": Text(
        _CONTROLLER,
        "sorted({*partition.isr, *partition.elr, *partition.last_known_elr})",
        "sorted({*partition.isr, *partition.last_known_elr})",
    ),
    "002-5.3.1-7": Text(_CHANGE, "return (), ()", "return (), rules.last_known_eligible(partition, isr, ())"),
    "002-5.3.1-8": Text(
        _CONTROLLER, "partition.leader != NO_LEADER or strategy == MANUAL", "partition.leader != NO_LEADER"
    ),
    "002-5.3.1-9": Text(_RECOVERY, "if known is None or known.strategy != strategy:", "if known is None:"),
    "002-5.3.1-10": Text(_RECOVERY, "known.began if same else None", "known.began"),
    "002-5.3.2-1": Text(
        _CONTROLLER,
        "sorted({*partition.isr, *partition.elr, *partition.last_known_elr})",
        "sorted({*partition.isr, *partition.elr})",
    ),
    "002-5.3.2-2": _LAST_LOG,
    "002-5.3.2-3": Text(_RECOVERY, "candidates if strategy == rules.BALANCED else available", "available"),
    "002-5.3.2-4": Text(
        "kraft/controller/server.py", "        for recovery in recoveries:\n            self._report(recovery)\n", ""
    ),
    "002-5.3.2-5": Text(_CONTROLLER, "info.broker_epoch == broker.epoch and ", ""),
    "002-5.3.2-7": Returns(_CONTROLLER, "is_unclean_election", "leader not in isr"),
    "002-5.3.2-6": Text(_CONTROLLER, " and info.current_leader_epoch == partition.leader_epoch", ""),
    "002-5.3.3-1": _UNCLEAN_STAY_ELIGIBLE,
    # Each return of a broker is a change of every partition.
    "002-5.3.3-2": Text(
        _CHANGE,
        "        if broker in (*partition.isr, *partition.elr, partition.leader):\n"
        "            isr = rules.isr_without(partition.isr, broker, electorate.elr_enabled)\n"
        "            record = change(partition, isr, electorate)\n"
        "            if record is not None:\n"
        "                yield record\n",
        "        isr = rules.isr_without(partition.isr, broker, electorate.elr_enabled)\n"
        "        yield change(partition, isr, electorate) or PartitionChangeRecord(\n"
        "            partition_id=i32(partition.index), topic_id=partition.topic_id\n"
        "        )\n",
    ),
    "002-5.3.3-3": Text(
        _CONTROLLER,
        "return tuple(r for r in partition.replicas if r in partition.last_known_elr)",
        "return tuple(r for r in partition.replicas if r in partition.last_known_elr)[:1]",
    ),
    # The epoch that its replica is in, not that of its last record.
    "002-5.3.3-5": Text(
        "kraft/broker/handlers/replica_log_info.py",
        "partition.log.last_epoch, partition.leader_epoch, partition.log.end_offset",
        "partition.leader_epoch, partition.leader_epoch, partition.log.end_offset",
    ),
    "002-5.3.3-4": _NOBODY_IS_WAITED_FOR,
    "002-5.4-1": Text("placement/initial.py", "racks = Racks(brokers)\n", "racks = Racks(dict.fromkeys(brokers))\n"),
}
