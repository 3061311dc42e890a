"""Log transactions: what is wrong without any cycle, by Jepsen's names.

| anomaly               | what it is                                                                          |
| --------------------- | ----------------------------------------------------------------------------------- |
| inconsistent-offsets  | one offset of a partition with two values                                           |
| duplicate             | one value at two offsets of a partition                                             |
| lost-write            | a committed send, at or below an offset that was polled, that no poll ever returned |
| G1a                   | an ok transaction polled what a failed one had sent                                 |
| phantom               | a poll returned what nobody sent                                                    |
| precommitted-read     | a transaction polled what it had sent itself                                        |
| int-poll-skip         | between two records that one transaction polled there is one that it did not        |
| int-nonmonotonic-poll | a transaction polled a partition backwards, or a record again                       |
| int-nonmonotonic-send | of two sends of a transaction to a partition the later one got the lower offset     |
| nonmonotonic-send     | the same of two transactions of one process                                         |
| int-send-skip         | allowed: other records stand between two sends of one transaction                   |
| poll-skip             | allowed: a process' poll begins further than one record after where it left off     |
| nonmonotonic-poll     | allowed: a process' poll begins at or before where it left off                      |

Jepsen takes the last two for errors where consumers never subscribe, and forgives them after a re-assignment; the
tables do not tell of assignments, so here they never make a history fail. Where a partition was re-assigned during a
transaction (`rebalanced` of the plan: partitions by transaction) Jepsen and we expect nothing of how that transaction
polled it, so there is neither int-poll-skip nor int-nonmonotonic-poll. Cycles: G1c of wr edges alone is an error
(with process and realtime variants too); transactions that write are not isolated from each other in Kafka, so G0, and
G1c with ww edges, are allowed, as in Jepsen.

Sends that were acknowledged and never polled, though nothing after them was either, may be lost or only not polled yet.
Jepsen calls them `unseen` and the history invalid; here they leave it undecided.

A property of its own, which Jepsen does not look at, is that the log is linearizable in the sends: no acknowledged send
at a higher offset completed before one at a lower offset was invoked (`real-time inversion`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from checkers.anomalies import LOG_LINEARIZABILITY
from checkers.transactions.history import FAIL, NOTHING, OK
from checkers.transactions.logs import NOWHERE, Logs
from checkers.transactions.report import Report
from spark_history.files import Ints
from spark_history.log import NEVER

FORBIDDEN: Final = frozenset(
    {
        "inconsistent-offsets",
        "duplicate",
        "lost-write",
        "G1a",
        "phantom",
        "precommitted-read",
        "int-poll-skip",
        "int-nonmonotonic-poll",
        "int-nonmonotonic-send",
        "nonmonotonic-send",
        "G1c",
        "G1c-process",
        "G1c-realtime",
    }
)

Line = tuple[int, str]  # a transaction, and what it did


def check(logs: Logs, report: Report, rebalanced: Mapping[str, Any]) -> list[str]:
    """Reports what it finds; returns why something is undecided. rebalanced: lists of partitions by transaction."""
    _offsets(logs, report)
    lost = _lost_writes(logs, report)
    _polled(logs, report)
    _contiguity(logs, report, rebalanced)
    _across_transactions(logs, report)
    _inversions(logs, report)
    return _unseen(logs, lost)


def _line(logs: Logs, row: int) -> Line:
    micro = logs.micro
    at = "" if logs.offset[row] == NOWHERE else f" at offset {logs.offset[row]}"
    verb, where = ("poll", "of") if micro.read[row] else ("send", "to")
    return int(micro.txn[row]), f"{verb} {_value(logs, row)} {where} partition {_key(logs, row)}{at}"


def _value(logs: Logs, row: int) -> str:
    return logs.naming.value(logs.micro.value[row])


def _key(logs: Logs, row: int) -> str:
    return logs.naming.key(logs.micro.key[row])


def _said(report: Report, line: Line) -> str:
    return f"{report.name(line[0])} ({line[1]})"


def _offsets(logs: Logs, report: Report) -> None:
    places, rows = logs.entry_place, logs.entry_row
    for i in np.flatnonzero(places[1:] == places[:-1]).tolist():
        lines = [_line(logs, int(rows[i])), _line(logs, int(rows[i + 1]))]
        report.add(
            "inconsistent-offsets",
            f"offset {logs.offset[rows[i]]} of partition {_key(logs, rows[i])} has two values: "
            f"{' and '.join(_said(report, line) for line in lines)}",
            lines,
            offset=int(logs.offset[rows[i]]),
        )
    order = np.lexsort((places, logs.entry_message))
    message, ordered = logs.entry_message[order], rows[order]
    for i in np.flatnonzero(message[1:] == message[:-1]).tolist():
        lines = [_line(logs, int(ordered[i])), _line(logs, int(ordered[i + 1]))]
        report.add(
            "duplicate",
            f"value {_value(logs, ordered[i])} stands twice in partition {_key(logs, ordered[i])}: "
            f"{' and '.join(_said(report, line) for line in lines)}",
            lines,
            value=int(logs.micro.value[ordered[i]]),
        )


def _lost_writes(logs: Logs, report: Report) -> Ints:
    """The messages that were lost."""
    place = logs.first_place
    polled = np.flatnonzero((logs.polled_ok != NOWHERE) & (place != NOWHERE))
    bound = np.full(len(logs.keys), NOWHERE)
    rows = logs.polled_ok[polled]
    np.maximum.at(bound, logs.key_of[rows], place[polled])
    unread = np.flatnonzero((logs.polled == NOWHERE) & (logs.last_place != NOWHERE) & (logs.sent != NOWHERE))
    sends = logs.sent[unread]
    lost = logs.committed[sends] & (logs.last_place[unread] <= bound[logs.key_of[sends]])
    for row in sends[lost].tolist():
        key = logs.key_of[row]
        beyond = logs.place_row[bound[key]]
        reader = int(logs.polled_ok[logs.message[beyond]])
        lines = [_line(logs, row), _line(logs, reader if reader != NOWHERE else int(beyond))]
        report.add(
            "lost-write",
            f"{_said(report, lines[0])} was {'acknowledged' if logs.outcome[row] == OK else 'committed'}, but no poll "
            f"ever returned it, though {_said(report, lines[1])} was past it",
            lines,
            offset=int(logs.offset[row]),
            value=int(logs.micro.value[row]),
        )
    found: Ints = unread[lost]
    return found


def _polled(logs: Logs, report: Report) -> None:
    polls = logs.polls
    sent = logs.sent[logs.message[polls]]
    for row in _once(logs, polls[sent == NOWHERE]):
        line = _line(logs, row)
        report.add(
            "phantom",
            f"{_said(report, line)} returned a value that nobody sent",
            [line],
            value=int(logs.micro.value[row]),
        )
    known = sent != NOWHERE
    polls, sent = polls[known], sent[known]
    failed = (logs.outcome[sent] == FAIL) & (logs.outcome[polls] == OK)
    for row in _once(logs, polls[failed]):
        writer, reader = _line(logs, int(logs.sent[logs.message[row]])), _line(logs, row)
        report.add(
            "G1a",
            f"{_said(report, reader)} returned what {_said(report, writer)} had sent, and that transaction failed",
            [writer, reader],
            value=int(logs.micro.value[row]),
        )
    for row in _once(logs, polls[logs.micro.txn[sent] == logs.micro.txn[polls]]):
        line = _line(logs, row)
        report.add(
            "precommitted-read",
            f"{_said(report, line)} returned what the transaction itself had sent, before it was committed",
            [line],
            value=int(logs.micro.value[row]),
        )


def _once(logs: Logs, rows: Ints) -> list[int]:
    """One row a message."""
    _, first = np.unique(logs.message[rows], return_index=True)
    return [int(row) for row in rows[np.sort(first)]]


def _steps(logs: Logs, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Successive rows of one transaction and partition whose places are known, and the places between them."""
    micro = logs.micro
    same = (micro.key[rows[1:]] == micro.key[rows[:-1]]) & (micro.txn[rows[1:]] == micro.txn[rows[:-1]])
    return _known(logs, rows[:-1][same], rows[1:][same])


