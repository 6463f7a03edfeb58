"""Keys of custom objects are sorted at every level, as in Go maps; built-in kinds keep the order of their fields."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.apiserver.conftest import MERGE, PARTIAL, PARTIAL_LIST, TABLE, Api, running_api
from tests.apiserver.crd.test_controller import definition

pytestmark = pytest.mark.embedded

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/kl.example.com/v1/namespaces/default/objs"

FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
#: As the Go type ObjectMeta declares its fields.
DECLARED = ["name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "labels", "annotations", "managedFields"]


def unsorted(tree: Any, at: str = "") -> list[str]:
    """Paths of objects whose keys are not in order."""
    found = []
    if isinstance(tree, dict):
        if list(tree) != sorted(tree):
            found.append(f"{at}: {list(tree)}")
        for key, value in tree.items():
            found += unsorted(value, f"{at}.{key}")
    elif isinstance(tree, list):
        for value in tree:
            found += unsorted(value, f"{at}[]")
    return found


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """With one object, whose keys came in another order."""
    async with running_api() as found:
        crd = definition()
        del crd["status"]
        crd["metadata"] = {"name": crd["metadata"]["name"]}
        (version,) = crd["spec"]["versions"]
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": FREE}}}
        version["additionalPrinterColumns"] = [
            {"name": name, "type": "string", "jsonPath": f".spec.{name}"} for name in ("apple", "html", "null", "whole", "list")
        ]
        assert (await found("POST", DEFINITIONS, crd)).status == 201
        async with asyncio.timeout(10):
            while (await found("GET", OBJECTS)).status != 200:
                await asyncio.sleep(0)
        yield found


def body(name: str) -> dict[str, Any]:
    spec = {"zebra": 1, "apple": {"z": [{"y": 1, "b": 2}], "a": 1}, "html": {"<": "&"}, "null": None, "whole": 1000000.0, "list": [2.0]}
    maps = {"annotations": {"z": "1", "a": "2"}, "labels": {"z": "1", "a": "2"}}
    return {"spec": spec, "metadata": {**maps, "name": name}, "kind": "Obj", "apiVersion": "kl.example.com/v1", "extra": {}}


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        pytest.param("POST", OBJECTS, body("b"), id="a creation"),
        pytest.param("POST", f"{OBJECTS}?dryRun=All", body("b"), id="a creation that is only tried"),
        pytest.param("GET", f"{OBJECTS}/a", None, id="a read"),
        pytest.param("PATCH", f"{OBJECTS}/a", {"spec": {"b": 1, "a": 2}}, id="a patch"),
        pytest.param("GET", OBJECTS, None, id="a list"),
        pytest.param("DELETE", OBJECTS, None, id="a deletion of all"),
    ],
)
async def test_keys_are_in_order_in_the_answer_to(api: Api, method: str, path: str, sent: dict[str, Any] | None) -> None:
    assert (await api("POST", OBJECTS, body("a"))).status == 201
    answer = await api(method, path, sent, content=MERGE if method == "PATCH" else "")
    assert answer.status in (200, 201)
    assert unsorted(json.loads(answer.text)) == []


async def test_keys_are_in_order_in_a_watch(api: Api) -> None:
    assert (await api("POST", OBJECTS, body("a"))).status == 201
    query = "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    answer = await api("GET", f"{OBJECTS}?{query}")
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert [event["type"] for event in events][:2] == ["ADDED", "BOOKMARK"]
    assert [found for event in events for found in unsorted(event["object"])] == []


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        pytest.param(f"{OBJECTS}/a", TABLE, id="one object"),
        pytest.param(OBJECTS, TABLE, id="a list"),
        pytest.param(f"{OBJECTS}?watch=1&timeoutSeconds=1&resourceVersion=0", TABLE, id="a watch"),
    ],
)
@pytest.mark.parametrize("include", ["Metadata", "Object"])
async def test_the_table_is_the_real_servers_of(api: Api, path: str, accept: str, include: str) -> None:
    assert (await api("POST", OBJECTS, body("a"))).status == 201
    answer = await api("GET", f"{path}{'&' if '?' in path else '?'}includeObject={include}", accept=accept)
    table = json.loads(answer.text.splitlines()[0])
    (row,) = table.get("object", table)["rows"]
    apple = '{"a":1,"z":[{"b":2,"y":1}]}'
    assert row["cells"] == ["a", apple, '{"\\u003c":"\\u0026"}', "<no value>", "1000000", "[2]"]
    if include == "Object":
        assert unsorted(row["object"]) == []
    else:
        assert list(row["object"]["metadata"]) == DECLARED
        assert unsorted([row["object"]["metadata"][name] for name in ("labels", "annotations")]) == []


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        pytest.param("GET", f"{OBJECTS}/a", PARTIAL, id="one object"),
        pytest.param("GET", OBJECTS, PARTIAL_LIST, id="a list"),
        pytest.param("GET", f"{OBJECTS}?watch=1&timeoutSeconds=1&resourceVersion=0", PARTIAL, id="a watch"),
    ],
)
async def test_metadata_alone_is_in_the_order_of_its_go_type_in(api: Api, method: str, path: str, accept: str) -> None:
    assert (await api("POST", OBJECTS, body("a"))).status == 201
    answer = json.loads((await api(method, path, accept=accept)).text.splitlines()[0])
    (found,) = answer["items"] if "items" in answer else [answer.get("object", answer)]
    metadata = found["metadata"]
    assert list(metadata) == DECLARED
    assert unsorted([metadata["labels"], metadata["annotations"]]) == []
    assert list(metadata["managedFields"][0]) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]


async def test_a_built_in_kind_keeps_the_order_of_its_fields(api: Api) -> None:
    answer = await api("GET", "/api/v1/namespaces/default")
    assert list(json.loads(answer.text))[:3] == ["kind", "apiVersion", "metadata"]
