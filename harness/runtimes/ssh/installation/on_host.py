"""Runs on a host, as `python3 -c`:

    on_host.py look DIRECTORY thoroughly|       prints facts about the host, and which pieces are whole, as JSON
    on_host.py receive TARGET SHA256 compile|   a tar archive on standard input
    on_host.py remove DIRECTORY                 all pieces; prints what it has removed and what else is there, as JSON

A piece is a folder, and beside it a list of its files (NAME.files: sizes and hashes), which is written last: what has
none, or differs, is not there. A look compares sizes, a thorough one hashes as well. Knows nothing but the standard
library; `look` is to run on any Python, for it tells how old that is.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tarfile

_CHUNK = 1 << 20
#: A piece by its name (pieces.py), its list, and what is not finished. All else in the directory is somebody's.
_OURS = re.compile(r".+-[0-9a-f]{16}(?P<more>\.files|\.(\d+|damaged)\.new)?")


def hash_of(path):  # type: ignore[no-untyped-def]
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def files_of(folder):  # type: ignore[no-untyped-def]
    """Of each file in it, by its path: size and hash. What a link leads to is no file of it."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            if not os.path.islink(path):
                found[os.path.relpath(path, folder)] = [os.stat(path).st_size, hash_of(path)]
    return found


def is_whole(target, thoroughly):  # type: ignore[no-untyped-def]
    try:
        with open(target + ".files") as listed:
            files = json.load(listed)
        for name, (size, digest) in files.items():
            path = os.path.join(target, name)
            if os.stat(path).st_size != size or (thoroughly and hash_of(path) != digest):
                return False
    except (OSError, ValueError):
        return False
    return os.path.isdir(target)


def look(directory, thoroughly):  # type: ignore[no-untyped-def]
    names = os.listdir(directory) if os.path.isdir(directory) else []
    connection = os.environ.get("SSH_CONNECTION", "").split()
    print(
        json.dumps(
            {
                "python": list(sys.version_info[:2]),
                "executable": os.path.realpath(sys.executable),
                "machine": platform.machine(),
                "ssh": connection,
                "anything": any(map(_OURS.fullmatch, names)),
                "there": [each for each in names if is_whole(os.path.join(directory, each), thoroughly)],
            }
        )
    )


def receive(target, expected, compiles):  # type: ignore[no-untyped-def]
    """It appears once all of it is there, is what was sent, and is on the disk. Of two that send it one is enough."""
    import fcntl

    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        os.makedirs(directory, 0o755)
    parent = os.open(directory, os.O_RDONLY)
    fcntl.flock(parent, fcntl.LOCK_EX)
    _sweep(directory)
    unpacked = "%s.%d.new" % (target, os.getpid())  # noqa: UP031
    os.mkdir(unpacked, 0o755)
    mine = os.open(unpacked, os.O_RDONLY)
    fcntl.flock(mine, fcntl.LOCK_EX)  # until this process ends, however it does
    fcntl.flock(parent, fcntl.LOCK_UN)
    try:
        _unpack(unpacked, expected)
        if compiles:
            import compileall

            compileall.compile_dir(unpacked, quiet=2, workers=1)
        files = files_of(unpacked)
        _sync(mine)
        fcntl.flock(parent, fcntl.LOCK_EX)
        if is_whole(target, True):
            shutil.rmtree(unpacked)
            return
        if os.path.isdir(target):  # damaged
            os.rename(target, target + ".damaged.new")
            shutil.rmtree(target + ".damaged.new")
        os.rename(unpacked, target)
        with open(unpacked, "w") as listed:
            json.dump(files, listed)
        os.rename(unpacked, target + ".files")
        _sync(parent)
    except BaseException:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise


def remove(directory):  # type: ignore[no-untyped-def]
    """The directory too, if nothing else is in it."""
    import fcntl

    removed, others = [], []
    if os.path.isdir(directory):
        parent = os.open(directory, os.O_RDONLY)
        fcntl.flock(parent, fcntl.LOCK_EX)
        _sweep(directory)
        for name in sorted(os.listdir(directory), reverse=True):  # the list of a piece before the piece
            path, found = os.path.join(directory, name), _OURS.fullmatch(name)
            if found is None or (found["more"] or "").endswith(".new"):
                others.append(name)
            elif os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
                removed.append(name)
            else:
                os.unlink(path)
        if not others:
            os.rmdir(directory)
    print(json.dumps({"removed": removed, "others": others}))


def _unpack(folder, expected):  # type: ignore[no-untyped-def]
    stream = _Hashed(sys.stdin.buffer)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        archive.extractall(folder)
    while stream.read(_CHUNK):
        pass
    if stream.digest.hexdigest() != expected:
        raise OSError("what arrived is not what was sent")


def _sweep(directory):  # type: ignore[no-untyped-def]
    """What those have left who were killed: nobody has it locked."""
    import fcntl

    for name in os.listdir(directory):
        found = _OURS.fullmatch(name)
        if found is None or not (found["more"] or "").endswith(".new"):
            continue
        path = os.path.join(directory, name)
        if not os.path.isdir(path):
            os.unlink(path)
            continue
        opened = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        finally:
            os.close(opened)
        shutil.rmtree(path)


def _sync(descriptor):  # type: ignore[no-untyped-def]
    """The file system that this is on: a host may lose its power for good."""
    import ctypes

    if ctypes.CDLL(None).syncfs(descriptor) != 0:
        os.sync()


class _Hashed:
    """A stream that is hashed as it is read."""

    def __init__(self, stream):  # type: ignore[no-untyped-def]
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size=-1):  # type: ignore[no-untyped-def]
        data = self._stream.read(size)
        self.digest.update(data)
        return data


if __name__ == "__main__":
    if sys.argv[1] == "look":
        look(sys.argv[2], bool(sys.argv[3]))
    else:
        try:
            os.umask(0o022)
            if sys.argv[1] == "receive":
                receive(*sys.argv[2:5])
            else:
                remove(sys.argv[2])
        except Exception as error:
            sys.exit(str(error))
