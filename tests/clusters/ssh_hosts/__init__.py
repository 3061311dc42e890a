"""Hosts to be reached over SSH, in containers: see ssh_hosts.py; as a command, `python -m tests.clusters.ssh_hosts`."""

from .ssh_hosts import Kind, SshHosts, remove

__all__ = ["Kind", "SshHosts", "remove"]
