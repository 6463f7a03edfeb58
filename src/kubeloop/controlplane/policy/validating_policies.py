"""ValidatingAdmissionPolicy status controller: type-checks the expressions of each policy and writes the warnings into its status.

The checks are pure functions over OpenAPI v3 schemas. An error is only a warning: admission evaluates such expressions nevertheless.
Source: Kubernetes pkg/controller/validatingadmissionpolicystatus/controller.go; KEP-3488; k8s.io/apiserver
pkg/admission/plugin/policy/validating/typechecking.go, pkg/cel/common/schemas.go (SchemaDeclType), pkg/cel/openapi/resolver (populateRefs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from kubeloop.api.admissionregistration.v1 import (
    ExpressionWarning,
    NamedRuleWithOperations,
    TypeChecking,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyStatus,
)
from kubeloop.cel import CompileError, Environment, compile_expression, types
from kubeloop.cel.admission import ADMISSION_FIELDS, VARIABLES, admission_variables, variable_type
from kubeloop.cel.identifier_escaping import escape
from kubeloop.cel.types import Type
from kubeloop.controller import Controller
from kubeloop.meta import GroupVersion, GroupVersionKind, GroupVersionResource, NotFound, ObjectMeta, UnknownKind
from kubeloop.types import JSONObject

#: Maximum number of kinds of a rule against which expressions are checked.
MAX_KINDS = 10
_STRINGS = {"byte": types.BYTES, "date": types.TIMESTAMP, "date-time": types.TIMESTAMP, "duration": types.DURATION}
_SCALARS = {"boolean": types.BOOL, "integer": types.INT, "number": types.DOUBLE}
_OBJECT_META = {
    "kind": {"type": "string"},
    "apiVersion": {"type": "string"},
    "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
}


@dataclass(frozen=True, slots=True)
class KindType:
    """The CEL type of a kind, and the fields of all object types in it by their names."""

    type: Type
    fields: Mapping[str, Mapping[str, Type]]


class SchemaTypes:
    """Converts one schema of an OpenAPI document to a CEL type.

    Args:
        components: The schemas of the document by name, to which ``$ref`` refers.
        name: The name of the type, and the prefix of the names of types inside it.
    """

    def __init__(self, components: Mapping[str, JSONObject], name: str) -> None:
        self._components = components
        self._name = name
        self._fields: dict[str, dict[str, Type]] = {}

    def kind_type(self, schema: JSONObject) -> KindType | None:
        """Return the CEL type of a schema, with apiVersion, kind and metadata added if missing; None if CEL has no such type."""
        found = self._type(schema, self._name, is_root=True, parents=())
        return None if found is None else KindType(found, self._fields)

    def _type(self, schema: JSONObject, name: str, *, is_root: bool, parents: tuple[str, ...]) -> Type | None:
        reference = _reference(schema)
        if reference is not None:
            if reference in parents:
                return self._object({}, name, parents)  # A recursive type has no fields at the second level.
            schema, parents = self._components.get(reference, {}), (*parents, reference)
        if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
            return types.DYN
        properties = schema.get("properties") or {}
        if is_root and not self._has_object_meta(properties):
            schema = {**schema, "type": "object", "properties": {**properties, **_OBJECT_META}}
        match schema.get("type"):
            case "array":
                item = self._element(schema.get("items"), f"{name}.@idx", parents)
                return None if item is None else types.list_of(item)
            case "object":
                values = schema.get("additionalProperties")
                if isinstance(values, dict):
                    value = self._element(values, f"{name}.@elem", parents)
                    return None if value is None else types.map_of(types.STRING, value)
                return self._object(schema.get("properties") or {}, name, parents)
            case "string":
                return _STRINGS.get(schema.get("format") or "", types.STRING)
            case other:
                return _SCALARS.get(other or "")

    def _element(self, schema: JSONObject | None, name: str, parents: tuple[str, ...]) -> Type | None:
        if schema is None:
            return None
        return self._type(schema, name, is_root=bool(schema.get("x-kubernetes-embedded-resource")), parents=parents)

    def _object(self, properties: Mapping[str, JSONObject], name: str, parents: tuple[str, ...]) -> Type:
        fields: dict[str, Type] = {}
        for key, below in properties.items():
            identifier = escape(key)
            found = self._element(below, f"{name}.{identifier or key}", parents)
            if found is not None and identifier is not None:
                fields[identifier] = found
        self._fields[name] = fields
        return types.struct(name)

    def _has_object_meta(self, properties: Mapping[str, JSONObject]) -> bool:
        metadata = self._resolved(properties.get("metadata") or {})
        names = metadata.get("properties") or {}
        texts = (properties.get("kind"), properties.get("apiVersion"), names.get("name"), names.get("generateName"))
        return all(self._resolved(one or {}).get("type") == "string" for one in texts)

    def _resolved(self, schema: JSONObject) -> JSONObject:
        reference = _reference(schema)
        return schema if reference is None else self._components.get(reference, {})


def _reference(schema: JSONObject) -> str | None:
    """Return the name of the schema to which a schema refers, directly or by ``allOf`` (which allows a description beside it), or None."""
    for one in (schema, *(schema.get("allOf") or ())):
        reference: str | None = one.get("$ref")
        if reference:
            return reference.rpartition("/")[2]
    return None


def kinds_to_check(policy: ValidatingAdmissionPolicy, kinds: Mapping[GroupVersionResource, GroupVersionKind]) -> list[GroupVersionKind]:
    """Return the kinds that a policy matches by name, sorted, at most ``MAX_KINDS`` of a rule. Wildcards match no kinds here.

    Args:
        policy: The policy.
        kinds: The kinds of all served resources.
    """
    constraints = policy.spec.match_constraints
    found: dict[GroupVersionKind, None] = {}
    for rule in constraints.resource_rules if constraints is not None else ():
        found |= dict.fromkeys(islice(_kinds_of(rule, kinds), MAX_KINDS))
        if len(found) >= MAX_KINDS:
            break
    return sorted(found, key=lambda kind: (kind.group, kind.version, kind.kind))


def _kinds_of(rule: NamedRuleWithOperations, kinds: Mapping[GroupVersionResource, GroupVersionKind]) -> Iterator[GroupVersionKind]:
    if any("*" in text for text in (*rule.api_groups, *rule.api_versions)):
        return
    resources = sorted(one for one in rule.resources if "*" not in one and "/" not in one)
    for group in sorted(rule.api_groups):
        for version in sorted(rule.api_versions):
            for resource in resources:
                # A resource mapper treats the empty group as any group.
                yield from (
                    kind
                    for one, kind in sorted(kinds.items())
                    if one.version == version and one.resource == resource and group in ("", one.group)
                )


def check_policy(
    policy: ValidatingAdmissionPolicy, kinds: Iterable[tuple[GroupVersionKind, KindType]], params: KindType | None
) -> list[tuple[str, str]]:
    """Type-check all validations of a policy for each kind.

    Args:
        policy: The policy.
        kinds: The kinds that the policy matches, with their types.
        params: The type of the policy's parameters; None if it has no parameters, or if their schema is unknown.

    Returns:
        Pairs of a field path and a warning.
    """
    environments = [(kind, _environment(policy, known, params)) for kind, known in kinds]
    warnings = []
    for index, validation in enumerate(policy.spec.validations):
        for field, expression in (("expression", validation.expression), ("messageExpression", validation.message_expression)):
            if not expression:
                continue
            faults = [f"{_shown(kind)}: {fault}\n" for kind, environment in environments if (fault := _fault(expression, environment))]
            if faults:
                warnings.append((f"spec.validations[{index}].{field}", "\n".join(faults)))
    return warnings


def _environment(policy: ValidatingAdmissionPolicy, known: KindType, params: KindType | None) -> Environment:
    """Return the CEL environment of a policy's validations. A variable whose expression has an error gets the type ``dyn``."""
    has_params = policy.spec.param_kind is not None
    fields: dict[str, Mapping[str, Type]] = {**ADMISSION_FIELDS, **known.fields, **(params.fields if params is not None else {})}
    params_type = (types.DYN if params is None else params.type) if has_params else None
    variables = {**admission_variables(params=params_type, obj=known.type), "variables": VARIABLES}
    declared: dict[str, Type] = {}
    for one in policy.spec.variables:
        declared[one.name] = variable_type(_result(one.expression, Environment(variables, {**fields, VARIABLES.name: dict(declared)})))
    return Environment(variables, {**fields, VARIABLES.name: declared})


