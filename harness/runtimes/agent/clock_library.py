"""clock_library.py COPY: writes a copy of libfaketime that fakes the time of day and leaves sleeping and waiting
alone. Runs while the base image is built, and on hosts.

Debian's libfaketime (0.9.10) not only answers who asks for the time: it takes the place of everything that waits, and
gets the waits until a monotonic time wrong if that clock is to be left alone (time.sleep of Python 3.11 fails with
EINVAL, waiting for its interpreter lock does not wait). A clock that runs fast or slow would also stretch every
timeout. So the copy lets go of what waits: these names lead to libc again.
"""

from __future__ import annotations

import errno
import struct
import sys
from pathlib import Path

# Without the lock of the other variant, threads that ask for the time at once would read half of each other's answer.
_ORIGINALS = "/usr/lib/*/faketime/libfaketimeMT.so.1"
_WAITS = frozenset(
    b"alarm clock_nanosleep epoll_pwait epoll_wait nanosleep poll ppoll pselect pthread_cond_destroy pthread_cond_init "
    b"pthread_cond_timedwait select sem_clockwait sem_timedwait sleep timer_gettime timer_settime timerfd_gettime "
    b"timerfd_settime usleep".split()
)
_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_DYNSYM = 11  # a section's type
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def without_waits(library: bytes) -> bytes:
    """The shared library, with names of what waits gone from its table of symbols. Raises ValueError."""
    if not library.startswith(_IDENTITY):
        raise ValueError("not an ELF library of 64 bits, little-endian")
    changed = bytearray(library)
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, number = struct.unpack_from("<HH", library, 0x3A)
    sections = [_SECTION.unpack_from(library, table + index * size) for index in range(number)]
    found = set()
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind != _DYNSYM:
            continue
        names = sections[link][4]
        for symbol in range(start, start + length, _SYMBOL.size):
            name, _, _, section, _, _ = _SYMBOL.unpack_from(library, symbol)
            text = library[names + name : library.index(b"\0", names + name)]
            if section and text in _WAITS:
                struct.pack_into("<I", changed, symbol, 0)  # the empty name, which nobody asks for
                found.add(text)
    if b"clock_nanosleep" not in found:
        raise ValueError("not the library that is expected: it exports no clock_nanosleep")
    return bytes(changed)


def make(copy: Path) -> None:
    """Raises OSError, also if there is no such library here, or ValueError."""
    original = next(Path("/").glob(_ORIGINALS.lstrip("/")), None)
    if original is None:
        raise FileNotFoundError(errno.ENOENT, "no libfaketime", _ORIGINALS)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(without_waits(original.read_bytes()))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
