"""The controllers under test: each keeps one child for each of its objects, and tells in the status what it has seen.

Children have generated names and are patched without a version, on purpose: nothing at the server refuses what a controller decides on an
old state, so that it shows in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller import Controller, set_controller_reference
from kubeloop.meta import ObjectMeta
from tests.soak.controllers.kinds import Alpha, Beta, Delta, Gamma, Thing, ThingStatus
from tests.soak.controllers.notes import Notes


@dataclass(frozen=True)
class Self:
    """The reconciling replica: its identity, the number of its term, and its notes."""

    identity: str
    term: Callable[[], int]
    notes: Notes

    async def tidy(self, controller: Controller[Alpha] | Controller[Beta] | Controller[Gamma] | Controller[Delta], thing: Thing) -> None:
        with self.notes.reconcile(f"{type(thing).__name__}/{thing.metadata.namespace}/{thing.metadata.name}"):
            wanted = {"value": str(thing.spec.value), "generation": str(thing.metadata.generation), "by": self.identity}
            children = controller.owned(ConfigMap, thing)
            client = controller.client
            if not children:
                metadata = ObjectMeta(generate_name=f"{thing.metadata.name}-", namespace=thing.metadata.namespace)
                child = ConfigMap(metadata=metadata, data=wanted)
                set_controller_reference(thing, child)
                await client.create(child)
            elif children[0].data.get("generation") != wanted["generation"]:
                found = children[0].metadata
                await client.patch(ConfigMap, found.name, {"data": wanted}, type="merge", namespace=found.namespace)
            if thing.status.generation != thing.metadata.generation:
                thing.status = ThingStatus(value=thing.spec.value, generation=thing.metadata.generation, by=self.identity, term=self.term())
                await client.update_status(thing)


class Alphas(Controller[Alpha], owns=[ConfigMap], name="alphas", workers=8):
    def __init__(self, who: Self) -> None:
        self.who = who

    async def reconcile(self, thing: Alpha) -> None:
        await self.who.tidy(self, thing)


class Betas(Controller[Beta], owns=[ConfigMap], name="betas", workers=8, warm_up=True):
    def __init__(self, who: Self) -> None:
        self.who = who

    async def reconcile(self, thing: Beta) -> None:
        await self.who.tidy(self, thing)


class Gammas(Controller[Gamma], owns=[ConfigMap], name="gammas", workers=8, timeout=30):
    def __init__(self, who: Self) -> None:
        self.who = who

    async def reconcile(self, thing: Gamma) -> None:
        await self.who.tidy(self, thing)


class Deltas(Controller[Delta], owns=[ConfigMap], name="deltas", workers=8, warm_up=True, timeout=30):
    def __init__(self, who: Self) -> None:
        self.who = who

    async def reconcile(self, thing: Delta) -> None:
        await self.who.tidy(self, thing)


def controllers(who: Self, count: int) -> Sequence[Alphas | Betas | Gammas | Deltas]:
    """The first ``count`` of them."""
    return (Alphas(who), Betas(who), Gammas(who), Deltas(who))[:count]
