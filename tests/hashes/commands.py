"""What each command prints: its help, its answers to bad input, and what it does to a simulated run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests import ROOT

from .saved import stable

#: File name, and what is called: nothing has run before.
ALONE: Final = {
    "help": "--help",
    "help-run": "run --help",
    "help-check": "check --help",
    "help-explore": "explore --help",
    "help-generate": "generate --help",
    "help-export": "export --help",
    "help-replay": "replay --help",
    "help-shrink": "shrink --help",
    "help-list": "list --help",
    "help-doctor": "doctor --help",
    "help-clean": "clean --help",
    "list-nemeses": "list nemeses",
    "list-workloads": "list workloads",
    "list-bugs": "list bugs",
    "list-defects": "list defects",
    "list-settings": "list settings",
    "list-runs-empty": "list --results nowhere",
    "list-nonsense": "list nonsense",
    "generate-list": "generate --list",
    "bad-nemesis": "run --nemesis nonsense",
    "bad-workload": "run --on simulation --workload nonsense",
    "bad-setting": "run --on simulation --set nonsense=1",
    "bad-value": "run --on simulation --set min.insync.replicas=9",
    "bad-time": "run --on simulation --time-limit soon",
    "bad-brokers": "run --on simulation --brokers 1 --replication-factor 3",
    "bad-bug": "run --on simulation --bug M999",
    "bad-schedule": "run --on simulation --schedule nowhere.toml",
    "bad-run": "check nowhere",
    "bad-replay": "replay nowhere",
    "bad-shrink": "shrink nowhere",
    "bad-export": "export nowhere",
    "bad-defect": "generate --defect nonsense",
    "bad-seeds": "explore --seeds 5..1",
}

#: One after the other, in one results directory.
TOGETHER: Final = {
    "run": "run --on simulation --seed 7 --time-limit 15s --rate 40",
    "check": "check latest",
    "check-json": "check latest --json",
    "replay": "replay latest",
    "replay-story": "replay latest --story",
    "run-register": "run --on simulation --seed 3 --time-limit 15s --rate 40 --acks 1 --nemesis kill",
    "run-membership": "run --on simulation --seed 4 --time-limit 15s --rate 40 --nemesis membership,partition",
    "run-combined": "run --on simulation --seed 5 --time-limit 15s --rate 40 --combined --nemesis kill --brokers 5",
    "run-bug": "run --on simulation --seed 1 --time-limit 20s --rate 40 --bug M15 --nemesis power-outage,kill,pause",
    "shrink": "shrink latest --budget 20",
    "explore": "explore --seeds 0..5 --time-limit 15s --workers 2",
    "explore-bug": "explore --seeds 0..5 --time-limit 20s --workers 2 --bug M15 --nemesis power-outage,kill,pause",
    "generate-append": "generate --operations 2000 --name appends",
    "generate-defect": "generate --operations 2000 --defect lost --name lost",
    "generate-register": "generate --workload register --operations 500 --name registers",
    "generate-transactions": "generate --workload list-append --operations 500 --name transactions",
    "check-append": "check appends",
    "check-defect": "check lost",
    "check-register": "check registers",
    "check-transactions": "check transactions --json",
    "export-edn": "export appends",
    "list-runs": "list",
}

_TIME = r"\d[\d,.]*"
_VARIES: Final = (
    (re.compile(r"\d{8}T\d{6}(-\d+)?"), "<date>"),
    (re.compile(rf"{_TIME} seeds an hour"), "<rate> seeds an hour"),
    (re.compile(rf"(simulated|judged) in {_TIME} s"), r"\1 in <time>"),
    (re.compile(r"(python|chaos) \d+\.\d+[\w.+-]*"), r"\1 <version>"),
)
#: What comes as often as there is time for it.
_PROGRESS: Final = re.compile(r"^(\d+ s of \d+ s · |\d+ of \d+ seeds · |\d+ of \d+ runs · ).*\n", re.MULTILINE)


def texts(scratch: Path) -> Iterator[tuple[str, str]]:
    """Names and what was printed. scratch: an empty directory."""
    for name, line in ALONE.items():
        yield name, _called(line.split(), scratch)
    for name, line in TOGETHER.items():
        arguments = line.split()
        yield name, _called([*arguments, "--results", "results"], scratch)


def _called(arguments: Sequence[str], scratch: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments], cwd=scratch, env=environment, capture_output=True, text=True
    )
    output = _spread(done.stdout) if "--json" in arguments else done.stdout
    said = f"$ chaos {' '.join(arguments)}\n{output}--- errors and progress\n{done.stderr}--- {done.returncode}\n"
    said = _PROGRESS.sub("", said.replace(str(scratch), "<here>"))
    for pattern, instead in _VARIES:
        said = pattern.sub(instead, said)
    return said


def _spread(verdicts: str) -> str:
    """A verdict's entries, a line each, so that a difference can be read."""
    return "".join(json.dumps(stable(json.loads(line)), indent=1) + "\n" for line in verdicts.splitlines())
