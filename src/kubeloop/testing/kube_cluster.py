"""``KubeCluster``: the cluster of one test, as fixtures provide it: a namespace on a shared server, or a separate server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kubeloop.meta import ConfigError, Resource
from kubeloop.testing.fake_time import with_fake_time
from kubeloop.timing import Clock, SystemClock

if TYPE_CHECKING:
    from kubeloop.client import Client
    from kubeloop.controller import ControllerBase, Manager, Runnable
    from kubeloop.testing.actions import Actions
    from kubeloop.testing.faults import Faults

Isolation = Literal["namespace", "server"]

#: The manager's user in tests, to distinguish its writes from the test's own.
MANAGER = "kube-manager"


class KubeCluster(ABC):
    """The cluster of one test, from the fixture ``kube_cluster`` of the pytest plug-in.

    ``namespace`` belongs to the test; ``clock`` is that of clients and managers, and of a separate server.

    Example:
        >>> async def test_labels(kube_cluster: KubeCluster) -> None:
        ...     async with kube_cluster.client() as client:
        ...         await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    """

    isolation: Isolation

    def __init__(self, namespace: str, clock: Clock) -> None:
        self.namespace = namespace
        self.clock = clock
        self._managers: list[Manager] = []

    @abstractmethod
    def client(self, namespace: str | None = None, *, user: str | None = None) -> Client:
        """Return a new client, closed after the test; by default an administrator in the test's namespace.

        Raises:
            ConfigError: ``user`` is set on a shared server, which has only one user.
        """

    @property
    @abstractmethod
    def faults(self) -> Faults:
        """The server's faults, and its record of requests.

        Raises:
            ConfigError: the server is shared.
        """

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """The kubeconfig for kubectl and other programs.

        Raises:
            ConfigError: the server has no socket.
        """

    @property
    def actions(self) -> Actions:
        """The writes of this test's managers (see ``Actions``).

        Raises:
            ConfigError: the server is shared.
        """
        from kubeloop.testing.actions import Actions

        return Actions(self.faults, self.clock).select(user=MANAGER)

    async def install(self, *kinds: type[Resource]) -> None:
        """Install custom kinds: apply their CustomResourceDefinitions, made from the classes, and wait until they are served.

        Raises:
            ConfigError: a class has no schema; the message names it.
            Invalid: the server refuses a definition.
        """
        from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
        from kubeloop.codegen.crd import definitions_of
        from kubeloop.meta import Unstructured

        client = self.client()
        for definition in definitions_of(kinds):
            wanted = Unstructured.from_dict(definition.document)
            await client.apply(wanted, field_manager="kubeloop-testing", force=True)
            await with_fake_time(client.wait_ready(CustomResourceDefinition, definition.name, timeout=30), self.clock)

    async def start_manager(self, *controllers: ControllerBase[Any] | Runnable, **options: Any) -> Manager:
        """Start a manager of these controllers, wait until it is synced, and run it until the test ends. ``options`` are for ``Manager``.

        On a shared server it watches only the test's namespace by default; on a separate server all.

        Raises:
            All errors of ``Manager.start``.
        """
        from kubeloop.controller import Manager

        shared = self.isolation == "namespace"
        options.setdefault("namespace", self.namespace if shared else None)
        options.setdefault("clock", self.clock)
        manager = Manager(self.client(user=None if shared else MANAGER), controllers, **options)
        self._managers.append(manager)
        await with_fake_time(manager.start(), self.clock)
        return manager

    async def stop_managers(self) -> None:
        """Stop the managers gracefully, the last one first. A failed controller raises here."""
        while self._managers:
            await with_fake_time(self._managers.pop().stop(), self.clock)


class OwnServer(KubeCluster):
    """A separate server for one test, in its event loop and without a socket, without controllers."""

    isolation = "server"

    def __init__(self, server: Any, clock: Clock) -> None:
        super().__init__("default", clock)
        self.server = server

    def client(self, namespace: str | None = None, *, user: str | None = None) -> Client:
        name = namespace or self.namespace
        made: Client = self.server.client(name, user=user) if user is not None else self.server.client(name)
        return made

    @property
    def faults(self) -> Faults:
        found: Faults = self.server.faults
        return found

    @property
    def kubeconfig(self) -> Path:
        raise ConfigError(
            'this test has a server without a socket; mark it @pytest.mark.kube(isolation="namespace") to reach it from elsewhere'
        )


class SharedServer(KubeCluster):
    """A namespace on a shared server."""

    isolation = "namespace"

    def __init__(self, namespace: str, kubeconfig: Path) -> None:
        super().__init__(namespace, SystemClock())
        self._kubeconfig = kubeconfig
        self._clients: list[Client] = []

    def client(self, namespace: str | None = None, *, user: str | None = None) -> Client:
        from kubeloop.client import Client
        from kubeloop.config import load_config
        from kubeloop.transport import Transport

        if user is not None:
            raise ConfigError(_own_server(f'to send requests as "{user}"'))
        made = Client(Transport(load_config(self._kubeconfig)), namespace=namespace or self.namespace)
        self._clients.append(made)
        return made

    @property
    def faults(self) -> Faults:
        raise ConfigError(_own_server("faults and recorded actions"))

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def own_server(clock: Clock) -> AsyncIterator[OwnServer]:
    """Provide a server for the block."""
    from kubeloop.testing.servers import HandlerServer

    async with HandlerServer(clock=clock) as server:
        found = OwnServer(server, clock)
        try:
            yield found
        finally:
            await found.stop_managers()


@asynccontextmanager
async def shared_server(kubeconfig: Path, namespace: str) -> AsyncIterator[SharedServer]:
    """Provide a new namespace for the block."""
    from kubeloop.api.core.v1 import Namespace
    from kubeloop.meta import ObjectMeta

    found = SharedServer(namespace, kubeconfig)
    try:
        client = found.client()
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
        try:
            await _wait_account(client, namespace)
            yield found
        finally:
            await found.stop_managers()
            await client.delete(Namespace, namespace)
    finally:
        await found.close()


async def _wait_account(client: Client, namespace: str) -> None:
    """Wait until the namespace has its default ServiceAccount, without which pods are refused.

    If not even the namespace ``default`` has one, no controller creates ServiceAccounts, and pods are accepted without them.
    """
    from kubeloop.api.core.v1 import ServiceAccount
    from kubeloop.meta import NotFound

    try:
        await client.get(ServiceAccount, "default", namespace="default")
    except NotFound:
        return
    await client.wait_for(ServiceAccount, "default", bool, namespace=namespace, timeout=60)


def _own_server(feature: str) -> str:
    return f'{feature}: not on a shared server; mark the test @pytest.mark.kube(isolation="server") for a separate one'


def choose(asked: Iterable[Isolation | None], default: Isolation, needs_own: str) -> Isolation:
    """Choose a test's isolation: the nearest requested isolation, else the isolation that the test needs, else ``default``.

    Raises:
        ConfigError: the test requests a shared server and needs a separate one.
    """
    said = next((one for one in asked if one is not None), None)
    if said not in (None, "namespace", "server"):
        raise ConfigError(f'isolation={said!r}: must be "namespace" (on a shared server) or "server" (of the test\'s own)')
    if said == "namespace" and needs_own:
        raise ConfigError(_own_server(f"the fixture {needs_own}"))
    return said or ("server" if needs_own else default)
