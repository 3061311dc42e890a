"""BrokerAnswered: whether the controller tells brokers what it has decided.

| request            | what must be so
| ------------------ | ------------------------------------------------------------------------------------------------
| BrokerHeartbeat    | only one of the present registration is taken; a broker that asks for it is fenced; one that
|                    | wants to stop may only if it is fenced and leads nothing, and at once if it was fenced; it is
|                    | told whether it is fenced
| BrokerRegistration | who begins a session begins it fenced, with an epoch of its own and what it has told; it is told
|                    | this epoch; another process with the same id is not taken while the session lasts
| AlterPartition     | what is accepted is written as it was proposed, and told as it is written, and nobody joins by a
|                    | fetch from another session of its broker (KIP-903); what is refused is refused for what is so

Elsewhere it is asked what may be accepted (ValidControllerState and others), and that what is due comes about
(BrokerUnfenced, IsrExpands).

Sources: 000, 2.9.2; Apache Kafka's ClusterControlManager, BrokerHeartbeatManager and ReplicationControlManager.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from cluster_image.kraft.metadata.records import RECOVERED, RECOVERING

from .judging import NONE, Wrong, hold, require


class Sessions:
    """When each controller last heard of each broker, in its present term. seconds: of a session."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._images: dict[str, MetadataImage] = {}  # by node: its term's, a copy of its own
        self._heard: dict[tuple[str, int], tuple[Any, float]] = {}  # by node and broker: in which life of it, and when

    def decided(self, node: str, request: Any, image: MetadataImage, step: Step, now: float) -> None:
        """Of a heartbeat or registration. Raises Wrong."""
        if self._images.get(node) is not image:
            # Whoever was active in between may have ended any session.
            self._images[node] = image
            self._heard = {(at, broker): heard for (at, broker), heard in self._heard.items() if at != node}
        answer: Any = step.answer
        kind = type(request).__name__
        if kind not in ("BrokerHeartbeatRequest", "BrokerRegistrationRequest") or answer.error_code is not NONE:
            return
        broker = int(request.broker_id)
        if kind == "BrokerHeartbeatRequest":
            if answer.should_shut_down:
                self._heard.pop((node, broker), None)
                return
            life = image.brokers[broker].incarnation_id
        else:
            life = request.incarnation_id
            before, heard = self._heard.get((node, broker), (life, now))
            silent = now - heard
            hold(
                before == life or silent >= self._seconds,
                f"broker {broker} was heard of {silent:.1f} s ago, and another process becomes it",
            )
        self._heard[node, broker] = life, now


def _sender(request: Any, image: MetadataImage, step: Step) -> BrokerRegistration | None:
    """Who asks; None: it is not registered with this epoch, and is told so. Raises Wrong."""
    answer: Any = step.answer
    broker, epoch = image.brokers.get(int(request.broker_id)), int(request.broker_epoch)
    if broker is None or broker.epoch != epoch:
        stale = answer.error_code is ErrorCode.stale_broker_epoch
        require(stale, f"broker {request.broker_id} of epoch {epoch} is not registered so", answer)
        hold(not step.records, "it refuses and writes something")
        return None
    require(answer.error_code is NONE, f"broker {broker.id} is registered so", answer)
    return broker


