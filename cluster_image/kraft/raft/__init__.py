"""KRaft: the controllers' quorum and the metadata log that brokers follow."""

from .config import QuorumConfig
from .driver import RaftClient, RaftListener
from .quorum import NotLeader

__all__ = ["NotLeader", "QuorumConfig", "RaftClient", "RaftListener"]