def _known(logs: Logs, before: Ints, after: Ints) -> tuple[Ints, Ints, Ints]:
    places = logs.first_place[logs.message[before]], logs.first_place[logs.message[after]]
    known = (places[0] != NOWHERE) & (places[1] != NOWHERE)
    return before[known], after[known], (places[1] - places[0])[known]


def _contiguity(logs: Logs, report: Report, rebalanced: Mapping[str, Any]) -> None:
    """Within a transaction."""
    op, key = logs.txns.op[logs.micro.txn], logs.micro.key
    for what, rows in (("poll", logs.polls), ("send", logs.sends)):
        before, after, delta = _steps(logs, rows)
        if what == "poll" and rebalanced:
            told = [int(key[row]) not in rebalanced.get(str(op[row]), ()) for row in before.tolist()]
            before, after, delta = (column[np.array(told, bool)] for column in (before, after, delta))
        _name_steps(logs, report, (f"int-{what}-skip", f"int-nonmonotonic-{what}"), before, after, delta)


def _across_transactions(logs: Logs, report: Report) -> None:
    """Between the transactions of one process that follow each other."""
    for what, rows in (("poll", logs.polls[logs.outcome[logs.polls] == OK]),
                       ("send", logs.sends[logs.outcome[logs.sends] != FAIL])):  # fmt: skip
        micro = logs.micro
        process = logs.txns.process[micro.txn[rows]]
        rows, process = rows[process != NOTHING], process[process != NOTHING]
        order = np.lexsort((np.arange(len(rows)), micro.txn[rows], process, micro.key[rows]))
        rows, process = rows[order], process[order]
        same = (micro.key[rows[1:]] == micro.key[rows[:-1]]) & (process[1:] == process[:-1])
        same &= micro.txn[rows[1:]] != micro.txn[rows[:-1]]
        before, after, delta = _known(logs, rows[:-1][same], rows[1:][same])
        skips = f"{what}-skip" if what == "poll" else None
        _name_steps(logs, report, (skips, f"nonmonotonic-{what}"), before, after, delta)


