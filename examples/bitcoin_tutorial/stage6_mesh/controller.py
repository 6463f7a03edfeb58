"""The controller: also connects the daemons of a network with each other."""

from __future__ import annotations

from examples.bitcoin_operator.mesh import connect
from examples.bitcoin_operator.rpc import Credentials, RpcClient, RpcError
from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork
from examples.bitcoin_tutorial.stage5_status import controller as stage5
from kubeloop import Result

#: The credentials of the daemons' image.
DEFAULT_CREDENTIALS = Credentials("user", "password")
#: Seconds until requests to failed daemons are repeated.
RETRY = 2.0


class NetworkController(stage5.NetworkController):
    """Applies the children, reports their pods, then connects them.

    Args:
        rpc: Client for the daemons; the controller opens and closes it.
    """

    def __init__(self, rpc: RpcClient | None = None) -> None:
        super().__init__()
        self.rpc = rpc or RpcClient()

    async def start(self) -> None:
        await self.rpc.__aenter__()

    async def stop(self) -> None:
        await self.rpc.__aexit__(None, None, None)

    async def reconcile(self, network: BitcoinNetwork) -> Result | None:
        await super().reconcile(network)
        addresses = frozenset(node.ip for node in network.status.nodes if node.ready)
        if not addresses:
            return None
        credentials = await self.credentials_of(network)
        failed = [ip for ip in sorted(addresses) if not await self.connect(network, ip, addresses - {ip}, credentials)]
        return Result(requeue_after=RETRY) if failed else None

    async def credentials_of(self, network: BitcoinNetwork) -> Credentials:  # noqa: ARG002 - the next stage needs it
        """Return user and password of the daemons."""
        return DEFAULT_CREDENTIALS

    async def connect(self, network: BitcoinNetwork, ip: str, peers: frozenset[str], credentials: Credentials) -> bool:
        """Give one daemon its list of added nodes.

        Args:
            network: The network of the daemon.
            ip: Address of the daemon.
            peers: Addresses of all other ready daemons.
            credentials: User and password of the daemon.

        Returns:
            Whether the daemon has the list.
        """
        try:
            if await connect(self.rpc, ip, peers, credentials):
                self.log.info("%s: daemon %s lists %d others", network.metadata.name, ip, len(peers))
        except RpcError as error:
            self.report(network, error)
            return False
        return True

    def report(self, network: BitcoinNetwork, error: RpcError) -> None:
        """Report a daemon that failed."""
        self.log.warning("%s: %s", network.metadata.name, error)
