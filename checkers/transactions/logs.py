"""Log transactions: sends to and polls of partitions (Jepsen's kafka workload, jepsen.tests.kafka).

A partition is a log. What is known of it are the offsets that acknowledged sends were given and that polls returned;
the records in it are numbered without gaps (`index`), because markers of transactions and aborted records take offsets
too. Polls are believed whatever became of their transaction, for a consumer returns only what is committed; a send is
believed if its transaction is ok, or was indeterminate and what it sent was polled by one that is ok. An offset below 0
is none: -1 is what Kafka's producer says where it was told no offset, and of a poll it is an anomaly.

Dependencies, of different transactions: wr, the sender of a record and each transaction that polled it, whatever became
of either; ww, the senders of successive records. There are no rw edges: a poll need not reach the end of the log.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from checkers.naming import Naming
from checkers.transactions.graph import WR, WW
from checkers.transactions.history import FAIL, INFO, NOTHING, OK, Micro, Transactions
from checkers.transactions.lists import Dependencies
from spark_history.files import Bools, Ints

NOWHERE: Final = -1


class Logs:
    """The sends and polls of some partitions, all of them."""

    def __init__(self, txns: Transactions, micro: Micro, naming: Naming) -> None:
        self.txns, self.naming = txns, naming
        self.micro = micro = micro.take(~(micro.read & (micro.value == NOTHING) & (micro.offset == NOTHING)))
        self.keys, self.key_of = np.unique(micro.key, return_inverse=True)
        self.outcome = txns.outcome[micro.txn]
        #: NOWHERE: not known, or none that a log has
        self.offset = np.where(micro.offset < 0, NOWHERE, micro.offset)
        self.sends = np.flatnonzero(~micro.read)
        self.polls = np.flatnonzero(micro.read)
        # Each value of each partition has a code: records of one code are one message.
        values, of_row = np.unique(micro.value, return_inverse=True)
        _, self.message = np.unique(self.key_of * max(len(values), 1) + of_row, return_inverse=True)
        self.messages = int(self.message.max(initial=-1)) + 1
        #: by message: the row that sent it and one that polled it; NOWHERE: none
        self.sent = self._one_of(self.sends)
        self.polled = self._one_of(self.polls)
        self.polled_ok = self._one_of(self.polls[self.outcome[self.polls] == OK])
        self._find_order()

    def _one_of(self, rows: Ints) -> Ints:
        found = np.full(self.messages, NOWHERE)
        found[self.message[rows[::-1]]] = rows[::-1]
        return found

    @property
    def twice(self) -> str | None:
        messages = np.sort(self.message[self.sends])
        again = np.flatnonzero(messages[1:] == messages[:-1])
        if not len(again):
            return None
        row = self.sent[messages[again[0]]]
        value, key = self.naming.value(self.micro.value[row]), self.naming.key(self.micro.key[row])
        return f"value {value} was sent to partition {key} twice: only unique values make it decidable"

    @cached_property
    def committed(self) -> Bools:
        """By row that sends: has it happened, as far as this part can tell?"""
        # An indeterminate transaction of which an ok one polled something, in one of these partitions.
        proved = np.zeros(len(self.txns), bool)
        proved[self.micro.txn[self.sent[(self.sent != NOWHERE) & (self.polled_ok != NOWHERE)]]] = True
        found: Bools = (self.outcome == OK) | ((self.outcome == INFO) & proved[self.micro.txn])
        return found

    def _find_order(self) -> None:
        """The records of each partition by offset: `entry_…` an entry for each offset and message."""
        believed = np.concatenate([self.polls, self.sends[self.committed[self.sends]]])
        believed = believed[self.offset[believed] >= 0]
        order = np.lexsort((self.message[believed], self.offset[believed], self.key_of[believed]))
        rows = believed[order]
        key, offset, message = self.key_of[rows], self.offset[rows], self.message[rows]
        place = np.ones(len(rows), bool)  # a new offset
        place[1:] = (key[1:] != key[:-1]) | (offset[1:] != offset[:-1])
        new = place.copy()  # a new message
        new[1:] |= message[1:] != message[:-1]
        number = np.cumsum(place) - 1
        self.entry_row, self.entry_message = rows[new], message[new]
        self.entry_place = number[new]
        #: by place (an offset of a partition that holds a record): the first of its messages
        self.place_row = rows[place]
        #: by message: the first and the last place that it was seen at
        self.first_place = np.full(self.messages, NOWHERE)
        self.first_place[self.entry_message[::-1]] = self.entry_place[::-1]
        self.last_place = np.full(self.messages, NOWHERE)
        self.last_place[self.entry_message] = self.entry_place

    def dependencies(self) -> Dependencies:
        sender = np.where(self.sent != NOWHERE, self.micro.txn[self.sent], NOWHERE)
        possible = np.zeros(self.messages, bool)
        known = np.flatnonzero(self.sent != NOWHERE)
        possible[known] = self.outcome[self.sent[known]] != FAIL
        polls = self.polls[self.sent[self.message[self.polls]] != NOWHERE]
        # The senders of successive records, where each is known.
        places = self.place_row[possible[self.message[self.place_row]]]
        before, after = places[:-1], places[1:]
        follows = self.key_of[before] == self.key_of[after]
        before, after = before[follows], after[follows]
        sources = np.concatenate([sender[self.message[polls]], sender[self.message[before]]])
        targets = np.concatenate([self.micro.txn[polls], sender[self.message[after]]])
        rows = np.concatenate([polls, after])
        found = (
            sources,
            targets,
            np.repeat([WR, WW], [len(polls), len(after)]),
            self.micro.key[rows],
            self.micro.value[rows],
            np.concatenate([np.full(len(polls), NOTHING), self.micro.value[before]]),
        )
        kept = sources != targets
        return Dependencies(*(column[kept] for column in found))
