"""Reads TOML that people wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from harness.errors import BadArguments
from spark_history.regular import require_regular


def read_toml(path: Path, where: str) -> dict[str, Any]:
    """where: the beginning of a sentence about it. Raises BadArguments."""
    try:
        require_regular(path)
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise BadArguments(f"{where} does not exist") from None
    except (OSError, ValueError) as error:
        raise BadArguments(f"{where} cannot be read: {error}") from None
