"""All targets, by name."""

from __future__ import annotations

from .batches import BATCHES
from .messages import FRAMES, REQUESTS, RESPONSES
from .recovery import RECOVERY
from .snapshots import SNAPSHOTS
from .target import Target

TARGETS: dict[str, Target] = {t.name: t for t in (REQUESTS, RESPONSES, FRAMES, BATCHES, SNAPSHOTS, RECOVERY)}
