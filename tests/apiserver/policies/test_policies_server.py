"""Admission policies together with other plug-ins, custom resources and subresources, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.types import JSONObject
from tests.apiserver.policies.conftest import PolicyWorld, apply, patch, rule
from tests.apiserver.webhooks.conftest import ADMISSION, CONFIGMAPS
from tests.apiserver.webhooks.scripted import allow
from tests.apiserver.webhooks.scripted import patch as webhook_patch

pytestmark = pytest.mark.server


MERGE = "application/merge-patch+json"


def named(name: str, **rest: Any) -> JSONObject:
    return {"metadata": {"name": name, **rest.pop("metadata", {})}, **rest}


async def test_a_refusal_names_policy_and_binding_and_gives_its_reason(world: PolicyWorld) -> None:
    async with world.validating({"expression": "object.metadata.name != 'x'", "message": "not x", "reason": "Forbidden"}) as bound:
        fault = await world.refused("POST", world.path(), named("x"))
        await world("POST", world.path(), named("y"))
    assert (fault.status.code, fault.status.reason) == (403, "Forbidden")
    assert fault.status.message == f'configmaps "x" is forbidden: {bound.denied("not x")}'
    assert [cause.message for cause in fault.causes] == [bound.denied("not x")]


async def test_a_warning_is_a_header_of_the_answer(world: PolicyWorld) -> None:
    async with world.validating({"expression": "false", "message": "think again"}, actions=("Warn",)) as bound:
        await world("POST", world.path(), named("x"))
    assert world.warnings == (
        f"Validation failed for ValidatingAdmissionPolicy '{bound.policy}' with binding '{bound.binding}': think again",
    )


async def test_validation_sees_the_changes_of_policies_and_webhooks(world: PolicyWorld) -> None:
    hook = world.hook.on("/second", webhook_patch({"op": "add", "path": "/data/second", "value": "webhook"}))
    shown = {"expression": "false", "messageExpression": "object.data.first + ' ' + object.data.second"}
    async with (
        world.mutating(apply("Object{data: {'first': 'policy'}}")),
        world.configured("Mutating", world.webhook(hook)),
        world.validating(shown) as bound,
    ):
        fault = await world.refused("POST", world.path(), named("x", data={"a": "b"}))
    assert fault.causes[0].message == bound.denied("policy webhook")


async def test_a_policy_that_asks_for_it_sees_what_a_webhook_changed_after_it(world: PolicyWorld) -> None:
    hook = world.hook.on("/later", webhook_patch({"op": "add", "path": "/data/later", "value": "yes"}))
    seen = "[JSONPatch{op: 'add', path: '/data/seen', value: 'later' in object.data ? 'yes' : 'no'}]"
    async with world.mutating(patch(seen), reinvocationPolicy="IfNeeded"), world.configured("Mutating", world.webhook(hook)):
        made = await world("POST", world.path(), named("x", data={"a": "b"}))
    assert made["data"] == {"a": "b", "later": "yes", "seen": "yes"}


async def test_a_webhook_with_reinvocation_is_called_again_after_a_policy_changed_the_object_again(world: PolicyWorld) -> None:
    counted = patch("[JSONPatch{op: 'add', path: '/data/n', value: object.data.n + 'x'}]")
    hook = world.hook.on("/again", allow())
    async with (
        world.mutating(counted, reinvocationPolicy="IfNeeded"),
        world.configured("Mutating", world.webhook(hook, reinvocationPolicy="IfNeeded")),
    ):
        made = await world("POST", world.path(), named("x", data={"n": ""}))
    assert made["data"] == {"n": "xx"}
    assert [one["request"]["object"]["data"]["n"] for one in world.hook.seen["/again"]] == ["x", "xx"]


async def test_a_deletion_is_judged_by_what_would_go(world: PolicyWorld) -> None:
    await world("POST", world.path(), named("kept", data={"keep": "yes"}))
    await world("POST", world.path(), named("other"))
    check = {"expression": "!has(oldObject.data) || !('keep' in oldObject.data)", "message": "to be kept"}
    async with world.validating(check, rules=[rule("configmaps", "DELETE")]) as bound:
        fault = await world.refused("DELETE", world.path(name="kept"))
        await world("DELETE", world.path(name="other"))
    assert fault.causes[0].message == bound.denied("to be kept")


async def test_a_connection_to_a_pod_can_be_refused(world: PolicyWorld) -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    await world("POST", world.path("pods"), named("web", **pod))
    shown = {"expression": "false", "messageExpression": "request.operation + ' ' + object.kind + ' ' + object.command[0]"}
    async with world.validating(shown, rules=[rule("pods/exec", "CONNECT")]) as bound:
        fault = await world.refused("POST", f"{world.path('pods', 'web')}/exec", command="ls", container="c", stdout="true")
    assert fault.causes[0].message == bound.denied("CONNECT PodExecOptions ls")


async def test_an_eviction_can_be_refused(world: PolicyWorld) -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    await world("POST", world.path("pods"), named("web", **pod))
    shown = {"expression": "false", "messageExpression": "request.kind.kind + ' of ' + object.metadata.name"}
    async with world.validating(shown, rules=[rule("pods/eviction", "CREATE")]) as bound:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": world.namespace}}
        fault = await world.refused("POST", f"{world.path('pods', 'web')}/eviction", eviction)
    assert fault.causes[0].message == bound.denied("Eviction of web")


async def test_a_patch_and_a_replacement_are_judged_by_what_they_lead_to(world: PolicyWorld) -> None:
    made = await world("POST", world.path(), named("x", data={"n": "1"}))
    check = {"expression": "int(object.data.n) <= 3", "messageExpression": "oldObject.data.n + ' to ' + object.data.n"}
    async with world.validating(check, rules=[rule("configmaps", "UPDATE")]) as bound:
        patched = await world.refused("PATCH", world.path(name="x"), {"data": {"n": "7"}}, MERGE)
        replaced = await world.refused("PUT", world.path(name="x"), {**made, "data": {"n": "8"}})
    assert [one.causes[0].message for one in (patched, replaced)] == [bound.denied("1 to 7"), bound.denied("1 to 8")]


async def test_policies_are_not_about_policies_but_about_webhooks(world: PolicyWorld) -> None:
    everything = [rule("*", group="admissionregistration.k8s.io", version="*")]
    labels = {"policies-test": world.namespace}
    async with world.validating({"expression": "false", "message": "no"}, rules=everything, labels=labels) as bound:
        webhooks = {"metadata": {"name": world.namespace, "labels": labels}}
        fault = await world.refused("POST", f"{ADMISSION}/validatingwebhookconfigurations", webhooks, dryRun="All")
        binding = {**webhooks, "spec": {"policyName": "any", "validationActions": ["Deny"]}}
        await world("POST", f"{ADMISSION}/validatingadmissionpolicybindings", binding, dryRun="All")
    assert fault.causes[0].message == bound.denied("no")


async def test_a_change_that_the_kind_does_not_allow_is_refused_as_if_the_client_had_sent_it(world: PolicyWorld) -> None:
    async with world.mutating(apply("Object{metadata: Object.metadata{labels: {'a': 'no label!'}}}")):
        fault = await world.refused("POST", world.path(), named("x"))
    assert (fault.status.code, fault.causes[0].field) == (422, "metadata.labels")


async def test_a_policy_does_not_change_the_owner_of_a_field(world: PolicyWorld) -> None:
    async with world.mutating(apply("Object{data: {'added': 'yes'}}")):
        made = await world("POST", world.path(), named("x", data={"a": "b"}))
    (owner,) = made["metadata"]["managedFields"]
    assert made["data"] == {"a": "b", "added": "yes"}
    assert owner["fieldsV1"] == {"f:data": {".": {}, "f:a": {}}}


async def test_conditions_of_webhooks_may_ask_the_authorizer(world: PolicyWorld) -> None:
    account = "authorizer.serviceAccount('nobody', 'nobody').group('').resource('configmaps').namespace(request.namespace)"
    conditions = {
        "/may": f"{account}.check('get').allowed()",
        "/may-not": f"!{account}.check('get').allowed()",
        "/requester": "authorizer.requestResource.check('create').allowed()",
    }
    hooks = [
        world.webhook(
            world.hook.on(path, allow()),
            f"{path[1:]}.example.com",
            rules=[CONFIGMAPS],
            matchConditions=[{"name": "a", "expression": expression}],
        )
        for path, expression in conditions.items()
    ]
    async with world.configured("Validating", *hooks):
        await world("POST", world.path(), named("x"))
    assert [path for path in conditions if path in world.hook.seen] == ["/may-not", "/requester"]
