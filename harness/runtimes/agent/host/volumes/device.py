"""A volume on a block device that the host's owner has given for it."""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...machine import Volume
from .. import folder as run_folder

#: Where the superblock of a file system has its magic number, which that is, and where its UUID: ext4's superblock lies
#: at 1024 (struct ext4_super_block), that of XFS at 0 (struct xfs_dsb).
_UUIDS: Final = {"ext4": (1024 + 56, b"\x53\xef", 1024 + 104), "xfs": (0, b"XFSB", 32)}
#: Beside the volume.
_NOTED: Final = "device.json"


class DeviceVolume(Volume):
    """What was on the device is gone once make() is called. Afterwards it is known by its file system's UUID: once the
    host was rebooted another disk may have its name."""

    def __init__(self, device: Path, directory: Path, file_system: str) -> None:
        super().__init__(device, directory, file_system)
        self._given = device

    def make(self, size: int) -> Callable[[], None]:
        """size: no matter. Raises OSError if anything uses the device, or there is none."""
        if not self._given.is_block_device():
            raise OSError(errno.ENOTBLK, "it is no block device", str(self._given))
        try:
            os.close(os.open(self._given, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            raise OSError(error.errno, "it is in use", str(self._given)) from error
        self.directory.mkdir(exist_ok=True)
        making = self._make_file_system(self._given)

        def made() -> None:
            making()
            descriptor = os.open(self._given, os.O_RDONLY)
            try:
                run_folder.note(self._noted, self._uuid(descriptor))
            finally:
                os.close(descriptor)

        return made

    @property
    def size(self) -> int:
        descriptor = os.open(self._given, os.O_RDONLY)
        try:
            return os.lseek(descriptor, 0, os.SEEK_END)
        finally:
            os.close(descriptor)

    def _open_device(self) -> tuple[Path, int]:
        """Raises OSError if it is not the one that was made."""
        device = self._given.resolve()  # its own name: /sys/block knows no other
        descriptor = os.open(device, os.O_RDONLY)
        if self._uuid(descriptor) != json.loads(self._noted.read_text()):
            os.close(descriptor)
            raise OSError(errno.ENODEV, "it is another disk than the one that the run has formatted", str(self._given))
        return device, descriptor

    @property
    def _noted(self) -> Path:
        return self.directory.with_name(_NOTED)

    def _uuid(self, descriptor: int) -> str:
        """"": there is no such file system."""
        magic_at, magic, uuid_at = _UUIDS[self.file_system]
        if os.pread(descriptor, len(magic), magic_at) != magic:
            return ""
        return str(uuid.UUID(bytes=os.pread(descriptor, 16, uuid_at)))
