"""The privileged part of the Docker runtime: a package of its own that runs in one container, on the standard library.

It makes, mounts, cuts and removes the nodes' volumes, kills node processes by pidfd, and filters packets in the
nodes' network namespaces. It needs SYS_ADMIN, NET_ADMIN, SYS_PTRACE, SYS_CHROOT, loop devices and the engine's PID
namespace; nothing else of the harness has a privilege beyond access to Docker.
"""
