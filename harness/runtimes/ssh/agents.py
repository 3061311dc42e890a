"""The harness' end of the agents on hosts.

Each request has an id, and an agent answers one id once: a request whose connection was lost is sent again, whatever
became of it. A host that does not answer for RETRY_S costs the request, and not the run: it is evidence of whatever
was to be done there. From then on every request to it fails at once, for a run has many, until the beat has reached it
again. While a run goes on every agent hears of the harness at least every few seconds (beat): one that does not undoes
everything by itself. An agent that has ended does not come back: its host was rebooted, say.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from harness.runtimes.nodes.asking import AgentError

from .connection.sessions import Channel, HostError, HostUnreachable, Session
from .host_clock import HostClock

#: What an agent does takes a few seconds at most, but for waiting for a process' end.
ANSWER_S: Final = 60.0
RETRY_S: Final = 20.0
#: From one look whether a host that was given up is back to the next.
_LOOK_S: Final = 1.0
_GONE: Final = 4  # exit status of `agent.host connect`: there is no agent, and its answer says which boot this is
_STATUS_S: Final = 5.0
_SAMPLES: Final = 4  # of a clock, at first: the first one starts a session, and is wide
_BEATS: Final = 6  # in the time after which an agent undoes everything
_SLOWEST_BEAT_S: Final = 5.0


class _Lost(Exception):
    """The connection, in the midst of a request."""


class _Gone(Exception):
    """The agent, for good."""


class _Line:
    """Requests in order, on one channel."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.channel: Channel | None = None

    def close(self) -> None:
        """From any thread."""
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()


