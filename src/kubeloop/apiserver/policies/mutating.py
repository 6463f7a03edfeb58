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
from kubeloop.apiserver.admission.new_objects import check_patched_metadata, hide_generated_metadata, replace_object
from kubeloop.apiserver.expressions.compiler import CONFIGURATION, OPERATIONS, CompiledExpression, ExpressionCompiler
from kubeloop.apiserver.expressions.evaluation import BUDGET, CostBudgetExceeded, MatchConditionsError, conditions_hold, evaluate
from kubeloop.apiserver.policies.definitions import (
    BoundPolicy,
    CompiledPolicy,
    PolicyBinding,
    PolicyCache,
    binding_matches,
    is_exempt,
    match_constraints,
)
from kubeloop.apiserver.policies.object_types import NotMutable
from kubeloop.apiserver.policies.params import InvalidConfiguration, Params, error_message
from kubeloop.apiserver.policies.patch import MutationPatcher
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

    expression: CompiledExpression
    applies: bool


@dataclass(frozen=True, slots=True)
class Mutations:
    """The part of a policy that only mutating policies have: its mutations and its reinvocation policy."""

    each: tuple[Mutation, ...]
    reinvoked: bool


def compile_mutations(spec: JSONObject, compiler: ExpressionCompiler) -> Mutations:
    """Compile the mutations of a policy's spec."""
    value = []
    for one in spec.get("mutations") or ():
        applies = one.get("patchType") == "ApplyConfiguration"
        described = one.get("applyConfiguration" if applies else "jsonPatch") or {}
        requested = CONFIGURATION if applies else OPERATIONS
        value.append(Mutation(compiler.change(described.get("expression") or "", requested), applies))
    return Mutations(tuple(value), spec.get("reinvocationPolicy") == "IfNeeded")


class _Key(NamedTuple):
    """Identifies the evaluation of a policy for one binding and parameter."""

    policy: str
    binding: str
    param_namespace: str
    param: str


class _Invocation(NamedTuple):
    policy: CompiledPolicy[Mutations]
    binding: PolicyBinding
    match: Match
    params: JSONObject | None

    @property
    def key(self) -> _Key:
        """The identity of this evaluation."""
        metadata = {} if self.params is None else self.params["metadata"]
        return _Key(self.policy.name, self.binding.name, metadata.get("namespace", ""), metadata.get("name", ""))


class _ReinvocationContext:
    """State of one write: the evaluations to repeat if the object changes after them."""

    def __init__(self) -> None:
        self.called: set[_Key] = set()
        self.due: set[_Key] = set()
        self.output: JSONObject | None = None

    def changed(self) -> None:
        """Mark all previous evaluations for another run, because the object has changed."""
        self.due |= self.called
        self.called = set()


class _Fault(NamedTuple):
    text: str
    reason: str