def _name_steps(
    logs: Logs, report: Report, names: tuple[str | None, str], before: Ints, after: Ints, delta: Ints
) -> None:
    skip, back = names
    for name, wrong in ((skip, delta > 1), (back, delta < 1)):
        rows = np.flatnonzero(wrong)
        if name is None:
            continue
        for i in rows[:REPORTED].tolist():
            lines = [_line(logs, int(before[i])), _line(logs, int(after[i]))]
            distance = int(delta[i])
            how = f"{distance - 1} record(s) of the log lie between" if distance > 1 else "the log has them otherwise"
            message = f"{_said(report, lines[0])} was followed by {_said(report, lines[1])}: {how}"
            report.add(name, message, lines, value=int(logs.micro.value[after[i]]))
        if len(rows) > REPORTED:
            report.unlisted(name, len(rows) - REPORTED)


#: Steps with a witness: what is allowed may be everywhere.
REPORTED: Final = 200


def _inversions(logs: Logs, report: Report) -> None:
    sends = logs.sends[(logs.outcome[logs.sends] == OK) & (logs.offset[logs.sends] >= 0)]
    sends = sends[np.lexsort((logs.offset[sends], logs.key_of[sends]))]
    txns, txn, key, offset = logs.txns, logs.micro.txn[sends], logs.key_of[sends], logs.offset[sends]
    done, invoke = txns.complete[txn], txns.invoke[txn]
    if not len(sends):
        return
    # The earliest completion at a higher offset of the same partition. Raised by the number of the partition, one
    # minimum from the end serves them all.
    times, rank = np.unique(done, return_inverse=True)
    raised = rank + key * len(times)
    beyond = np.append(np.minimum.accumulate(raised[::-1])[::-1][1:], 0) - key * len(times)
    last = np.append(key[1:] != key[:-1], True)
    bound = np.where(last, NEVER, times[np.where(last, 0, beyond)])
    wrong = np.flatnonzero(bound < invoke)
    if not len(wrong):
        return
    starts = np.flatnonzero(np.concatenate(([True], (np.diff(wrong) > 1) | (np.diff(key[wrong]) != 0))))
    for first, number in zip(wrong[starts].tolist(), np.diff(np.append(starts, len(wrong))).tolist(), strict=True):
        rows = np.flatnonzero((key == key[first]) & (offset > offset[first]) & (done < invoke[first]))
        lines = [_line(logs, int(sends[first])), _line(logs, int(sends[rows[0]]))]
        gap = (invoke[first] - done[rows[0]]) / 1e9
        report.add(
            "real-time inversion",
            f"{_said(report, lines[0])} was invoked {gap:.6f} s after {_said(report, lines[1])}, at a higher offset, "
            "had completed",
            lines,
            offset=int(offset[first]),
            count=number,
            property_=LOG_LINEARIZABILITY,
        )


def _unseen(logs: Logs, lost: Ints) -> list[str]:
    unread = np.flatnonzero((logs.polled == NOWHERE) & (logs.sent != NOWHERE))
    unread = unread[(logs.outcome[logs.sent[unread]] == OK) & ~np.isin(unread, lost)]
    if not len(unread):
        return []
    line = _line(logs, int(logs.sent[unread[0]]))
    return [
        f"{len(unread):,} acknowledged sends were never polled, the first by transaction {logs.txns.op[line[0]]} "
        f"({line[1]}): lost, or not polled yet"
    ]
