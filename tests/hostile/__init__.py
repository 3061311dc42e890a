"""Hostile traffic: `python -m tests.hostile` (`make hostile`).

Three real brokers and three real controllers, a process each, serve librdkafka, which produces with acks=all. Beside it
strangers send what port scanners, careless clients and attackers do, a kind at a time. For each kind a line: what was
answered, the most memory that any node had, the 99th percentile of librdkafka's latency, restarts, fencings. The exit
status is 1 if a node ended, a broker was fenced, a controller was deposed, a record was refused or lost, a node had
more than MEMORY_MB, or the percentile was more than SLOWER times that of the quiet seconds before.

| file           | what strangers send                                                  |
| -------------- | -------------------------------------------------------------------- |
| framing.py     | bytes that are no requests                                           |
| connections.py | many connections, slow ones, connections whose answers nobody reads  |
| asking.py      | requests that are well-formed and ask for much                       |
| records.py     | records that brokers must not store                                  |
| nodes.py       | what only nodes may ask                                              |

Strangers run with a lower priority than nodes: they are other machines. Each go has quiet seconds before it, as many,
and its percentile is compared with theirs: a virtual machine whose host takes a third of its processors ("stolen") has
ten times the latency, with strangers and without. Of GOES at most the least percentile counts, beside the least quiet
one. `--short` gives each kind a second, and looks at no percentile: for CI.
"""
