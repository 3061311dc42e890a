"""What Spark's exceptions mean, in one sentence each.

Spark tells of a failed task by a Java stack trace with a Python one inside. `explain()` finds in it what the user can
act on; whatever it does not know it names by the last line of the Python traceback, or else by Spark's first line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final


class SparkUnavailable(Exception):
    """Spark cannot start, or was lost while it worked. The message says why and what to do."""


_MODULE: Final = r"No module named '([\w.]+)'"

#: Where the text of an exception matches, the sentence; the first that matches is the most specific.
_KNOWN: Final[Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]] = [
    (re.compile(pattern, re.DOTALL), sentence)
    for pattern, sentence in (
        (
            r"Python in worker has different version:?\D+(\d+\.\d+)\D+driver:?\D+(\d+\.\d+)",
            lambda m: f"the executors run Python {m[1]} and this is Python {m[2]}; "
            f"set PYSPARK_PYTHON to a Python {m[2]} of theirs (of the server, for Spark Connect)",
        ),
        (
            r"(\w+) >= ([\d.]+) must be installed; however, (?:your version is|it was not)",
            lambda m: f"the executors' Python lacks {m[1].lower()} {m[2]} or newer; install it there",
        ),
        (
            rf"ModuleNotFoundError: {_MODULE}",
            lambda m: f"the executors' Python lacks {m[1].partition('.')[0]}; install numpy and pyarrow there"
            if m[1].partition(".")[0] in ("numpy", "pyarrow", "pandas")
            else f"the executors' Python lacks the module {m[1]}",
        ),
        (
            r'Cannot run program "([^"]+)"',
            lambda m: f"the executors have no {m[1]}; set PYSPARK_PYTHON to a Python that is there",
        ),
        (
            r"(?:Python worker exited unexpectedly|UNEXPECTED_PYTHON_WORKER_EXIT|PYTHON_WORKER_EXITED)",
            lambda m: "the Python of a task died, most likely killed for want of memory; "
            "give the executors' machines more, or let fewer tasks run there at a time",
        ),
        (
            r"java\.lang\.OutOfMemoryError",
            lambda m: "Spark's Java ran out of memory; give it more by SPARK_DRIVER_MEMORY or SPARK_EXECUTOR_MEMORY",
        ),
        (
            r"ExecutorLostFailure \(([^)]*?exited[^)]*)\)",
            lambda m: f"an executor died over and over ({m[1]}); its machine may lack memory",
        ),
        (
            r"(?:No space left on device)",
            lambda m: "a disk of Spark's machines is full",
        ),
        (
            r"(?:StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED|INVALID_HANDLE\.SESSION|Connection reset by peer"
            r"|Answer from Java side is empty|Error while sending or receiving|SparkContext was shut down"
            r"|stopped SparkContext|All masters are unresponsive|Master removed our application|Connection refused)",
            lambda m: "the connection to Spark was lost; is it still running?",
        ),
    )
]  # fmt: skip
_PYTHON_ERROR: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit))(?:: (.*))?$", re.MULTILINE)


def explain(error: BaseException) -> str | None:
    """The sentence for an exception of Spark's, without a full stop; None: it is not one of those known here."""
    text = _text(error)
    for pattern, sentence in _KNOWN:
        if match := pattern.search(text):
            return sentence(match)
    return None


def brief(error: BaseException) -> str:
    """What an exception says in one line: the Python error in it, or its own first line."""
    text = _text(error)
    inner = text.partition("Traceback (most recent call last):")[2]
    if found := _PYTHON_ERROR.findall(inner):
        name, message = found[0]
        return f"{name}: {message}".rstrip(": ")
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first.rstrip(".") or type(error).__name__


def _text(error: BaseException) -> str:
    """With its causes: Spark may keep the message of the Python side apart."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(texts) < 5:
        texts.append(f"{type(seen).__name__ if not str(seen) else ''}{seen}")
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)
