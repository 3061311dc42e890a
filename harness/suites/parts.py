"""The runs that a file of a suite or a matrix asks for: plans put together of parts, their seeds, what is expected."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from harness.errors import BadArguments, did_you_mean
from harness.plan.seeds import parse_seeds

Expected = Literal["pass", "fail"]
_VERDICTS: Final[Sequence[Expected]] = ("pass", "fail")
TABLES: Final = ("settings", "features", "clients")


@dataclass(frozen=True, eq=False)
class Planned:
    """One run. name: of its plan, the same whenever the file is carried out. fields: of a Plan, without the seed."""

    name: str
    seed: int
    fields: Mapping[str, Any]
    expect: Expected = "pass"

    @property
    def key(self) -> str:
        """The same for the same run, whatever else is in the file."""
        text = json.dumps([self.name, self.expect, {**self.fields, "seed": self.seed}], sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def together(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a plan: of each what the last part says; settings, features and clients of all of them."""
    fields: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            fields[name] = {**fields.get(name, {}), **value} if name in TABLES else value
    return fields


def fields_and_expected(part: Any, where: str) -> tuple[dict[str, Any], Expected | None]:
    """Fields of a plan, and the verdict that is expected, if the part names one. Raises BadArguments."""
    from harness.plan.plan_file import fields_of  # which takes time: a file that cannot be read is told at once

    if not isinstance(part, Mapping):
        raise BadArguments(f"{where} is {part!r}; it must be a table with fields of a plan")
    if "seed" in part:
        raise BadArguments(f"{where} has 'seed'; the file has seeds, such as seeds = \"1..3\"")
    part = dict(part)
    given = part.get("expect", ())
    words = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else [given]
    verdicts = [verdict for verdict in _VERDICTS if verdict in words]
    if len(verdicts) > 1:
        raise BadArguments(f"{where}: expect names two verdicts, {' and '.join(verdicts)}")
    for word in words:
        if isinstance(word, str) and re.fullmatch(r"\s*[a-z]+\s*", word) and word not in _VERDICTS:
            raise BadArguments(
                f"{where}: expect names {word!r}{did_you_mean(word, _VERDICTS)}; it is pass, fail, or a threshold "
                "such as 'p99 < 2s'"
            )
    if verdicts:
        part["expect"] = [word for word in words if word not in verdicts]
    return fields_of(part, where), verdicts[0] if verdicts else None


def seeds_of(given: Any, path: Path) -> Sequence[int]:
    """given: as the file `path` has it. Raises BadArguments."""
    try:
        return parse_seeds(str(given))
    except BadArguments as error:
        raise BadArguments(f"{path}: {error}") from None
