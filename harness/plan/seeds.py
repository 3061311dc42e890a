"""Seeds as people write them: one, a range, or several of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from harness.errors import BadArguments

#: Of random streams: what a signed 64-bit integer holds, as tables and other tools do.
MAX_SEED: Final = 2**63 - 1
MAX_SEEDS: Final = 1_000_000
_SHARD: Final = re.compile(r"(\d{1,9})/(\d{1,9})")
_SEEDS: Final = re.compile(r"(\d{1,19})(?:\.\.(\d{1,19}))?")


def parse_seeds(text: str) -> list[int]:
    """`0..9,12` as [0, …, 9, 12]: in the order given, each once. Raises BadArguments."""
    seeds: dict[int, None] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _SEEDS.fullmatch(part)
        if match is None:
            raise BadArguments(f"--seeds {part!r} is neither a seed nor a range; valid are e.g. 7, 0..999 and 0..9,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) > MAX_SEED:
            raise BadArguments(f"--seeds {part} goes beyond {MAX_SEED:,}, the last seed that there is")
        if last < first:
            raise BadArguments(f"--seeds {part} runs backwards; {last}..{first} is meant, or it is a mistake")
        if last - first >= MAX_SEEDS:
            raise BadArguments(f"--seeds {part} are {last - first + 1:,} seeds; valid are {MAX_SEEDS:,} at most")
        seeds.update(dict.fromkeys(range(first, last + 1)))
    if not 0 < len(seeds) <= MAX_SEEDS:
        how_many = f"are {len(seeds):,} seeds" if seeds else "names no seed"
        raise BadArguments(f"--seeds {text!r} {how_many}; valid are 1 to {MAX_SEEDS:,} of them, e.g. 0..999")
    return list(seeds)


def part_of(seeds: Sequence[int], shard: str) -> list[int]:
    """`2/4`: every fourth of them, from the second on. All parts together are all seeds, each once. Raises
    BadArguments."""
    match = _SHARD.fullmatch(shard)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise BadArguments(f"--shard {shard!r} is no part of several; valid is e.g. 2/4, the second of four")
    if count > len(seeds):
        raise BadArguments(f"--shard {shard}: {len(seeds):,} seeds make at most as many parts")
    return list(seeds[number - 1 :: count])
