"""`chaos clean --on ssh`: what runs left on hosts, and its removal, without their harness' help."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .connection.sessions import HostRefused, NotOnAll, Session, on_all
from .hosts_file import Host, Hosts
from .installation import install

#: An agent that heard of its harness so lately has one.
_ALIVE_S: Final = 10.0
_LOOK_S: Final = 30.0
_REMOVE_S: Final = 90.0


@dataclass(frozen=True)
class Status:
    """Of a host. found: by kind what there is, as agent.host.undo has it."""

    held: bool
    holder: Mapping[str, Any]
    silent_s: float | None
    found: Mapping[str, list[str]]

    @property
    def is_alive(self) -> bool:
        """Is its harness?"""
        return self.held and self.silent_s is not None and self.silent_s < _ALIVE_S

    @property
    def runs(self) -> list[str]:
        """Whose all that is; none: nobody knows. A reboot leaves no holder, but folders."""
        if self.held or self.holder:
            return [str(run)] if (run := self.holder.get("run")) else []
        return sorted({folder.rpartition("/run-")[2] for folder in self.found.get("folders", ())})

    @property
    def whose(self) -> str:
        return f"run {', '.join(self.runs) or '(unknown)'} of {self.holder.get('who', 'nobody known')}"

    @property
    def in_words(self) -> str:
        kinds = [f"{kind}: {', '.join(each)}" for kind, each in self.found.items() if each]
        return "; ".join([*(["an agent"] if self.held else []), *kinds])


def status(session: Session, host: Host) -> Status:
    """Nothing is put there. Blocks. Raises HostError."""
    install.look(session, host)  # which says it if its Python is none
    told = json.loads(_ask(session, host, ["status", host.data_directory], _LOOK_S))
    return Status(told["held"], told["holder"] or {}, told["silent_s"], told["found"])


def clean(
    hosts: Hosts, *, run: str | None = None, looks_only: bool = False, tell: Callable[[str], object] = lambda _: None
) -> list[str]:
    """Of every host what dead runs left, or this run, alive or not. A line for each thing; looks_only: nothing is
    removed. Raises NotOnAll that names the hosts where something may stay, with the lines of the others, once these are
    clean."""
    sessions = {host.name: Session(host) for host in hosts.hosts}

    def work(host: Host) -> list[str]:
        seen = status(sessions[host.name], host)
        if not seen.in_words:
            return []
        if run is not None and run not in seen.runs:
            return [f"{host.name} was left alone: what is there is of {seen.whose}"]
        if run is None and seen.is_alive:
            alive = f"the harness of {seen.whose} was heard of {seen.silent_s:.0f} s ago, and may be running"
            otherwise = f"try again in {_ALIVE_S:.0f} s, or give --run {', '.join(seen.runs) or 'NAME'}"
            return [f"{host.name} was left alone: {alive}; if it is dead, {otherwise}"]
        if looks_only:
            return [f"would be removed from {host.name}, of {seen.whose}: {seen.in_words}"]
        tell(f"will be removed from {host.name}, of {seen.whose}: {seen.in_words}")
        command = ["remove", host.data_directory, *seen.runs[:1]]  # and of no other one that has begun since
        done: list[str] = json.loads(_ask(sessions[host.name], host, command, _REMOVE_S))
        return [f"removed from {host.name}: {line}" for line in done]

    try:
        return [line for lines in on_all(hosts.hosts, work).values() for line in lines]
    except NotOnAll as error:
        raise NotOnAll(f"Not every host could be looked at: {error}", error.done) from None
    finally:
        for session in sessions.values():
            session.close()


def _ask(session: Session, host: Host, arguments: list[str], timeout_s: float) -> bytes:
    done = install.ask_agent(session, host, arguments, timeout_s)
    if done.status != 0:
        raise HostRefused(f"host {host.name}: {done.why}")
    return done.out
