"""The page cache of a volume's files: how much of it there is, and dropping what of it is clean."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .tree import MOST_BYTES, Strange, everything, opened

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

_PAGE = mmap.PAGESIZE
_MAP_FAILED = ctypes.c_void_p(-1).value
_CACHESTAT = 451  # Linux 6.5, the same number on every architecture


class _CacheStat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


def drop_clean(directory: Path, top: Callable[[str], bool] = everything) -> dict[str, Any]:
    """Drops the clean cached pages of every file (top: see tree.walk()). Dirty ones stay and are not written either,
    where the kernel tells which they are (cachestat); before Linux 6.5 dropping a file's pages begins to write its
    dirty ones. Evidence in bytes: resident_before, resident_after, dropped_bytes; not_surveyed, a clause, if there was
    something on the volume that was not looked at."""
    before = after = 0
    strange = Strange()
    for _, descriptor in opened(directory, strange, top=top):
        before += resident(descriptor)
        _drop_clean(descriptor, 0, min(os.fstat(descriptor).st_size, MOST_BYTES))
        after += resident(descriptor)
    evidence = {"resident_before": before, "resident_after": after, "dropped_bytes": max(before - after, 0)}
    return evidence | strange.evidence()


def resident(descriptor: int) -> int:
    """Bytes of a file, of the first MOST_BYTES of it, that are in the page cache."""
    size = min(os.fstat(descriptor).st_size, MOST_BYTES)
    if size == 0:
        return 0
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _MAP_FAILED:
        raise _last_error("mmap")
    try:
        pages = (ctypes.c_ubyte * -(-size // _PAGE))()
        if _libc.mincore(address, size, pages) != 0:
            raise _last_error("mincore")
        return sum(page & 1 for page in pages) * _PAGE
    finally:
        _libc.munmap(address, size)


def _drop_clean(descriptor: int, start: int, end: int) -> None:
    """Halves the range until what it drops holds no dirty page, for those it would begin to write."""
    if start >= end:
        return
    if _is_dirty(descriptor, start, end - start):
        middle = start + (end - start) // 2 // _PAGE * _PAGE
        if middle > start:
            _drop_clean(descriptor, start, middle)
            _drop_clean(descriptor, middle, end)
        return
    os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def _is_dirty(descriptor: int, start: int, size: int) -> bool:
    """False where the kernel does not tell."""
    found = _CacheStat()
    span = (ctypes.c_uint64 * 2)(start, size)
    if _libc.syscall(_CACHESTAT, descriptor, span, ctypes.byref(found), 0) != 0:
        if ctypes.get_errno() == errno.ENOSYS:
            return False
        raise _last_error("cachestat")
    return bool(found.dirty or found.writeback)


def _last_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), call)
