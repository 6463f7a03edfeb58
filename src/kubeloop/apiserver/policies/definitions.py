"""A cache of the compiled policies that have bindings. It reads them again after a change of a policy or binding.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_source.go; {validating,mutating}/plugin.go (compilePolicy).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.matching import Match, Matcher, matches_object, name_of
from kubeloop.apiserver.expressions.compiler import CONDITION, CompiledExpression, ExpressionCompiler
from kubeloop.apiserver.policies.params import InvalidConfiguration, ParamKind, ParamRef, error_message, parse_param_kind, parse_param_ref
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import Subscription, WatchCache
from kubeloop.meta.errors import NotFound
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.selectors import Selector, selector_from
from kubeloop.types import JSONObject

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Constraints:
    """The requests to which a policy or binding applies."""

    rules: tuple[JSONObject, ...]
    excluded: tuple[JSONObject, ...]
    namespaces: Selector
    objects: Selector
    equivalent: bool


def parse_constraints(value: JSONObject) -> Constraints:
    """Parse a ``matchConstraints`` or ``matchResources``, which is defaulted and valid."""
    return Constraints(
        rules=tuple(value.get("resourceRules") or ()),
        excluded=tuple(value.get("excludeResourceRules") or ()),
        namespaces=selector_from(value.get("namespaceSelector") or {}),
        objects=selector_from(value.get("objectSelector") or {}),
        equivalent=value.get("matchPolicy", "Equivalent") == "Equivalent",
    )


@dataclass(frozen=True, slots=True)
class PolicyBinding:
    """A binding of a policy.

    ``constraints`` is None if the binding adds none; ``actions`` are the validationActions of a validating policy.
    """

    name: str
    policy: str
    constraints: Constraints | None
    param_ref: ParamRef | None
    actions: tuple[str, ...]


def parse_binding(obj: JSONObject) -> PolicyBinding:
    """Parse a stored binding."""
    spec = obj.get("spec") or {}
    resources = spec.get("matchResources")
    return PolicyBinding(
        name=obj["metadata"]["name"],
        policy=spec.get("policyName") or "",
        constraints=None if resources is None else parse_constraints(resources),
        param_ref=parse_param_ref(spec.get("paramRef")),
        actions=tuple(spec.get("validationActions") or ()),
    )


@dataclass(frozen=True, slots=True)
class CompiledPolicy(Generic[E]):
    """The parts that validating and mutating policies share. ``own`` holds the parts that only one of the two kinds has."""

    name: str
    constraints: Constraints
    param_kind: ParamKind | None
    ignore_failure: bool
    conditions: tuple[CompiledExpression, ...]
    variables: dict[str, CompiledExpression]
    own: E


def compile_policy(obj: JSONObject, compile_expressions: Callable[[JSONObject, ExpressionCompiler], E]) -> CompiledPolicy[E]:
    """Compile a stored policy, which is defaulted and valid. ``compile_expressions`` compiles the expressions of its kind."""
    spec = obj.get("spec") or {}
    compiler = ExpressionCompiler(params=spec.get("paramKind") is not None, variables=True)
    variables = {one["name"]: compiler.variable(one["name"], one["expression"]) for one in spec.get("variables") or ()}
    return CompiledPolicy(
        name=obj["metadata"]["name"],
        constraints=parse_constraints(spec.get("matchConstraints") or {}),
        param_kind=parse_param_kind(spec.get("paramKind")),
        ignore_failure=spec.get("failurePolicy") == "Ignore",
        conditions=tuple(compiler.expression(one["expression"], CONDITION) for one in spec.get("matchConditions") or ()),
        variables=variables,
        own=compile_expressions(spec, compiler),
    )


@dataclass(frozen=True, slots=True)
class BoundPolicy(Generic[E]):
    """A policy with its bindings, which are sorted by name."""

    policy: CompiledPolicy[E]
    bindings: tuple[PolicyBinding, ...]


class PolicyCache(Generic[E]):
    """The policies of one kind that have a binding.

    ``resources`` are the resource of policies and the resource of bindings. For ``compile_expressions`` see ``compile_policy``.

    Guarantees
        ``bound`` includes every change that the watch cache has published: a policy applies as soon as its write has returned.
        Each version of a policy is compiled once.
    """

    def __init__(
        self,
        resources: tuple[GroupVersionResource, GroupVersionResource],
        compile_expressions: Callable[[JSONObject, ExpressionCompiler], E],
        registry: Registry,
        objects: Objects,
        cache: WatchCache,
    ) -> None:
        """Create an empty cache.

        Args:
            resources: The resource of policies and the resource of bindings.
            compile_expressions: Compiles the expressions of one kind of policy from its spec.
            registry: The served resources.
            objects: Reads policies and bindings.
            cache: Publishes their changes.
        """
        self._resources = resources
        self._own = compile_expressions
        self._registry = registry
        self._objects = objects
        self._cache = cache
        self._subscriptions: list[Subscription] = []
        self._compiled: dict[str, tuple[str, CompiledPolicy[E]]] = {}
        self._bound: list[BoundPolicy[E]] = []
        #: Whether ``_bound`` was read after the last subscription began.
        self._complete = False
        self._reading = asyncio.Lock()

    async def bound(self) -> list[BoundPolicy[E]]:
        """Return the policies that have a binding, sorted by name."""
        if self._is_stale():
            async with self._reading:
                if self._is_stale():
                    await self._read()
        return self._bound

    def _is_stale(self) -> bool:
        return not self._complete or any(one.waiting or one.ended for one in self._subscriptions)

    def stop(self) -> None:
        """End the subscriptions."""
        for one in self._subscriptions:
            one.close()
        self._subscriptions = []

    async def _read(self) -> None:
        policies, bindings = (self._registry.get(one) for one in self._resources)
        if policies is None or bindings is None:
            raise LookupError(f"the registry does not serve {self._resources}")
        # Subscribe before the read, so that a change during the read causes another read.
        self.stop()
        self._complete = False
        self._subscriptions = [self._cache.subscribe(one.storage_prefix) for one in (policies, bindings)]
        by_policy: dict[str, list[PolicyBinding]] = {}
        for one in sorted(map(parse_binding, await self._objects.all(bindings)), key=lambda binding: binding.name):
            by_policy.setdefault(one.policy, []).append(one)
        known, self._compiled = self._compiled, {}
        value = []
        for obj in sorted(await self._objects.all(policies), key=lambda stored_policy: str(stored_policy["metadata"]["name"])):
            name, version = obj["metadata"]["name"], obj["metadata"]["resourceVersion"]
            if name not in by_policy:
                continue
            before = known.get(name)
            policy = before[1] if before is not None and before[0] == version else compile_policy(obj, self._own)
            self._compiled[name] = version, policy
            value.append(BoundPolicy(policy, tuple(by_policy[name])))
        self._bound, self._complete = value, True


# Matches requests with policies and bindings. Source: k8s.io/apiserver pkg/admission/plugin/policy/matching/matching.go.


_GROUP: Final = "admissionregistration.k8s.io"
#: No policy may prevent an administrator from repairing the policies, or any user from authenticating.
_EXEMPT: Final = frozenset({
    *(
        GroupResource(_GROUP, f"{kind}admission{what}")
        for kind in ("validating", "mutating")
        for what in ("policies", "policybindings")
    ),
    *(GroupResource("authentication.k8s.io", one) for one in ("selfsubjectreviews", "tokenreviews")),
    *(
        GroupResource("authorization.k8s.io", one)
        for one in ("localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews")
    ),
})  # fmt: skip


def is_exempt(attributes: Attributes) -> bool:
    """Return whether a write is exempt from policies: one of policies or bindings themselves, or a review."""
    return attributes.resource.gvr.group_resource in _EXEMPT


async def match_constraints(matcher: Matcher, constraints: Constraints, attributes: Attributes) -> Match | None:
    """Return the version in which to evaluate the request, or None if the constraints do not match.

    Raises:
        NotFound: A rule matches, and the namespace whose labels would decide does not exist.
    """
    missing: NotFound | None = None
    try:
        if not await matcher.matches_namespace(constraints.namespaces, attributes):
            return None
    except NotFound as error:
        missing = error
    if not matches_object(constraints.objects, attributes):
        return None
    name = name_of(attributes)
    if constraints.excluded and matcher.by_rules(constraints.excluded, attributes, equivalent=constraints.equivalent, name=name):
        return None
    if constraints.rules:
        result = matcher.by_rules(constraints.rules, attributes, equivalent=constraints.equivalent, name=name)
    else:
        result = Match(attributes.resource, attributes.gvk)
    if result is not None and missing is not None:
        raise missing
    return result


async def binding_matches(matcher: Matcher, binding: PolicyBinding, attributes: Attributes) -> bool:
    """Return whether a binding applies to the request.

    Raises:
        InvalidConfiguration: The namespace whose labels would decide does not exist.
    """
    if binding.constraints is None:
        return True
    try:
        return await match_constraints(matcher, binding.constraints, attributes) is not None
    except NotFound as error:
        raise InvalidConfiguration(error_message(error)) from None
