"""The harness' own connections to a cluster, as its clients have them."""

from __future__ import annotations

from cluster_image.network import Address, Connection, Handler, Listening, Network, Refused, Versions
from cluster_image.network.sasl import Login
from cluster_image.network.tcp import TcpNetwork
from harness.cluster import Cluster
from harness.targets.security import PLAINTEXT, Security
from harness.targets.security.given import context


def network_to(cluster: Cluster) -> Network:
    """As the clients of the cluster reach its brokers."""
    security = getattr(cluster, "security", PLAINTEXT)  # a user's own, or a stand-in, may not say
    return TcpNetwork() if security == PLAINTEXT else SecuredNetwork(security, cluster)


class SecuredNetwork(Network):
    """Implements cluster_image.network.Network. Where controllers serve the quorum, no client is meant to be: there it
    is as in plain text."""

    def __init__(self, security: Security, cluster: Cluster) -> None:
        self._cluster = cluster
        login = Login(security.mechanism, security.username, security.password) if security.has_sasl else None
        self._to_brokers = TcpNetwork(tls=context(security) if security.has_tls else None, login=login)
        self._to_the_quorum = TcpNetwork()

    async def connect(self, address: Address, *, client_id: str, timeout: float) -> Connection:
        quorum = {node.quorum_address for node in self._cluster.machines}
        network = self._to_the_quorum if tuple(address) in quorum else self._to_brokers
        try:
            connection = await network.connect(address, client_id=client_id, timeout=timeout)
        except Refused as error:
            self._cluster.refused = str(error)
            raise
        if network is self._to_brokers:
            self._cluster.refused = ""
        return connection

    async def listen(self, address: Address, handler: Handler, served: Versions | None = None) -> Listening:
        raise NotImplementedError("who reaches a cluster serves nothing")

    async def close(self) -> None:
        await self._to_brokers.close()
        await self._to_the_quorum.close()
