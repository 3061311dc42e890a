"""Tests, in the rooms of what they test; and what tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: Of the repository.
ROOT: Final = Path(__file__).parent.parent
