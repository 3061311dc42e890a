"""Plans put together of parts, and their seeds, as files of matrices and suites have them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments
from harness.plan.seeds import parse_seeds

_TABLES: Final = ("settings", "features")


def together(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a plan: of each what the last part says; settings and features of all of them."""
    fields: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            fields[name] = {**fields.get(name, {}), **value} if name in _TABLES else value
    return fields


def seeds_of(given: Any, path: Path) -> Sequence[int]:
    """given: as the file `path` has it. Raises BadArguments."""
    try:
        return parse_seeds(str(given))
    except BadArguments as error:
        raise BadArguments(f"{path}: {error}") from None


def key_of(*names: str, fields: Mapping[str, Any]) -> str:
    """The same for the same run, whatever else is in the file."""
    text = json.dumps([*names, fields], sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
