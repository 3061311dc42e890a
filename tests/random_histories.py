"""How many random small histories a checker is compared with brute force on, for each property."""

from __future__ import annotations

import os
from typing import Final

#: 100,000 were run before a release: CHAOS_HISTORIES=100000 make test ARGS="tests/test_…".
HISTORIES: Final = int(os.environ.get("CHAOS_HISTORIES", "5000"))
