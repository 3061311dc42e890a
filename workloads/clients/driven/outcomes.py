"""What the errors of a client mean: which say that a record was not appended and never will be, and why.

Whatever is not in a client's table is unknown (`info`): it may have been appended, or may still be. A client that sends
a record again by itself tells only how its last attempt ended, and an earlier one may have been carried out: so what a
broker refused is certain only where the client sends a record once (`retries` 0), but for errors that every attempt
must have met with. NOT_LEADER_OR_FOLLOWER is never certain: a leader that is deposed while a batch waits for its
followers answers so, and the offset that would tell (see kio/outcomes.py) is not shown by these clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from workloads.clients.kio.outcomes import Outcome

#: What became of records whose process ended, or was ended because it hung: see DrivenProducers.
CRASHED: Final = "CLIENT_CRASHED"
HUNG: Final = "CLIENT_HUNG"
#: When an error is that: as the record is handed to the client; whenever it is told; or only where the client sends
#: nothing twice.
When = Literal["at once", "always", "sent once"]


@dataclass(frozen=True)
class Meaning:
    """error: as the driver names it. why: a clause."""

    error: str
    when: When
    outcome: Literal["fail", "info"]
    why: str


def refused(error: str, why: str) -> Meaning:
    """The client did not take the record."""
    return Meaning(error, "at once", "fail", why)


def too_large(error: str) -> Meaning:
    return Meaning(error, "always", "fail", "the topic takes no record of that size, whenever it is sent")


def not_enough_replicas(error: str) -> Meaning:
    """Which a broker looks for before it appends; after it has, it answers NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    return Meaning(error, "sent once", "fail", "a broker looks at the ISR before it appends")


def gave_up(error: str) -> Meaning:
    return Meaning(error, "always", "info", "its delivery time has passed; it may have been sent, and answered nothing")


#: Of every client.
OF_ALL: Final = (
    Meaning(CRASHED, "always", "info", "the client's process ended: what it had sent, nobody knows"),
    Meaning(HUNG, "always", "info", "the client told nothing of it when it had long been due"),
)


@dataclass(frozen=True)
class Outcomes:
    """Of one client, under the settings of a run. sends_once: it repeats nothing by itself."""

    meanings: Sequence[Meaning]
    sends_once: bool
    acks: str = "all"  # of the producers

    @property
    def acknowledged(self) -> Outcome:
        """What it means that a client tells no error: with acks=0, only that it has sent the record."""
        return "info" if self.acks == "0" else "ok"

    def of(self, error: str, stage: str) -> Outcome:
        """stage: "send", where the client refused the record at once; or "delivery"."""
        for each in self.meanings:
            if each.error == error and self._holds(each.when, stage):
                return each.outcome
        return "info"

    def _holds(self, when: When, stage: str) -> bool:
        return when == "always" or (when == "at once" and stage == "send") or (when == "sent once" and self.sends_once)
