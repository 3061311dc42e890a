"""The example of docs/writing-a-checker.md works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from harness.record.history import Recorder
from tests import ROOT


def test_the_example_finds_what_was_read_late_or_never(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "writing-a-checker.md").read_text(), re.S)
    assert code is not None
    module: dict[str, Any] = {}
    exec(compile(code[1], "writing-a-checker.md", "exec"), module)
    recorder = Recorder(tmp_path, "r")
    for offset in range(3):
        append = recorder.invoke_append(0, "chaos", 0, 1, 10 + offset)
        recorder.complete(append, 20 + offset, "ok", offset=offset)
    for offset, at in ((0, 100), (1, 3_000_000_000)):
        read = recorder.invoke(1, "read", "chaos", 0, at)
        records = np.array([offset]), np.array([offset])
        recorder.complete(read, at + 1, "ok", offset=offset, records=records)
    recorder.close()
    found = module["late_reads"](tmp_path)
    assert list(found["offset"]) == [1, 2] and round(found["seconds"].iloc[0], 3) == 3.0
    assert found["seconds"].isna().iloc[1]
