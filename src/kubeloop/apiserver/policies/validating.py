"""ValidatingAdmissionPolicy: evaluates CEL expressions. A failed validation rejects the request, or adds a warning or an audit annotation.

Source: k8s.io/apiserver pkg/admission/plugin/policy/validating (dispatcher.go, validator.go).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.activation import Activation
from kubeloop.apiserver.admission.matching import Match, Matcher
from kubeloop.apiserver.expressions.compiler import ANNOTATION, CONDITION, MESSAGE, CompiledExpression, ExpressionCompiler
from kubeloop.apiserver.expressions.evaluation import (
    BUDGET,
    CostBudgetExceeded,
    ExpressionResult,
    MatchConditionsError,
    conditions_hold,
    evaluate,
)
from kubeloop.apiserver.policies.definitions import (
    BoundPolicy,
    CompiledPolicy,
    PolicyBinding,
    PolicyCache,
    binding_matches,
    is_exempt,
    match_constraints,
)
from kubeloop.apiserver.policies.params import InvalidConfiguration, Params, error_message
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Authorizer
from kubeloop.meta.errors import ApiError, NotFound
from kubeloop.meta.status import StatusCause
from kubeloop.types import JSONObject

# Audit annotations of policies. Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/dispatcher.go.


#: Maximum bytes of an annotation's value.
_LONGEST: Final = 10 * 1024


class Annotations:
    """The audit annotations of one policy; values from several bindings and parameters are joined."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._values: dict[str, list[str]] = {}

    def add(self, key: str, value: str) -> None:
        """Add a value. Empty and repeated values are ignored."""
        value = value.encode()[:_LONGEST].decode("utf-8", "ignore")
        values = self._values.setdefault(key, [])
        if value and value not in values:
            values.append(value)

    def publish(self, into: dict[str, str]) -> None:
        """Add the annotations to ``into``. Existing keys stay unchanged."""
        for key, values in self._values.items():
            if values:
                into.setdefault(f"{self._policy}/{key}", ", ".join(values))


