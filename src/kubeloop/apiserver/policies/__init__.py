"""The admission policies of a server: the two plug-ins that evaluate them, and the caches of policies and bindings.

The modules that evaluate policies are imported for the first binding: most servers have none, and start faster without them.
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
    from kubeloop.apiserver.policies.definitions import PolicyCache


_GROUP: Final = "admissionregistration.k8s.io"
_NAMES: Final = tuple(f"{kind}admission{what}" for kind in ("validating", "mutating") for what in ("policies", "policybindings"))


def _resource(name: str) -> GroupVersionResource:
    return GroupVersionResource(_GROUP, "v1", name)


class Policies:
    """The admission policies of a server: ``mutating`` and ``validating`` are its two plug-ins. Call ``stop`` after the last request.

    Guarantees
        A policy applies to every request that begins after the writes of the policy and its binding have returned.
    """

    def __init__(self, registry: Registry, objects: Objects, cache: WatchCache, authorizer: Authorizer) -> None:
        """Create both plug-ins, and let each write of a policy or binding wait until the watch cache has it.

        Args:
            registry: The served resources.
            objects: Reads policies, bindings and parameters.
            cache: Publishes the changes of policies and bindings.
            authorizer: Decides the checks of the variable ``authorizer``.
        """
        self.registry = registry
        self.objects = objects
        self.cache = cache
        self.authorizer = authorizer
        self.mutating: Plugin = _Mutating(self)
        self.validating: Plugin = _Validating(self)
        self.caches: list[PolicyCache[Any]] = []
        for name in _NAMES:
            resource = registry.get(_resource(name))
            if resource is not None:
                objects.on_write(resource.storage_prefix, cache.wait_until)

    def bindings(self, name: str) -> CachedList:
        """Return a local copy of the bindings of one kind."""
        return CachedList(_resource(name), self.registry, self.objects, self.cache)

    def stop(self) -> None:
        """End the subscriptions."""
        for one in self.caches:
            one.stop()


class _Mutating:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._bindings = policies.bindings("mutatingadmissionpolicybindings")

    async def mutate(self, attributes: Attributes) -> None:
        if await self._bindings.items():
            await self._plugin.mutate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.policies.definitions import PolicyCache
        from kubeloop.apiserver.policies.mutating import MutatingPolicies, compile_mutations

        all_ = self._policies
        named = _resource("mutatingadmissionpolicies"), _resource("mutatingadmissionpolicybindings")
        definitions = PolicyCache(named, compile_mutations, all_.registry, all_.objects, all_.cache)
        all_.caches.append(definitions)
        return MutatingPolicies(definitions, all_.registry, all_.objects, all_.authorizer)


class _Validating:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._bindings = policies.bindings("validatingadmissionpolicybindings")

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        if await self._bindings.items():
            await self._plugin.validate(attributes)

    @cached_property
    def _plugin(self) -> Plugin:
        from kubeloop.apiserver.policies.definitions import PolicyCache
        from kubeloop.apiserver.policies.validating import ValidatingPolicies, compile_validations

        all_ = self._policies
        named = _resource("validatingadmissionpolicies"), _resource("validatingadmissionpolicybindings")
        definitions = PolicyCache(named, compile_validations, all_.registry, all_.objects, all_.cache)
        all_.caches.append(definitions)
        return ValidatingPolicies(definitions, all_.registry, all_.objects, all_.authorizer)