class MutatingPolicies:
    """Plug-in MutatingAdmissionPolicy: evaluates the matching policies in the order of their names, for each binding and parameter.

    Guarantees
        A policy sees the changes of the policies before it. A policy with reinvocationPolicy IfNeeded is evaluated once more if the object
        changed after it or by it.
        Either all changes are made, or the write is rejected because a failure occurred whose failurePolicy is Fail.
    """

    def __init__(self, definitions: PolicyCache[Mutations], registry: Registry, objects: Objects, authorizer: Authorizer) -> None:
        """Create the plug-in.

        Args:
            definitions: The policies that have a binding.
            registry: The served resources.
            objects: Reads parameters and namespaces, and converts objects.
            authorizer: Decides the checks of the variable ``authorizer``.
        """
        self._definitions = definitions
        self._registry = registry
        self._objects = objects
        self._authorizer = authorizer
        self._matcher = Matcher(registry, objects)
        self._params = Params(registry, objects)
        self._changes = MutationPatcher()

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.operation == "DELETE" or is_exempt(attributes):
            return
        with hide_generated_metadata(attributes):
            variables = Activation(attributes, self._registry, self._objects, self._authorizer)
            problems: list[_Fault] = []
            invocations: list[_Invocation] = []
            for bound in await self._definitions.bound():
                invocations += await self._invocations(bound, variables, problems)
            if invocations:
                await variables.find_namespace()
                await self._dispatch(invocations, variables, problems)
            if problems:
                raise _refusal(attributes, problems)

    async def _invocations(self, bound: BoundPolicy[Mutations], activation: Activation, problems: list[_Fault]) -> list[_Invocation]:
        policy = bound.policy
        result: list[_Invocation] = []
        try:
            match = await match_constraints(self._matcher, policy.constraints, activation.attributes)
            if match is None:
                return result
            if policy.param_kind is not None:
                self._params.resource(policy.param_kind)
        except (InvalidConfiguration, NotFound) as error:
            _add(problems, policy, None, f"failed to configure policy: {error_message(error)}")
            return result
        for binding in bound.bindings:
            try:
                if not await binding_matches(self._matcher, binding, activation.attributes):
                    continue
                try:
                    await activation.prepare(match)
                except ApiError as error:
                    _add(problems, policy, None, f"failed to configure policy: {error_message(error)}")
                    continue
                params = await self._params.of(policy.param_kind, binding.param_ref, activation.namespace)
            except InvalidConfiguration as error:
                _add(problems, policy, binding, f"failed to configure binding: {error}")
                continue
            result += [_Invocation(policy, binding, match, one) for one in params]
        return result

    async def _dispatch(self, invocations: list[_Invocation], activation: Activation, problems: list[_Fault]) -> None:
        attributes = activation.attributes
        run = attributes.reinvocation
        memory: _ReinvocationContext = run.state.setdefault("policies", _ReinvocationContext())
        if run.again and memory.output != attributes.obj:
            memory.changed()
        last: Match | None = None
        changed = False
        for one in invocations:
            policy, key = one.policy, one.key
            try:
                seen = activation.of_conditions(one.match, one.params)
                if not conditions_hold(policy.conditions, seen, policy.variables, ignore_failure=policy.ignore_failure):
                    continue
            except MatchConditionsError as error:
                _add(problems, policy, one.binding, str(error), "Invalid")
                continue
            if run.again and key not in memory.due:
                continue
            before = activation.object_of(one.match)
            changed = self._mutate(one, activation, problems) or changed
            last = one.match
            if activation.object_of(one.match) != before:
                memory.changed()
                run.requested = True
            if policy.own.reinvoked:
                memory.called.add(key)
        if last is not None and changed:
            memory.changed()
            run.requested = True
            await self._keep(last, activation)
        memory.output = copy.deepcopy(attributes.obj)

    def _mutate(self, invocation: _Invocation, activation: Activation, problems: list[_Fault]) -> bool:
        """Apply the mutations of one evaluation. Return whether at least one could be evaluated, whether or not it changed the object."""
        policy, match, made = invocation.policy, invocation.match, False
        for mutation in policy.own.each:
            obj = activation.object_of(match)
            if obj is None:
                continue
            try:
                value = _value(mutation, invocation, activation)
                if mutation.applies:
                    activation.replace(match, self._changes.applied(value, obj, match, activation.attributes))
                else:
                    activation.replace(match, self._changes.patched(value, obj, match, activation.attributes))
                made = True
            except NotMutable as error:
                _add(problems, policy, invocation.binding, str(error), "Invalid")
        return made

    async def _keep(self, match: Match, activation: Activation) -> None:
        """Convert the changed object back from the version of ``match`` to the version of the request."""
        attributes, obj = activation.attributes, activation.object_of(match)
        assert attributes.obj is not None
        assert obj is not None
        if attributes.operation == "CONNECT":
            if obj != attributes.obj:
                raise api_errors.not_implemented("changes by admission policies of how a client is connected")
            return
        if match.resource is not attributes.resource and attributes.kind is None:
            obj = await self._objects.convert(match.resource, obj, attributes.gvk)
            attributes.resource.strategy.default(obj)
        check_patched_metadata(attributes, obj)
        replace_object(attributes.obj, obj)


def _value(mutation: Mutation, invocation: _Invocation, activation: Activation) -> Any:
    expression = mutation.expression
    if expression.program is None:
        raise NotMutable(expression.error)
    try:
        (result,), _ = evaluate([expression], activation.values(invocation.match, invocation.params), BUDGET, invocation.policy.variables)
    except CostBudgetExceeded as error:
        raise NotMutable(str(error)) from None
    assert result is not None
    if result.error:
        raise NotMutable(result.error)
    return result.value


def _add(problems: list[_Fault], policy: CompiledPolicy[Mutations], binding: PolicyBinding | None, why: str, reason: str = "") -> None:
    if policy.ignore_failure:
        return
    if binding is None:
        text = f"policy {go_quoted(policy.name)} denied request: {why}"
    else:
        text = f"policy '{policy.name}' with binding '{binding.name}' denied request: {why}"
    problems.append(_Fault(text, reason))


def _refusal(attributes: Attributes, problems: list[_Fault]) -> ApiError:
    metadata = (attributes.obj or {}).get("metadata") or {}
    name = attributes.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    causes = [StatusCause(message=one.text) for one in problems]
    status = api_errors.forbidden(attributes.resource.gvr.group_resource, name, "", causes).status
    status.message = problems[0].text
    status.reason = problems[0].reason or status.reason
    return ApiError.from_status(status)
