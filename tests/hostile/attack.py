"""Strangers, in a process of their own."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Final

from . import asking, connections, framing, nodes, records
from .stranger import Kind, Target

KINDS: Final[Mapping[str, Kind]] = {
    **framing.KINDS, **connections.KINDS, **asking.KINDS, **records.KINDS, **nodes.KINDS,
}  # fmt: skip
#: Below nodes.
_NICE: Final = 10
_BETWEEN_GOES_S: Final = 0.05


def attack(target: Target, commands: Connection) -> None:
    """Kinds that come by the pipe, each for so many seconds; what was answered goes back."""
    os.nice(_NICE)
    random.seed(1)
    while True:
        kind, seconds = commands.recv()
        answers = asyncio.run(_goes(KINDS[kind], target, seconds))
        commands.send("; ".join(answer for answer, _ in answers.most_common(3)))


async def _goes(kind: Kind, target: Target, seconds: float) -> Counter[str]:
    answers: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            answers[await kind(target)] += 1
        except OSError as error:
            answers[f"{type(error).__name__}"] += 1
        except TimeoutError:
            answers["no answer"] += 1
        await asyncio.sleep(_BETWEEN_GOES_S)
    return answers
