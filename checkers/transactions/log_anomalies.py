"""Log transactions: what is wrong without any cycle, by Jepsen's names.

| anomaly               | what it is                                                                          |
| --------------------- | ----------------------------------------------------------------------------------- |
| inconsistent-offsets  | one offset of a partition with two values                                           |
| duplicate             | one value at two offsets of a partition                                             |
| lost-write            | a committed send that no ok transaction polled, at or below an offset that one did  |
| negative-offset       | a poll returned a record, or a committed send was given its place, below offset 0   |
| G1a                   | an ok transaction polled what a failed one had sent                                 |
| phantom               | a poll returned what nobody sent                                                    |
| precommitted-read     | a transaction polled what it had sent itself                                        |
| int-poll-skip         | between two records that one transaction polled there is one that it did not        |
| int-nonmonotonic-poll | a transaction polled a partition backwards, or a record again                       |
| int-nonmonotonic-send | of two sends of a transaction to a partition the later one got the lower offset     |
| nonmonotonic-send     | the same of two transactions of one process                                         |
| int-send-skip         | allowed: other records stand between two sends of one transaction                   |
| poll-skip             | a process' poll begins further than one record after where it left off              |
| nonmonotonic-poll     | a process' poll begins at or before where it left off                               |

A process leaves off with the last record of its last ok transaction that polled the partition: one that failed, or is
indeterminate, commits no position, so what comes next polls the same again. What assignments change of that is in
assignments.py; as in Jepsen, the last two are errors where consumers are assigned their partitions and none subscribes.
Elsewhere they are allowed: a consumer that subscribes may be rebalanced between transactions, and without any record of
assignments nothing is known of what consumers were given. (Jepsen forgets where a process had sent, too, when it is
assigned other partitions. Here only if one of both sends is indeterminate, for of two that are ok the order is due.)

Where a partition was re-assigned during a transaction (`rebalanced` of the plan: partitions by transaction) Jepsen and
we expect nothing of how that transaction polled it, so there is neither int-poll-skip nor int-nonmonotonic-poll.
Cycles: G1c of wr edges alone is an error (with process and realtime variants too); transactions that write are not
isolated from each other in Kafka, so G0, and G1c with ww edges, are allowed, as in Jepsen.

Sends that were acknowledged, and that no ok transaction polled, though it polled nothing after them either, may be lost
or only not polled yet.
Jepsen calls them `unseen` and the history invalid; here they leave it undecided.

A property of its own, which Jepsen does not look at, is that the log is linearizable in the sends: no acknowledged send
at a higher offset completed before one at a lower offset was invoked (`real-time inversion`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.properties import LOG_LINEARIZABILITY
from checkers.transactions.assignments import Assignments
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
        "negative-offset",
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

#: Where consumers must go on where they left off.
IN_ORDER: Final = frozenset({"poll-skip", "nonmonotonic-poll"})

Line = tuple[int, str]  # a transaction, and what it did


def forbidden(assigned: Assignments) -> frozenset[str]:
    return FORBIDDEN | IN_ORDER if assigned.in_order else FORBIDDEN


def check(logs: Logs, report: Report, assigned: Assignments) -> list[str]:
    """Reports what it finds; returns why something is undecided."""
    _offsets(logs, report)
    lost = _lost_writes(logs, report)
    _polled(logs, report)
    _contiguity(logs, report, assigned)
    _polls_across_transactions(logs, report, assigned)
    _sends_across_transactions(logs, report, assigned)
    _inversions(logs, report)
    return _unseen(logs, lost)


def _line(logs: Logs, row: int) -> Line:
    micro = logs.micro
    at = "" if micro.offset[row] == NOTHING else f" at offset {micro.offset[row]}"
    verb, where = ("poll", "of") if micro.read[row] else ("send", "to")
    return int(micro.txn[row]), f"{verb} {_value(logs, row)} {where} partition {_key(logs, row)}{at}"


def _value(logs: Logs, row: int) -> str:
    return logs.naming.value(logs.micro.value[row])


def _key(logs: Logs, row: int) -> str:
    return logs.naming.key(logs.micro.key[row])


def _said(report: Report, line: Line) -> str:
    return f"{report.name(line[0])} ({line[1]})"


def _offsets(logs: Logs, report: Report) -> None:
    below = (logs.micro.offset < 0) & (logs.micro.offset != NOTHING)
    below &= logs.micro.read | (logs.committed & (logs.micro.offset < UNKNOWN))
    for row in np.flatnonzero(below).tolist():
        line = _line(logs, row)
        offset = int(logs.micro.offset[row])
        report.add("negative-offset", f"{_said(report, line)}: a log begins at offset 0", [line], offset=offset)
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
    unread = np.flatnonzero((logs.polled_ok == NOWHERE) & (logs.last_place != NOWHERE) & (logs.sent != NOWHERE))
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
            f"{'' if logs.polled[logs.message[row]] == NOWHERE else 'of an ok transaction '}ever returned it, though "
            f"{_said(report, lines[1])} was past it",
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


def _contiguity(logs: Logs, report: Report, assigned: Assignments) -> None:
    """Within a transaction."""
    for what, rows in (("poll", logs.polls), ("send", logs.sends)):
        before, after, delta = _steps(logs, rows)
        if what == "poll":
            settled = ~assigned.disturbed(logs.txns, logs.micro.txn[before], logs.micro.key[before])
            before, after, delta = before[settled], after[settled], delta[settled]
        _name_steps(logs, report, (f"int-{what}-skip", f"int-nonmonotonic-{what}"), before, after, delta)


def _polls_across_transactions(logs: Logs, report: Report, assigned: Assignments) -> None:
    """From where the process left off to the first record of each later transaction, whatever became of that."""
    micro = logs.micro
    rows = _by_process(logs, logs.polls)
    if not len(rows):
        return
    txn, key, process = micro.txn[rows], micro.key[rows], logs.txns.process[micro.txn[rows]]
    # A lane is all that a process polled of a partition, a visit what one transaction did.
    lane = np.append(True, (key[1:] != key[:-1]) | (process[1:] != process[:-1]))
    firsts = np.flatnonzero(lane | np.append(True, txn[1:] != txn[:-1]))
    lasts = np.append(firsts[1:], len(rows)) - 1
    lane_of = np.cumsum(lane)[firsts]
    ok = logs.outcome[rows[firsts]] == OK
    left_off = np.append(-1, np.maximum.accumulate(np.where(ok, np.arange(len(firsts)), -1))[:-1])
    later = np.flatnonzero(left_off >= 0)
    before = left_off[later]
    era = assigned.eras(logs.txns, txn[firsts], key[firsts], of_sends=False)
    same = (lane_of[before] == lane_of[later]) & (era[before] == era[later])
    same &= ~assigned.disturbed(logs.txns, txn[firsts[later]], key[firsts[later]])
    steps = _known(logs, rows[lasts[before[same]]], rows[firsts[later[same]]])
    _name_steps(logs, report, ("poll-skip", "nonmonotonic-poll"), *steps)


def _sends_across_transactions(logs: Logs, report: Report, assigned: Assignments) -> None:
    """Between the transactions of one process that follow each other."""
    micro = logs.micro
    rows = _by_process(logs, logs.sends[logs.outcome[logs.sends] != FAIL])
    txn, key, process = micro.txn[rows], micro.key[rows], logs.txns.process[micro.txn[rows]]
    era = assigned.eras(logs.txns, txn, key, of_sends=True)
    ok = logs.outcome[rows] == OK
    same = (key[1:] == key[:-1]) & (process[1:] == process[:-1]) & (txn[1:] != txn[:-1])
    same &= (era[1:] == era[:-1]) | (ok[1:] & ok[:-1])
    _name_steps(logs, report, (None, "nonmonotonic-send"), *_known(logs, rows[:-1][same], rows[1:][same]))


def _by_process(logs: Logs, rows: Ints) -> Ints:
    """Those whose process is known, by partition, process and transaction, in the order in which they were recorded."""
    txn = logs.micro.txn[rows]
    process = logs.txns.process[txn]
    order = np.lexsort((np.arange(len(rows)), txn, process, logs.micro.key[rows]))
    found: Ints = rows[order[process[order] != NOTHING]]
    return found


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


#: What Kafka's producer gives for an offset that it was not told (acks=0).
UNKNOWN: Final = -1
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
    unread = np.flatnonzero((logs.polled_ok == NOWHERE) & (logs.sent != NOWHERE))
    unread = unread[(logs.outcome[logs.sent[unread]] == OK) & ~np.isin(unread, lost)]
    if not len(unread):
        return []
    line = _line(logs, int(logs.sent[unread[0]]))
    return [
        f"{len(unread):,} acknowledged sends were never polled, the first by transaction {logs.txns.op[line[0]]} "
        f"({line[1]}): lost, or not polled yet"
    ]
