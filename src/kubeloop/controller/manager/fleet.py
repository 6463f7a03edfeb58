"""The clusters of one manager by name, each with its client and informers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeloop.cache import Informers
from kubeloop.client import Client
from kubeloop.controller.builder.surroundings import RunnableContext
from kubeloop.controller.manager.clusters import ManagedCluster
from kubeloop.controller.manager.errors import ManagerError


class ClusterSet:
    """``surround`` makes what the controllers of a cluster are given. The first one that is added is the manager's own."""

    def __init__(self, surround: Callable[[Client, Informers], RunnableContext]) -> None:
        self._surround = surround
        self._clusters: dict[str, ManagedCluster] = {}

    def add(self, client: Client, informers: Informers, *, own: bool) -> ManagedCluster:
        """``own``: the informers are the manager's to start and end.

        Raises:
            ManagerError: another cluster has that name.
        """
        name = client.cluster
        if name in self._clusters:
            raise ManagerError(
                f'two clusters are named "{name}"; keys and logs could not tell them apart: give the clients contexts of different clusters'
            )
        self._clusters[name] = ManagedCluster(name, client, informers, own, self._surround(client, informers))
        return self._clusters[name]

    def named(self, name: str) -> ManagedCluster:
        """Raises ManagerError: there is none."""
        found = self._clusters.get(name)
        if found is None:
            known = ", ".join(f'"{one}"' for one in self._clusters)
            raise ManagerError(f'there is no cluster "{name}"; there are {known}: give its client as Manager(..., clusters=[...])')
        return found

    def remove(self, name: str) -> None:
        """Forget it."""
        del self._clusters[name]

    @property
    def by_name(self) -> dict[str, ManagedCluster]:
        return dict(self._clusters)

    def __iter__(self) -> Iterator[ManagedCluster]:
        return iter(list(self._clusters.values()))
