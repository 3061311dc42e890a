"""Damage to valid inputs, for where no coverage guides it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

#: Lengths and counts that decoders trip over.
WORDS = (
    *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x10\x00\x00", b"\x7f\xff", b"\xff\xff"),
    *(b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x01", b"\x00", b"\x01", b"\xff"),
    *(b"\x7f" + b"\xff" * 7, b"\xff" * 8, b"\x80" + bytes(7)),
)


def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed in one to four places."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1 if at < len(data):
                data[at] = random.randrange(256)
            case 2:
                word = random.choice(WORDS)
                data[at : at + len(word)] = word
            case 3:
                data[at:at] = random.choice(WORDS)
            case 4:
                del data[at:]
            case 5:
                del data[at : at + random.randint(1, 8)]
            case 6:
                other = random.choice(seeds)
                cut = random.randrange(len(other) + 1)
                data[at:] = other[cut:]
    return bytes(data)
