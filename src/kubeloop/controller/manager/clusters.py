"""The clusters of a manager: each has a client, informers and a context. A controller runs on one cluster or on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubeloop.cache import InformerFactory
from kubeloop.client import Client
from kubeloop.controller.builder.context import RunnableContext
from kubeloop.controller.builder.controller import ControllerBase
from kubeloop.controller.errors import ManagerError
from kubeloop.controller.manager.background import Background, RunnableObject, Work
from kubeloop.controller.runner.runnable import Runnable
from kubeloop.controller.runner.runner import Runner

Manageable: TypeAlias = "ControllerBase[Any] | Runnable | Work | RunnableObject"
"""Anything that a manager can run: a controller, an async function, an object with an async ``run``, or a ``Runnable``."""


@dataclass(frozen=True, slots=True)
class OnCluster:
    """Runs a controller on the cluster of a manager that is named ``cluster``, with that cluster's client and informers.

    Example:
        >>> class Printer(Controller[ConfigMap]):
        ...     async def reconcile(self, config_map: ConfigMap) -> None: ...
        >>> from kubeloop import Manager
        >>> manager = Manager(client, [OnCluster(client.cluster, Printer())])
    """

    cluster: str
    runnable: Manageable


@dataclass(frozen=True, slots=True)
class OnEachCluster:
    """Runs a controller on each cluster of a manager. ``make`` takes the name of a cluster and returns the controller for it.

    ``make`` is also called for clusters that are added later. The cluster's name is appended to the controller's (``foo@west``). Keys carry
    the cluster (``ObjectKey.cluster``).

    Example:
        >>> class Printer(Controller[ConfigMap]):
        ...     async def reconcile(self, config_map: ConfigMap) -> None: ...
        >>> from kubeloop import Manager
        >>> manager = Manager(client, [OnEachCluster(lambda cluster: Printer())])
    """

    make: Callable[[str], Manageable]


@dataclass(slots=True)
class ManagedCluster:
    """One cluster of a manager. ``owned``: the manager created the informers, so it starts and ends them."""

    name: str
    client: Client
    informers: InformerFactory
    owned: bool
    context: RunnableContext
    entered: bool = False

    async def enter(self) -> None:
        if self.owned and not self.entered:
            self.entered = True
            await self.informers.__aenter__()

    async def leave(self) -> None:
        if self.entered:
            self.entered = False
            await self.informers.__aexit__(None, None, None)


def runnable_of(runnable: Manageable, cluster: str = "") -> Runnable:
    """Return the ``Runnable`` for an argument of the manager. ``cluster``, if given, is appended to the name of a controller or function.

    Raises:
        NotRunnableError, DeclarationError: the argument cannot be run.
    """
    if isinstance(runnable, ControllerBase):
        return Runner(runnable, name=f"{type(runnable)._declaration().name}@{cluster}" if cluster else "")
    if isinstance(runnable, Runnable):
        return runnable
    background = Background(runnable)
    return Background(runnable, name=f"{background.name}@{cluster}") if cluster else background


class ClusterSet:
    """The clusters of a manager, its first cluster first. ``new_context`` returns the context for the controllers of a cluster."""

    def __init__(self, new_context: Callable[[Client, InformerFactory], RunnableContext]) -> None:
        self._new_context = new_context
        self._clusters: dict[str, ManagedCluster] = {}

    def add(self, client: Client, informers: InformerFactory, *, owned: bool) -> ManagedCluster:
        """Add a cluster. ``owned``: the manager starts and ends the informers.

        Raises:
            ManagerError: another cluster has that name.
        """
        name = client.cluster
        if name in self._clusters:
            raise ManagerError(
                f'two clusters are named "{name}"; keys and logs could not tell them apart: give the clients contexts of different clusters'
            )
        self._clusters[name] = ManagedCluster(name, client, informers, owned, self._new_context(client, informers))
        return self._clusters[name]

    def named(self, name: str) -> ManagedCluster:
        """Return the cluster with this name. Raises ManagerError if there is none."""
        cluster = self._clusters.get(name)
        if cluster is None:
            known = ", ".join(f'"{one}"' for one in self._clusters)
            raise ManagerError(f'there is no cluster "{name}"; there are {known}: give its client as Manager(..., clusters=[...])')
        return cluster

    def remove(self, name: str) -> None:
        """Remove the cluster with this name."""
        del self._clusters[name]

    @property
    def by_name(self) -> dict[str, ManagedCluster]:
        return dict(self._clusters)

    def __iter__(self) -> Iterator[ManagedCluster]:
        return iter(list(self._clusters.values()))
