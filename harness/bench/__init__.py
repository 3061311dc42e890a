"""`make bench`: the figures that chaos aims at, measured on this machine and printed as a table.

A bench, not a test: a figure that misses its aim is shown as such and does not fail.

simulation   speed of simulated runs, on one core, in this process, and of a short `chaos explore`
checkers     how fast histories are judged, from 1e5 operations to 1e8 (CHAOS_BENCH=quick: to 1e7)
long         `chaos check` of long runs, start to end with the report: from a journal, and generated (quick: a tenth)
export       how long `chaos export` takes for 2.5 million operations of each workload, in each format
runs         what ordinary runs of `chaos run` in containers save
cluster      the cluster under test by itself, loaded by librdkafka: throughput, latency, failover
moves        partitions that move under a throttle while clients write: the move's rate, and what the clients notice
placement    how long it takes to plan the moves that balance 1,000 brokers with 200,000 partitions
defects      whether every defect of `chaos generate` is found, at 1e3, 1e5 and 1e7 operations; only when it is named
search       whether the search keeps its bounds on histories made to be hard, and how fast it is; only when it is named
profile      where a broker's time goes under that load
"""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """met: None for what has no aim."""

    name: str
    aim: str
    measured: str
    met: bool | None = None
