"""What is put on hosts, and under which names: a folder each, named by a hash of what is in it, as a tar archive that
is made once and kept in the user's cache."""

from __future__ import annotations

import compileall
import fcntl
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cluster_image
from harness.cluster import RuntimeUnavailable
from harness.targets.jars.cache import folder as cache_folder
from harness.targets.target import Package

_REQUIREMENTS: Final = Path(cluster_image.__file__).parent / "container" / "requirements.txt"
_AGENT: Final = Path(__file__).parents[2] / "agent"
_DIGITS: Final = 16
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
#: Where a node's process has them.
PYTHON_PACKAGES: Final = "/opt/site-packages"
#: Old archives are of no use: of each kind of piece the last few are kept.
_KEPT: Final = 4


@dataclass(frozen=True)
class Piece:
    """name: of its folder, with a hash. archive: not compressed. sha256: of the archive. compiled_for: which Python
    ("3.11") its modules are compiled for already; "": for none; None: there are no modules in it."""

    name: str
    archive: Path
    sha256: str
    compiled_for: str | None

    def is_to_be_compiled_for(self, python: str) -> bool:
        return self.compiled_for is not None and self.compiled_for != python


def agent() -> Piece:
    return _piece("agent", {"agent": _AGENT}, has_modules=True)


def package(package: Package) -> Piece:
    """All its parts, by their names; one that is the context itself is the folder."""
    return _piece(package.name, {name or ".": part for name, part in package.parts.items()}, package.needs_python)


def python_packages(version: str, machine: str) -> Piece:
    """Those that nodes need (cluster_image/container/requirements.txt), as wheels of a host's Python ("3.11") and
    machine ("x86_64") have them. Raises RuntimeUnavailable."""
    compiled_for = version if version == _VERSION else ""
    key = hashlib.sha256(_REQUIREMENTS.read_bytes() + compiled_for.encode()).hexdigest()[:_DIGITS]
    name = f"site-packages-{version}-{machine}-{key}"
    if (kept := _kept(name)) is not None:
        return Piece(name, kept, _sha256_of(kept), compiled_for)
    with tempfile.TemporaryDirectory(prefix="chaos-wheels-") as scratch:
        platforms = [f"--platform={tag}_{machine}" for tag in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
            "--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={version}", *platforms,
            f"--target={scratch}", f"--requirement={_REQUIREMENTS}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeUnavailable(
                f"pip could not fetch what nodes need of Python {version} on {machine}: {last}"
            )  # fmt: skip
        if compiled_for:
            _compile(scratch, PYTHON_PACKAGES)
        return _made(name, {".": Path(scratch)}, compiled_for)


def _piece(name: str, parts: Mapping[str, Path], has_modules: bool) -> Piece:
    compiled_for = _VERSION if has_modules else None
    digest = hashlib.sha256((compiled_for or "").encode())
    for place, part in sorted(parts.items()):
        for path, within in _files(part):
            digest.update(f"{place}\0{within}\0{path.stat().st_size}\0{path.stat().st_mode & 0o111}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    named = f"{name}-{digest.hexdigest()[:_DIGITS]}"
    if (kept := _kept(named)) is not None:
        return Piece(named, kept, _sha256_of(kept), compiled_for)
    if not has_modules:
        return _made(named, parts, None)
    with tempfile.TemporaryDirectory(prefix="chaos-modules-") as scratch:
        for place, part in parts.items():
            for path, within in _files(part):
                copy = Path(scratch, place, within)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)  # with its time, by which Python knows whether what is compiled is of it
        _compile(scratch, f"/{name}")
        return _made(named, {".": Path(scratch)}, compiled_for)


def _compile(folder: str, place: str) -> None:
    """Once here, and not on each host. place: where it will be, or what else tracebacks are to say."""
    compileall.compile_dir(folder, quiet=2, stripdir=folder, prependdir=place, workers=0)


def _made(name: str, parts: Mapping[str, Path], compiled_for: str | None) -> Piece:
    """By whoever is first: two archives of the same differ in their bytes, by the times of their files."""
    folder = _cache()
    path = folder / f"{name}.tar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            new = path.with_name(f"{name}.new")
            with tarfile.open(new, mode="w") as archive:
                for place, part in sorted(parts.items()):
                    _add(archive, place, part, compiled=bool(compiled_for))
            new.rename(path)
            _forget_old(folder, name.rpartition("-")[0])
    return Piece(name, path, _sha256_of(path), compiled_for)


def _add(archive: tarfile.TarFile, place: str, part: Path, *, compiled: bool) -> None:
    if part.is_file():
        _add_file(archive, place, part)
        return
    for path, within in _files(part, compiled=compiled):
        _add_file(archive, str(Path(place, within)), path)


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    """As root's, readable by all, with the time of its last change: an archive of Java's classes asks for that."""
    entry = tarfile.TarInfo(name)
    status = path.stat()
    entry.size, entry.mtime = status.st_size, int(status.st_mtime)
    entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
    with path.open("rb") as file:
        archive.addfile(entry, file)


def _files(part: Path, *, compiled: bool = False) -> Iterator[tuple[Path, str]]:
    """(path, its name within the part), in order. Links are followed: what they lead to is sent."""
    if part.is_file():
        yield part, ""
        return
    for path in sorted(part.rglob("*")):
        if path.is_file() and (compiled or path.suffix != ".pyc"):
            yield path, str(path.relative_to(part))


def _kept(name: str) -> Path | None:
    path = _cache() / f"{name}.tar"
    return path if path.exists() else None


def _sha256_of(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cache() -> Path:
    folder = cache_folder() / "hosts"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _forget_old(folder: Path, kind: str) -> None:
    archives = sorted(folder.glob(f"{kind}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[_KEPT:]:
        old.unlink(missing_ok=True)
