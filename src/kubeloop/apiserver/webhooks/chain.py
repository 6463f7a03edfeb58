"""The webhooks of a server put together: what asks them, and the plug-ins of admission that do."""

from __future__ import annotations

from kubeloop.apiserver.admission import Plugin
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.watch_cache import WatchCache
from kubeloop.apiserver.webhooks.asking import Asker
from kubeloop.apiserver.webhooks.caller import Caller
from kubeloop.apiserver.webhooks.configurations import MUTATING, VALIDATING, Configurations
from kubeloop.apiserver.webhooks.mutating import MutatingWebhooks
from kubeloop.apiserver.webhooks.services import ServiceResolver
from kubeloop.apiserver.webhooks.validating import ValidatingWebhooks
from kubeloop.timing import Clock


class Webhooks:
    """``caller`` asks any webhook; ``plugins`` are those of admission, in order. ``stop`` when no request is left."""

    def __init__(self, registry: Registry, objects: Objects, cache: WatchCache, clock: Clock) -> None:
        self.caller = Caller(ServiceResolver(registry, objects).resolve, clock)
        self._configurations = [Configurations(gvr, registry, objects, cache) for gvr in (MUTATING, VALIDATING)]
        mutating, validating = self._configurations
        self.plugins: tuple[Plugin, ...] = (
            MutatingWebhooks(Asker(mutating, registry, objects, self.caller, mutating=True)),
            ValidatingWebhooks(Asker(validating, registry, objects, self.caller, mutating=False)),
        )

    async def stop(self) -> None:
        for one in self._configurations:
            one.stop()
        await self.caller.close()
