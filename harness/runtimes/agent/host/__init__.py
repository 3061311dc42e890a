"""The agent on a host that the harness reaches over SSH: one node, whose machine is the host itself.

`serve`, started with sudo, leaves two processes. The worker does what it is asked over a socket that only root may
use: each SSH session has a `connect` that passes lines between it and the socket, so that no port is opened. The guard,
its parent, waits for it to end. The worker ends when it is told to, and when nobody has asked it anything for longer
than the harness may be silent (`rescue_after_s`); however it ends, SIGKILL included, the guard then undoes all that
there is of the run on this host (undo.py): a harness that dies leaves no host partitioned, frozen or mounted.

A host is held by one run at a time (holding.py). The node's process sees the files that it would see in a container,
in a mount namespace of its own (launch.py): the host's own file system gets nothing but one folder.
"""
