"""What every node has, wherever its process runs."""

from __future__ import annotations

from typing import Final

#: Its user: as in cluster_image/container/Dockerfile, and a number that no user of a host should have.
NODE_USER: Final = 10001
#: Bytes of its volume; the image file is sparse.
VOLUME: Final = 8 << 30
#: Bytes: more than the largest segment; above all of its trace, on the host.
LARGEST_FILE: Final = (2 << 30) + (64 << 20)
