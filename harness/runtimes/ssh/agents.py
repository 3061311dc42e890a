"""The harness' end of the agents on hosts.

Each request has an id, and an agent answers one id once: a request whose connection was lost is sent again, whatever
became of it. While a run goes on every agent hears of the harness at least every few seconds (beat): one that does not
undoes everything by itself. The beat alone decides that a host is lost: when it has had no answer for RETRY_S. From
then on every request to that host fails at once, also one that is waited for, since a run has many, until the beat has
reached it again: that is evidence of whatever was to be done there, and costs the request and not the run. An agent
that has ended does not come back: its host was rebooted, say.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from harness.errors import describe
from harness.runtimes.nodes.asking import AgentError

from .connection.sessions import Channel, HostError, HostUnreachable, Session
from .host_clock import HostClock

#: What an agent does takes a few seconds at most, but for waiting for a process' end, and what is named below.
ANSWER_S: Final = 60.0
#: By what is to be done. A disk is copied on the host, file by file.
_LONGER_S: Final[Mapping[str, float]] = {"copy_disk": 600.0}
RETRY_S: Final = 20.0
#: Whoever waits for an answer looks so often whether its host is lost meanwhile.
_WATCH_S: Final = 0.5
#: From one look whether a host that was given up is back to the next.
_LOOK_S: Final = 1.0
_GONE: Final = 4  # exit status of `agent.host connect`: there is no agent, and its answer says which boot this is
_STATUS_S: Final = 5.0
_SAMPLES: Final = 4  # of a clock, at first: the first one starts a session, and is wide
_BEATS: Final = 6  # in the time after which an agent undoes everything
_SLOWEST_BEAT_S: Final = 5.0


class NoAnswer(AgentError):
    """Whether it was done is not known: the agent has not said so."""


class _Lost(Exception):
    """The connection, in the midst of a request."""


class _Gone(Exception):
    """The agent, for good. life: which of those that were started on its host."""

    def __init__(self, why: str, life: int) -> None:
        super().__init__(why)
        self.life = life


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
        self._lives: Counter[str] = Counter()  # how often its agent was started again
        #: By node, when it could not be asked for anything: from and until (None: it still cannot be), ns, and why.
        self.lost: dict[str, list[tuple[int, int | None, str]]] = {}
        self._knowing = threading.Lock()  # what is known of nodes, from several threads
        self._strange: set[str] = set()  # whose clocks cannot be measured though they answer
        self._over = threading.Event()
        self._measured: dict[str, threading.Event] = {}  # by node whose agent hears of us
        self.clocks = {node: HostClock() for node in sessions}

    def started(self, node: str, boot: str) -> None:
        """Its agent was, in this boot of its host: it hears of us from now on, whatever this process is busy with, and
        its clock is measured."""
        with self._knowing:
            self._boots[node] = boot
            if node in self._measured:
                return
            measured = self._measured[node] = threading.Event()
        threading.Thread(target=self._beat, args=(node, measured), daemon=True, name=f"beat {node}").start()

    def wait_until_measured(self) -> None:
        """Blocks until the clocks of all whose agents were started are, or cannot be."""
        until = time.monotonic() + RETRY_S
        for measured in list(self._measured.values()):
            measured.wait(max(0.0, until - time.monotonic()))

    def boot_of(self, node: str) -> str:
        return self._boots.get(node, "")

    def back(self, node: str, boot: str) -> None:
        """Its agent, which was gone, was started again in this boot. Blocks until its clock is measured, or cannot
        be."""
        with self._knowing:
            self._lives[node] += 1
            self._boots[node] = boot
            self._gone.pop(node, None)
        for line in (node, f"{node}, measured", f"{node}, heard"):
            if line in self._lines:
                self._lines[line].close()  # whoever waits for an answer there asks the new one
        self._answers(node)
        self._measure_clock(node, _SAMPLES)

    def why_not(self, node: str) -> str:
        """Why its host cannot be asked for anything now, as far as is known; "": it can be. (The host of an agent that
        is gone for good may well be there.)"""
        return self._unreachable.get(node, "")

    async def ask(self, node: str, do: str, **arguments: Any) -> Any:
        return await self._ask(node, node, do, arguments)

    async def measure(self, node: str, do: str, **arguments: Any) -> Any:
        return await self._ask(f"{node}, measured", node, do, arguments)

    async def _ask(self, line: str, node: str, do: str, arguments: Mapping[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        answered = await loop.run_in_executor(self._threads, self.ask_now, line, node, do, arguments)
        return self.clocks[node].in_answer(answered)

    def ask_now(self, line: str, node: str, do: str, arguments: Mapping[str, Any]) -> Any:
        """Blocks. Times are the host's own. Raises AgentError."""
        return _result(self._asked(line, node, do, arguments), f"{do} on {node}")

    def _asked(self, line: str, node: str, do: str, arguments: Mapping[str, Any], *, beats: bool = False) -> bytes:
        """beats: it is this by which one knows that a host is lost, or is not any more. Raises NoAnswer."""
        request = json.dumps({"id": uuid.uuid4().hex, "node": node, "do": do, **arguments}).encode() + b"\n"
        mine = self._lines.setdefault(line, _Line())

        def no_more() -> str:
            return self._gone.get(node) or ("" if beats else self._unreachable.get(node, ""))

        began = time.monotonic()
        with mine.lock:
            if why := no_more():
                raise NoAnswer(f"{do} on {node}: {why}")
            late = stop_after_delay(RETRY_S)
            try:
                for attempt in Retrying(
                    retry=retry_if_exception_type((HostUnreachable, _Lost)), wait=wait_exponential(0.05, max=1.0),
                    stop=lambda state: self._over.is_set() or bool(no_more()) or late(state), reraise=True,
                ):  # fmt: skip
                    with attempt:
                        left_s = began + RETRY_S - time.monotonic()
                        patience_s = max(_WATCH_S, left_s if beats else _LONGER_S.get(do, ANSWER_S))
                        return self._exchange(mine, node, request, began, patience_s, no_more)
            except _Gone as error:
                self._is_gone(node, error)
                raise NoAnswer(f"{do} on {node}: {error}") from error
            except (HostError, _Lost) as error:
                raise NoAnswer(f"{do} on {node}: {no_more() or error}") from error
        raise AssertionError("it returns or raises")

    def _exchange(
        self, line: _Line, node: str, request: bytes, began: float, patience_s: float, no_more: Callable[[], str]
    ) -> bytes:
        """began: to ask, perhaps more than once. no_more: why nobody waits for it any more. Raises HostError, _Lost,
        _Gone."""
        life = self._lives[node]
        try:
            channel = line.channel  # close() may take it from the line at any time
            if channel is None:
                channel = line.channel = self._sessions[node].open(self._command[node], sudo=True)
            with suppress(HostUnreachable):  # it has ended: what it has said tells why
                channel.send(request)
            answered = _line_of(channel, began, patience_s, no_more)
            if answered.endswith(b"\n"):
                return answered
            if answered:
                raise _Lost("the connection was lost in the midst of an answer")
            if channel.wait(_STATUS_S) == _GONE and life == self._lives[node]:
                raise _Gone(self._why_gone(node, channel.complaints), life)
            raise _Lost(f"its agent is gone ({channel.complaints or 'without a word'})")
        except BaseException:
            line.close()
            raise

    def _is_gone(self, node: str, error: _Gone) -> None:
        """Whatever was thought of it before: its host does answer."""
        with self._knowing:
            if error.life != self._lives[node]:
                return  # another one is there by now
            self._gone[node] = str(error)
            self._unreachable.pop(node, None)
        self._is_lost(node, str(error))

    def _is_lost(self, node: str, why: str) -> None:
        with self._knowing:
            if self._over.is_set():
                return  # it is us who hang up
            times = self.lost.setdefault(node, [])
            is_new = not times or times[-1][1] is not None
            if is_new:
                times.append((time.monotonic_ns(), None, why))
            elif node in self._gone:  # which says more than that it did not answer
                is_new = times[-1][2] != why
                times[-1] = (times[-1][0], None, why)
        if is_new:
            self._tell(f"{node} is lost for now: {why}")

    def _answers(self, node: str) -> None:
        """It is not lost any more, if it was."""
        with self._knowing:
            self._unreachable.pop(node, None)
            times = self.lost.get(node)
            if not times or times[-1][1] is not None:
                return
            since, _, why = times[-1]
            times[-1] = (since, time.monotonic_ns(), why)
        self._tell(f"{node} answers again")

    def _why_gone(self, node: str, boot: str) -> str:
        host = self._sessions[node].name
        if boot != self._boots.get(node, boot):
            return f"host {host} was rebooted, and with it went the agent and all that the run had there but files"
        return (
            f"the agent on host {host} has ended, and has undone what there was of the run: it had not heard of this "
            "harness for too long, or somebody removed it"
        )

    def _beat(self, node: str, measured: threading.Event) -> None:
        """Nothing ends it but the run's end: a host whose harness is silent undoes the run."""
        self._measure_clock(node, _SAMPLES)
        measured.set()
        while not self._over.wait(min(_LOOK_S, self._beat_s) if node in self._unreachable else self._beat_s):
            if node not in self._gone:
                self._measure_clock(node)

    def _measure_clock(self, node: str, times: int = 1) -> None:
        """And see whether it answers. times: as long as it does."""
        for _ in range(times):
            if not self._has_heard(node):
                return

    def _has_heard(self, node: str) -> bool:
        try:
            began = time.monotonic_ns()
            answered = self._asked(f"{node}, heard", node, "monotonic_ns", {}, beats=True)
            received = time.monotonic_ns()
            self._answers(node)
            self.clocks[node].add(began, int(_result(answered, f"monotonic_ns on {node}")), received)
        except NoAnswer as error:
            if node not in self._gone:
                why = str(error).removeprefix(f"monotonic_ns on {node}: ")
                with self._knowing:
                    self._unreachable[node] = why
                self._is_lost(node, why)
            return False
        except Exception as error:  # whatever it answered: it has heard of us
            if node not in self._strange:
                self._strange.add(node)
                self._tell(f"the clock of {node} cannot be measured: {describe(error)}")
        return True

    def close(self) -> None:
        self._over.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for line in self._lines.values():
            line.close()


def _line_of(channel: Channel, began: float, patience_s: float, no_more: Callable[[], str]) -> bytes:
    """What Channel.readline returns. began: to wait for it, on whatever channel. Raises HostUnreachable, _Lost."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return channel.readline(max(0.0, min(_WATCH_S, until - time.monotonic())))
        except TimeoutError as error:
            if why := no_more():
                raise _Lost(why) from error
            if (now := time.monotonic()) >= until:
                raise _Lost(f"its agent has not answered for {now - began:.0f} s") from error


def _result(answered: bytes, what: str) -> Any:
    """Raises AgentError."""
    try:
        answer = json.loads(answered)
        if "error" in answer:
            raise AgentError(f"{what}: {answer['error']}")
        return answer["result"]
    except (ValueError, TypeError, KeyError) as error:
        raise AgentError(f"{what}: its agent gives an answer that is none ({error})") from error
