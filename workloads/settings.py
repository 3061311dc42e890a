"""Settings of workloads: what `--workload-set NAME=VALUE` may say, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import BadArguments, did_you_mean


@dataclass(frozen=True)
class Setting:
    """read: from what was given to a value; raises ValueError with what is valid, as a clause."""

    default: str
    valid: str
    help: str
    read: Callable[[str], Any]


def one_of(default: str, *valid: str, help: str) -> Setting:
    def read(text: str) -> str:
        if text not in valid:
            raise ValueError(f"valid: {', '.join(valid)}")
        return text

    return Setting(default, ", ".join(valid), help, read)


def number(default: float, low: float, high: float, help: str) -> Setting:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ValueError(f"valid: a number from {low:g} to {high:g}")
        return value

    return Setting(f"{default:g}", f"{low:g} to {high:g}", help, read)


def read(settings: Mapping[str, Setting], given: Mapping[str, str], workload: str) -> dict[str, Any]:
    """All of them, those that are not given by their defaults. Raises BadArguments."""
    for name in given:
        if name not in settings:
            there_are = f"there are {', '.join(settings)}" if settings else "it has none"
            meant = did_you_mean(name, settings)
            raise BadArguments(f"--workload-set {name}: workload {workload} has no such setting{meant}; {there_are}")
    values: dict[str, Any] = {}
    for name, setting in settings.items():
        try:
            values[name] = setting.read(given.get(name, setting.default))
        except ValueError as error:
            raise BadArguments(f"--workload-set {name}={given[name]}: {error}") from None
    return values