def failure_annotation(message: str, policy: str, binding: str, index: int, actions: tuple[str, ...]) -> str:
    """Return the audit annotation about a failed validation of a request that continues.

    Args:
        message: Message of the failure.
        policy: Name of the policy.
        binding: Name of the binding.
        index: Index of the validation in the policy.
        actions: validationActions of the binding.

    Returns:
        A JSON list as text.
    """
    failure = {
        "message": message,
        "policy": policy,
        "binding": binding,
        "expressionIndex": index,
        "validationActions": list(actions),
    }
    text = json.dumps([failure], separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":  # Go's encoder escapes these.
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
#: Maximum bytes of the message of a messageExpression; a longer one is ignored.
_LONGEST_MESSAGE: Final = 5 * 1024


@dataclass(frozen=True, slots=True)
class Validation:
    """One validation of a policy."""

    expression: str
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class ValidatingExpressions:
    """The part of a policy that only validating policies have.

    ``messages`` is in the order of ``validations``; it is empty if no validation has a messageExpression.
    """

    validations: tuple[Validation, ...]
    expressions: tuple[CompiledExpression, ...]
    messages: tuple[CompiledExpression | None, ...]
    keys: tuple[str, ...]
    annotations: tuple[CompiledExpression, ...]


def compile_validations(spec: JSONObject, compiler: ExpressionCompiler) -> ValidatingExpressions:
    """Compile the validations of a policy's spec."""
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()

    def message(validation: JSONObject) -> CompiledExpression | None:
        expression = validation.get("messageExpression") or ""
        return compiler.expression(expression, MESSAGE, authorizer=False) if expression else None

    return ValidatingExpressions(
        tuple(Validation(one["expression"], (one.get("message") or "").strip(), one.get("reason") or "Invalid") for one in validations),
        tuple(compiler.expression(one["expression"], CONDITION) for one in validations),
        tuple(map(message, validations)) if any(one.get("messageExpression") for one in validations) else (),
        tuple(one["key"] for one in annotations),
        tuple(compiler.expression(one["valueExpression"], ANNOTATION) for one in annotations),
    )


@dataclass(frozen=True, slots=True)
class Denial:
    """A failed validation. ``index`` is its position in the policy; 0 if the policy failed for another reason."""

    message: str
    reason: str = "Invalid"
    index: int = 0


class ValidatingPolicies:
    """Plug-in ValidatingAdmissionPolicy: evaluates the matching policies in the order of their names, for each binding and parameter.

    Guarantees
        All policies are evaluated before the request is rejected; the client gets the first denial. The failurePolicy of a policy decides
        about its own failures.
    """

    def __init__(
        self, definitions: PolicyCache[ValidatingExpressions], registry: Registry, objects: Objects, authorizer: Authorizer
    ) -> None:
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

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        if is_exempt(attributes):
            return
        variables = Activation(attributes, self._registry, self._objects, self._authorizer)
        refused: list[tuple[str, Denial]] = []
        for bound in await self._definitions.bound():
            await self._policy(bound, variables, refused)
        if refused:
            who, denial = refused[0]
            raise _refusal(attributes, f"ValidatingAdmissionPolicy {who} denied request: {denial.message}", denial.reason)

    async def _policy(self, bound: BoundPolicy[ValidatingExpressions], activation: Activation, refused: list[tuple[str, Denial]]) -> None:
        policy, attributes = bound.policy, activation.attributes
        try:
            match = await match_constraints(self._matcher, policy.constraints, attributes)
            if match is None:
                return
            if policy.param_kind is not None:
                self._params.resource(policy.param_kind)
        except (InvalidConfiguration, NotFound) as error:
            if not policy.ignore_failure:
                refused.append((f"'{policy.name}'", Denial(f"failed to configure policy: {error_message(error)}")))
            return
        annotations = Annotations(policy.name)
        for binding in bound.bindings:
            who = f"'{policy.name}' with binding '{binding.name}'"
            try:
                denials = await self._binding(policy, binding, match, activation, annotations)
            except InvalidConfiguration as error:
                if not policy.ignore_failure:
                    refused.append((who, Denial(f"failed to configure binding: {error}")))
                continue
            refused += [(who, one) for one in denials]
        annotations.publish(attributes.audit_annotations)

    async def _binding(
        self,
        policy: CompiledPolicy[ValidatingExpressions],
        binding: PolicyBinding,
        match: Match,
        activation: Activation,
        annotations: Annotations,
    ) -> list[Denial]:
        """Evaluate a policy for one binding, and apply the binding's actions.

        Args:
            policy: The compiled policy.
            binding: One of its bindings.
            match: The version of the request to evaluate.
            activation: The CEL variables of the request.
            annotations: Receives the audit annotations.

        Returns:
            The denials that reject the request; others became warnings and audit annotations.

        Raises:
            InvalidConfiguration: The binding does not fit the policy.
            NotFound: The namespace of the request does not exist any more.
        """
        if not await binding_matches(self._matcher, binding, activation.attributes):
            return []
        params = await self._params.of(policy.param_kind, binding.param_ref, activation.namespace)
        if not params:
            return []
        try:
            await activation.prepare(match)
        except ApiError as error:
            raise InvalidConfiguration(f"failed to convert object version: {error_message(error)}") from None
        await activation.find_namespace()
        refused: list[Denial] = []
        for one in params:
            denials, problems = _evaluated(policy, match, activation, one, annotations)
            for denial in denials:
                refused += _acted(policy, binding, denial, activation.attributes)
            refused += problems
        return refused


def _acted(policy: CompiledPolicy[ValidatingExpressions], binding: PolicyBinding, denial: Denial, attributes: Attributes) -> list[Denial]:
    """Apply the actions of a binding to a denial. Return the denial if it rejects the request, or an empty result if it does not."""
    refused = []
    for action in binding.actions:
        match action:
            case "Deny":
                refused.append(denial)
            case "Audit":
                value = failure_annotation(denial.message, policy.name, binding.name, denial.index, binding.actions)
                attributes.audit_annotations.setdefault("validation.policy.admission.k8s.io/validation_failure", value)
            case "Warn":
                who = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                attributes.warnings.append(f"Validation failed for {who}: {denial.message}")
    return refused


def _evaluated(
    policy: CompiledPolicy[ValidatingExpressions], match: Match, activation: Activation, params: JSONObject | None, annotations: Annotations
) -> tuple[list[Denial], list[Denial]]:
    """Evaluate a policy with one parameter.

    Args:
        policy: The compiled policy.
        match: The version of the request to evaluate.
        activation: The CEL variables of the request.
        params: The parameter object. None: the policy has no parameters.
        annotations: Receives the audit annotations.

    Returns:
        The denials, and the failures of audit annotations, which reject the request whatever the actions are.
    """
    failed: list[Denial] = []
    checks = policy.own
    try:
        if policy.conditions:
            seen = activation.of_conditions(match, params)
            if not conditions_hold(policy.conditions, seen, policy.variables, ignore_failure=policy.ignore_failure):
                return [], []
        values = activation.values(match, params)
        results, left = evaluate(checks.expressions, values, BUDGET, policy.variables)
        denials = _denials(policy, results, *_messages(policy, activation.values(match, params, authorizer=False), left))
        noted, _ = evaluate(checks.annotations, values, BUDGET, policy.variables)
    except (MatchConditionsError, CostBudgetExceeded) as error:
        return ([] if policy.ignore_failure else [Denial(str(error))]), []
    for key, result in zip(checks.keys, noted, strict=True):
        assert result is not None
        if result.error:
            failed += [] if policy.ignore_failure else [Denial(result.error)]
        elif isinstance(result.value, str):
            annotations.add(key, result.value.strip())
    return denials, failed


def _messages(
    policy: CompiledPolicy[ValidatingExpressions], values: dict[str, Any], budget: int
) -> tuple[list[ExpressionResult | None], str]:
    """Evaluate the messageExpressions. Return the results, and the reason why results are missing."""
    try:
        return evaluate(policy.own.messages, values, budget, policy.variables)[0], ""
    except CostBudgetExceeded as error:
        return [], f"failed messageExpression: {error}"


def _denials(
    policy: CompiledPolicy[ValidatingExpressions],
    results: list[ExpressionResult | None],
    messages: list[ExpressionResult | None],
    error: str,
) -> list[Denial]:
    value = []
    for index, result in enumerate(results):
        assert result is not None
        if result.error or error:
            if not policy.ignore_failure:
                value.append(Denial(result.error or error, index=index))
        elif result.value is not True:
            validation = policy.own.validations[index]
            message = (
                _usable(messages[index] if messages else None)
                or validation.message
                or f"failed expression: {validation.expression.strip()}"
            )
            value.append(Denial(message, validation.reason, index))
    return value


def _usable(message: ExpressionResult | None) -> str:
    text = "" if message is None or message.error or not isinstance(message.value, str) else message.value.strip()
    return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text


def _refusal(attributes: Attributes, message: str, reason: str) -> ApiError:
    metadata = (attributes.obj or {}).get("metadata") or {}
    name = attributes.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    refused = api_errors.forbidden(attributes.resource.gvr.group_resource, name, message, [StatusCause(message=message)])
    refused.status.reason, refused.status.code = reason, _CODES.get(reason, 422)
    return ApiError.from_status(refused.status)
