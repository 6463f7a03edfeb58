"""MutatingAdmissionPolicies: expressions that say how a request is changed. Source: pkg/apis/admissionregistration/validation.

That the author may read the parameters needs no check here: only administrators write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.policies.parts import Errors, policy_head, same_conditions, static_name_warnings
from kubeloop.apiserver.options import unsupported
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.meta.field_error import FieldError, invalid, required

if TYPE_CHECKING:
    from kubeloop.apiserver.builtin.policies.expressions import Expressions

JSONObject = dict[str, Any]

#: By the type of a mutation, the field that describes it.
_DESCRIPTIONS: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


class MutatingPolicyStrategy(BuiltinStrategy):
    #: Upstream's validation of an update begins with that of a new object's metadata.
    metadata_checks_on_update = ("create",)

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_policy(obj, None))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_policy(obj, old))

    def warnings(self, context: RequestContext, obj: JSONObject) -> list[str]:
        return static_name_warnings(obj)


def _policy(obj: JSONObject, old: JSONObject | None) -> Errors:
    # CEL is imported when there is some: most servers never see any.
    from kubeloop.apiserver.builtin.policies.expressions import Expressions

    spec, before = obj.get("spec") or {}, None if old is None else old.get("spec") or {}
    expressions = Expressions(params=spec.get("paramKind") is not None, variables=True)
    yield from policy_head(spec, expressions, mutating=True, conditions_known=same_conditions(spec, before))
    mutations, policy = spec.get("mutations") or [], spec.get("reinvocationPolicy") or ""
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for at, one in enumerate(mutations):
        yield from _mutation(f"spec.mutations[{at}]", one, expressions)
    if not policy:
        yield required("spec.reinvocationPolicy")
    elif policy not in ("IfNeeded", "Never"):
        yield unsupported("spec.reinvocationPolicy", policy, ["IfNeeded", "Never"])


def _mutation(path: str, mutation: JSONObject, expressions: Expressions) -> Errors:
    kind = mutation.get("patchType") or ""
    if not kind:
        yield required(f"{path}.patchType")
        return
    if kind not in _DESCRIPTIONS:
        yield unsupported(f"{path}.patchType", kind, list(_DESCRIPTIONS))
        return
    own = _DESCRIPTIONS[kind]
    described = mutation.get(own)
    if described is None:
        yield required(f"{path}.{own}", f"must be specified when patchType is {kind}")
    else:
        yield from _change(f"{path}.{own}.expression", kind, (described.get("expression") or "").strip(), expressions)
    for other in _DESCRIPTIONS.values():
        if other != own and mutation.get(other) is not None:
            yield invalid(f"{path}.{other}", f"{{{other}}}", f"must not be specified when patchType is {kind}")


def _change(path: str, kind: str, expression: str, expressions: Expressions) -> Errors:
    from kubeloop.apiserver.builtin.policies.expressions import CONFIGURATION, OPERATIONS

    if not expression:
        yield required(path)
    else:
        yield from expressions.change(path, expression, OPERATIONS if kind == "JSONPatch" else CONFIGURATION)
