"""``matchConditions`` of webhooks: asked for only after rules and selectors.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions/matcher.go.
"""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.authentication import AUTHENTICATED, User
from kubeloop.apiserver.authorization import authorize
from kubeloop.apiserver.request_info import RequestInfo
from kubeloop.apiserver.webhooks.condition_language import COST_LIMIT, ConditionFault, compiled
from kubeloop.apiserver.webhooks.configurations import Hook
from kubeloop.cel.values import AccessQuestion, Authorizer, Decision, ResourceCheck
from kubeloop.meta.errors import Forbidden

JSONObject = dict[str, Any]


def conditions_hold(hook: Hook, attributes: Attributes, request: JSONObject) -> bool:
    """Whether all conditions of ``hook`` are true of ``request`` (of an AdmissionReview, objects included).

    One that is false settles it, whatever is wrong with the others. Else failurePolicy says what an error means.

    Raises:
        Forbidden: a condition has no value, and failures count.
    """
    authorizer = Authorizer(lambda question, verb: _decide(attributes.user, question, verb))
    values = {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "namespaceObject": None,  # upstream gives none to webhooks
        "request": _readable(request),
        "authorizer": authorizer,
        "authorizer.requestResource": ResourceCheck(_about(attributes, authorizer)),
    }
    faults, left = [], COST_LIMIT
    for condition in hook.conditions:
        expression = condition["expression"]
        try:
            outcome = compiled(expression.strip()).run(values, left)
        except ConditionFault as fault:
            faults.append(f"{fault}")
            continue
        left -= outcome.cost
        if outcome.error is not None:
            faults.append(f"expression '{expression}' resulted in error: {outcome.error}")
        elif outcome.value is False:
            return False
    if not faults:
        return True
    if hook.ignore_failure:
        return False
    shown = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    name = attributes.name or ((attributes.obj or {}).get("metadata") or {}).get("name") or ""
    raise refusals.forbidden(attributes.resource.gvr.group_resource, name, shown)


def _readable(request: JSONObject) -> JSONObject:
    """Without the objects, which are variables of their own."""
    return {name: value for name, value in request.items() if name not in ("object", "oldObject")}


def _about(attributes: Attributes, authorizer: Authorizer) -> AccessQuestion:
    gvr = attributes.resource.gvr
    return AccessQuestion(
        authorizer,
        group=gvr.group,
        resource=gvr.resource,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
    )


def _decide(user: User, question: AccessQuestion, verb: str) -> Decision:
    """As a request of the same kind would be decided."""
    account = question.by.service_account
    if account:
        namespace = account.split(":")[2]
        user = User(account, ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED))
    info = RequestInfo(verb, question.path)
    if not question.path:
        version = "*"
        where = question.group, version, question.resource, question.subresource, question.namespace, question.name
        info = RequestInfo(verb, "", True, *where)
    try:
        authorize(user, info)
    except Forbidden as refused:
        return Decision(False, refused.status.message)
    return Decision(True)
