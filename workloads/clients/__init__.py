"""Clients: what a workload appends and reads by.

| folder | what it is |
| --- | --- |
| `client.py` | the Protocols: a Client, found by name through the entry points `chaos.clients`, and its Access |
| `kio/` | this project's own asyncio client, which repeats nothing and sees every response; it can be simulated |
| `driven/` | clients of others, in processes of their own that are told what to do and say what came of it |
| `drivers/` | the programs of these processes: they know their client's public API and nothing else of this project |

What an error of a client means (certainly not done, or unknown) is told by a table a client: `driven/outcomes.py`.
"""
