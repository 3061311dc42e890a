"""A power cut that is one: a host is rebooted by its kernel's own trigger, and waited for until it is back.

Only where the hosts file says may_reboot. The agent goes with the host; another is started when it is back, on what the
disk kept, and the node stays off until its power is restored, as ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from harness.cluster import Evidence
from harness.run.threads import in_thread
from harness.runtimes.nodes.asking import AgentError

from .agents import HostAgents, NoAnswer
from .connection.sessions import HostError, HostUnreachable
from .node import HostNode

#: From the trigger until a host is up and serves SSH again: physical ones take minutes.
BACK_S: Final = 600.0
_LOOK_S: Final = 1.0
_GOES_S: Final = 20.0


class _StillUp(Exception):
    """It has not lost its power yet."""


async def cut_power(node: HostNode, agents: HostAgents, start_agent: Callable[[], str]) -> Evidence:
    """start_agent: starts an agent that goes on with what lies there, and returns the boot that it is in; blocks,
    raises HostError. Evidence as Node.cut_power(), with rebooted. Raises AgentError."""
    was_running = await node.is_running()
    before = agents.boot_of(node.name)
    began = time.monotonic_ns()
    unanswered: NoAnswer | None = None
    try:
        await agents.ask(node.name, "reboot")
    except NoAnswer as error:  # the power may well have gone before the answer came
        unanswered = error
    try:
        boot = await in_thread(_wait_until_back, node, before, start_agent)
    except _StillUp:
        raise unanswered or AgentError(
            f"cut_power on {node.name}: host {node.host.name} was not rebooted by its trigger"
        ) from None
    back = time.monotonic_ns()
    await in_thread(agents.back, node.name, boot)
    evidence: dict[str, Any] = await agents.ask(node.name, "rebooted")
    return {
        **evidence, "rebooted": node.host.name, "cut_ns": back - began, "cut_at": began, "killed_at": began,
        "exit_status": 137 if was_running else None,
    }  # fmt: skip


def _wait_until_back(node: HostNode, before: str, start_agent: Callable[[], str]) -> str:
    """Its new boot. Raises _StillUp, AgentError."""
    for attempt in Retrying(
        retry=retry_if_exception_type(_StillUp), stop=stop_after_delay(_GOES_S), wait=wait_fixed(_LOOK_S),
        reraise=True,
    ):  # fmt: skip
        with attempt:
            if _boot(node) == before:
                raise _StillUp
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type(HostUnreachable), stop=stop_after_delay(BACK_S), wait=wait_fixed(_LOOK_S),
            reraise=True,
        ):  # fmt: skip
            with attempt:
                node.session.drop()
                return start_agent()
    except HostError as error:
        raise AgentError(f"cut_power on {node.name}: host {node.host.name} did not come back: {error}") from error
    raise AssertionError("it returns or raises")


def _boot(node: HostNode) -> str:
    """ "": it cannot be asked: it is down."""
    try:
        node.session.drop()
        return node.session.run([*node.agent_command, "boot"], sudo=True, timeout_s=5.0).text.strip()
    except HostUnreachable:
        return ""
    except HostError as error:
        raise AgentError(str(error)) from error
