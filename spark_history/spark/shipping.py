"""This project's code for executors on which it is not installed: a zip, made once a process.

Executors need a Python of this minor version with numpy and pyarrow, and nothing else: the packages that tasks run are
put on their path with the session (`addArtifacts(pyfile=True)`, the same in classic Spark and over Spark Connect), and
so are the pure Python packages that checkers use, where the executors lack them.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS: Final = ("checkers", "spark_history")
#: Used by checkers, written in Python alone: shipped where they are missing.
BORROWED: Final = ("networkx",)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # of every file, so that the same code makes the same zip


def ship(spark: SparkSession, packages: Sequence[str]) -> None:
    """Have the executors import these packages, which are importable here, from a zip. Once a package and session."""
    spark.addArtifacts(str(make_zip(tuple(packages))), pyfile=True)


@cache
def make_zip(packages: tuple[str, ...]) -> Path:
    """The sources of the packages, byte for byte the same each time; it goes when the process ends."""
    directory = Path(tempfile.mkdtemp(prefix="chaos-code-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / f"chaos-{packages[0]}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in sorted(packages):
            folder = Path(import_module(package).__path__[0])
            for source in sorted(folder.rglob("*.py")):
                within = source.relative_to(folder)
                if "tests" in within.parts:
                    continue
                name = zipfile.ZipInfo(str(Path(package) / within), _EPOCH)
                name.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(name, source.read_bytes(), compresslevel=1)
    return path
