"""Runs on a host, as `python3 -c`: receive.py TARGET SHA256 COMPILE, with a tar archive on standard input.

Unpacks it into the folder TARGET, which appears once all of it is there and is what was sent. Modules are compiled if
COMPILE is not empty. Knows nothing but the standard library of Python 3.6.
"""

import compileall
import hashlib
import os
import shutil
import sys
import tarfile


class _Hashed:
    """A stream that is hashed as it is read."""

    def __init__(self, stream):  # type: ignore[no-untyped-def]
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size=-1):  # type: ignore[no-untyped-def]
        data = self._stream.read(size)
        self.digest.update(data)
        return data


def receive(target, expected, compiles):  # type: ignore[no-untyped-def]
    if os.path.isdir(target):
        return
    unpacked = f"{target}.{os.getpid()}.new"
    stream = _Hashed(sys.stdin.buffer)
    try:
        os.makedirs(unpacked, 0o755)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(unpacked)
        while stream.read(1 << 20):
            pass
        if stream.digest.hexdigest() != expected:
            raise OSError("what arrived is not what was sent")
        if compiles:
            compileall.compile_dir(unpacked, quiet=2, workers=1)
        os.rename(unpacked, target)
    except Exception:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise


if __name__ == "__main__":
    try:
        os.umask(0o022)
        receive(*sys.argv[1:4])
    except Exception as error:
        sys.exit(str(error))
