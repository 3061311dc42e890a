"""The privileged part of the runtimes: a package of its own, on the standard library, that runs where nodes run.

It makes, mounts, cuts and removes the nodes' volumes, kills node processes by pidfd, and filters packets in the
nodes' network namespaces. For containers (../docker) it runs in one of its own, with SYS_ADMIN, NET_ADMIN, SYS_PTRACE,
SYS_CHROOT, loop devices and the engine's PID namespace; nothing else of the harness has a privilege beyond access to
Docker.
"""
