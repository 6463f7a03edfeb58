"""The webhook configurations of a server, and the two admission plug-ins that call their webhooks.

The modules that call webhooks are imported for the first configuration: most servers have none, and start faster without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kubeloop.apiserver.admission import Attributes, Plugin
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import Subscription, WatchCache
from kubeloop.endpoints.access import Authorizer
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.selectors import Selector, selector_from
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.apiserver.outbound.client import WebhookClient
    from kubeloop.apiserver.webhooks.dispatcher import WebhookDispatcher

MUTATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
VALIDATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration. ``key`` identifies it among all webhooks."""

    key: str
    name: str
    rules: tuple[JSONObject, ...]
    namespaces: Selector
    objects: Selector
    client_config: JSONObject
    versions: list[str]
    conditions: tuple[JSONObject, ...] = ()
    equivalent: bool = True
    ignore_failure: bool = False
    side_effects: str = ""
    timeout: int = 10
    reinvoke: bool = False


def parse_webhooks(configuration: JSONObject) -> list[Webhook]:
    """Return the webhooks of a stored configuration, which is defaulted and valid."""
    owner = configuration["metadata"]["name"]
    return [_hook(f"{owner}/{one['name']}/{place}", one) for place, one in enumerate(configuration.get("webhooks") or ())]


def _hook(key: str, value: JSONObject) -> Webhook:
    return Webhook(
        key=key,
        name=value["name"],
        rules=tuple(value.get("rules") or ()),
        namespaces=selector_from(value.get("namespaceSelector") or {}),
        objects=selector_from(value.get("objectSelector") or {}),
        client_config=value.get("clientConfig") or {},
        versions=value.get("admissionReviewVersions") or [],
        conditions=tuple(value.get("matchConditions") or ()),
        equivalent=value.get("matchPolicy", "Equivalent") == "Equivalent",
        ignore_failure=value.get("failurePolicy") == "Ignore",
        side_effects=value.get("sideEffects") or "",
        timeout=value.get("timeoutSeconds") or 10,
        reinvoke=value.get("reinvocationPolicy") == "IfNeeded",
    )


class Configurations:
    """All webhooks of one kind of configuration.

    Guarantees
        ``hooks`` includes every configuration that the watch cache has published. Storage is read again only after a change.

    Not guaranteed
        A configuration may not affect the very next write: as in Kubernetes, there is a short delay.
    """

    def __init__(self, gvr: GroupVersionResource, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        """Create an empty cache.

        Args:
            gvr: The resource of the configurations.
            registry: The served resources.
            objects: Reads the configurations.
            cache: Publishes their changes.
        """
        self._gvr = gvr
        self._registry = registry
        self._objects = objects
        self._cache = cache
        self._subscription: Subscription | None = None
        self._hooks: list[Webhook] = []

    async def hooks(self) -> list[Webhook]:
        """Return the webhooks in the order in which they are called."""
        subscription = self._subscription
        if subscription is None or subscription.waiting or subscription.ended:
            await self._read()
        return self._hooks

    def stop(self) -> None:
        """End the subscription."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    async def _read(self) -> None:
        resource = self._registry.get(self._gvr)
        if resource is None:
            raise LookupError(f"the registry does not serve {self._gvr}")
        # Subscribe before the read, so that a change during the read causes another read.
        self.stop()
        self._subscription = self._cache.subscribe(resource.storage_prefix)
        value = sorted(await self._objects.all(resource), key=lambda webhook_configuration: str(webhook_configuration["metadata"]["name"]))
        self._hooks = [hook for configuration in value for hook in parse_webhooks(configuration)]


# The plug-ins of admission that call webhooks.


class WebhookPlugins:
    """The webhooks of a server: ``plugins`` are its two admission plug-ins, in order; ``post`` calls any webhook.

    Call ``stop`` after the last request.
    """

    def __init__(
        self,
        registry: Registry,
        objects: Objects,
        cache: WatchCache,
        clock: Clock,
        authorizer: Authorizer,
        reach: EgressPolicy | None = None,
    ) -> None:
        """Create both plug-ins.

        Args:
            registry: The served resources.
            objects: Reads configurations and namespaces, and converts objects.
            cache: Publishes the changes of configurations.
            clock: The clock for time limits and repeated warnings.
            authorizer: Decides the checks of the variable ``authorizer`` in match conditions.
            reach: Restricts the destinations of calls; None for no restriction.
        """
        self.registry = registry
        self.objects = objects
        self.authorizer = authorizer
        self.clock = clock
        self._reach = reach
        self._client: WebhookClient | None = None
        self._mutating = Configurations(MUTATING, registry, objects, cache)
        self._validating = Configurations(VALIDATING, registry, objects, cache)
        self.plugins: tuple[Plugin, Plugin] = (_Mutating(self, self._mutating), _Validating(self, self._validating))

    @property
    def client(self) -> WebhookClient:
        """The HTTP client for webhooks, created with the first call."""
        if self._client is None:
            from kubeloop.apiserver.outbound.client import WebhookClient
            from kubeloop.apiserver.outbound.target import ServiceResolver

            self._client = WebhookClient(ServiceResolver(self.registry, self.objects).resolve, self.clock, self._reach)
        return self._client

    def dispatcher(self, configurations: Configurations, *, mutating: bool) -> WebhookDispatcher:
        """Return a dispatcher for one kind of configuration."""
        from kubeloop.apiserver.webhooks.dispatcher import WebhookDispatcher

        return WebhookDispatcher(configurations, self.registry, self.objects, self.client, self.authorizer, self.clock, mutating=mutating)

    async def post(self, config: JSONObject, review: JSONObject, *, timeout: int) -> bytes:
        """Send a review to a webhook and return the body of its response; see ``WebhookClient.post``."""
        return await self.client.post(config, review, timeout=timeout)

    async def stop(self) -> None:
        """End the subscriptions, and close the HTTP client."""
        self._mutating.stop()
        self._validating.stop()
        if self._client is not None:
            await self._client.close()


class _Mutating:
    def __init__(self, webhooks: WebhookPlugins, configurations: Configurations) -> None:
        self._webhooks = webhooks
        self._configurations = configurations

    async def mutate(self, attributes: Attributes) -> None:
        if await self._configurations.hooks():
            await self._plugin.mutate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.webhooks.mutating import MutatingWebhooks

        return MutatingWebhooks(self._webhooks.dispatcher(self._configurations, mutating=True))


class _Validating:
    def __init__(self, webhooks: WebhookPlugins, configurations: Configurations) -> None:
        self._webhooks = webhooks
        self._configurations = configurations

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        if await self._configurations.hooks():
            await self._plugin.validate(attributes)

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.webhooks.dispatcher import ValidatingWebhooks

        return ValidatingWebhooks(self._webhooks.dispatcher(self._configurations, mutating=False))
