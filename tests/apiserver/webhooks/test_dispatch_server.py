"""Which webhooks are called, with which reviews, and in which order, on both servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from kubeloop.meta.errors import ApiError
from kubeloop.types import JSONObject
from tests.apiserver.webhooks.conftest import World
from tests.apiserver.webhooks.scripted import Raw, allow, deny, patch, respond, scripted_hook

pytestmark = pytest.mark.server


MERGE = "application/merge-patch+json"
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}


def rule(resource: str, *operations: str, group: str = "", version: str = "v1", **rest: Any) -> JSONObject:
    return {"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": list(operations) or ["*"], **rest}


def asked(world: World, path: str = "/w") -> list[JSONObject]:
    """The requests of the reviews so far that are about the test's own writes, not a controller's; forgotten thereby."""
    found = [review["request"] for review in world.hook.seen.pop(path, [])]
    return [one for one in found if not one["userInfo"]["username"].startswith("system:")]


async def test_a_review_of_a_creation(world: World) -> None:
    async with world.configured("Mutating", world.webhook(world.hook.on("/w", allow()))):
        await world("POST", world.path(), {"metadata": {"name": "a"}, "data": {"x": "y"}}, fieldManager="me", fieldValidation="Strict")
    (request,) = asked(world)
    kind, resource = {"group": "", "version": "v1", "kind": "ConfigMap"}, {"group": "", "version": "v1", "resource": "configmaps"}
    assert request.pop("uid")
    user = request.pop("userInfo")
    assert user["username"]
    assert "system:masters" in user["groups"]
    obj = request.pop("object")
    assert set(obj["metadata"]) == {"name", "namespace", "managedFields"}, "neither uid nor creation time are given yet"
    assert (obj["kind"], obj["apiVersion"], obj["data"]) == ("ConfigMap", "v1", {"x": "y"})
    assert request == {
        "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "name": "a",
        "namespace": world.namespace, "operation": "CREATE", "oldObject": None, "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict"},
    }  # fmt: skip


async def test_a_validating_webhook_sees_the_object_as_it_will_be_stored(world: World) -> None:
    async with world.configured("Validating", world.webhook(world.hook.on("/w", allow()))):
        made = await world("POST", world.path(), {"metadata": {"generateName": "g-"}})
    (request,) = asked(world)
    assert request["name"] == made["metadata"]["name"]
    for field in ("name", "uid", "creationTimestamp"):
        assert request["object"]["metadata"][field] == made["metadata"][field]


async def test_a_mutating_webhook_sees_no_generated_name_and_may_choose_one(world: World) -> None:
    choose = patch({"op": "add", "path": "/metadata/name", "value": "chosen"})
    async with world.configured("Mutating", world.webhook(world.hook.on("/w", choose))):
        made = await world("POST", world.path(), {"metadata": {"generateName": "g-"}})
    (request,) = asked(world)
    assert "name" not in request
    assert "name" not in request["object"]["metadata"]
    assert made["metadata"]["name"] == "chosen"


async def test_reviews_of_updates_patches_and_deletions(world: World) -> None:
    await world("POST", world.path(), {"metadata": {"name": "a"}, "data": {"x": "1"}})
    async with world.configured("Validating", world.webhook(world.hook.on("/w", allow()))):
        await world("PUT", world.path(name="a"), {"metadata": {"name": "a"}, "data": {"x": "2"}})
        await world("PATCH", world.path(name="a"), {"data": {"x": "3"}}, MERGE, dryRun="All")
        await world("DELETE", world.path(name="a"), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    put, patched, deleted = asked(world)
    shown = [(one["operation"], (one["object"] or {}).get("data"), one["oldObject"]["data"]) for one in (put, patched, deleted)]
    assert shown == [("UPDATE", {"x": "2"}, {"x": "1"}), ("UPDATE", {"x": "3"}, {"x": "2"}), ("DELETE", None, {"x": "2"})]
    options = {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}
    assert put["options"] == options
    assert (patched["options"], patched["dryRun"]) == ({**options, "dryRun": ["All"]}, True)
    deletion = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    assert (deleted["options"], deleted["name"]) == (deletion, "a")


async def test_a_collection_is_deleted_object_by_object(world: World) -> None:
    for name in ("a", "b"):
        await world("POST", world.path(), {"metadata": {"name": name}})
    async with world.configured("Validating", world.webhook(world.hook.on("/w", allow()))):
        await world("DELETE", world.path())
    requests = asked(world)
    assert {"a", "b"} <= {one["oldObject"]["metadata"]["name"] for one in requests}
    assert not any("name" in one for one in requests), "the request named none"


async def test_an_apply_is_a_creation_or_an_update(world: World) -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    async with world.configured("Mutating", world.webhook(world.hook.on("/w", allow()))):
        for value in ("1", "2"):
            body = {**applied, "data": {"x": value}}
            await world("PATCH", world.path(name="a"), body, "application/apply-patch+yaml", fieldManager="me", force=True)
    created, updated = asked(world)
    shown = [
        (one["operation"], one["options"]["kind"], one["options"]["fieldManager"], one["object"]["data"]) for one in (created, updated)
    ]
    assert shown == [("CREATE", "CreateOptions", "me", {"x": "1"}), ("UPDATE", "UpdateOptions", "me", {"x": "2"})]
    assert (created["oldObject"], updated["oldObject"]["data"]) == (None, {"x": "1"})
    assert set(created["options"]) == {"kind", "apiVersion", "fieldManager"}


async def test_a_status_is_a_subresource_and_a_scale_a_separate_object(world: World) -> None:
    controllers = world.path("replicationcontrollers")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    await world("POST", controllers, {"metadata": {"name": "r"}, "spec": {"replicas": 0, "template": template}})
    hook = world.webhook(world.hook.on("/w", allow()), rules=[rule("replicationcontrollers/*", "UPDATE")])
    async with world.configured("Validating", hook):
        await world("PATCH", f"{controllers}/r", {"metadata": {"labels": {"x": "y"}}}, MERGE)
        await world("PATCH", f"{controllers}/r/status", {"status": {"observedGeneration": 1}}, MERGE)
        await world("PATCH", f"{controllers}/r/scale", {"spec": {"replicas": 0}}, MERGE, dryRun="All")
    main, *rest = asked(world)
    assert main.get("subResource") is None
    status, scale = rest
    assert (status["subResource"], status["kind"]["kind"], status["requestSubResource"]) == ("status", "ReplicationController", "status")
    assert (scale["subResource"], scale["kind"]["kind"], scale["resource"]["resource"]) == ("scale", "Scale", "replicationcontrollers")
    assert (scale["object"]["kind"], scale["oldObject"]["kind"]) == ("Scale", "Scale")
    assert scale["object"]["status"]["selector"] == "a=b"


async def test_bindings_and_evictions_are_separate_objects(world: World) -> None:
    pods = world.path("pods")
    spec = {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "x"}]}
    await world("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    rules = [rule("pods/binding", "CREATE"), rule("pods/eviction", "CREATE")]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    async with world.configured("Validating", world.webhook(world.hook.on("/w", deny(message="stay")), rules=rules)):
        for path, body in (("binding", {"metadata": {"name": "p"}, "target": {"name": "n"}}), ("eviction", eviction)):
            met = await world.refused("POST", f"{pods}/p/{path}", body)
            assert met.status.message.endswith("denied the request: stay")
    shown = [(one["kind"]["group"], one["kind"]["kind"], one["subResource"], one["name"], one["operation"]) for one in asked(world)]
    assert shown == [("", "Binding", "binding", "p", "CREATE"), ("policy", "Eviction", "eviction", "p", "CREATE")]


async def test_reviews_are_asked_about_like_anything_created(world: World) -> None:
    reviews = rule("selfsubjectaccessreviews", "CREATE", group="authorization.k8s.io")
    conditions = [{"name": "own", "expression": f"object.spec.resourceAttributes.namespace == '{world.namespace}'"}]
    hook = world.webhook(world.hook.on("/w", deny(message="no")), rules=[reviews], matchConditions=conditions)
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": world.namespace}}}
    async with world.configured("Validating", hook):
        met = await world.refused("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert met.status.message == 'admission webhook "w.example.com" denied the request: no'


async def test_connections_are_asked_about_by_their_options(world: World) -> None:
    rules = [rule("pods/*", "CONNECT"), rule("services/*", "CONNECT")]
    cases: dict[str, tuple[str, str, JSONObject]] = {
        "pods/p/exec?command=ls&command=-l&stdin=true&container=c": (
            "exec", "PodExecOptions", {"stdin": True, "container": "c", "command": ["ls", "-l"]},
        ),
        "pods/p/attach?stdin=1&stdout=0": ("attach", "PodAttachOptions", {"stdin": True}),
        "pods/p/portforward?ports=80&ports=90,91": ("portforward", "PodPortForwardOptions", {"ports": [80, 90, 91]}),
        "pods/p/proxy": ("proxy", "PodProxyOptions", {}),
        "pods/p:80/proxy/a/b": ("proxy", "PodProxyOptions", {"path": "/a/b"}),
        "services/s/proxy/": ("proxy", "ServiceProxyOptions", {"path": "/"}),
    }  # fmt: skip
    async with world.configured("Validating", world.webhook(world.hook.on("/w", deny(message="no")), rules=rules)):
        for path in cases:
            met = await world.refused("POST", f"/api/v1/namespaces/{world.namespace}/{path}")
            assert met.status.message == 'admission webhook "w.example.com" denied the request: no'
    shown = asked(world)
    assert {(one["operation"], one["options"], one["oldObject"]) for one in shown} == {("CONNECT", None, None)}
    wanted = [(sub, {"kind": kind, "apiVersion": "v1", **options}) for sub, kind, options in cases.values()]
    assert [(one["subResource"], one["object"]) for one in shown] == wanted
    assert [one["name"] for one in shown] == ["p", "p", "p", "p", "p:80", "s"]


async def test_what_a_webhook_makes_of_a_scale_counts(world: World) -> None:
    controllers = world.path("replicationcontrollers")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    await world("POST", controllers, {"metadata": {"name": "r"}, "spec": {"replicas": 0, "template": template}})
    more = world.hook.on("/w", patch({"op": "replace", "path": "/spec/replicas", "value": 7}))
    async with world.configured("Mutating", world.webhook(more, rules=[rule("replicationcontrollers/scale", "UPDATE")])):
        scale = await world("PATCH", f"{controllers}/r/scale", {"spec": {"replicas": 2}}, MERGE, dryRun="All")
    assert scale["spec"]["replicas"] == 7


async def test_a_namespace_is_in_itself(world: World) -> None:
    hook = world.webhook(world.hook.on("/w", allow()), rules=[rule("namespaces", "UPDATE")])
    async with world.configured("Validating", hook):
        await world("PATCH", f"/api/v1/namespaces/{world.namespace}", {"metadata": {"labels": {"x": "y"}}}, MERGE)
    (request,) = asked(world)
    assert (request["name"], request["namespace"]) == (world.namespace, world.namespace)


@pytest.mark.parametrize(
    ("change", "called"),
    [
        pytest.param({"rules": [rule("configmaps", "UPDATE")]}, False, id="not for another operation"),
        pytest.param({"rules": [rule("configmaps", version="v2")]}, False, id="not for another version"),
        pytest.param({"rules": [rule("secrets"), rule("configmaps", "DELETE", "CREATE")]}, True, id="if one rule of several says so"),
        pytest.param({"rules": [rule("*")]}, True, id="for all resources"),
        pytest.param({"rules": [rule("configmaps/*")]}, True, id="a wildcard of subresources is the resource itself too"),
        pytest.param({"rules": [rule("*/status")]}, False, id="not for a subresource's rule"),
        pytest.param({"rules": [rule("configmaps", scope="Namespaced")]}, True, id="for namespaced objects"),
        pytest.param({"rules": [rule("configmaps", scope="Cluster")]}, False, id="not for cluster-scoped rules"),
        pytest.param({"objectSelector": {"matchLabels": {"a": "b"}}}, True, id="for objects with the labels asked for"),
        pytest.param({"objectSelector": {"matchLabels": {"a": "c"}}}, False, id="not for objects without them"),
        pytest.param({"namespaceSelector": {"matchLabels": {"no": "such"}}}, False, id="not in namespaces without the labels asked for"),
        pytest.param({"matchConditions": [{"name": "a", "expression": "object.metadata.name == 'a'"}]}, True, id="if a condition holds"),
        pytest.param({"matchConditions": [{"name": "a", "expression": "object.nosuch == 1"}, {"name": "b", "expression": "false"}]}, False,
                     id="not if a condition is false, whatever the others are"),
        pytest.param({"matchConditions": [{"name": "a", "expression": "object.nosuch == 1"}], "failurePolicy": "Ignore"}, False,
                     id="not if a condition has no value and failures do not count"),
        pytest.param({"matchConditions": [{"name": "a", "expression": "request.name == 'a' && request.operation == 'CREATE' && oldObject "
                      "== null && 'system:masters' in request.userInfo.groups && request.resource.resource == 'configmaps' && "
                      "namespaceObject == null && authorizer.group('').resource('pods').namespace('x').check('get').allowed() && "
                      "authorizer.requestResource.check('create').allowed()"}]}, True, id="a condition asks of request and authorizer"),
    ],
)  # fmt: skip
async def test_a_webhook_is_asked(world: World, change: JSONObject, called: bool) -> None:
    async with world.configured("Validating", world.webhook(world.hook.on("/w", allow()), **change)):
        await world("POST", world.path(), {"metadata": {"name": "a", "labels": {"a": "b"}}})
    assert bool(asked(world)) == called


async def test_a_condition_without_a_value_refuses_the_write(world: World) -> None:
    conditions = [{"name": one, "expression": f"object.{one} == 1"} for one in ("one", "two")]
    async with world.configured("Validating", world.webhook(world.hook.on("/w", allow()), matchConditions=conditions)):
        met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    assert (met.status.code, met.status.message) == (
        403,
        (
            "configmaps \"a\" is forbidden: [expression 'object.one == 1' resulted in error: no such key: one, "
            "expression 'object.two == 1' resulted in error: no such key: two]"
        ),
    )


async def test_an_update_that_takes_a_label_away_still_concerns_webhooks_that_select_by_it(world: World) -> None:
    await world("POST", world.path(), {"metadata": {"name": "a", "labels": {"a": "b"}}})
    hook = world.webhook(world.hook.on("/w", allow()), objectSelector={"matchLabels": {"a": "b"}})
    async with world.configured("Validating", hook):
        await world("PATCH", world.path(name="a"), {"metadata": {"labels": None}}, MERGE)
    assert len(asked(world)) == 1


@pytest.mark.parametrize(("policy", "called"), [("Equivalent", True), ("Exact", False)])
async def test_a_rule_with_another_version_than_the_written_one(world: World, policy: str, called: bool) -> None:
    scalers = [rule("horizontalpodautoscalers", "CREATE", group="autoscaling", version="v2")]
    hook = world.webhook(world.hook.on("/w", allow()), rules=scalers, matchPolicy=policy)
    path = f"/apis/autoscaling/v1/namespaces/{world.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}
    async with world.configured("Validating", hook):
        await world("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    requests = asked(world)
    assert len(requests) == called
    for request in requests:
        assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v2", "v1")
        assert request["object"]["apiVersion"] == "autoscaling/v2"
        (metric,) = request["object"]["spec"]["metrics"]
        assert metric["resource"]["target"]["averageUtilization"] == 50


async def test_a_patch_of_another_version_comes_back_in_the_requests_own(world: World) -> None:
    scalers = [rule("horizontalpodautoscalers", "CREATE", group="autoscaling", version="v2")]
    more = patch({"op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization", "value": 70})
    path = f"/apis/autoscaling/v1/namespaces/{world.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}
    async with world.configured("Mutating", world.webhook(world.hook.on("/w", more), rules=scalers)):
        made = await world("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    assert (made["apiVersion"], made["spec"]["targetCPUUtilizationPercentage"]) == ("autoscaling/v1", 70)


async def test_configurations_themselves_are_never_asked_about(world: World) -> None:
    hook = world.webhook(world.hook.on("/w", deny()), rules=[EVERYTHING], namespaceSelector={"matchLabels": {"no": "such"}})
    # Cluster-scoped resources have no namespace to be selected by, so this would refuse even its own removal.
    conditions = [{"name": "own", "expression": "request.resource.group == 'admissionregistration.k8s.io'"}]
    async with world.configured("Validating", {**hook, "matchConditions": conditions}):
        pass
    assert not asked(world)


def stamp(key: str) -> Any:
    """Adds an annotation with what the others have added so far."""

    def script(review: JSONObject) -> JSONObject:
        found = review["request"]["object"]["metadata"].get("annotations") or {}
        value = {**found, key: "".join(sorted(found))}
        return patch({"op": "add", "path": "/metadata/annotations", "value": value})(review)  # type: ignore[return-value]  # no Raw

    return script


async def test_mutating_webhooks_are_asked_in_the_order_of_their_configurations_names(world: World) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for name in ("c", "a", "b"):
            hook = world.webhook(world.hook.on(f"/{name}", stamp(name)), f"{name}.example.com")
            await stack.enter_async_context(world.configured("Mutating", hook, name=f"{name}-{world.namespace}"))
        made = await world("POST", world.path(), {"metadata": {"name": "a"}})
    assert made["metadata"]["annotations"] == {"a": "", "b": "a", "c": "ab"}


@pytest.mark.parametrize(("policy", "times"), [("Never", 1), ("IfNeeded", 2)])
async def test_reinvocation(world: World, policy: str, times: int) -> None:
    first = world.webhook(world.hook.on("/first", allow()), "first.example.com", reinvocationPolicy=policy)
    second = world.webhook(world.hook.on("/second", stamp("x")), "second.example.com")
    async with world.configured("Mutating", first, second):
        await world("POST", world.path(), {"metadata": {"name": "a"}})
    shown = [one["object"]["metadata"].get("annotations") for one in asked(world, "/first")]
    assert shown == [None, {"x": ""}][:times]
    assert len(asked(world, "/second")) == 1


async def test_no_webhook_is_called_again_if_nothing_changed_after_it(world: World) -> None:
    first = world.webhook(world.hook.on("/first", allow()), "first.example.com", reinvocationPolicy="IfNeeded")
    second = world.webhook(world.hook.on("/second", allow()), "second.example.com", reinvocationPolicy="IfNeeded")
    async with world.configured("Mutating", first, second):
        await world("POST", world.path(), {"metadata": {"name": "a"}})
    assert (len(asked(world, "/first")), len(asked(world, "/second"))) == (1, 1)


async def test_what_a_webhook_changes_is_defaulted_and_validated(world: World) -> None:
    pods, container = world.path("pods"), {"name": "more", "image": "y"}
    hook = world.webhook(
        world.hook.on("/w", patch({"op": "add", "path": "/spec/containers/-", "value": container})), rules=[rule("pods", "CREATE")]
    )
    pod = {"spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "x"}]}}
    async with world.configured("Mutating", hook):
        made = await world("POST", pods, {"metadata": {"name": "p"}, **pod})
        assert made["spec"]["containers"][1]["imagePullPolicy"] == "Always"
        world.hook.on("/w", patch({"op": "add", "path": "/spec/containers/-", "value": {**container, "name": "c"}}))
        met = await world.refused("POST", pods, {"metadata": {"name": "q"}, **pod})
    assert (met.status.code, met.causes[0].field) == (422, "spec.containers[1].name")


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        pytest.param({"op": "replace", "path": "/metadata/name", "value": "other"}, 422, id="the name of an existing object"),
        pytest.param({"op": "replace", "path": "/metadata/namespace", "value": "other"}, 400, id="the namespace"),
        pytest.param({"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}, 409, id="the version"),
    ],
)
async def test_a_webhook_may_not_change(world: World, operation: JSONObject, code: int) -> None:
    await world("POST", world.path(), {"metadata": {"name": "a"}})
    async with world.configured("Mutating", world.webhook(world.hook.on("/w", patch(operation)), rules=[rule("configmaps", "UPDATE")])):
        met = await world.refused("PUT", world.path(name="a"), {"metadata": {"name": "a"}, "data": {"x": "y"}})
    assert met.status.code == code


async def test_a_webhook_may_change_the_name_of_a_new_object(world: World) -> None:
    hook = world.webhook(world.hook.on("/w", patch({"op": "replace", "path": "/metadata/name", "value": "other"})))
    async with world.configured("Mutating", hook):
        made = await world("POST", world.path(), {"metadata": {"name": "a"}})
    assert made["metadata"]["name"] == "other"
    assert (await world("GET", world.path(name="other")))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_deletion_cannot_be_patched(world: World) -> None:
    await world("POST", world.path(), {"metadata": {"name": "a"}})
    hook = world.webhook(world.hook.on("/w", patch({"op": "add", "path": "/data", "value": {}})), rules=[rule("configmaps", "DELETE")])
    async with world.configured("Mutating", hook):
        met = await world.refused("DELETE", world.path(name="a"))
    assert met.status.message == (
        'Internal error occurred: admission webhook "w.example.com" attempted to modify the object, '
        "which is not supported for this operation"
    )


async def test_a_denied_deletion_deletes_nothing(world: World) -> None:
    await world("POST", world.path(), {"metadata": {"name": "a"}})
    async with world.configured("Validating", world.webhook(world.hook.on("/w", deny(message="keep it")), rules=[rule("*", "DELETE")])):
        met = await world.refused("DELETE", world.path(name="a"))
    assert met.status.message == 'admission webhook "w.example.com" denied the request: keep it'
    assert await world("GET", world.path(name="a"))


async def test_of_several_refusals_the_first_in_order_counts(world: World) -> None:
    first = world.webhook(world.hook.on("/first", lambda review: Raw(json.dumps(deny(message="first")(review)).encode())), "a.example.com")
    async with world.configured("Validating", first):
        met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    assert met.status.message == 'admission webhook "a.example.com" denied the request: first'


async def test_a_webhook_that_takes_too_long_has_failed(world: World) -> None:
    hook = world.webhook(world.hook.on("/w", lambda review: Raw(json.dumps(respond(review, allowed=True)).encode(), delay=3.0)))
    async with world.configured("Validating", {**hook, "timeoutSeconds": 1}):
        met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    url = f"https://127.0.0.1:{world.hook.port}/w?timeout=1s"
    assert met.status.message.endswith(f'failed to call webhook: Post "{url}": context deadline exceeded')


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1:1/x", 'Post "https://127.0.0.1:1/x?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'),
        ("https://127.0.0.1:1", 'Post "https://127.0.0.1:1/?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'),
        ("https://127.0.0.1:1/a//b/../c/", 'Post "https://127.0.0.1:1/a/c?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'),
    ],
)
async def test_an_address_without_a_server(world: World, url: str, why: str) -> None:
    async with world.configured("Validating", world.webhook({"url": url})):
        met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    assert met.status.message == f'Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: {why}'


async def test_a_certificate_of_another_authority_is_not_trusted(world: World) -> None:
    async with scripted_hook() as other:
        config = {**world.hook.on("/w", allow()), "caBundle": other.client_config("")["caBundle"]}
        async with world.configured("Validating", world.webhook(config)):
            met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    assert "tls: failed to verify certificate: x509: certificate signed by unknown authority" in met.status.message
    assert not asked(world)


async def test_a_bundle_without_a_certificate_makes_no_client(world: World) -> None:
    config = {**world.hook.on("/w", allow()), "caBundle": "enp6"}
    async with world.configured("Validating", world.webhook(config)):
        met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    why = "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    assert met.status.message == f'Internal error occurred: failed calling webhook "w.example.com": {why}'


@pytest.mark.parametrize(
    ("service", "why"),
    [
        ({"name": "nosuch", "path": "/p"}, 'service "nosuch" not found'),
        ({"name": "svc", "port": 444}, 'no service port 444 found for service "svc"'),
        ({"name": "headless"}, 'cannot route to service with ClusterIP "None"'),
    ],
)
async def test_a_service_that_leads_nowhere(world: World, service: JSONObject, why: str) -> None:
    for name, rest in (("svc", {}), ("headless", {"clusterIP": "None"})):
        await world("POST", world.path("services"), {"metadata": {"name": name}, "spec": {"ports": [{"port": 443}], **rest}})
    config = {"service": {"namespace": world.namespace, **service}}
    async with world.configured("Validating", world.webhook(config)):
        met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    host = f"{service['name']}.{world.namespace}.svc:{service.get('port', 443)}"
    assert met.status.message.endswith(f'failed to call webhook: Post "https://{host}{service.get("path", "/")}?timeout=5s": {why}')


async def test_writes_at_the_same_time_are_asked_about_at_the_same_time(world: World) -> None:
    async with world.configured("Mutating", world.webhook(world.hook.on("/w", stamp("x")))):
        made = await asyncio.gather(*(world("POST", world.path(), {"metadata": {"name": f"n{one}"}}) for one in range(20)))
    assert [one["metadata"]["annotations"] for one in made] == [{"x": ""}] * 20


async def test_a_refusal_is_an_error_of_its_reason(world: World) -> None:
    async with world.configured("Validating", world.webhook(world.hook.on("/w", deny(reason="Forbidden", code=403)))):
        met = await world.refused("POST", world.path(), {"metadata": {"name": "a"}})
    assert type(met).__name__ == "Forbidden"
    assert isinstance(met, ApiError)