def _heartbeat(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    answer: Any = step.answer
    broker = _sender(request, image, step)
    if broker is None:
        return
    who = f"broker {broker.id}"
    caught_up = int(request.current_metadata_offset) >= broker.epoch
    told = bool(answer.is_caught_up)
    hold(told == caught_up, f"{who} has replayed its registration: {caught_up}, and it is told: {told}")
    now = after.brokers[broker.id]
    if answer.should_shut_down:
        leads = [f"{p.topic}-{p.index}" for p in after.partitions() if p.leader == broker.id]
        hold(request.want_shut_down, f"{who} is told to stop, and did not ask")
        hold(now.fenced and not leads, f"{who} is told to stop; it is fenced: {now.fenced}, and leads {leads}")
        return
    hold(not (request.want_shut_down and broker.fenced), f"{who} is fenced, wants to stop, and may not")
    hold(answer.is_fenced == now.fenced, f"{who} is fenced: {now.fenced}, and it is told: {answer.is_fenced}")
    hold(now.fenced or not request.want_fence, f"{who} wants to be fenced, and is not")


def _registration(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    answer: Any = step.answer
    id_ = int(request.broker_id)
    who = f"broker {id_}"
    if answer.error_code is not NONE:
        hold(not step.records, "it refuses and writes something")
        return
    now = after.brokers.get(id_)
    if now is None or now.epoch != int(answer.broker_epoch):
        raise Wrong(f"{who} is told that its epoch is {answer.broker_epoch}, and is registered as {now}")
    if now == image.brokers.get(id_):
        return  # it was registered already
    own = (now.fenced, now.incarnation_id, now.rack, now.epoch)
    due = (True, request.incarnation_id, request.rack, image.end_offset)
    hold(own == due, f"{who} is to be registered as {due}, and is {own}")
    told = [(each.host, int(each.port)) for each in request.listeners]
    hold((now.address.host, now.address.port) in told, f"{who} is at {told}, and is registered at {now.address}")


def _alter_partition(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    answer: Any = step.answer
    sender = _sender(request, image, step)
    if sender is None:
        return
    asked = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    answers = [(topic.topic_id, each) for topic in answer.topics for each in topic.partitions]
    hold(
        [(id_, each.partition_index) for id_, each in asked] == [(id_, each.partition_index) for id_, each in answers],
        "it does not answer of the partitions that it was asked of",
    )
    if len({(id_, each.partition_index) for id_, each in asked}) < len(asked):
        return
    for (topic_id, proposal), (_, told) in zip(asked, answers, strict=True):
        index = int(proposal.partition_index)
        partition = image.partition(topic_id, index)
        if partition is None:
            missing = (ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition)
            require(told.error_code in missing, f"there is no partition {index} of {topic_id}", told)
            continue
        now = after.partition(topic_id, index)
        assert now is not None
        _check_altered(sender.id, proposal, told, partition, now, image)


def _check_altered(
    sender: int, proposal: Any, told: Any, before: PartitionRegistration, now: PartitionRegistration,
    image: MetadataImage,
) -> None:  # fmt: skip
    where = f"{before.topic}-{before.index}"
    isr = tuple(int(each.broker_id) for each in proposal.new_isr_with_epochs)
    proposed = f"broker {sender} proposes {list(isr)} of {where}, leader epoch {int(proposal.leader_epoch)}, partition "
    proposed += f"epoch {int(proposal.partition_epoch)}; it is {before}"
    joins = [each for each in proposal.new_isr_with_epochs if int(each.broker_id) not in before.isr]
    if told.error_code in (NONE, ErrorCode.new_leader_elected):
        for each in joins:
            known = image.brokers.get(int(each.broker_id))
            is_now = known is None or int(each.broker_epoch) in (-1, known.epoch)
            hold(is_now, f"{proposed}; broker {each.broker_id} joins with a fetch of broker epoch {each.broker_epoch}")
        moved = now.leader_epoch != before.leader_epoch  # a reassignment is complete with it
        if not moved:
            hold(set(now.isr) == set(isr), f"{proposed}; accepted, and the ISR becomes {list(now.isr)}")
        hold((told.error_code is NONE) == (now.leader == sender), f"{proposed}; {now.leader} leads, and it is told so")
        if told.error_code is NONE:
            said = (int(told.leader_id), int(told.leader_epoch), int(told.partition_epoch), {*map(int, told.isr)})
            is_so = (now.leader, now.leader_epoch, now.partition_epoch, set(now.isr))
            hold(said == is_so, f"{proposed}; it becomes {is_so}, and is told {said}")
        return
    leader_epoch, partition_epoch = int(proposal.leader_epoch), int(proposal.partition_epoch)
    recovering = int(proposal.leader_recovery_state) == RECOVERING
    reasons = {
        ErrorCode.not_controller: (
            leader_epoch > before.leader_epoch or partition_epoch > before.partition_epoch
        ),
        ErrorCode.fenced_leader_epoch: leader_epoch < before.leader_epoch,
        ErrorCode.invalid_update_version: partition_epoch < before.partition_epoch,
        ErrorCode.invalid_request: (
            sender != before.leader or before.leader not in isr or not {*isr} <= {*before.replicas}
            or len({*isr}) < len(isr)
            or (recovering and (len(isr) > 1 or before.leader_recovery_state == RECOVERED))
        ),
        ErrorCode.ineligible_replica: any(
            not _may_join(image.brokers.get(int(each.broker_id)), int(each.broker_epoch)) for each in joins
        ),
    }  # fmt: skip
    hold(now == before, f"{proposed}; refused, and it becomes {now}")
    require(reasons.get(told.error_code, False) or not any(reasons.values()), proposed, told)


def _may_join(broker: BrokerRegistration | None, epoch: int) -> bool:
    return broker is not None and broker.active and epoch in (-1, broker.epoch)


CHECKS: Final = {
    "BrokerHeartbeat": _heartbeat, "BrokerRegistration": _registration, "AlterPartition": _alter_partition,
}  # fmt: skip
