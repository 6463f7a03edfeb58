"""The clusters of a manager: each has its client, its informers and its surroundings; controllers are for one of them, or for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubeloop.cache import Informers
from kubeloop.client import Client
from kubeloop.controller.builder.controller import ControllerBase
from kubeloop.controller.builder.surroundings import RunnableContext
from kubeloop.controller.manager.background import Background, StoppedRunnable, Work
from kubeloop.controller.runner.runnable import Runnable
from kubeloop.controller.runner.runner import Runner

Manageable: TypeAlias = "ControllerBase[Any] | Runnable | Work | StoppedRunnable"
"""What a manager can run: a controller, an async function or object, or something that keeps the whole protocol."""


@dataclass(frozen=True, slots=True)
class OnCluster:
    """``what`` runs against the cluster of that name: its client and informers are that cluster's."""

    cluster: str
    what: Manageable


@dataclass(frozen=True, slots=True)
class OnEachCluster:
    """``make`` is called once for each cluster, with its name, those that are added later too; what it makes runs against that cluster.

    Its name gets the cluster's: ``foo@west``. Keys carry the cluster: ``ObjectKey.cluster``.
    """

    make: Callable[[str], Manageable]


@dataclass(slots=True)
class ManagedCluster:
    """One cluster of a manager. ``own``: the manager made the informers, so it starts and ends them."""

    name: str
    client: Client
    informers: Informers
    own: bool
    surroundings: RunnableContext
    entered: bool = False

    async def enter(self) -> None:
        if self.own and not self.entered:
            self.entered = True
            await self.informers.__aenter__()

    async def leave(self) -> None:
        if self.entered:
            self.entered = False
            await self.informers.__aexit__(None, None, None)


def runnable_of(what: Manageable, cluster: str = "") -> Runnable:
    """As something that can be run. ``cluster`` is put behind the name, where several of a kind run.

    Raises:
        NotRunnableError, DeclarationError: it cannot be run.
    """
    if isinstance(what, ControllerBase):
        return Runner(what, name=f"{type(what).declaration().name}@{cluster}" if cluster else "")
    if isinstance(what, Runnable):
        return what
    background = Background(what)
    return Background(what, name=f"{background.name}@{cluster}") if cluster else background
