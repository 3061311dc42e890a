"""A volume on a device that was given for it: loop devices stand for disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from .namespaces import apart

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts are root's")

NO_XFS = pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="there is no mkfs.xfs")


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=NO_XFS)])
def test_another_disk_that_has_its_name_after_a_reboot_is_not_mounted(tmp_path: Path, kind: str) -> None:
    told = apart(
        """
import subprocess
from harness.runtimes.agent.host.volumes.device import DeviceVolume
folder, kind = Path(sys.argv[1]), sys.argv[2]
disks = []
for name in ("first", "second"):
    with open(folder / name, "wb") as image:
        image.truncate(320 << 20)
    disks.append(kernel.attach_loop_device(folder / name))
name = folder / "sdb"
name.symlink_to(disks[0][0])
volume = DeviceVolume(name, folder / "volume", kind)
volume.make(0)()
volume.attach(0)
(folder / "volume" / "file").touch()
volume.unmount()

def resumed():
    try:
        DeviceVolume(name, folder / "volume", kind).attach(0)
        print("mounted", (folder / "volume" / "file").exists())
        kernel.unmount(folder / "volume")
    except OSError as error:
        print(error.strerror)

resumed()
name.unlink()
name.symlink_to(disks[1][0])
resumed()  # with nothing on it
subprocess.run(["mkfs." + kind, "-q", disks[1][0]], check=True)
resumed()  # somebody's
print(subprocess.run(["blkid", "-p", "-s", "UUID", "-o", "value", disks[0][0]], capture_output=True, text=True).stdout
      == json.loads((folder / "device.json").read_text()) + "\\n")
""",
        tmp_path, kind,
    )  # fmt: skip
    other = "it is another disk than the one that the run has formatted"
    assert told.splitlines() == ["mounted True", other, other, "True"]
