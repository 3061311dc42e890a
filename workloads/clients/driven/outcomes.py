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
from typing import Literal

from workloads.clients.kio.outcomes import Outcome

#: When it is certain: at once, as the record was handed to the client; whenever it is told; or only where the client
#: sends nothing twice.
When = Literal["at once", "always", "sent once"]


@dataclass(frozen=True)
class Certain:
    """An error that says `fail`. error: as the driver names it. why: a clause."""

    error: str
    when: When
    why: str


@dataclass(frozen=True)
class Outcomes:
    """Of one client, under the settings of a run. sends_once: it repeats nothing by itself."""

    client: str
    certain: Sequence[Certain]
    sends_once: bool

    def of(self, error: str, stage: str) -> Outcome:
        """stage: "send", where the client refused the record at once; or "delivery"."""
        for each in self.certain:
            if each.error == error and self._holds(each.when, stage):
                return "fail"
        return "info"

    def _holds(self, when: When, stage: str) -> bool:
        return when == "always" or (when == "at once" and stage == "send") or (when == "sent once" and self.sends_once)
