"""Safety rules that leaders and the controller share.

`cluster_image/kraft/bugs/` replaces one of them at a time, so callers go through the module (`rules.may_be_in_isr(…)`).
"""

from __future__ import annotations

from .image import BrokerRegistration


def may_be_in_isr(replica_epoch: int, broker: BrokerRegistration | None) -> bool:
    """May this replica be added to an ISR? Its broker must be available (KIP-841), and still be in the uptime session
    in which it caught up: a fetch from before a lossy restart proves nothing (description 6.5.1, case 3; KIP-903).
    A leader asks before it proposes, as far as its metadata tells; the controller decides. An epoch of -1 stands for a
    sender that does not know it."""
    return (
        broker is not None
        and broker.active
        and replica_epoch <= broker.epoch
        and not is_earlier_session(replica_epoch, broker.epoch)
    )


def is_earlier_session(broker_epoch: int, known: int) -> bool:
    """Does what names `broker_epoch` stem from an earlier uptime session of its broker than the one that is known? A
    fetch from then says nothing of the log as it is now (description 6.5.1, case 3; KIP-903). -1 names none."""
    return broker_epoch != -1 and broker_epoch < known
