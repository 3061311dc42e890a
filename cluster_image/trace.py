"""Seam: what a node tells of its own state changes. A node whose trace nobody listens to behaves the same.

Each change is told once, where it happens, after the state has changed:

| event               | where     | fields                                                                   |
| ------------------- | --------- | ------------------------------------------------------------------------ |
| `role`              | `topic-0` | leader, leader_epoch, partition_epoch, isr, end, high_watermark          |
| `isr`               | `topic-0` | isr, leader_epoch, partition_epoch: what is committed, in the same role  |
| `isr proposed`      | `topic-0` | isr, leader_epoch, partition_epoch                                       |
| `append`            | `topic-0` | end                                                                      |
| `truncate`          | `topic-0` | end                                                                      |
| `high watermark`    | `topic-0` | offset                                                                   |
| `quorum`            |           | role, epoch, leader (-1: none known), of the metadata quorum             |
| `metadata append`   |           | end                                                                      |
| `metadata truncate` |           | end                                                                      |
| `metadata`          |           | offset: everything below is committed and has been replayed here         |
| `decide`            | `topic-0` | type, offset and numbers of a record that the active controller writes;  |
|                     | or none   | `where` is the partition that it is about                                |

Offsets are exclusive ends. ISRs are sorted tuples of broker ids. Values are strings, integers and tuples of integers.
"""

from __future__ import annotations

from typing import Protocol


class Trace(Protocol):
    def __call__(self, event: str, where: str = "", **fields: object) -> None: ...


def no_trace(event: str, where: str = "", **fields: object) -> None:
    """Nobody listens."""
