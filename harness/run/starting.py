"""From a cluster that was started to one that can be struck: it is ready, and nothing is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from harness.cluster import Cluster, Node
from harness.errors import HarnessFailure
from harness.plan.plan import Plan
from harness.report.console import Progress
from harness.run.components import Components, Workload
from harness.targets.target import Target
from harness.targets.view import Observer

#: Until a cluster is ready, and so much more for each second that a node takes to start (Timing.start): of several on
#: one machine each takes longer.
READY_TIMEOUT_S = 60.0
READY_PER_START = 15.0
#: Of a cluster that is ready: until nothing is wrong any more with topics that are not the run's own, either.
HEALTHY_PATIENCE_S = 5.0
POLL_S = 0.2


class Starting:
    """collect_logs: saves what the nodes have said, and tells where, as the end of a message."""

    def __init__(
        self, plan: Plan, components: Components, cluster: Cluster, observer: Observer, workload: Workload,
        progress: Progress, collect_logs: Callable[[], Awaitable[str]],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._components = components
        self._cluster = cluster
        self._observer = observer
        self._workload = workload
        self._progress = progress
        self._collect_logs = collect_logs

    async def run(self) -> None:
        """Topic made, every partition led and every replica in its ISR, and nothing else wrong. Raises
        HarnessFailure."""
        if getattr(self._cluster, "was_there", False):  # a stand-in may not say
            await self._see_that_it_is_healthy()
        self._progress.update("waiting until the cluster is ready")
        patience = READY_TIMEOUT_S + READY_PER_START * self._plan.timing.start
        try:
            async with asyncio.timeout(patience):
                await self._unless_a_node_ends(self._set_up())
        except TimeoutError:
            reason = (await self._observer.view()).out_of_sync or "the topic was not created"
            self._cluster.not_recovered(f"{patience:g} s after its start, before any fault: {reason}")
            if self._cluster.violated is not None and self._cluster.violated.done():
                return
            logs = await self._collect_logs()
            if self._cluster.refused:
                reason = f"{reason}; a client was refused: {self._cluster.refused}"
            raise HarnessFailure(f"the cluster was not ready after {patience:g} s: {reason}{logs}") from None
        await self._see_that_it_is_healthy()

    async def _see_that_it_is_healthy(self) -> None:
        """A cluster with something wrong is not struck: what faults do to it would not be told from what was wrong
        before, and they might be what it does not survive. Raises HarnessFailure."""
        look = getattr(self._observer, "unhealthy", None)  # a user's own may have none
        if look is None or not self._components.looks_first:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + HEALTHY_PATIENCE_S
        while (wrong := await look()) is not None:
            if loop.time() >= until:
                logs = await self._collect_logs()
                raise HarnessFailure(f"the cluster is not healthy, and was not struck: {wrong}{logs}")
            self._progress.update(f"waiting until the cluster is healthy: {wrong}")
            await asyncio.sleep(POLL_S)

    async def _set_up(self) -> None:
        await self._workload.set_up()
        await in_sync(self._observer)

    async def _unless_a_node_ends(self, work: Coroutine[Any, Any, None]) -> None:
        """Raises HarnessFailure as soon as a node has ended by itself: one that refuses its configuration, say."""
        if not self._components.watches_start:
            return await work
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._first_to_end())
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)
        node = watching.result()
        why, logs = await why_ended(node, self._components.target), await self._collect_logs()
        raise HarnessFailure(f"{node.name} ended before the cluster was ready{why and f': {why}'}{logs}")

    async def _first_to_end(self) -> Node:
        while True:
            for node in self._cluster.nodes:
                if not await node.is_running():
                    return node
            await asyncio.sleep(POLL_S)


async def in_sync(observer: Observer) -> None:
    """Returns once every broker says that every replica is in its ISR."""
    while (await observer.view()).out_of_sync is not None:
        await asyncio.sleep(POLL_S)


async def why_ended(node: Node, target: Target) -> str:
    """What the end of its log says, as a clause; "": nothing."""
    words = await node.last_words()
    return target.why_ended(words) if words else ""
