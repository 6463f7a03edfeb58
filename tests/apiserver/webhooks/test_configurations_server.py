"""Validation of webhook configurations, with the errors of kube-apiserver, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.types import JSONObject
from tests.apiserver.webhooks.conftest import ADMISSION, World
from tests.apiserver.webhooks.scripted import allow

pytestmark = pytest.mark.server


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    "(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an "
    "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
FORM = "desired format: https://host[/path]"


def condition(expression: str, name: str = "a") -> JSONObject:
    return {"matchConditions": [{"name": name, "expression": expression}]}


def service(**parts: Any) -> JSONObject:
    return {"clientConfig": {"service": {"name": "a", "namespace": "b", **parts}}}


async def written(world: World, kind: str, *changes: JSONObject, name: str = "kubeloop-test") -> Any:
    """A configuration that is not stored, of one webhook for each of ``changes``; None takes a field away."""
    plain = world.webhook(world.hook.on("/w", allow()))
    webhooks = [{field: value for field, value in {**plain, **change}.items() if value is not None} for change in changes]
    tree = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration", "metadata": {"name": name}}
    return await world("POST", f"{ADMISSION}/{kind.lower()}webhookconfigurations", {**tree, "webhooks": webhooks}, dryRun="All")


FAULTS = [
    pytest.param({"name": "a.b"}, {'name: Invalid value: "a.b": should be a domain with at least three segments separated by dots'},
                 id="a name has three parts"),
    pytest.param({"name": ""}, {"name: Required value"}, id="a name must be"),
    pytest.param({"name": "A.b.c"}, {f'name: Invalid value: "A.b.c": {SUBDOMAIN}'}, id="a name is a domain"),
    pytest.param({"rules": [{}]}, {f"rules[0].{one}: Required value" for one in ("operations", "apiGroups", "apiVersions", "resources")},
                 id="a rule says what it is about"),
    pytest.param({"rules": [{"apiGroups": ["*", "x"], "apiVersions": ["*", "v1", ""], "resources": ["*", "x"],
                             "operations": ["*", "CREATE"]}]},
                 {'rules[0].operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other operations',
                  'rules[0].apiGroups: Invalid value: ["*","x"]: if \'*\' is present, must not specify other API groups',
                  'rules[0].apiVersions: Invalid value: ["*","v1",""]: if \'*\' is present, must not specify other API versions',
                  "rules[0].apiVersions[2]: Required value",
                  ('rules[0].resources: Invalid value: ["*","x"]: if \'*\' is present, must not specify other resources without '
                  "subresources")},
                 id="all and some exclude each other"),
    pytest.param({"rules": [{**RULE, "resources": ["*/*", "x"]}]},
                 {'rules[0].resources: Invalid value: ["*/*","x"]: if \'*/*\' is present, must not specify other resources'},
                 id="nothing beside all resources and subresources"),
    pytest.param({"rules": [{**RULE, "resources": ["x/*", "x/y"]}]},
                 {"rules[0].resources[1]: Invalid value: \"x/y\": if 'x/*' is present, must not specify x/y"},
                 id="no subresource beside all of the same resource"),
    pytest.param({"rules": [{**RULE, "resources": ["*/y", "x/y", ""]}]},
                 {"rules[0].resources[1]: Invalid value: \"x/y\": if '*/y' is present, must not specify x/y",
                  "rules[0].resources[2]: Required value"}, id="no resource beside all with the same subresource"),
    pytest.param({"rules": [{**RULE, "scope": "Odd"}]},
                 {'rules[0].scope: Unsupported value: "Odd": supported values: "*", "Cluster", "Namespaced"'}, id="scope"),
    pytest.param({"rules": [{**RULE, "operations": ["FROB"]}]}, {('rules[0].operations[0]: Unsupported value: "FROB": supported values: '
                 '"*", "CONNECT", "CREATE", "DELETE", "UPDATE"')}, id="operations"),
    pytest.param({"failurePolicy": "X", "matchPolicy": "Y", "sideEffects": "Some"},
                 {'failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"',
                  'matchPolicy: Unsupported value: "Y": supported values: "Equivalent", "Exact"',
                  'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'}, id="policies"),
    pytest.param({"sideEffects": None}, {"sideEffects: Required value: must specify one of None, NoneOnDryRun"},
                 id="side effects must be declared"),
    pytest.param({"timeoutSeconds": 31}, {"timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"},
                 id="a timeout is at most 30 seconds"),
    pytest.param({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
                 {"namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"},
                 id="selectors are checked"),
    pytest.param({"clientConfig": {}}, {"clientConfig: Required value: exactly one of url or service is required"},
                 id="a webhook is somewhere"),
    pytest.param({"clientConfig": {"url": "http://user:pw@x/?a=b#f"}},
                 {f"clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; {FORM}",
                  'clientConfig.url: Invalid value: "user:pw": user information is not permitted in the URL',
                  'clientConfig.url: Invalid value: "f": fragments are not permitted in the URL',
                  'clientConfig.url: Invalid value: "a=b": query parameters are not permitted in the URL'}, id="a URL is plain"),
    pytest.param({"clientConfig": {"url": "nohost"}},
                 {f"clientConfig.url: Invalid value: \"\": 'https' is the only allowed URL scheme; {FORM}",
                  f'clientConfig.url: Invalid value: "": host must be specified; {FORM}'}, id="a URL has a host"),
    pytest.param({"clientConfig": {"url": "https://[::1/"}},
                 {f'clientConfig.url: Required value: url must be a valid URL: parse "https://[::1/": missing \']\' in host; {FORM}'},
                 id="a URL can be read"),
    pytest.param(service(name="", namespace="", port=70000, path="nope"),
                 {"clientConfig.service.name: Required value", "clientConfig.service.namespace: Required value",
                  "clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
                  "clientConfig.service.path: Invalid value: \"nope\": must start with a '/'"}, id="a service has a name and a port"),
    pytest.param(service(path="/a//b"), {'clientConfig.service.path: Invalid value: "/a//b": segment[1] may not be empty'},
                 id="a path has no empty part"),
    pytest.param(service(path="/A_b/"), {f'clientConfig.service.path: Invalid value: "/A_b/": segment[0]: {SUBDOMAIN}'},
                 id="the parts of a path are subdomains"),
    pytest.param({"admissionReviewVersions": None}, {"admissionReviewVersions: Required value: must specify one of v1, v1beta1"},
                 id="a webhook reads some version of the review"),
    pytest.param({"admissionReviewVersions": ["v2", "v2", "V"]},
                 {'admissionReviewVersions[1]: Invalid value: "v2": duplicate version',
                  f'admissionReviewVersions[2]: Invalid value: "V": {LABEL1035}',
                  'admissionReviewVersions: Invalid value: ["v2","v2","V"]: must include at least one of v1, v1beta1'},
                 id="it reads a version that is known"),
    pytest.param(condition("1"), {'matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int'},
                 id="a condition is true or false"),
    pytest.param(condition("object"), {'matchConditions[0].expression: Invalid value: "object": must evaluate to bool but got dyn'},
                 id="a condition is known to be true or false"),
    pytest.param(condition("nosuch"), {('matchConditions[0].expression: Invalid value: "nosuch": compilation failed: ERROR: <input>:1:1: '
                 "undeclared reference to 'nosuch' (in container '')\n | nosuch\n | ^")}, id="a condition names what there is"),
    pytest.param(condition("request.nosuch == 1"), {('matchConditions[0].expression: Invalid value: "request.nosuch == 1": compilation '
                 "failed: ERROR: <input>:1:8: undefined field 'nosuch'\n | request.nosuch == 1\n | .......^")},
                 id="the fields of a request are known"),
    pytest.param({"matchConditions": [{"name": "", "expression": ""}, {"name": "x", "expression": "true"},
                                      {"name": "x", "expression": " "}]},
                 {"matchConditions[0].expression: Required value", "matchConditions[0].name: Required value",
                  "matchConditions[2].expression: Required value", 'matchConditions[2].name: Duplicate value: "x"'},
                 id="a condition has a unique name"),
    pytest.param({"matchConditions": [{"name": f"x{one}", "expression": "true"} for one in range(65)]},
                 {"matchConditions: Too many: 65: must have at most 64 items"}, id="64 conditions at most"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "faults"), FAULTS)
async def test_a_faulty_webhook_is_refused(world: World, change: JSONObject, faults: set[str]) -> None:
    with pytest.raises(Exception) as met:
        await written(world, "Validating", change)
    status = met.value.status  # type: ignore[attr-defined]  # of the ApiError
    assert status.code == 422
    assert {f"{cause.field}: {cause.message}" for cause in status.details.causes} == {f"webhooks[0].{one}" for one in faults}


async def test_a_reinvocation_policy_is_one_of_two(world: World) -> None:
    with pytest.raises(Exception, match='reinvocationPolicy: Unsupported value: "X": supported values: "IfNeeded", "Never"'):
        await written(world, "Mutating", {"reinvocationPolicy": "X"})


async def test_names_of_webhooks_are_unique(world: World) -> None:
    with pytest.raises(Exception, match=r'webhooks\[1\].name: Duplicate value: "w.example.com"'):
        await written(world, "Validating", {}, {})


async def test_a_reserved_name_is_warned_of(world: World) -> None:
    await written(world, "Validating", {}, name="x.static.k8s.io")
    (warning,) = world.warnings
    assert warning.startswith('metadata.name: names ending with ".static.k8s.io" are reserved')


async def test_defaults(world: World) -> None:
    given = {"timeoutSeconds": None, "namespaceSelector": None, "rules": [RULE], **service()}
    (webhook,) = (await written(world, "Mutating", given))["webhooks"]
    assert webhook == {
        "name": "w.example.com",
        "clientConfig": {"service": {"namespace": "b", "name": "a", "port": 443}},
        "rules": [{**RULE, "scope": "*"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
        "reinvocationPolicy": "Never",
    }


@pytest.mark.parametrize(
    "expression",
    [
        'request.operation == "CREATE" && request.userInfo.extra["a"].exists(x, x == "b") && has(request.dryRun)',
        'request.options.fieldManager == "x" && request.kind.group == "" && request.requestResource.resource == "x"',
        'authorizer.group("").resource("pods").namespace("x").check("get").allowed()',
        'authorizer.requestResource.check("get").allowed()',
        'namespaceObject.metadata.name == "x"',
    ],
)
async def test_a_condition_may_ask(world: World, expression: str) -> None:
    assert await written(world, "Validating", condition(expression))
