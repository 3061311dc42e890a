"""The simulation runtime: the target's own code, unchanged, in one process with virtual time, network and disks.

| module         | stands for                                                                                    |
| -------------- | --------------------------------------------------------------------------------------------- |
| loop.py        | time and the scheduler: every callback belongs to a simulated process, which can stop and die |
| network/       | hosts and links: latency, cut and slow links, power; the `Network` seam of each process       |
| disk/          | each machine's file system with a page cache; the `Disk` seam                                 |
| clock.py       | a machine's wall clock, which can be wrong                                                    |
| tripwire.py    | catches code that reaches past the seams for a real clock, file, thread or random number      |
| node.py        | a machine: power, processes, and the faults of harness/cluster.py                             |
| cluster.py     | all machines of one run                                                                       |

One seed gives one run: each source of chance is a stream of its own, named by what it decides.
"""
