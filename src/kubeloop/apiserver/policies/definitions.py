"""The policies that are bound, ready to be evaluated: read and compiled when they or their bindings changed.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_source.go; {validating,mutating}/plugin.go (compilePolicy).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.apiserver.expressions.compiler import CONDITION, Compiled, Compiler
from kubeloop.apiserver.policies.params import ParamKind, ParamRef, param_kind, param_ref
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import Subscription, WatchCache
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.selectors import Selector, selector_from
from kubeloop.types import JSONObject

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Constraints:
    """Which requests a policy or binding is about."""

    rules: tuple[JSONObject, ...]
    excluded: tuple[JSONObject, ...]
    namespaces: Selector
    objects: Selector
    equivalent: bool


def constraints_of(found: JSONObject) -> Constraints:
    """Of a ``matchConstraints`` or ``matchResources``, defaulted and valid."""
    return Constraints(
        rules=tuple(found.get("resourceRules") or ()),
        excluded=tuple(found.get("excludeResourceRules") or ()),
        namespaces=selector_from(found.get("namespaceSelector") or {}),
        objects=selector_from(found.get("objectSelector") or {}),
        equivalent=found.get("matchPolicy", "Equivalent") == "Equivalent",
    )


@dataclass(frozen=True, slots=True)
class Binding:
    """``constraints`` None: wherever the policy is. ``actions``: of a validating policy."""

    name: str
    policy: str
    constraints: Constraints | None
    param_ref: ParamRef | None
    actions: tuple[str, ...]


def binding_of(obj: JSONObject) -> Binding:
    spec = obj.get("spec") or {}
    resources = spec.get("matchResources")
    return Binding(
        name=obj["metadata"]["name"],
        policy=spec.get("policyName") or "",
        constraints=None if resources is None else constraints_of(resources),
        param_ref=param_ref(spec.get("paramRef")),
        actions=tuple(spec.get("validationActions") or ()),
    )


@dataclass(frozen=True, slots=True)
class Policy(Generic[E]):
    """What both kinds of policies have. ``own``: the expressions of its kind."""

    name: str
    constraints: Constraints
    param_kind: ParamKind | None
    ignore_failure: bool
    conditions: tuple[Compiled, ...]
    variables: dict[str, Compiled]
    own: E


def policy_of(obj: JSONObject, own: Callable[[JSONObject, Compiler], E]) -> Policy[E]:
    """Compile a stored policy, defaulted and valid. ``own`` compiles what is of its kind."""
    spec = obj.get("spec") or {}
    compiler = Compiler(params=spec.get("paramKind") is not None, variables=True)
    variables = {one["name"]: compiler.variable(one["name"], one["expression"]) for one in spec.get("variables") or ()}
    return Policy(
        name=obj["metadata"]["name"],
        constraints=constraints_of(spec.get("matchConstraints") or {}),
        param_kind=param_kind(spec.get("paramKind")),
        ignore_failure=spec.get("failurePolicy") == "Ignore",
        conditions=tuple(compiler.expression(one["expression"], CONDITION) for one in spec.get("matchConditions") or ()),
        variables=variables,
        own=own(spec, compiler),
    )


@dataclass(frozen=True, slots=True)
class Bound(Generic[E]):
    """A policy with its bindings, by name."""

    policy: Policy[E]
    bindings: tuple[Binding, ...]


class Definitions(Generic[E]):
    """The policies of one kind that somebody bound. ``resources``: of policies, and of bindings; ``own``: as in ``policy_of``.

    Guarantees
        ``bound`` reflects every change that the watch cache has handed out: a policy counts when its write has been answered.
        A policy is compiled once for each of its versions.
    """

    def __init__(
        self,
        resources: tuple[GroupVersionResource, GroupVersionResource],
        own: Callable[[JSONObject, Compiler], E],
        registry: Registry,
        objects: Objects,
        cache: WatchCache,
    ) -> None:
        self._resources = resources
        self._own = own
        self._registry = registry
        self._objects = objects
        self._cache = cache
        self._subscriptions: list[Subscription] = []
        self._compiled: dict[str, tuple[str, Policy[E]]] = {}
        self._bound: list[Bound[E]] = []
        #: Whether ``_bound`` is what was read after the last subscription.
        self._complete = False
        self._reading = asyncio.Lock()

    async def bound(self) -> list[Bound[E]]:
        """By name of the policy."""
        if self._is_stale():
            async with self._reading:
                if self._is_stale():
                    await self._read()
        return self._bound

    def _is_stale(self) -> bool:
        return not self._complete or any(one.waiting or one.ended for one in self._subscriptions)

    def stop(self) -> None:
        for one in self._subscriptions:
            one.close()
        self._subscriptions = []

    async def _read(self) -> None:
        policies, bindings = (self._registry.get(one) for one in self._resources)
        if policies is None or bindings is None:
            raise LookupError(f"the registry does not serve {self._resources}")
        # Subscribed anew before the read, so that a change during it is read again.
        self.stop()
        self._complete = False
        self._subscriptions = [self._cache.subscribe(one.storage_prefix) for one in (policies, bindings)]
        by_policy: dict[str, list[Binding]] = {}
        for one in sorted(map(binding_of, await self._objects.all(bindings)), key=lambda binding: binding.name):
            by_policy.setdefault(one.policy, []).append(one)
        known, self._compiled = self._compiled, {}
        found = []
        for obj in sorted(await self._objects.all(policies), key=lambda one: str(one["metadata"]["name"])):
            name, version = obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
            if name not in by_policy:
                continue
            before = known.get(name)
            policy = before[1] if before is not None and before[0] == version else policy_of(obj, self._own)
            self._compiled[name] = version, policy
            found.append(Bound(policy, tuple(by_policy[name])))
        self._bound, self._complete = found, True
