"""Values as record batches, and fetched record batches as values."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np

from cluster_image.storage.records import decode_int64s, iter_batches, validate_batch

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


class Fetched(NamedTuple):
    offsets: Int64Array
    values: Int64Array
    next_offset: int  # where the next fetch goes on


def decode(records: bytes, fetch_offset: int, compacted: bool = False) -> Fetched:
    """What a fetch from `fetch_offset` returned, CRCs checked; the first batch may start earlier. compacted: batches
    may lack records.

    Raises cluster_image.storage.records.RecordError.
    """
    next_offset = fetch_offset
    for position, _, header in iter_batches(records):
        validate_batch(records, position, header, compacted)
        next_offset = header.next_offset
    offsets, values = array("q"), array("q")
    for batch in decode_int64s(records):
        offsets.extend(range(batch.base_offset, batch.base_offset + len(batch.values)))
        values.extend(batch.values)
    skipped = next((i for i, offset in enumerate(offsets) if offset >= fetch_offset), len(offsets))
    return Fetched(np.frombuffer(offsets, np.int64)[skipped:], np.frombuffer(values, np.int64)[skipped:], next_offset)
