"""What a strategic merge patch says that cannot be merged, or whose result does not fit its Go type, and what fits it after all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError

pytestmark = pytest.mark.server

STRATEGIC = "application/strategic-merge-patch+json"
CONFIG_MAP = {"metadata": {"name": "one"}, "data": {"z": "1"}}
DEPLOYMENT = {
    "metadata": {"name": "one"},
    "spec": {
        "selector": {"matchLabels": {"app": "one"}},
        "template": {"metadata": {"labels": {"app": "one"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx"}]}},
    },
}
#: As the server prints its stored object.
CONTAINER = (
    "map[image:nginx imagePullPolicy:Always name:nginx resources:map[] "
    "terminationMessagePath:/dev/termination-log terminationMessagePolicy:File]"
)


async def _patched(
    client: Client, namespace: str, path: str, obj: dict[str, Any], patch: str, validation: str = "Ignore"
) -> dict[str, Any]:
    collection = f"{path}/namespaces/{namespace}/{'configmaps' if obj is CONFIG_MAP else 'deployments'}"
    await client.transport.request("POST", collection, body=json.dumps(obj).encode())
    query = {"fieldValidation": validation}
    answer = await client.transport.request("PATCH", f"{collection}/one", query=query, body=patch.encode(), content_type=STRATEGIC)
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def _refusal(
    client: Client, namespace: str, path: str, obj: dict[str, Any], patch: str, validation: str = "Ignore"
) -> tuple[int, str]:
    with pytest.raises(ApiError) as refused:
        await _patched(client, namespace, path, obj, patch, validation)
    return refused.value.status.code, refused.value.status.message


UNFIT_CONFIG_MAPS = [
    pytest.param('{"data": {"n": 5}}', "data:map[n:5]", "cannot convert int64 to string", id="a number for a text of a map"),
    pytest.param('{"data": 5}', "data:5", "cannot restore map from int64", id="a number for a map"),
    pytest.param('{"data": []}', "data:[]", "cannot restore map from slice", id="a list for a map"),
    pytest.param('{"immutable": "x"}', "immutable:x", "unrecognized type: bool", id="a text for a bool"),
    pytest.param(
        '{"metadata": {"labels": {"a": 1}}}', "metadata:map[labels:map[a:1]]", "cannot convert int64 to string", id="a number for a label"
    ),
    pytest.param('{"metadata": {"labels": []}}', "metadata:map[labels:[]]", "cannot restore map from slice", id="a list for labels"),
    pytest.param('{"metadata": 5}', "metadata:5", "cannot restore struct from: int64", id="a number for metadata"),
    pytest.param(
        '{"binaryData": {"a": "%%"}}',
        "binaryData:map[a:%%]",
        "error decoding from json: illegal base64 data at input byte 0",
        id="no base64",
    ),
    pytest.param(
        '{"metadata": {"finalizers": "x"}}', "metadata:map[finalizers:x]", "cannot restore slice from string", id="a text for a list"
    ),
    pytest.param(
        '{"metadata": {"creationTimestamp": 5}}',
        "metadata:map[creationTimestamp:5]",
        "json: cannot unmarshal number into Go value of type string",
        id="a number for a time",
    ),
    pytest.param('{"kind": 5}', "kind:5", "cannot convert int64 to string", id="a number for the kind"),
    pytest.param('{"metadata": {"generation": "1"}}', "metadata:map[generation:1]", "unrecognized type: int64", id="a text for an integer"),
    pytest.param(
        '{"metadata": {"generation": 1.5}}',
        "metadata:map[generation:1.5]",
        "cannot convert float64 to int64",
        id="a fraction for an integer of 64 bits",
    ),
    pytest.param('{"kind": true}', "kind:true", "unrecognized type: string", id="a bool for the kind"),
    pytest.param(
        '{"metadata": {"finalizers": [5]}}',
        "metadata:map[finalizers:[5]]",
        "cannot convert int64 to string",
        id="a number in a list of texts",
    ),
    pytest.param(
        '{"metadata": {"ownerReferences": ["x"]}}',
        "metadata:map[ownerReferences:[x]]",
        "cannot restore struct from: string",
        id="a text in a list of objects",
    ),
    pytest.param(
        '{"metadata": {"creationTimestamp": "x"}}',
        "metadata:map[creationTimestamp:x]",
        'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        id="a text that is no time",
    ),
]


@pytest.mark.parametrize(("patch", "shown", "why"), UNFIT_CONFIG_MAPS)
async def test_a_config_map_no_longer_fits(client: Client, namespace: str, patch: str, shown: str, why: str) -> None:
    expected = f' "" is invalid: patch: Invalid value: "map[{shown}]": {why}'
    assert await _refusal(client, namespace, "/api/v1", CONFIG_MAP, patch) == (422, expected)


UNFIT_DEPLOYMENTS = [
    pytest.param('{"replicas": "x"}', "replicas:x", "unrecognized type: int32", id="a text for an integer of 32 bits"),
    pytest.param('{"replicas": 1.5}', "replicas:1.5", "cannot convert float64 to int32", id="a fraction"),
    pytest.param(
        '{"template": {"spec": {"containers": 5}}}',
        "template:map[spec:map[containers:5]]",
        "cannot restore slice from int64",
        id="a number for a list",
    ),
    pytest.param('{"paused": "true"}', "paused:true", "unrecognized type: bool", id="a text for a bool"),
    pytest.param(
        '{"strategy": {"rollingUpdate": {"maxSurge": true}}}',
        "strategy:map[rollingUpdate:map[maxSurge:true]]",
        "json: cannot unmarshal bool into Go value of type int32",
        id="a bool for a number or percentage",
    ),
    pytest.param('{"selector": "x"}', "selector:x", "cannot restore struct from: string", id="a text for an object"),
    pytest.param(
        '{"replicas": "x", "template": {"spec": {"$setElementOrder/containers": [{"name": "nginx"}], "containers": [{"name": "nginx"}]}}}',
        "replicas:x template:map[spec:map[]]",
        "unrecognized type: int32",
        id="a list's order and the list are taken out",
    ),
    pytest.param(
        '{"replicas": "x", "template": {"spec": {"$retainKeys": ["containers", "replicas"], "containers": [{"name": "nginx"}]}}}',
        "replicas:x template:map[spec:map[containers:[map[name:nginx]]]]",
        "unrecognized type: int32",
        id="what may stay is taken out",
    ),
    pytest.param(
        '{"replicas": "x", "template": {"spec": {"containers": [{"name": "nginx", "$patch": "delete"}]}}}',
        "replicas:x template:map[spec:map[containers:[map[$patch:delete name:nginx]]]]",
        "unrecognized type: int32",
        id="an element's directive stays",
    ),
    pytest.param(
        '{"replicas": "x", "strategy": {"$patch": "replace", "type": "Recreate"}}',
        "replicas:x strategy:map[type:Recreate]",
        "unrecognized type: int32",
        id="a directive of an object is taken out",
    ),
    pytest.param(
        '{"replicas": "x", "paused": null}',
        "paused:<nil> replicas:x",
        "unrecognized type: int32",
        id="a null stays where it clears a field",
    ),
    pytest.param(
        '{"replicas": "x", "template": {"spec": {"securityContext": {"runAsUser": null}, "volumes": [{"name": "a", "emptyDir": null}]}}}',
        "replicas:x template:map[spec:map[securityContext:map[runAsUser:<nil>] volumes:[map[name:a]]]]",
        "unrecognized type: int32",
        id="nulls of new values are taken out",
    ),
    pytest.param(
        '{"replicas": "x", "strategy": {"$retainKeys": ["type"], "type": "Recreate"}}',
        "replicas:x strategy:map[type:Recreate]",
        "unrecognized type: int32",
        id="what may stay of an object that is replaced is taken out",
    ),
    pytest.param('{"replicas": true}', "replicas:true", "unrecognized type: int32", id="a bool for an integer"),
    pytest.param(
        '{"strategy": {"rollingUpdate": {"maxSurge": 1.5}}}',
        "strategy:map[rollingUpdate:map[maxSurge:1.5]]",
        "json: cannot unmarshal number 1.5 into Go value of type int32",
        id="a fraction for a number or percentage",
    ),
    pytest.param(
        '{"strategy": {"rollingUpdate": {"maxSurge": 99999999999}}}',
        "strategy:map[rollingUpdate:map[maxSurge:99999999999]]",
        "json: cannot unmarshal number 99999999999 into Go value of type int32",
        id="more than 32 bits for a number or percentage",
    ),
    pytest.param(
        '{"template": {"spec": {"tolerations": [5]}}}',
        "template:map[spec:map[tolerations:[5]]]",
        "cannot restore struct from: int64",
        id="a number among objects",
    ),
    pytest.param(
        '{"template": {"spec": {"containers": {"a": 1}}}}',
        "template:map[spec:map[containers:map[a:1]]]",
        "cannot restore slice from map",
        id="an object for a list",
    ),
]


@pytest.mark.parametrize(("spec", "shown", "why"), UNFIT_DEPLOYMENTS)
async def test_a_deployment_no_longer_fits(client: Client, namespace: str, spec: str, shown: str, why: str) -> None:
    expected = f' "" is invalid: patch: Invalid value: "map[spec:map[{shown}]]": {why}'
    assert await _refusal(client, namespace, "/apis/apps/v1", DEPLOYMENT, f'{{"spec": {spec}}}') == (422, expected)


UNFIT_CONTAINERS = [
    pytest.param(
        '"resources": {"limits": {"cpu": "two"}}',
        "name:nginx resources:map[limits:map[cpu:two]]",
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        id="no quantity",
    ),
    pytest.param('"image": 5', "image:5 name:nginx", "cannot convert int64 to string", id="a number for a text"),
    pytest.param(
        '"imagePullPolicy": 5',
        "imagePullPolicy:5 name:nginx",
        "cannot convert int64 to v1.PullPolicy",
        id="a number for a text with a named type",
    ),
    pytest.param('"imagePullPolicy": true', "imagePullPolicy:true name:nginx", "unrecognized type: string", id="a bool for a text"),
    pytest.param(
        '"resources": {"limits": {"cpu": true}}',
        "name:nginx resources:map[limits:map[cpu:true]]",
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        id="a bool for a quantity",
    ),
    pytest.param(
        '"resources": {"limits": {"cpu": []}}',
        "name:nginx resources:map[limits:map[cpu:[]]]",
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        id="a list for a quantity",
    ),
]


@pytest.mark.parametrize(("member", "shown", "why"), UNFIT_CONTAINERS)
async def test_a_container_no_longer_fits(client: Client, namespace: str, member: str, shown: str, why: str) -> None:
    patch = f'{{"spec": {{"template": {{"spec": {{"containers": [{{"name": "nginx", {member}}}]}}}}}}}}'
    expected = f' "" is invalid: patch: Invalid value: "map[spec:map[template:map[spec:map[containers:[map[{shown}]]]]]]": {why}'
    assert await _refusal(client, namespace, "/apis/apps/v1", DEPLOYMENT, patch) == (422, expected)


UNMERGEABLE = [
    pytest.param(
        '{"spec": {"template": {"spec": {"containers": [5]}}}}',
        500,
        f"list element types are not identical: [[{CONTAINER}] [5]]",
        id="a number among objects to be merged",
    ),
    pytest.param(
        '{"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}}',
        500,
        "map: map[image:x] does not contain declared merge key: name",
        id="an element without its merge key",
    ),
    pytest.param(
        '{"spec": {"template": {"spec": {"containers": [[1]]}}}}',
        500,
        f"list element types are not identical: [[{CONTAINER}] [[1]]]",
        id="a list among objects to be merged",
    ),
    pytest.param('{"$patch": "frob"}', 500, "unknown patch type: frob in map: map[$patch:frob]", id="an unknown directive"),
    pytest.param('{"spec": {"$patch": 5}}', 500, "unknown patch type: %!s(int64=5) in map: map[$patch:5]", id="a number for a directive"),
    pytest.param(
        '{"spec": {"template": {"spec": {"$setElementOrder/containers": 5}}}}',
        500,
        "expected a []interface {}, but received a int64",
        id="a number for an order",
    ),
    pytest.param(
        '{"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "c"}]}}}}',
        500,
        "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        id="an order that leaves out an element",
    ),
    pytest.param('{"spec": {"$retainKeys": 5}}', 400, "invalid patch format of retainKeys", id="a number for what may stay"),
    pytest.param(
        '{"spec": {"$retainKeys": ["a"], "replicas": 3}}',
        400,
        "invalid patch format of retainKeys",
        id="a field that is set but may not stay",
    ),
    pytest.param(
        '{"metadata": {"$deleteFromPrimitiveList": ["a"]}}',
        400,
        "invalid patch format of primitive list",
        id="a deletion that names no field",
    ),
    pytest.param(
        '{"spec": {"template": {"spec": {"containers": [{"name": "nginx", "$patch": "merge"}]}}}}',
        500,
        "merging lists cannot yet be specified in the patch",
        id="a directive that lists do not have",
    ),
    pytest.param(
        '{"spec": {"template": {"spec": {"containers": [{"$patch": "delete"}]}}}}',
        500,
        "map: map[$patch:delete] does not contain declared merge key: name",
        id="a deletion without its merge key",
    ),
    pytest.param(
        '{"spec": {"template": {"spec": {"containers": [null]}}}}',
        500,
        f"list element types are not identical: [[{CONTAINER}] [<nil>]]",
        id="a null among objects to be merged",
    ),
]


@pytest.mark.parametrize(("patch", "code", "message"), UNMERGEABLE)
async def test_cannot_be_merged(client: Client, namespace: str, patch: str, code: int, message: str) -> None:
    assert await _refusal(client, namespace, "/apis/apps/v1", DEPLOYMENT, patch) == (code, message)


@pytest.mark.parametrize(
    ("patch", "replicas"),
    [
        pytest.param('{"spec": {"replicas": 99999999999}}', 1215752191, id="an integer is cut off to the bits of its field"),
        pytest.param('{"spec": {"replicas": 2.0}}', 2, id="a fraction of zero is an integer"),
        pytest.param('{"spec": {"replicas": 3e0}}', 3, id="an exponent makes a whole number, too"),
        pytest.param('{"spec": {"replicas": 1e30}}', 0, id="a float that no integer holds has no low bits"),
        pytest.param('{"kind": "Foo", "apiVersion": "a/b/c"}', 1, id="another kind is passed over, for the object is there already"),
    ],
)
async def test_fits(client: Client, namespace: str, patch: str, replicas: int) -> None:
    found = await _patched(client, namespace, "/apis/apps/v1", DEPLOYMENT, patch)
    assert (found["kind"], found["spec"]["replicas"]) == ("Deployment", replicas)


async def test_unknown_fields_are_reported_by_name(client: Client, namespace: str) -> None:
    patch = '{"spec": {"zzz": 1, "aaa": 2}, "unknown": 1, "metadata": {"odd": 1}}'
    code, message = await _refusal(client, namespace, "/apis/apps/v1", DEPLOYMENT, patch, "Strict")
    assert code == 422
    names = ("metadata.odd", "spec.aaa", "spec.zzz", "unknown")
    assert message.endswith(f": strict decoding error: {', '.join(f'unknown field {json.dumps(name)}' for name in names)}")
