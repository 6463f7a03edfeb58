"""MutatingAdmissionPolicy: changes objects with CEL expressions, one policy after the other.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating (dispatcher.go, reinvocationcontext.go), generic/policy_dispatcher.go.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.activation import Activation
from kubeloop.apiserver.admission.matching import Match, Matcher
from kubeloop.apiserver.admission.new_objects import check_metadata, replace_object, unfinished
from kubeloop.apiserver.expressions.compiler import CONFIGURATION, OPERATIONS, Compiled, Compiler
from kubeloop.apiserver.expressions.evaluation import BUDGET, ConditionsFault, CostBudgetExceeded, conditions_hold, evaluate
from kubeloop.apiserver.policies.changes import Changes
from kubeloop.apiserver.policies.definitions import Binding, Bound, Definitions, Policy, bound_here, is_exempt, matched
from kubeloop.apiserver.policies.object_types import NotMutable
from kubeloop.apiserver.policies.params import InvalidConfiguration, Params, said
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Authorizer
from kubeloop.meta.errors import ApiError, NotFound
from kubeloop.meta.status import StatusCause
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mutation of a policy: ``applies`` is True for an apply configuration, False for a JSON patch."""

    expression: Compiled
    applies: bool


@dataclass(frozen=True, slots=True)
class Mutations:
    """The part of a policy that only mutating policies have: its mutations and its reinvocation policy."""

    each: tuple[Mutation, ...]
    reinvoked: bool


def mutations_of(spec: JSONObject, compiler: Compiler) -> Mutations:
    """Compile the mutations of a policy's spec."""
    found = []
    for one in spec.get("mutations") or ():
        applies = one.get("patchType") == "ApplyConfiguration"
        described = one.get("applyConfiguration" if applies else "jsonPatch") or {}
        wanted = CONFIGURATION if applies else OPERATIONS
        found.append(Mutation(compiler.change(described.get("expression") or "", wanted), applies))
    return Mutations(tuple(found), spec.get("reinvocationPolicy") == "IfNeeded")


class _Key(NamedTuple):
    """Identifies the evaluation of a policy for one binding and parameter."""

    policy: str
    binding: str
    param_namespace: str
    param: str


class _Invocation(NamedTuple):
    policy: Policy[Mutations]
    binding: Binding
    match: Match
    params: JSONObject | None

    @property
    def key(self) -> _Key:
        """The identity of this evaluation."""
        metadata = {} if self.params is None else self.params["metadata"]
        return _Key(self.policy.name, self.binding.name, metadata.get("namespace", ""), metadata.get("name", ""))


class _Round:
    """State of one write: the evaluations to repeat if the object changes after them."""

    def __init__(self) -> None:
        self.asked: set[_Key] = set()
        self.due: set[_Key] = set()
        self.output: JSONObject | None = None

    def changed(self) -> None:
        """Mark all evaluations so far for another run, because the object has changed."""
        self.due |= self.asked
        self.asked = set()


class _Fault(NamedTuple):
    text: str
    reason: str


