"""The effect of new and changed policies, and their audit annotations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubeloop.apiserver.audit.log import AuditLog
from kubeloop.apiserver.audit.policy import AuditPolicy
from kubeloop.apiserver.filters import Auditing, OperationOptions
from kubeloop.timing import SystemClock
from tests.apiserver.conftest import CONFIGMAPS, MERGE, Api, running_api
from tests.apiserver.policies.conftest import rule

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


async def bind(api: Api, name: str, *actions: str, **spec: Any) -> None:
    constraints = {"resourceRules": [rule("configmaps", "CREATE")]}
    await api.create(name, POLICIES, spec={"matchConstraints": constraints, **spec})
    await api.create(name, BINDINGS, spec={"policyName": name, "validationActions": list(actions or ("Deny",))})


async def test_a_policy_counts_from_when_its_write_is_answered_until_its_deletion_is(api: Api) -> None:
    for number in range(5):
        await bind(api, "p", validations=[{"expression": "false", "message": f"no {number}"}])
        refused = await api("POST", CONFIGMAPS, {"metadata": {"name": "x"}})
        assert refused.message.endswith(f"denied request: no {number}")
        await api("PATCH", f"{POLICIES}/p", {"spec": {"validations": [{"expression": "true"}]}}, content=MERGE)
        assert (await api("POST", CONFIGMAPS, {"metadata": {"generateName": "x"}})).status == 201
        await api("PATCH", f"{POLICIES}/p", {"spec": {"validations": [{"expression": "false"}]}}, content=MERGE)
        assert (await api("POST", CONFIGMAPS, {"metadata": {"generateName": "x"}})).status == 422
        await api("DELETE", f"{BINDINGS}/p")
        assert (await api("POST", CONFIGMAPS, {"metadata": {"generateName": "x"}})).status == 201
        await api("DELETE", f"{POLICIES}/p")


async def test_a_parameter_counts_as_it_is_when_the_request_comes(api: Api) -> None:
    params = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    await bind(api, "p", validations=[{"expression": "int(params.data.most) > 1"}], **params)
    reference = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Allow"}
    await api("PATCH", f"{BINDINGS}/p", {"spec": {"paramRef": reference}}, content=MERGE)
    await api.create("limits", data={"most": "1"})
    assert (await api("POST", CONFIGMAPS, {"metadata": {"name": "x"}})).status == 422
    await api("PATCH", f"{CONFIGMAPS}/limits", {"data": {"most": "2"}}, content=MERGE)
    assert (await api("POST", CONFIGMAPS, {"metadata": {"name": "x"}})).status == 201


async def test_annotations_and_failures_that_are_only_noted_go_into_the_audit_log(tmp_path: Path) -> None:
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")
    auditing = Auditing(AuditPolicy.read(policy), AuditLog(log, SystemClock()))
    async with running_api(operation=OperationOptions(auditing=auditing)) as api:
        noted = [{"key": "said", "valueExpression": "' hello ' + object.metadata.name"}, {"key": "none", "valueExpression": "null"}]
        await bind(api, "p", "Audit", validations=[{"expression": "false", "message": "a < b"}], auditAnnotations=noted)
        await api.create("x")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    (found,) = [one["annotations"] for one in events if one.get("objectRef", {}).get("name") == "x" and one["stage"] == "ResponseComplete"]
    assert found["p/said"] == "hello x"
    assert "p/none" not in found
    (failure,) = json.loads(found["validation.policy.admission.k8s.io/validation_failure"])
    assert failure == {"message": "a < b", "policy": "p", "binding": "p", "expressionIndex": 0, "validationActions": ["Audit"]}
    assert "a \\u003c b" in found["validation.policy.admission.k8s.io/validation_failure"]
