"""What both ends of a connection have in common."""

from __future__ import annotations

import asyncio
from typing import Final

from cluster_image.wire import Parts

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024  # Kafka's default of socket.request.max.bytes
#: Decoding takes half a second for each megabyte. What is longer is decoded by a thread, and the event loop goes on.
#: (Of a Produce nearly all is records, which are not decoded.)
LONG_BYTES: Final = 16 << 10


def write(transport: asyncio.Transport, frame: Parts) -> None:
    if len(frame) == 1:
        transport.write(frame[0])
    else:
        transport.writelines(frame)
