"""The rules of placement that safety rests on: one function each, called in one place.

`cluster_image/kraft/bugs/` replaces one of them at a time, so callers go through the module
(`rules.may_be_next(…)`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def may_be_next(
    others: Sequence[int], replicas: Sequence[int], in_rack: Mapping[str, int], rack_of: Mapping[int, str]
) -> list[int]:
    """Who may get the next replica of a new partition, in the order of `others`? Nobody has two, which one broker would
    lose together; and racks that hold fewer of them go first, as they fail together, too (003, Initial placement;
    KIP-36). others: brokers but for the one that leads it. in_rack: how many replicas each rack has."""
    free = [broker for broker in others if broker not in replicas]
    fewest = min(in_rack[rack_of[broker]] for broker in free)
    return [broker for broker in free if in_rack[rack_of[broker]] == fewest]
