"""The webhooks of a server put together: what asks them, and the plug-ins of admission that do.

What asks is imported when there is somebody to be asked: most servers have no webhooks, and all are to start fast.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kubeloop.apiserver.admission import Attributes, Plugin
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.apiserver.webhooks.configurations import MUTATING, VALIDATING, Configurations
from kubeloop.endpoints.access import Authorizer
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.apiserver.outbound.client import WebhookClient
    from kubeloop.apiserver.webhooks.dispatcher import WebhookDispatcher


class Webhooks:
    """``plugins`` are those of admission, in order; ``post`` asks any webhook. ``stop`` when no request is left."""

    def __init__(
        self,
        registry: Registry,
        objects: Objects,
        cache: WatchCache,
        clock: Clock,
        authorizer: Authorizer,
        reach: EgressPolicy | None = None,
    ) -> None:
        self.registry = registry
        self.objects = objects
        self.authorizer = authorizer
        self.clock = clock
        self._reach = reach
        self._caller: WebhookClient | None = None
        self._mutating = Configurations(MUTATING, registry, objects, cache)
        self._validating = Configurations(VALIDATING, registry, objects, cache)
        self.plugins: tuple[Plugin, Plugin] = (_Mutating(self, self._mutating), _Validating(self, self._validating))

    @property
    def caller(self) -> WebhookClient:
        if self._caller is None:
            from kubeloop.apiserver.outbound.client import WebhookClient
            from kubeloop.apiserver.outbound.target import ServiceResolver

            self._caller = WebhookClient(ServiceResolver(self.registry, self.objects).resolve, self.clock, self._reach)
        return self._caller

    def asker(self, configurations: Configurations, *, mutating: bool) -> WebhookDispatcher:
        from kubeloop.apiserver.webhooks.dispatcher import WebhookDispatcher

        return WebhookDispatcher(configurations, self.registry, self.objects, self.caller, self.authorizer, self.clock, mutating=mutating)

    async def post(self, config: JSONObject, review: JSONObject, *, timeout: int) -> bytes:
        """As ``WebhookClient.post``."""
        return await self.caller.post(config, review, timeout=timeout)

    async def stop(self) -> None:
        self._mutating.stop()
        self._validating.stop()
        if self._caller is not None:
            await self._caller.close()


class _Mutating:
    def __init__(self, webhooks: Webhooks, configurations: Configurations) -> None:
        self._webhooks = webhooks
        self._configurations = configurations

    async def mutate(self, attributes: Attributes) -> None:
        if await self._configurations.hooks():
            await self._plugin.mutate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.webhooks.mutating import MutatingWebhooks

        return MutatingWebhooks(self._webhooks.asker(self._configurations, mutating=True))


class _Validating:
    def __init__(self, webhooks: Webhooks, configurations: Configurations) -> None:
        self._webhooks = webhooks
        self._configurations = configurations

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        if await self._configurations.hooks():
            await self._plugin.validate(attributes)

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.webhooks.dispatcher import ValidatingWebhooks

        return ValidatingWebhooks(self._webhooks.asker(self._configurations, mutating=False))
