"""Whether a policy or a binding is about a request. Source: k8s.io/apiserver pkg/admission/plugin/policy/matching/matching.go."""

from __future__ import annotations

from typing import Final

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.matching import Match, Matcher, matches_object
from kubeloop.apiserver.admission.requests import name_of
from kubeloop.apiserver.policies.definitions import Binding, Constraints
from kubeloop.apiserver.policies.params import InvalidConfiguration, said
from kubeloop.meta.errors import NotFound
from kubeloop.meta.kinds import GroupResource

_GROUP: Final = "admissionregistration.k8s.io"
#: Nothing configured may keep an administrator from mending the configuration, nor anybody from being told who is who.
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
    return attributes.resource.gvr.group_resource in _EXEMPT


async def matched(matcher: Matcher, constraints: Constraints, attributes: Attributes) -> Match | None:
    """The version in which the request is to be evaluated; None: it is not concerned.

    Raises:
        NotFound: the rules are about it, and the namespace whose labels would decide does not exist.
    """
    missing: NotFound | None = None
    try:
        if not await matcher.matches_namespace(constraints.namespaces, attributes):
            return None
    except NotFound as fault:
        missing = fault
    if not matches_object(constraints.objects, attributes):
        return None
    name = name_of(attributes)
    if constraints.excluded and matcher.by_rules(constraints.excluded, attributes, equivalent=constraints.equivalent, name=name):
        return None
    if constraints.rules:
        found = matcher.by_rules(constraints.rules, attributes, equivalent=constraints.equivalent, name=name)
    else:
        found = Match(attributes.resource, attributes.gvk)
    if found is not None and missing is not None:
        raise missing
    return found


async def bound_here(matcher: Matcher, binding: Binding, attributes: Attributes) -> bool:
    """
    Raises:
        InvalidConfiguration: the namespace whose labels would decide does not exist.
    """
    if binding.constraints is None:
        return True
    try:
        return await matched(matcher, binding.constraints, attributes) is not None
    except NotFound as fault:
        raise InvalidConfiguration(said(fault)) from None
