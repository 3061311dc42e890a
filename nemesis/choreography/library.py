"""Choreographies that have a name: sequences that some bug of replication needed, in general terms.

They stay within what a cluster promises to survive, with acks=all MinISR - 1 lossy shutdowns at a time, but for those
of BEYOND. Those and MOVES, which need a spare broker, are never drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Named(NamedTuple):
    summary: str
    steps: str


LIBRARY: Final[Mapping[str, Named]] = {
    "zombie-leader": Named(
        "a leader is frozen past its session and wakes up believing that it leads; so does its successor",
        "pause leader; until new-leader; for 1s; resume; until in-isr leader; pause second=new-leader; "
        "until new-leader; resume",
    ),
    "stale-leader-returns": Named(
        "a leader follows and leads again, with what it remembers, and is cut off from its followers",
        "pause leader; until new-leader; resume; until in-isr leader; kill second=new-leader; until new-leader; "
        "start second; elect preferred; until leads leader; cut leader from brokers; past lag; heal",
    ),
    "same-leader-new-epoch": Named(
        "a leader is elected again in a new epoch while a follower is out of reach",
        "cut follower from everybody; until out-of-isr follower; cut leader from controllers; until new-leader; heal; "
        "elect preferred; until leads leader; until in-isr follower",
    ),
    "aba-of-a-leader": Named(
        "a leader, another, and the first again, before a follower has heard of either change",
        "cut follower from everybody; kill leader; until new-leader; start leader; until unfenced leader; "
        "kill second=new-leader; until new-leader; start second; heal; until in-isr follower",
    ),
    "diverging-tails": Named(
        "two leaders in turn take what no follower fetches, and meet again",
        "cut leader from brokers; for 1.5s; kill leader; until new-leader; cut second=new-leader from brokers; "
        "for 1.5s; kill second; start leader; until new-leader; heal; start second; until in-isr second",
    ),
    "back-to-back-failovers": Named(
        "leaders die one after the other, faster than replicas catch up",
        "kill leader; until new-leader; kill second=new-leader; start leader; until new-leader; "
        "kill third=new-leader; start second; until new-leader; start third",
    ),
    "late-answers": Named(
        "a follower gets the answers of a leader that has been deposed, and then those of one that it succeeds",
        "delay leader to brokers by 4s; for 500ms; cut leader from controllers; until new-leader; for 3s; heal; "
        "until in-isr leader",
    ),
    "lost-answers": Named(
        "a leader takes a follower out of the ISR, and never hears the answer",
        "cut controllers to leader; pause follower; past lag; heal; resume; until in-isr follower",
    ),
    "late-metadata": Named(
        "a leader hears late what the controllers have decided, and proposes an ISR that was",
        "cut follower from brokers; until out-of-isr follower; delay controller to leader by 2s; kill other; "
        "for 1s; heal follower from brokers; until fenced other; for 3s; start other; heal; until in-isr other",
    ),
    "late-proposals": Named(
        "an ISR that a leader proposes arrives when one of its members has been fenced",
        "cut follower from brokers; until out-of-isr follower; delay leader to controllers by 1.5s; kill other; "
        "heal follower from brokers; until fenced other; for 2s; start other; heal; until in-isr other",
    ),
    "proposal-from-before-a-reboot": Named(
        "a follower that is proposed for the ISR loses its power, and is back with less when that is decided",
        "cut follower from brokers; until out-of-isr follower; delay leader to controllers by 2s; "
        "heal follower from brokers; until caught-up follower; for 200ms; power-off follower; "
        "cut follower from brokers; start follower; until in-isr follower within 5s; heal; until in-isr follower",
    ),
    "fetch-from-before-a-reboot": Named(
        "the last words of a follower that lost its power arrive when it is back, with less",
        "cut follower from brokers; until out-of-isr follower; delay follower to brokers by 1s; "
        "heal follower from brokers; for 1.5s; power-off follower late 4s; start follower; for 3s; heal; "
        "until in-isr follower",
    ),
    "watermark-of-a-successor": Named(
        "a leader commits without a follower, and its successor, which has not heard of that, takes the follower back",
        "kill leader; until new-leader; start leader; until in-isr leader; delay second=new-leader to leader by 200ms; "
        "cut follower from brokers; until out-of-isr follower; elect preferred; heal follower from brokers; for 2s; "
        "heal; until in-isr follower",
    ),
    "tails-of-two-leaders": Named(
        "two leaders in turn take what nobody fetches and stay in the ISR; the first leads again and meets the second",
        "kill leader; until new-leader; start leader; until in-isr leader; cut second=new-leader from brokers; "
        "for 700ms; elect preferred; until leads leader; cut leader from brokers; for 200ms; kill leader; "
        "until new-leader; heal; start leader; until in-isr leader",
    ),
    "minority-with-controller": Named(
        "a leader and the active controller on one side, the majority on the other; clients reach both",
        "cut leader and controller from everybody; until new-leader; for 4s; heal; until in-isr leader",
    ),
    "shrink-then-lose-leader": Named(
        "a follower leaves the ISR and is back, and the leader loses its power",
        "cut follower from brokers; until out-of-isr follower; heal; until in-isr follower; power-off leader; "
        "until new-leader; start leader; until in-isr leader",
    ),
    "controllers-in-turn": Named(
        "leaders of the metadata quorum are cut off one after the other, each with what it alone has written",
        "cut controller from controllers; kill leader; until new-controller; "
        "cut second=new-controller from controllers; start leader; heal controller from controllers; for 2s; heal; "
        "until in-isr leader",
    ),
    "best-log-is-gone": Named(
        "nobody is eligible any more; who has told of the longest log dies before the last one tells of its own",
        "kill follower; until out-of-isr follower; kill other; kill leader; past session; start leader; for 4s; "
        "delay controller to other by 700ms; start other; for 2s; cut controller to other; for 500ms; pause leader; "
        "past session; for 1s; heal; for 4s; resume; start follower; until in-isr other",
    ),
    "longest-log-is-older": Named(
        "nobody is eligible any more; of those who tell of their logs the longest has the tail of an earlier leader",
        "kill leader; until new-leader; start leader; until in-isr leader; cut second=new-leader from brokers; "
        "for 700ms; elect preferred; until leads leader; for 150ms; kill other; kill leader; kill second; "
        "past session; start leader; for 3s; heal; start second; for 5s; start other; until in-isr other",
    ),
}  # fmt: skip
MOVES: Final[Mapping[str, Named]] = {
    "reassigned-while-frozen": Named(
        "a broker is frozen while a partition moves away from it, gets another leader, and moves back",
        "pause follower; reassign follower; until no-replica follower; stop leader; until new-leader; start leader; "
        "until unfenced leader; reassign back; for 4s; resume follower; until in-isr follower",
    ),
}  # fmt: skip
BEYOND: Final[Mapping[str, Named]] = {
    "all-lose-power": Named(
        "every replica loses its power, the deposed leader with a tail of its own: beyond what replication survives",
        "cut leader from brokers; for 2s; power-off follower; power-off other; power-off leader; start leader; "
        "for 1s; start follower; pause follower; start other; for 4s; resume; heal; until in-isr other",
    ),
    "lagging-replica-leads": Named(
        "who lags is elected uncleanly, as the others are gone, and they are back (unclean.recovery.strategy="
        "proactive): beyond what replication survives",
        "kill follower; until out-of-isr follower; for 4s; kill other; kill leader; past session; start follower; "
        "for 8s; start leader; start other; until in-isr other",
    ),
}  # fmt: skip
