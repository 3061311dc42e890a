"""A Kafka that is on this machine: an unpacked distribution, its archive, or a source tree in which one was built."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import Final

from harness.errors import BadArguments, RuntimeUnavailable
from harness.targets.jars import cache
from harness.targets.jars.distribution import Distribution, of_jars
from spark_history.regular import NotRegular, require_regular

_BUILT: Final = Path("core", "build", "distributions")
_ARCHIVES: Final = (".tgz", ".tar.gz")


def find(given: str) -> Distribution:
    """given: of --kafka-home. An archive is unpacked into the cache, once. Raises BadArguments, RuntimeUnavailable."""
    home = Path(given).expanduser()
    if home.is_dir():
        if (home / "libs").is_dir():
            return of_jars((home / "libs").resolve(), f"the distribution {home}")
        for folder in (home, home / _BUILT):
            if archives := _archives_in(folder):
                if len(archives) > 1:
                    names = ", ".join(path.name for path in archives)
                    raise BadArguments(f"--kafka-home {given} has {len(archives)} distributions ({names}); name one")
                return _unpacked(archives[0])
        raise BadArguments(
            f"--kafka-home {given} is no distribution of Kafka: it has no libs/, and neither it nor {_BUILT}/ in it "
            "has a kafka_*.tgz (make one with ./gradlew releaseTarGz)"
        )
    if not home.exists():
        raise BadArguments(f"--kafka-home {given} does not exist; give a distribution of Kafka, or its .tgz")
    return _unpacked(home)


def _archives_in(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("kafka_*") if path.name.endswith(_ARCHIVES)]
    return sorted(path for path in found if "-site-docs" not in path.name)


def _unpacked(archive: Path) -> Distribution:
    source = f"the distribution {archive}"
    try:
        require_regular(archive)
        with archive.open("rb") as file:
            name = f"kafka-{hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
        if (libs := cache.libs_of(name)) is not None:
            return of_jars(libs, source)
        with cache.being_filled(name, {"source": str(archive)}) as libs:
            _unpack_jars(archive, libs)
            of_jars(libs, source)
    except NotRegular as error:
        raise BadArguments(f"{archive} cannot be read: {error}") from None
    except (EOFError, zlib.error):
        raise BadArguments(f"{archive} cannot be unpacked: it is cut off, or damaged") from None
    except tarfile.TarError:
        raise BadArguments(f"{archive} cannot be unpacked: it is no .tgz, or damaged") from None
    except OSError as error:
        raise RuntimeUnavailable(f"{archive} cannot be read: {error.strerror or error}.") from error
    return of_jars(cache.place_of(name) / "libs", source)


def _unpack_jars(archive: Path, libs: Path) -> None:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            path = Path(member.name)
            if member.isfile() and path.parent.name == "libs" and path.suffix == ".jar":
                content = tar.extractfile(member)
                assert content is not None
                with content, (libs / path.name).open("wb") as file:
                    shutil.copyfileobj(content, file)
