"""Labelled histories, right by construction or with a known defect, of any size."""

from __future__ import annotations

from collections.abc import Mapping

from harness.errors import BadArguments


def check_defect(workload: str, defect: str | None, defects_of: Mapping[str, Mapping[str, object]]) -> None:
    """defects_of: by workload, of those that the maker knows. Raises BadArguments."""
    if workload not in defects_of:
        raise BadArguments(f"--workload {workload} is none of {', '.join(defects_of)}")
    if defect is not None and defect not in defects_of[workload]:
        known = ", ".join(defects_of[workload])
        raise BadArguments(f"--defect {defect} is none of workload {workload}; there are {known}")
