"""Of 001, the design on ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

_RULES: Final = "v2/rules.py"
_ELECTION: Final = "v2/partition/election.py"
_COMMIT: Final = "v2/partition/commit.py"
_MOVES: Final = "v2/partition/reassignments.py"
_QUEUE: Final = "v2/metadata/state_queue.py"
_ADMIN: Final = "v2/administration/admin.py"
_COMMAND: Final = "v2/administration/command.py"
_STATE: Final = "v2/state_changes.py"
_REPLICAS: Final = "v2/replicas.py"

DROPS: Final[Mapping[str, Drop]] = {
    "001-claims-3": Text(_STATE, '        self._trace("state change received", where, **told)\n', ""),
    "001-startup-1": Text(
        "v2/server.py", "for topic, index in await self._assigned():", "for topic, index in list[tuple[str, int]]():"
    ),
    "001-startup-6": Returns(
        "v2/metadata/reading.py", "replicas_to_start", "await replicas_of(zookeeper, topic, partition)"
    ),
    "001-election-1": Returns(_RULES, "may_lead", "broker in replicas and not is_deleted"),
    "001-election-2": Text(_ELECTION, "        if self._me != replicas[0]:\n", "        if self._me == replicas[0]:\n"),
    "001-election-4": Returns(_ELECTION, "Replicating._hear", "None"),
    "001-election-6": Text(_ELECTION, "with suppress(NoNode):  # it was", "with suppress():  # it was"),
    "001-state-1": Returns(_RULES, "may_start", "True"),
    "001-state-2": Returns(_RULES, "may_close", "True"),
    "001-state-3": Returns(_QUEUE, "StateQueue._shrink", "None"),
    "001-state-4": Text(
        _QUEUE,
        "                raise FollowerStateChangeQueueFull(",
        "                FollowerStateChangeQueueFull(",
    ),
    "001-state-5": Text(_COMMAND, "for r in replicas if r in live and await", "for r in replicas if await"),
    "001-roles-1": Returns(_RULES, "start_following", "FollowerStart(end_offset, names_epoch=True)"),
    "001-roles-2": Returns(_RULES, "next_epoch", "isr_epoch"),
    "001-roles-3": Returns(_RULES, "watermark_on_election", "high_watermark"),
    "001-roles-4": Returns(_ELECTION, "Replicating._wait_for_followers", "True"),
    "001-roles-5": Returns(_RULES, "expected_isr_version", "known_version"),
    "001-topics-1": Returns(_COMMAND, "TopicCommand._clean_failed_creation", "True"),
    "001-topics-2": Text(
        _COMMAND,
        "        if found is not None and found[0] != BEING_MADE:\n            raise",
        "        if False:\n            raise",
    ),
    "001-topics-3": Text(_MOVES, "        if not coming:\n", "        if False:\n"),
    "001-topics-4": Returns(_COMMAND, "TopicCommand.add_partitions", "None"),
    "001-topics-5": Text(
        _ADMIN,
        "            if await self._zookeeper.exists(mine) is not None:\n                break\n",
        "            break\n",
    ),
    "001-topics-13": Text(
        "v2/zookeeper/fenced.py",
        "(await self._client.multi([Check(self._fence, 0), *operations]))[1:]",
        "await self._client.multi(operations)",
    ),
    "001-commit-1": Text(
        "v2/partition/replica.py",
        "        done = new_future() if acks == -1 else None\n",
        "        done = new_future()\n",
    ),
    "001-commit-2": Returns(_COMMIT, "Committing._too_slow", "None"),
    "001-commit-3": Returns(_RULES, "may_join_isr", "False"),
    "001-commit-4": Returns(_RULES, "gives_way_to_preferred", "False"),
    "001-commit-5": Text(
        _COMMIT,
        'interval = self._keep_in_sync / 2 if self._config["v2.idle.checks"] else None',
        "interval = self._keep_in_sync / 2",
    ),
    "001-commit-6": Text(
        _COMMIT,
        'interval = self._keep_in_sync / 2 if self._config["v2.idle.checks"] else None',
        "interval = None",
    ),
    "001-topics-11": Text(
        _COMMAND,
        "await reading.reassigned_to(self._zookeeper, self._topic, index) != ():\n                return\n",
        "True:\n                pass\n",
    ),
    "001-topics-12": Text(
        _COMMAND, "        replicas = known or tuple(await self._members())\n", "        replicas = known\n"
    ),
    "001-moves-1": Text(
        _MOVES, "            if replica not in assigned or replica in closed:\n", "            if False:\n"
    ),
    "001-moves-2": Returns(_RULES, "may_complete_reassignment", "True"),
    "001-moves-3": Returns(_RULES, "has_reassignment_caught_up", "True"),
    "001-moves-4": Returns(_COMMAND, "TopicCommand.cancel_reassignment", "None"),
    "001-claims-4": Text("v2/metrics.py", "broker.backlog", "0"),
    "001-paths-1": Text("v2/server.py", "own.encode(), ephemeral=True)", "own.encode())"),
    "001-paths-2": Text(
        _COMMAND,
        "await self._make(paths.replicas(self._topic, index), paths.encode_ids(replicas))",
        "await self._make(paths.replicas(self._topic, index), paths.encode_ids(sorted(replicas)))",
    ),
    "001-paths-3": Text(_ELECTION, "leader.encode(), ephemeral=True)", "leader.encode())"),
    "001-paths-4": Returns(_ELECTION, "Replicating._write_first_isr", "0"),
    "001-paths-5": Text(_COMMIT, "                Delete(paths.reassigned(topic, index), found[1].version),\n", ""),
    "001-paths-6": Returns(_ADMIN, "Admin.remove_broker", "None"),
    "001-paths-7": Text(
        _ELECTION, "        catching_up = set(assigned) - partition.isr\n", "        catching_up = set()\n"
    ),
    "001-paths-8": Text("v2/partition/replica.py", "        leadership.queue.append(Produced(end_offset, done))\n", ""),
    "001-paths-9": Returns(_REPLICAS, "Replicas._checkpoint_now_and_then", "None"),
    "001-listeners-1": Text(_MOVES, "            if any(True for _ in self._led()):\n", "            if True:\n"),
    "001-listeners-2": Returns(_STATE, "StateChangeListener._hear", "None"),
    "001-listeners-3": Returns(_MOVES, "ReassignmentListener._hear", "None"),
    "001-startup-2": Returns(_QUEUE, "StateQueue.make", "None"),
    "001-startup-3": Text("v2/server.py", "        await self._listener.drain()\n", ""),
    "001-startup-4": Text(
        "v2/server.py",
        "        await self._listener.drain()\n",
        "        await self._register()\n        await asyncio.sleep(0.1)\n        await self._listener.drain()\n",
    ),
    "001-startup-5": Returns("v2/server.py", "BrokerServer._hear", "None"),
    "001-state-6": Text(
        _STATE,
        "        if self._me not in await replicas_of(self._zookeeper, topic, partition):\n",
        "        if False:\n",
    ),
    "001-state-7": Text(
        _REPLICAS,
        "        if key not in self._replicating and self._logs.topics.get((topic, partition)) is not None:\n",
        "        if False:\n",
    ),
    "001-roles-6": Returns(_ELECTION, "Replicating._lead_no_longer", "None"),
    "001-roles-7": Returns(_REPLICAS, "Replicas.fetch", "None"),
    "001-roles-8": Text(_REPLICAS, "            if each.partition.is_checkpointed\n", ""),
    "001-roles-9": Text(
        "v2/partition/replica.py", "        if not leadership.serves_clients:\n", "        if False:\n"
    ),
    "001-topics-6": Text(
        _COMMAND,
        "            if there is not None:\n                racks[broker] = there.rack or None\n        if not",
        "            if there is not None:\n                racks |= {broker: None, 3: None}\n        if not",
    ),
    "001-topics-7": Text(
        _COMMAND,
        '        if not await self._consumed(index, "start-replica", replicas, timeout):\n',
        "        if False:\n",
    ),
    "001-topics-8": Text(
        _COMMAND,
        '        if not await self._consumed(index, "close-replica", replicas, until - loop.time()):\n',
        "        if False:\n",
    ),
    "001-topics-9": Text(
        _COMMAND,
        """        for replica in replicas:
            await self._ask("close-replica", index, replica)
        if not""",
        "        if not",
    ),
    "001-topics-10": Returns(_COMMAND, "TopicCommand._remove_partition", "None"),
    "001-commit-7": Text(
        "v2/partition/replica.py",
        "        if self.leadership is None:\n            raise",
        "        if False:\n            raise",
    ),
    "001-commit-8": Text(
        "v2/partition/replica.py", "        self._set_high_watermark(max(self._high_watermark, produced.end))\n", ""
    ),
    "001-commit-10": Returns(_RULES, "is_committed", "True"),
    "001-commit-11": Returns(_RULES, "is_own_isr", "False"),
    "001-moves-5": Text(_COMMIT, "            leadership.close_sent = now\n", ""),
    "001-moves-6": Text(_COMMIT, "        await self.write_isr(partition.isr | set(coming))\n", ""),
    "001-moves-7": Returns(_COMMIT, "Committing._write_replicas", "True"),
    "001-moves-8": Text(_COMMIT, "sorted(old, key=lambda replica: replica == self._me)", "sorted(old - {self._me})"),
    "001-moves-10": Returns(_RULES, "has_stopped_fetching", "False"),
    "001-moves-11": Text(
        _COMMIT,
        "        except (NoNode, NodeExists, BadVersion):\n            return False\n",
        "        except (NoNode, NodeExists, BadVersion):\n            return True\n",
    ),
    "001-moves-12": Text(
        _MOVES,
        "            data, _ = await self._zookeeper.get(path, self._watcher(path))\n",
        "            data, _ = await self._zookeeper.get(path)\n",
    ),
    "001-moves-14": Text(
        _COMMAND,
        "            with suppress(NoNode):\n                await self._put",
        "            with suppress():\n                await self._put",
    ),
    "001-moves-15": Text(_COMMIT, "if sent is None or now - sent > 2 * self._keep_in_sync:", "if sent is None:"),
    "001-moves-16": Text(_COMMAND, "        if before == ():\n", "        if False:\n"),
    "001-moves-17": Text(_COMMIT, "sorted(old, key=lambda replica: replica == self._me)", "sorted(old & {self._me})"),
    "001-topics-14": Text(_COMMAND, "known = () if begun else await", "known = await"),
    "001-moves-18": Returns(_RULES, "isr_before_closing", "isr"),
    "001-moves-19": Returns(_RULES, "ends_term", "False"),
    "001-moves-20": Text(_ELECTION, "            await self._ask_to_start(catching_up)\n", "            pass\n"),
    "001-roles-11": Returns(_ELECTION, "Replicating._is_still_elected", "True"),
    "001-roles-12": Returns(
        _RULES, "isr_of_new_leader", "[*filter(set(caught_up).__contains__, assigned), *(set(found) - set(assigned))]"
    ),
    "001-election-5": Text(
        _ELECTION,
        """        if found is None or found[1].owner != zookeeper.session:
            self._changed.set()  # its session is over
            return
        latest = await reading.read(zookeeper, paths.isr(topic, index))
        if (None if latest is None else Isr.decode(latest[0])) != isr:
""",
        """        assert found is not None
        latest = await reading.read(zookeeper, paths.isr(topic, index))
        if False:
""",
    ),
    "001-fetch-1": Text(
        "v2/partition/replica.py",
        "        follower.fetched(broker_epoch, offset, log.end_offset, now, log_start_offset)\n",
        "",
    ),
    "001-fetch-2": Returns("v2/partition/replica.py", "Partition.read_as_follower", 'b""'),
    "001-fetch-3": Text(
        "replication/replica.py",
        "self._set_high_watermark(max(min(leaders_watermark, self.log.end_offset), self.log.start_offset))",
        "pass",
    ),
    "001-fetch-4": Text(
        "v2/partition/replica.py",
        "        return self.log.read(offset, max_bytes, self._high_watermark)\n",
        "        return self.log.read(offset, max_bytes, self.log.end_offset)\n",
    ),
}
