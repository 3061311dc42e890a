"""What a run is asked for, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadArguments
from harness.run.order import Order

HOSTS = "".join(f'[hosts.h{n}]\naddress = "10.0.0.{n}"\n' for n in range(1, 7))


def test_hosts_keep_no_run_whose_harness_is_gone(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(HOSTS)
    fields = {"hosts": str(tmp_path / "hosts.toml"), "nemesis": ()}
    assert Order(fields, tmp_path).prepared().tried.on == "ssh"
    with pytest.raises(BadArguments, match=r"^--keep: hosts undo all that there is of a run once its harness is gone"):
        Order(fields, tmp_path, keep=True).prepared()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"on": "ssh"}, r"^--on ssh needs to know the hosts: give --hosts FILE"),
        ({"on": "docker", "hosts": "hosts.toml"}, r"^--hosts is for runs on hosts over SSH; .* not docker$"),
    ],
)
def test_hosts_and_where_to_run_go_together(fields: dict[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match=why):
        Order({"nemesis": (), **fields}, tmp_path).prepared()
