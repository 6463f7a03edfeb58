"""The admission policies of a server put together: the plug-ins that evaluate them, and what keeps them at hand.

What evaluates is imported when a policy is bound: most servers have none, and all are to start fast.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kubeloop.apiserver.admission import Attributes, Plugin
from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.access import Authorizer
from kubeloop.meta.kinds import GroupVersionResource

if TYPE_CHECKING:
    from kubeloop.apiserver.policies.definitions import Definitions


_GROUP: Final = "admissionregistration.k8s.io"
_NAMES: Final = tuple(f"{kind}admission{what}" for kind in ("validating", "mutating") for what in ("policies", "policybindings"))


def _resource(name: str) -> GroupVersionResource:
    return GroupVersionResource(_GROUP, "v1", name)


class Policies:
    """``mutating`` and ``validating`` are plug-ins of admission. ``stop`` when no request is left.

    Guarantees
        A policy counts for requests that begin when the writes of it and its binding have been answered.
    """

    def __init__(self, registry: Registry, objects: Objects, cache: WatchCache, authorizer: Authorizer) -> None:
        self.registry = registry
        self.objects = objects
        self.cache = cache
        self.authorizer = authorizer
        self.mutating: Plugin = _Mutating(self)
        self.validating: Plugin = _Validating(self)
        self.kept: list[Definitions[Any]] = []
        for name in _NAMES:
            resource = registry.get(_resource(name))
            if resource is not None:
                objects.follow(resource.storage_prefix, cache.reached)

    def bindings(self, name: str) -> CachedList:
        return CachedList(_resource(name), self.registry, self.objects, self.cache)

    def stop(self) -> None:
        for one in self.kept:
            one.stop()


class _Mutating:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._bindings = policies.bindings("mutatingadmissionpolicybindings")

    async def mutate(self, attributes: Attributes) -> None:
        if await self._bindings.of():
            await self._plugin.mutate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.policies.definitions import Definitions
        from kubeloop.apiserver.policies.mutating import MutatingPolicies, mutations_of

        all_ = self._policies
        named = _resource("mutatingadmissionpolicies"), _resource("mutatingadmissionpolicybindings")
        definitions = Definitions(named, mutations_of, all_.registry, all_.objects, all_.cache)
        all_.kept.append(definitions)
        return MutatingPolicies(definitions, all_.registry, all_.objects, all_.authorizer)


class _Validating:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._bindings = policies.bindings("validatingadmissionpolicybindings")

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        if await self._bindings.of():
            await self._plugin.validate(attributes)

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.policies.definitions import Definitions
        from kubeloop.apiserver.policies.validating import ValidatingPolicies, checks_of

        all_ = self._policies
        named = _resource("validatingadmissionpolicies"), _resource("validatingadmissionpolicybindings")
        definitions = Definitions(named, checks_of, all_.registry, all_.objects, all_.cache)
        all_.kept.append(definitions)
        return ValidatingPolicies(definitions, all_.registry, all_.objects, all_.authorizer)
