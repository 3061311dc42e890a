"""A volume on a block device that the host's owner has given for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from ...machine import Volume


class DeviceVolume(Volume):
    """What was on the device is gone once make() is called."""

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
        return self._make_file_system(self._given)

    @property
    def size(self) -> int:
        descriptor = os.open(self._given, os.O_RDONLY)
        try:
            return os.lseek(descriptor, 0, os.SEEK_END)
        finally:
            os.close(descriptor)

    def _open_device(self) -> tuple[Path, int]:
        device = self._given.resolve()  # its own name: /sys/block knows no other
        return device, os.open(device, os.O_RDONLY)