class HostAgents:
    """Implements ..nodes.asking.Agent. sessions: by node. command: what reaches the agent on its host, by node.
    rescue_after_s: see holding.py. tell: what is waited for, in a line."""

    def __init__(
        self, sessions: Mapping[str, Session], command: Mapping[str, list[str]], rescue_after_s: float,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:  # fmt: skip
        self._sessions = sessions
        self._command = command
        self._beat_s = min(_SLOWEST_BEAT_S, rescue_after_s / _BEATS)
        self._tell = tell
        self._lines: dict[str, _Line] = {}
        self._threads = ThreadPoolExecutor(3 * len(sessions) + 1, "chaos-ssh")
        self._unreachable: dict[str, str] = {}  # by node, why
        self._gone: dict[str, str] = {}
        self._boots: dict[str, str] = {}
        #: By node, when it could not be asked for anything: from and until (None: it still cannot be), ns, and why.
        self.lost: dict[str, list[tuple[int, int | None, str]]] = {}
        self._over = threading.Event()
        self.clocks = {node: HostClock() for node in sessions}

    def booted(self, node: str, boot: str) -> None:
        """Which boot of its host the agent was started in."""
        self._boots[node] = boot

    def boot_of(self, node: str) -> str:
        return self._boots.get(node, "")

    def back(self, node: str, boot: str) -> None:
        """Its agent, which was gone, was started again in this boot."""
        self.booted(node, boot)
        for line in (node, f"{node}, measured", f"{node}, heard"):
            if line in self._lines:
                with self._lines[line].lock:
                    self._lines[line].close()
        was_gone = self._gone.pop(node, None) is not None
        self._unreachable.pop(node, None)
        if was_gone:  # and its beat has ended
            self._start_beat(node, threading.Event())

    def why_not(self, node: str) -> str:
        """Why its host cannot be asked for anything now, as far as is known; "": it can be."""
        return self._unreachable.get(node, "")

    async def ask(self, node: str, do: str, **arguments: Any) -> Any:
        return await self._ask(node, node, do, arguments)

    async def measure(self, node: str, do: str, **arguments: Any) -> Any:
        return await self._ask(f"{node}, measured", node, do, arguments)

    async def _ask(self, line: str, node: str, do: str, arguments: Mapping[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        answered = await loop.run_in_executor(self._threads, self.ask_now, line, node, do, arguments)
        return self.clocks[node].in_answer(answered)

    def ask_now(
        self, line: str, node: str, do: str, arguments: Mapping[str, Any], *, even_if_lost: bool = False
    ) -> Any:
        """Blocks. Times are the host's own. even_if_lost: a host that was given up is tried, once. Raises
        AgentError."""
        request = json.dumps({"id": uuid.uuid4().hex, "node": node, "do": do, **arguments}).encode() + b"\n"
        mine = self._lines.setdefault(line, _Line())
        with mine.lock:
            if lost := self._gone.get(node) or ("" if even_if_lost else self._unreachable.get(node)):
                raise AgentError(f"{do} on {node}: {lost}")
            try:
                for attempt in Retrying(
                    retry=retry_if_exception_type((HostUnreachable, _Lost)),
                    stop=stop_after_delay(0 if even_if_lost and node in self._unreachable else RETRY_S),
                    wait=wait_exponential(0.05, max=1.0), reraise=True,
                ):  # fmt: skip
                    with attempt:
                        answered = self._exchange(mine, node, request)
            except _Gone as error:
                self._gone[node] = str(error)
                self._is_lost(node, str(error))
                raise AgentError(f"{do} on {node}: {error}") from error
            except (HostError, _Lost) as error:
                self._unreachable[node] = str(error)
                self._is_lost(node, str(error))
                raise AgentError(f"{do} on {node}: {error}") from error
        if self._unreachable.pop(node, None) is not None and self.lost.get(node):
            since, _, why = self.lost[node].pop()
            self.lost[node].append((since, time.monotonic_ns(), why))
            self._tell(f"{node} answers again")
        answer = json.loads(answered)
        if "error" in answer:
            raise AgentError(f"{do} on {node}: {answer['error']}")
        return answer["result"]

    def _exchange(self, line: _Line, node: str, request: bytes) -> bytes:
        try:
            channel = line.channel  # close() may take it from the line at any time
            if channel is None:
                channel = line.channel = self._sessions[node].open(self._command[node], sudo=True)
            with suppress(HostUnreachable):  # it has ended: what it has said tells why
                channel.send(request)
            if answered := channel.readline(ANSWER_S):
                return answered
            if channel.wait(_STATUS_S) == _GONE:
                raise _Gone(self._why_gone(node, channel.complaints))
            raise _Lost(f"its agent is gone ({channel.complaints or 'without a word'})")
        except TimeoutError as error:
            line.close()
            raise _Lost(f"its agent has not answered for {ANSWER_S:g} s") from error
        except BaseException:
            line.close()
            raise

    def _is_lost(self, node: str, why: str) -> None:
        times = self.lost.setdefault(node, [])
        if self._over.is_set():
            return  # it is us who hang up
        if not times or times[-1][1] is not None:
            times.append((time.monotonic_ns(), None, why))
            self._tell(f"{node} is lost for now: {why}")

    def _why_gone(self, node: str, boot: str) -> str:
        host = self._sessions[node].name
        if boot != self._boots.get(node, boot):
            return f"host {host} was rebooted, and with it went the agent and all that the run had there but files"
        return (
            f"the agent on host {host} has ended, and has undone what there was of the run: it had not heard of this "
            "harness for too long, or somebody removed it"
        )

    def start_beating(self) -> None:
        """Every agent hears of us from now on, whatever this process is busy with; and its clock is measured. Blocks
        until each was measured, or cannot be."""
        measured = [threading.Event() for _ in self._sessions]
        for node, event in zip(self._sessions, measured, strict=True):
            self._start_beat(node, event)
        for event in measured:
            event.wait(RETRY_S)

    def _start_beat(self, node: str, measured: threading.Event) -> None:
        threading.Thread(target=self._beat, args=(node, measured), daemon=True, name=f"beat {node}").start()

    def _beat(self, node: str, measured: threading.Event) -> None:
        for _ in range(_SAMPLES):
            self._measure_clock(node)
        measured.set()
        while not self._over.wait(min(_LOOK_S, self._beat_s) if node in self._unreachable else self._beat_s):
            if node in self._gone:
                return
            self._measure_clock(node)

    def _measure_clock(self, node: str) -> None:
        with suppress(AgentError):
            began = time.monotonic_ns()
            theirs = self.ask_now(f"{node}, heard", node, "monotonic_ns", {}, even_if_lost=True)
            self.clocks[node].add(began, int(theirs), time.monotonic_ns())

    def close(self) -> None:
        self._over.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for line in self._lines.values():
            line.close()