class MutatingPolicies:
    """Plug-in MutatingAdmissionPolicy: evaluates the matching policies in the order of their names, for each binding and parameter.

    Guarantees
        A policy sees the changes of the policies before it. A policy with reinvocationPolicy IfNeeded is evaluated once more if the object
        changed after it or by it.
        Either all changes are made or, if a failure counts by its failurePolicy, the write is rejected.
    """

    def __init__(self, definitions: Definitions[Mutations], registry: Registry, objects: Objects, authorizer: Authorizer) -> None:
        self._definitions = definitions
        self._registry = registry
        self._objects = objects
        self._authorizer = authorizer
        self._matcher = Matcher(registry, objects)
        self._params = Params(registry, objects)
        self._changes = Changes()

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.operation == "DELETE" or is_exempt(attributes):
            return
        with unfinished(attributes):
            facts = Activation(attributes, self._registry, self._objects, self._authorizer)
            faults: list[_Fault] = []
            invocations: list[_Invocation] = []
            for bound in await self._definitions.bound():
                invocations += await self._invocations(bound, facts, faults)
            if invocations:
                await facts.find_namespace()
                await self._dispatch(invocations, facts, faults)
            if faults:
                raise _refusal(attributes, faults)

    async def _invocations(self, bound: Bound[Mutations], facts: Activation, faults: list[_Fault]) -> list[_Invocation]:
        policy = bound.policy
        found: list[_Invocation] = []
        try:
            match = await matched(self._matcher, policy.constraints, facts.attributes)
            if match is None:
                return found
            if policy.param_kind is not None:
                self._params.resource(policy.param_kind)
        except (InvalidConfiguration, NotFound) as fault:
            _add(faults, policy, None, f"failed to configure policy: {said(fault)}")
            return found
        for binding in bound.bindings:
            try:
                if not await bound_here(self._matcher, binding, facts.attributes):
                    continue
                try:
                    await facts.prepare(match)
                except ApiError as fault:
                    _add(faults, policy, None, f"failed to configure policy: {said(fault)}")
                    continue
                params = await self._params.of(policy.param_kind, binding.param_ref, facts.namespace)
            except InvalidConfiguration as fault:
                _add(faults, policy, binding, f"failed to configure binding: {fault}")
                continue
            found += [_Invocation(policy, binding, match, one) for one in params]
        return found

    async def _dispatch(self, invocations: list[_Invocation], facts: Activation, faults: list[_Fault]) -> None:
        attributes = facts.attributes
        run = attributes.reinvocation
        memory: _Round = run.kept.setdefault("policies", _Round())
        if run.again and memory.output != attributes.obj:
            memory.changed()
        last: Match | None = None
        changed = False
        for one in invocations:
            policy, key = one.policy, one.key
            try:
                seen = facts.of_conditions(one.match, one.params)
                if not conditions_hold(policy.conditions, seen, policy.variables, ignore_failure=policy.ignore_failure):
                    continue
            except ConditionsFault as fault:
                _add(faults, policy, one.binding, str(fault), "Invalid")
                continue
            if run.again and key not in memory.due:
                continue
            before = facts.object_of(one.match)
            changed = self._mutate(one, facts, faults) or changed
            last = one.match
            if facts.object_of(one.match) != before:
                memory.changed()
                run.wanted = True
            if policy.own.reinvoked:
                memory.asked.add(key)
        if last is not None and changed:
            memory.changed()
            run.wanted = True
            await self._keep(last, facts)
        memory.output = copy.deepcopy(attributes.obj)

    def _mutate(self, invocation: _Invocation, facts: Activation, faults: list[_Fault]) -> bool:
        """Apply the mutations of one evaluation. Return whether any of them could be evaluated, even without a change."""
        policy, match, made = invocation.policy, invocation.match, False
        for mutation in policy.own.each:
            obj = facts.object_of(match)
            if obj is None:
                continue
            try:
                value = _value(mutation, invocation, facts)
                if mutation.applies:
                    facts.replace(match, self._changes.applied(value, obj, match, facts.attributes))
                else:
                    facts.replace(match, self._changes.patched(value, obj, match, facts.attributes))
                made = True
            except NotMutable as fault:
                _add(faults, policy, invocation.binding, str(fault), "Invalid")
        return made

    async def _keep(self, match: Match, facts: Activation) -> None:
        """Convert the changed object back from the version of ``match`` to the version of the request."""
        attributes, obj = facts.attributes, facts.object_of(match)
        assert attributes.obj is not None
        assert obj is not None
        if attributes.operation == "CONNECT":
            if obj != attributes.obj:
                raise api_errors.not_implemented("changes by admission policies of how a client is connected")
            return
        if match.resource is not attributes.resource and attributes.kind is None:
            obj = await self._objects.convert(match.resource, obj, attributes.gvk)
            attributes.resource.strategy.default(obj)
        check_metadata(attributes, obj)
        replace_object(attributes.obj, obj)


def _value(mutation: Mutation, invocation: _Invocation, facts: Activation) -> Any:
    expression = mutation.expression
    if expression.program is None:
        raise NotMutable(expression.fault)
    try:
        (result,), _ = evaluate([expression], facts.values(invocation.match, invocation.params), BUDGET, invocation.policy.variables)
    except CostBudgetExceeded as fault:
        raise NotMutable(str(fault)) from None
    assert result is not None
    if result.fault:
        raise NotMutable(result.fault)
    return result.value


def _add(faults: list[_Fault], policy: Policy[Mutations], binding: Binding | None, why: str, reason: str = "") -> None:
    if policy.ignore_failure:
        return
    if binding is None:
        text = f"policy {go_quoted(policy.name)} denied request: {why}"
    else:
        text = f"policy '{policy.name}' with binding '{binding.name}' denied request: {why}"
    faults.append(_Fault(text, reason))


def _refusal(attributes: Attributes, faults: list[_Fault]) -> ApiError:
    metadata = (attributes.obj or {}).get("metadata") or {}
    name = attributes.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    causes = [StatusCause(message=one.text) for one in faults]
    status = api_errors.forbidden(attributes.resource.gvr.group_resource, name, "", causes).status
    status.message = faults[0].text
    status.reason = faults[0].reason or status.reason
    return ApiError.of(status)
