"""The authorizer of admission expressions: ``authorizer.group('apps').resource('deployments').check('create').allowed()``.

Source: k8s.io/apiserver pkg/cel/library/authz.go. The variable is a ``values.AuthorizerValue``, which makes the decisions.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeloop.cel.faults import EvalError
from kubeloop.cel.overloads import member
from kubeloop.cel.values import AccessCheck, AuthorizerDecision, AuthorizerValue, GroupCheck, PathCheck, ResourceCheck
from kubeloop.meta.names import dns1123_label, dns1123_subdomain


def _ask(check: PathCheck | ResourceCheck, verb: str) -> AuthorizerDecision:
    return check.question.ask(verb)


@member("path", "authorizer, string -> pathcheck", "authorizer_path")
def _path(by: AuthorizerValue, path: str) -> PathCheck:
    if not path.strip():
        raise EvalError("path must not be empty")
    return PathCheck(AccessCheck(by, path=path))


member("group", "authorizer, string -> groupcheck", "authorizer_group")(lambda by, group: GroupCheck(AccessCheck(by, group=group)))


@member("serviceAccount", "authorizer, string, string -> authorizer", "authorizer_serviceaccount")
def _service_account(by: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if dns1123_subdomain(name):
        raise EvalError("Invalid service account name")
    if dns1123_label(namespace):
        raise EvalError("Invalid service account namespace")
    return replace(by, service_account=f"system:serviceaccount:{namespace}:{name}")


@member("resource", "groupcheck, string -> resourcecheck", "groupcheck_resource")
def _resource(check: GroupCheck, name: str) -> ResourceCheck:
    if not name.strip():
        raise EvalError("resource must not be empty")
    return ResourceCheck(replace(check.question, resource=name))


def _narrow(name: str, overload: str, part: str) -> None:
    member(name, "resourcecheck, string -> resourcecheck", overload)(
        lambda check, value: ResourceCheck(replace(check.question, **{part: value}))
    )


_narrow("subresource", "resourcecheck_subresource", "subresource")
_narrow("namespace", "resourcecheck_namespace", "namespace")
_narrow("name", "resourcecheck_name", "name")
_narrow("fieldSelector", "authorizer_fieldselector", "field_selector")
_narrow("labelSelector", "authorizer_labelselector", "label_selector")
member("check", "pathcheck, string -> decision", "pathcheck_check")(_ask)
member("check", "resourcecheck, string -> decision", "resourcecheck_check")(_ask)
member("errored", "decision -> bool", "decision_errored")(lambda decision: bool(decision.error))
member("error", "decision -> string", "decision_error")(lambda decision: decision.error)
member("allowed", "decision -> bool", "decision_allowed")(lambda decision: decision.allowed)
member("reason", "decision -> string", "decision_reason")(lambda decision: decision.reason)