def _result(expression: str, environment: Environment) -> Type | None:
    try:
        return compile_expression(expression, environment).result
    except CompileError:
        return None


def _fault(expression: str, environment: Environment) -> str:
    try:
        compile_expression(expression, environment)
    except CompileError as error:
        return str(error)
    return ""


def _shown(kind: GroupVersionKind) -> str:
    """Return the text of a kind that Go's ``GroupVersionKind.String`` prints."""
    return f"{kind.group}/{kind.version}, Kind={kind.kind}"


#: The field manager of upstream's controller.
MANAGER = "validatingadmissionpolicy-status"


class ValidatingPolicyStatusController(
    Controller[ValidatingAdmissionPolicy], workers=5, name="validatingadmissionpolicy-status-controller"
):
    """Type-checks each generation of a policy once, with the schemas that the API server publishes."""

    async def reconcile(self, policy: ValidatingAdmissionPolicy) -> None:
        generation = policy.metadata.generation
        if generation <= (policy.status.observed_generation or 0):
            return
        warnings = [ExpressionWarning(field_ref=field, warning=text) for field, text in await self._warnings(policy)]
        status = ValidatingAdmissionPolicyStatus(observed_generation=generation, type_checking=TypeChecking(expression_warnings=warnings))
        applied = ValidatingAdmissionPolicy(metadata=ObjectMeta(name=policy.metadata.name), status=status)
        try:
            await self.client.apply(applied, field_manager=MANAGER, force=True, subresource="status")
        except NotFound:
            return

    async def _warnings(self, policy: ValidatingAdmissionPolicy) -> list[tuple[str, str]]:
        served = {one.gvr: one.gvk for one in await self.client.mapper.resources()}
        kinds = []
        for kind in kinds_to_check(policy, served):
            known = await self._type(kind, "object")
            if known is not None:
                kinds.append((kind, known))
        if not kinds:
            return []
        params = policy.spec.param_kind
        if params is None:
            return check_policy(policy, kinds, None)
        try:
            version = GroupVersion.parse(params.api_version or "")
        except ValueError:
            return check_policy(policy, kinds, None)
        params_type = await self._type(GroupVersionKind(version.group, version.version, params.kind or ""), "params")
        return check_policy(policy, kinds, params_type)

    async def _type(self, kind: GroupVersionKind, prefix: str) -> KindType | None:
        """Return the CEL type of a kind, or None if the server publishes no schema of the kind."""
        openapi = self.client.mapper.openapi
        try:
            schema = await openapi.schema(kind)
            components = (await openapi.document(kind.group_version)).get("components") or {}
        except UnknownKind:
            return None
        return SchemaTypes(components.get("schemas") or {}, f"{prefix}:{kind.kind}").kind_type(schema)
