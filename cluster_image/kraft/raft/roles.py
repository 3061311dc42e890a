"""The roles of a replica of the quorum, and every move between them with its reason. Each role has one timer:

    UNATTACHED, PROSPECTIVE, CANDIDATE, RESIGNED    election timeout, drawn from one to two times the setting
    FOLLOWER                                        fetch timeout, up to a tenth more, from the leader's last answer
    LEADER                                          fetch timeout, counted from a majority's last fetches

An observer is only ever UNATTACHED, and then asks one voter after the other who leads, or FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


TRANSITIONS: Final[Mapping[Role, Mapping[Role, str]]] = {
    Role.UNATTACHED: {
        Role.PROSPECTIVE: "timer",
        Role.FOLLOWER: "learned who leads",
        Role.UNATTACHED: "higher epoch; granted a vote",
    },
    Role.FOLLOWER: {
        Role.PROSPECTIVE: "timer, which the leader's farewell shortens",
        Role.FOLLOWER: "learned who leads a higher epoch",
        Role.UNATTACHED: "higher epoch; granted a vote in it; observer: timer, or the leader is out of reach",
    },
    Role.PROSPECTIVE: {
        Role.CANDIDATE: "won the pre-vote",
        Role.FOLLOWER: "timer or lost the pre-vote, and there was a leader; learned who leads",
        Role.UNATTACHED: "timer or lost the pre-vote, and there was none; higher epoch; granted a vote",
    },
    Role.CANDIDATE: {
        Role.LEADER: "won the vote",
        Role.PROSPECTIVE: "timer, which losing the vote shortens",
        Role.FOLLOWER: "learned who leads",
        Role.UNATTACHED: "higher epoch; granted a vote in it",
    },
    Role.LEADER: {
        Role.RESIGNED: "timer; asked to stop",
        Role.FOLLOWER: "learned who leads a higher epoch",
        Role.UNATTACHED: "higher epoch; granted a vote in it",
    },
    Role.RESIGNED: {
        Role.PROSPECTIVE: "timer",
        Role.FOLLOWER: "learned who leads a higher epoch",
        Role.UNATTACHED: "higher epoch; granted a vote in it",
    },
}
