"""Nothing here touches the kernel's trigger."""

from __future__ import annotations

import pytest

from harness.runtimes.agent.host.itself import reboot


def test_a_container_is_never_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboot, "in_container", lambda: True)
    monkeypatch.setattr(reboot, "_now", lambda trigger: pytest.fail("it was pulled"))
    with pytest.raises(OSError, match="this host is a container"):
        reboot.soon(reboot.TRIGGER)
