"""Whether services have the file systems of their data to themselves, asked of the hosts before anything is started."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Final

from ..connection.sessions import HostRefused, Session, on_all
from ..hosts_file import Hosts, Service
from ..installation import install

_LOOK_S: Final = 40.0
#: By what does it (methods of harness.cluster): what that needs, to be said where it is not there.
NEED: Final[Mapping[str, str]] = {
    "cut_power": "a power cut needs a file system of its own",
    "lose_page_cache": "to lose its page cache it needs a file system of its own",
    "fail_disk": "a disk that fails needs a file system of its own",
    "fill_disk": "a full disk needs a file system of its own",
}


def why_not(session: Session, service: Service) -> str:
    """A clause that follows "the data directory of the service on host NAME"; "": it has. Blocks. Raises HostError."""
    host = session.host
    given = {name: value for name, value in asdict(service).items() if name != "controller_port"}
    done = install.ask_agent(session, host, ["alone", json.dumps({**given, "topic": ""})], _LOOK_S)
    if done.status != 0:
        raise HostRefused(f"host {host.name}: it cannot be looked at ({done.why})")
    return str(json.loads(done.out)["why_not"])


def why_not_on(hosts: Hosts, names: Collection[str]) -> dict[str, str]:
    """Of these hosts, by name, those that have not. Blocks. Raises RuntimeUnavailable: one cannot be asked."""
    service = hosts.service
    assert service is not None
    sessions = [Session(host) for host in hosts.hosts if host.name in names]
    try:
        told = on_all(sessions, lambda session: why_not(session, service))
    finally:
        for session in sessions:
            session.close()
    return {name: why for name, why in told.items() if why}
