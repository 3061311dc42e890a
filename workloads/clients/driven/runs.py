"""What drivers tell of records: runs whose offsets and values count up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def spread(runs: Sequence[Sequence[int]]) -> Sequence[np.ndarray[Any, np.dtype[np.int64]]]:
    """Offsets and values, an entry a record. runs: offset, value and how many count up from these."""
    table = np.array(runs, np.int64).reshape(-1, 3)
    counts = table[:, 2]
    steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return [np.repeat(table[:, column], counts) + steps for column in (0, 1)]
