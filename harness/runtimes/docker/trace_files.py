"""Creates the files that nodes write their traces to: in the run's directory, closed to this machine's other users.

They are the harness' user's, who reads them while nodes write, and need not be root; the node's user (10001 in its
container, and no user of the host) may write them by an access control list. A file system without such lists (some
networked ones, overlays) is helped by the folder alone, which nobody else may enter: what a container has mounted is
the file itself, so that no folder of the host is in the node's way.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.targets.target import TRACE_SUFFIX

_FOLDER_MODE: Final = 0o700
_ACL: Final = "system.posix_acl_access"
_VERSION = 2
_ENTRY = struct.Struct("<HHI")  # tag, permissions, user or group; linux/posix_acl_xattr.h
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF
_READ_WRITE = 6
_NO_LISTS: Final = (errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EPERM)


def make_traces(nodes: Iterable[str], directory: Path, node_user: int) -> dict[str, Path]:
    """An empty file a node, in the run's directory and not on the node's volume: a power cut takes nothing of it.
    Returns them by node name. node_user: the uid that nodes run as. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(_FOLDER_MODE)
    made = {}
    for node in nodes:
        path = (directory / f"{node}{TRACE_SUFFIX}").absolute()
        path.touch(mode=0o600)
        path.chmod(0o600)
        _let_write(path, node_user)
        made[node] = path
    return made


def _let_write(path: Path, user: int) -> None:
    """Besides its owner."""
    entries = (
        (_USER_OBJ, _READ_WRITE, _NOBODY), (_USER, _READ_WRITE, user), (_GROUP_OBJ, 0, _NOBODY),
        (_MASK, _READ_WRITE, _NOBODY), (_OTHER, 0, _NOBODY),
    )  # fmt: skip
    try:
        os.setxattr(path, _ACL, struct.pack("<I", _VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries))
    except OSError as error:
        if error.errno not in _NO_LISTS:
            raise
        if os.geteuid() == 0:  # who reads it all the same
            os.chown(path, user, -1)
        else:
            path.chmod(0o622)  # for whom has it mounted: the folder keeps out all others
