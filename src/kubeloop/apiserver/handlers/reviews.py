"""Handlers of reviews, which are computed and never stored. Source: pkg/registry/{authentication,authorization}."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from kubeloop.apiserver.authentication.chain import NotAuthenticated
from kubeloop.apiserver.handlers.scope import RequestScope, ask_admission
from kubeloop.apiserver.handlers.subresources.pods import bind
from kubeloop.apiserver.registry.decoding import decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import metadata_of, set_namespace, timestamp
from kubeloop.apiserver.registry.options import write_options
from kubeloop.apiserver.validation.metadata import validate_requirement
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Access, User
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required
from kubeloop.meta.kinds import GroupKind, GroupResource
from kubeloop.meta.selectors import FieldOperator, FieldTerm, parse_field_selector, parse_label_selector
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject

#: Metadata that only the server sets.
_SYSTEMS = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid")


async def decode_review(scope: RequestScope) -> JSONObject:
    """Return the review in the body, after admission.

    Raises:
        BadRequest: The body is malformed; any error of admission.
    """
    options = write_options(scope.request, "CreateOptions")
    media_type = media_type_of(scope.request.header("Content-Type"))
    decoded = decode_object(await scope.body(), media_type, scope.resource, field_validation=options.field_validation)
    scope.accept_problems(decoded, options, scope.resource.kind)
    obj, metadata = decoded.obj, metadata_of(decoded.obj)
    set_namespace(metadata, scope.namespace)
    for name in _SYSTEMS:
        metadata.pop(name, None)
    # A review is not stored, but its managedFields name the client.
    owners = scope.services.writer.owners
    field_scope = owners.scope(scope.resource, "")
    owners.updated(field_scope, field_scope.empty, obj, scope.manager(options))
    await ask_admission(scope, obj, name=metadata_of(obj).get("name") or "", dry_run=options.dry_run)
    return obj


def answer_review(scope: RequestScope, obj: JSONObject) -> Answer:
    """Return the response with the completed review."""
    return scope.services.renderer.object(scope.resource, scope.accepted, scope.request, obj, status=201)


_AUTHENTICATION_GROUP: Final = "authentication.k8s.io"


async def _self_subject(scope: RequestScope) -> Answer:
    obj = await decode_review(scope)
    # The answer does not repeat the sent fields.
    answer = {name: obj[name] for name in ("apiVersion", "kind")}
    answer["metadata"] = {"creationTimestamp": timestamp(scope.services.clock.wall())}
    answer["status"] = {"userInfo": _user_info(scope.user)}
    return answer_review(scope, answer)


async def _token(scope: RequestScope) -> Answer:
    obj = await decode_review(scope)
    spec = obj.get("spec") or {}
    if not spec.get("token"):
        raise api_errors.bad_request("token is required for TokenReview in authentication")
    status: JSONObject = obj.setdefault("status", {})
    try:
        proof = await scope.services.authenticator.review(spec["token"], tuple(spec.get("audiences") or ()))
    except NotAuthenticated as refused:
        status["user"] = status.get("user") or {}
        status.pop("authenticated", None)
        faults = tuple(dict.fromkeys(refused.faults))
        if faults:
            status["error"] = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    else:
        status |= {"authenticated": True, "user": _user_info(proof.user), "audiences": list(proof.audiences)}
    return answer_review(scope, obj)


def _user_info(user: User) -> JSONObject:
    info: JSONObject = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in sorted(user.extra.items())}
    return info


#: Resource -> handler of POST.
AUTHENTICATION_REVIEWS: dict[GroupResource, Callable[[RequestScope], Awaitable[Answer]]] = {
    GroupResource(_AUTHENTICATION_GROUP, "selfsubjectreviews"): _self_subject,
    GroupResource(_AUTHENTICATION_GROUP, "tokenreviews"): _token,
}


# Field and label selectors of access reviews: their errors, and their valid terms.
# Source: k8s.io/kubernetes pkg/apis/authorization/validation, pkg/registry/authorization/util/helpers.go.


_AT = "spec.resourceAttributes"
_FIELD_OPERATORS = {"In": FieldOperator.EQUALS, "NotIn": FieldOperator.NOT_EQUALS}
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def selector_errors(attributes: JSONObject) -> Iterator[FieldError]:
    """Yield the errors of the field and label selectors in the resource attributes of an access review.

    Unknown operators are accepted, because newer clients may use them.
    """
    for name in ("fieldSelector", "labelSelector"):
        selector = attributes.get(name)
        if selector is None:
            continue
        path, raw, terms = f"{_AT}.{name}", selector.get("rawSelector", ""), selector.get("requirements") or []
        if raw and terms:
            yield invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
        if not raw and not terms:
            yield required(f"{path}.requirements", f"when {path} is specified, requirements or rawSelector is required")
        for at, term in enumerate(terms):
            here = f"{path}.requirements[{at}]"
            yield from _field_errors(here, term) if name == "fieldSelector" else validate_requirement(here, term, any_operator=True)


def _field_errors(path: str, term: JSONObject) -> Iterator[FieldError]:
    operator, values = term.get("operator", ""), term.get("values") or []
    if not term.get("key"):
        yield required(f"{path}.key", "must be specified")
    if operator in ("In", "NotIn") and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    if operator in ("Exists", "DoesNotExist") and values:
        yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")


def field_terms(selector: JSONObject) -> tuple[tuple[FieldTerm, ...], str | None]:
    """Return the valid terms of a field selector, and how many terms are invalid: None (no term), "" (all terms) or "partially " (some)."""
    if selector.get("rawSelector"):
        try:
            return parse_field_selector(selector["rawSelector"]).terms, None
        except ValueError:
            return (), ""
    terms, desired = [], selector.get("requirements") or ()
    for one in desired:
        operator, values = _FIELD_OPERATORS.get(one.get("operator", "")), one.get("values") or []
        if operator is not None and len(values) == 1:
            terms.append(FieldTerm(one.get("key", ""), operator, values[0]))
    return tuple(terms), _partly(len(terms), len(desired))


def label_fault(selector: JSONObject) -> str | None:
    """Return how many terms of a label selector are invalid: None (no term), "" (all terms) or "partially " (some)."""
    if selector.get("rawSelector"):
        try:
            parse_label_selector(selector["rawSelector"])
        except ValueError:
            return ""
        return None
    desired = selector.get("requirements") or ()
    return _partly(sum(one.get("operator") in _LABEL_OPERATORS for one in desired), len(desired))


def _partly(read: int, desired: int) -> str | None:
    return None if read == desired else "partially " if read else ""


# Reviews of authorization.k8s.io: SubjectAccessReview and SelfSubjectRulesReview.
# Source: k8s.io/kubernetes pkg/registry/authorization, pkg/apis/authorization/validation.


_GROUP = "authorization.k8s.io"
_SELF, _LOCAL = "SelfSubjectAccessReview", "LocalSubjectAccessReview"
_NAMES = ("group", "version", "resource", "subresource", "namespace", "name")


async def _access(scope: RequestScope) -> Answer:
    obj = await decode_review(scope)
    spec, kind, metadata = obj.get("spec") or {}, scope.resource.kind, metadata_of(obj)
    errors = _errors(spec, kind, metadata)
    if errors:
        raise api_errors.invalid(GroupKind(_GROUP, ""), "", errors)
    user = scope.user if kind == _SELF else _user(spec)
    access, faults = _asked(user, spec)
    authorizer = scope.services.authorizer
    await authorizer.prepare(user)
    decision = authorizer.authorize(access)
    obj["status"] = {"allowed": decision.allowed}
    if decision.denied:
        obj["status"]["denied"] = True
    if decision.reason:
        obj["status"]["reason"] = decision.reason
    if faults:
        obj["status"]["evaluationError"] = "; ".join(faults)
    return answer_review(scope, obj)


async def _rules(scope: RequestScope) -> Answer:
    obj = await decode_review(scope)
    namespace = (obj.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise api_errors.bad_request("no namespace on request")
    result = scope.services.authorizer.rules(scope.user, namespace)
    status: JSONObject = {"resourceRules": result.resources, "nonResourceRules": result.paths, "incomplete": result.incomplete}
    if result.error:
        status["evaluationError"] = result.error
    # Upstream answers with a new review without the sent fields.
    answer = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": {}, "spec": {}, "status": status}
    return answer_review(scope, answer)


def _user(spec: JSONObject) -> User:
    extra = {name: tuple(values or ()) for name, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)


def _asked(user: User, spec: JSONObject) -> tuple[Access, list[str]]:
    """Return the access of a review, and the errors about its selectors."""
    attributes = spec.get("resourceAttributes")
    if attributes is None:
        plain = spec["nonResourceAttributes"]
        return Access(user, plain.get("verb", ""), path=plain.get("path", ""), is_resource=False), []
    terms, partly = field_terms(attributes.get("fieldSelector") or {})
    faults = [f"spec.resourceAttributes.fieldSelector {partly}ignored due to parse error"] if partly is not None else []
    partly = label_fault(attributes.get("labelSelector") or {})
    if partly is not None:
        faults.append(f"spec.resourceAttributes.labelSelector {partly}ignored due to parse error")
    target = {name: attributes.get(name, "") for name in _NAMES}
    target["version"] = target["version"] or "*"
    return Access(user, attributes.get("verb", ""), **target, fields=terms), faults


def _errors(spec: JSONObject, kind: str, metadata: JSONObject) -> list[FieldError]:
    errors = []
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        reason = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid("spec.nonResourceAttributes", _go_names(path), reason))
    if resource is None and path is None:
        reason = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid("spec.resourceAttributes", None, reason))
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
    """Return the nonResourceAttributes under the field names of upstream's internal Go type."""
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


#: Resource -> handler of POST.
AUTHORIZATION_REVIEWS: dict[GroupResource, Callable[[RequestScope], Awaitable[Answer]]] = {
    GroupResource(_GROUP, "subjectaccessreviews"): _access,
    GroupResource(_GROUP, "selfsubjectaccessreviews"): _access,
    GroupResource(_GROUP, "localsubjectaccessreviews"): _access,
    GroupResource(_GROUP, "selfsubjectrulesreviews"): _rules,
}


#: Resource without storage -> handler of POST.
CREATE: dict[GroupResource, Callable[[RequestScope], Awaitable[Answer]]] = {
    GroupResource("", "bindings"): bind,
    **AUTHENTICATION_REVIEWS,
    **AUTHORIZATION_REVIEWS,
}
