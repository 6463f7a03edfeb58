"""May somebody do that, and what may I do: the reviews of authorization.k8s.io.

Source: k8s.io/kubernetes pkg/registry/authorization, pkg/apis/authorization/validation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.authorization.access import Access
from kubeloop.apiserver.authorization.review_selectors import field_terms, label_fault, selector_errors
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.object_meta import metadata_of
from kubeloop.apiserver.reviewing import answer_review, decode_review
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.kinds import GroupKind, GroupResource

JSONObject = dict[str, Any]

_GROUP = "authorization.k8s.io"
_SELF, _LOCAL = "SelfSubjectAccessReview", "LocalSubjectAccessReview"
_NAMES = ("group", "version", "resource", "subresource", "namespace", "name")


async def _access(exchange: Exchange) -> Answer:
    obj = await decode_review(exchange)
    spec, kind, metadata = obj.get("spec") or {}, exchange.resource.kind, metadata_of(obj)
    errors = _errors(spec, kind, metadata)
    if errors:
        raise refusals.invalid(GroupKind(_GROUP, ""), "", errors)
    user = exchange.user if kind == _SELF else _user(spec)
    access, faults = _asked(user, spec)
    authorizer = exchange.parts.authorizer
    await authorizer.prepare(user)
    decision = authorizer.authorize(access)
    obj["status"] = {"allowed": decision.allowed}
    if decision.denied:
        obj["status"]["denied"] = True
    if decision.reason:
        obj["status"]["reason"] = decision.reason
    if faults:
        obj["status"]["evaluationError"] = "; ".join(faults)
    return answer_review(exchange, obj)


async def _rules(exchange: Exchange) -> Answer:
    obj = await decode_review(exchange)
    namespace = (obj.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise refusals.bad_request("no namespace on request")
    found = exchange.parts.authorizer.rules(exchange.user, namespace)
    status: JSONObject = {"resourceRules": found.resources, "nonResourceRules": found.paths, "incomplete": found.incomplete}
    if found.error:
        status["evaluationError"] = found.error
    # Upstream answers with a review of its own making: of the one that was sent nothing is left.
    answer = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": {}, "spec": {}, "status": status}
    return answer_review(exchange, answer)


def _user(spec: JSONObject) -> User:
    extra = {name: tuple(values or ()) for name, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)


def _asked(user: User, spec: JSONObject) -> tuple[Access, list[str]]:
    """What is asked for, and what of it could not be read."""
    attributes = spec.get("resourceAttributes")
    if attributes is None:
        plain = spec["nonResourceAttributes"]
        return Access(user, plain.get("verb", ""), path=plain.get("path", ""), is_resource=False), []
    terms, partly = field_terms(attributes.get("fieldSelector") or {})
    faults = [f"spec.resourceAttributes.fieldSelector {partly}ignored due to parse error"] if partly is not None else []
    partly = label_fault(attributes.get("labelSelector") or {})
    if partly is not None:
        faults.append(f"spec.resourceAttributes.labelSelector {partly}ignored due to parse error")
    where = {name: attributes.get(name, "") for name in _NAMES}
    where["version"] = where["version"] or "*"
    return Access(user, attributes.get("verb", ""), **where, fields=terms), faults


def _errors(spec: JSONObject, kind: str, metadata: JSONObject) -> list[FieldError]:
    errors = []
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid("spec.nonResourceAttributes", _go_names(path), why))
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid("spec.resourceAttributes", None, why))
    if kind != _SELF and not spec.get("user") and not spec.get("groups"):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    errors += selector_errors(resource or {})
    left = ("managedFields", "namespace") if kind == _LOCAL else ("managedFields",)
    if any(value for name, value in metadata.items() if name not in left):
        errors.append(invalid("metadata", metadata, "must be empty except for namespace" if kind == _LOCAL else "must be empty"))
    if kind == _LOCAL:
        namespace = (resource or {}).get("namespace", "")
        if resource is not None and namespace != metadata.get("namespace", ""):
            errors.append(invalid("spec.resourceAttributes.namespace", namespace, "must match metadata.namespace"))
        if path is not None:
            errors.append(invalid("spec.nonResourceAttributes", _go_names(path), "disallowed on this kind of request"))
    return errors


def _go_names(path: JSONObject) -> JSONObject:
    """As upstream's internal type shows itself."""
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


#: What POST does.
CREATE: dict[GroupResource, Callable[[Exchange], Awaitable[Answer]]] = {
    GroupResource(_GROUP, "subjectaccessreviews"): _access,
    GroupResource(_GROUP, "selfsubjectaccessreviews"): _access,
    GroupResource(_GROUP, "localsubjectaccessreviews"): _access,
    GroupResource(_GROUP, "selfsubjectrulesreviews"): _rules,
}
