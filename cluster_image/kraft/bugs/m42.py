"""M42: the controller goes by a min.insync.replicas of its own, which is not what the brokers go by.

It was a setting of each node before it became one of the cluster: a controller that nobody had told took Kafka's
default, 1. Then nobody is eligible beside an ISR at which the high watermark stands still, and who leaves that can be
elected no more though it is complete. (Topics with a value of their own were not struck; those of runs have one, so
here they are, too.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from . import Bug

if TYPE_CHECKING:
    from cluster_image.config import Config

_KAFKAS_DEFAULT: Final = 1


def what_nobody_has_told_otherwise(config: Config, topic_settings: Mapping[str, str]) -> int:
    return _KAFKAS_DEFAULT


BUG = Bug(
    id="M42",
    title="brokers and controller disagree on min.insync.replicas",
    source="KAFKA-16540 (#17952)",
    nemesis="last-replica-standing",
    properties=("MinIsrRecoveryQuorum", "ReplicationQuorumSuperset", "LeaderCompleteness"),
    module="kraft.controller.rules",
    rule="min_insync_replicas",
    replacement=what_nobody_has_told_otherwise,
)
