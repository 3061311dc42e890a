"""The classes that Spark loads, in an archive that each of its JVMs maps instead of loading them anew (the JDK's
application class data sharing): 7 s of CPU less each. `python -m tests.spark_history.spark.spark_archive` makes
it; the Makefile does once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix) / "spark.jsa"
#: Of the launcher, and so of every JVM that a test starts, be it by Spark. What cannot be used is left alone.
_OPTIONS: Final = "JDK_JAVA_OPTIONS"


def use() -> None:
    """In this process and those that it starts, if there is one."""
    if ARCHIVE.exists() and str(ARCHIVE) not in os.environ.get(_OPTIONS, ""):
        os.environ[_OPTIONS] = f"{os.environ.get(_OPTIONS, '')} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable".strip()


def make() -> None:
    from spark_history.spark.session import start
    from spark_history.spark.tasks import run_tasks

    unfinished = ARCHIVE.with_suffix(".unfinished")
    os.environ[_OPTIONS] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    spark = start("local[2]")
    run_tasks(spark, _nothing, [{}])
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()  # which ends its JVM, and that writes the archive
    gateway.proc.wait(60)
    unfinished.replace(ARCHIVE)


def _nothing(unit: object) -> object:
    import pyarrow as pa

    return pa.table({"nothing": [0]})


if __name__ == "__main__":
    make()
