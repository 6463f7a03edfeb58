"""The webhooks that are configured: read from storage when they changed, in the order in which they are asked.

Source: k8s.io/apiserver pkg/admission/configuration (by name of the configuration, then as listed).
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import Subscription, WatchCache
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.selectors import Selector, selector_from
from kubeloop.types import JSONObject

MUTATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
VALIDATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a configuration. ``key`` tells it from all others."""

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


def hooks_of(configuration: JSONObject) -> list[Hook]:
    """The webhooks of a stored configuration, defaulted and valid."""
    owner = configuration["metadata"]["name"]
    return [_hook(f"{owner}/{one['name']}/{place}", one) for place, one in enumerate(configuration.get("webhooks") or ())]


def _hook(key: str, found: JSONObject) -> Hook:
    return Hook(
        key=key,
        name=found["name"],
        rules=tuple(found.get("rules") or ()),
        namespaces=selector_from(found.get("namespaceSelector") or {}),
        objects=selector_from(found.get("objectSelector") or {}),
        client_config=found.get("clientConfig") or {},
        versions=found.get("admissionReviewVersions") or [],
        conditions=tuple(found.get("matchConditions") or ()),
        equivalent=found.get("matchPolicy", "Equivalent") == "Equivalent",
        ignore_failure=found.get("failurePolicy") == "Ignore",
        side_effects=found.get("sideEffects") or "",
        timeout=found.get("timeoutSeconds") or 10,
        reinvoke=found.get("reinvocationPolicy") == "IfNeeded",
    )


class Configurations:
    """All webhooks of one kind of configuration.

    Guarantees
        ``hooks`` reflects every configuration that the watch cache has handed out; nothing is read again while none changes.

    Not guaranteed
        That a configuration counts for the very next write: a moment may pass, as with Kubernetes.
    """

    def __init__(self, gvr: GroupVersionResource, registry: Registry, objects: Objects, cache: WatchCache) -> None:
        self._gvr = gvr
        self._registry = registry
        self._objects = objects
        self._cache = cache
        self._subscription: Subscription | None = None
        self._hooks: list[Hook] = []

    async def hooks(self) -> list[Hook]:
        """In the order in which they are asked."""
        subscription = self._subscription
        if subscription is None or subscription.waiting or subscription.ended:
            await self._read()
        return self._hooks

    def stop(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    async def _read(self) -> None:
        resource = self._registry.get(self._gvr)
        if resource is None:
            raise LookupError(f"the registry does not serve {self._gvr}")
        # Subscribed anew before the read, so that a change during it is read again.
        self.stop()
        self._subscription = self._cache.subscribe(resource.storage_prefix)
        found = sorted(await self._objects.all(resource), key=lambda one: str(one["metadata"]["name"]))
        self._hooks = [hook for configuration in found for hook in hooks_of(configuration)]
