"""Field management of custom resources goes by their schemas, in each version. On both servers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.apiserver.ownership.conftest import Managers

pytestmark = pytest.mark.server

GROUP = f"owned{os.getpid()}.example.com"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = f"/apis/{GROUP}/v1/namespaces/{{ns}}/things"

SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "mode": {"type": "string", "default": "fast"},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "name": {"type": "string"},
                },
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "args": {"type": "array", "items": {"type": "string"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "either": {"x-kubernetes-int-or-string": True},
    },
}


def version(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": SPEC, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        **more,
    }


def thing(api: str = "v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{api}", "kind": "Thing", "metadata": {"name": "t"}, **({"spec": spec} if spec else {})}


@pytest.fixture
async def things(managers: Managers) -> AsyncIterator[Managers]:
    """With the definition served in v1 and v2."""
    name = f"things.{GROUP}"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1"), version("v2")],
        },
    }
    assert (await managers("POST", CRDS, definition)).status == 201
    async with asyncio.timeout(20):
        for api in ("v1", "v2"):
            while (await managers("GET", THINGS.replace("/v1/", f"/{api}/"))).status != 200:
                await asyncio.sleep(0.02)
    yield managers
    await managers("DELETE", f"{THINGS}/t")
    await managers("DELETE", f"{CRDS}/{name}")
    async with asyncio.timeout(20):
        while (await managers("GET", f"{CRDS}/{name}")).status != 404:
            await asyncio.sleep(0.02)


async def test_owners_go_by_the_schema_and_by_the_version(things: Managers) -> None:
    spec: dict[str, Any] = {
        "replicas": 1,
        "ports": [{"port": 80}, {"port": 80, "protocol": "UDP", "name": "u"}],
        "tags": ["a", "b"],
        "args": ["x"],
        "whole": {"a": "b"},
        "loose": {"a": {"b": [1, {"c": "d"}]}},
        "either": "50%",
    }
    made = await things.apply("one", f"{THINGS}/t", thing(**spec))
    assert made.status == 201
    assert made.body["spec"]["mode"] == "fast"
    assert made.owners == {
        "Apply one": [
            ".spec.args",
            ".spec.either",
            ".spec.replicas",
            ".spec.whole",
            ".spec.loose.a",
            ".spec.loose.a.b",
            '.spec.ports[port=80,protocol="TCP"]',
            '.spec.ports[port=80,protocol="UDP"]',
            '.spec.ports[port=80,protocol="TCP"].port',
            '.spec.ports[port=80,protocol="UDP"].name',
            '.spec.ports[port=80,protocol="UDP"].port',
            '.spec.ports[port=80,protocol="UDP"].protocol',
            '.spec.tags[="a"]',
            '.spec.tags[="b"]',
        ]
    }

    refused = await things.apply("two", f"{THINGS}/t", thing(args=["y"], tags=["c"], whole={"c": "d"}, either=5))
    assert refused.causes == [
        (".spec.args", 'conflict with "one"'),
        (".spec.either", 'conflict with "one"'),
        (".spec.whole", 'conflict with "one"'),
    ]
    joined = await things.apply("two", f"{THINGS}/t", thing(tags=["c"], ports=[{"port": 81}]))
    assert joined.body["spec"]["tags"] == ["a", "b", "c"]
    left = await things.apply("one", f"{THINGS}/t", thing(replicas=1))
    assert left.body["spec"] == {
        "mode": "fast",
        "ports": [{"port": 81, "protocol": "TCP"}],
        "replicas": 1,
        "tags": ["c"],
    }

    # A field that the schema does not have.
    unknown = await things.apply("one", f"{THINGS}/t", thing(junk=1))
    text = f"failed to create typed patch object (/t; {GROUP}/v1, Kind=Thing): .spec.junk: field not declared in schema"
    assert (unknown.status, unknown.message) == (500, text)


async def test_an_apply_in_another_version_is_by_the_same_manager(things: Managers) -> None:
    await things.apply("one", f"{THINGS}/t", thing(replicas=1, args=["x"]))
    second = await things.apply("one", f"{THINGS.replace('/v1/', '/v2/')}/t", thing("v2", args=["x"]))
    assert (second.body["spec"], second.owners) == ({"args": ["x"], "mode": "fast"}, {"Apply one": [".spec.args"]})
    assert [entry["apiVersion"] for entry in second.entries] == [f"{GROUP}/v2"]
    wrong = await things.apply("one", f"{THINGS}/t", thing("v2", args=["x"]))
    assert wrong.message == f"invalid object type: {GROUP}/v2, Kind=Thing"


async def test_status_and_scale_have_separate_owners(things: Managers) -> None:
    await things("POST", f"{THINGS}?fieldManager=maker", {**thing(replicas=1), "status": {"x": "y"}})
    written = await things.merge("controller", f"{THINGS}/t/status", {"metadata": {"labels": {"a": "b"}}, "status": {"x": "y"}})
    assert written.owners == {
        "Update controller status": [".status", ".status.x"],
        "Update maker": [".spec", ".spec.mode", ".spec.replicas"],
    }
    # A fault of Kubernetes 1.36, which programs must live with.
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"}, "spec": {"replicas": 5}}
    refused = await things.apply("scaler", f"{THINGS}/t/scale", scale, force=True)
    text = "failed to convert new object (/t; autoscaling/v1, Kind=Scale) to proper version"
    assert refused.message == f"{text}: request to convert CR to an invalid group/version: autoscaling/v1"
    assert (await things.merge("scaler", f"{THINGS}/t/scale", {"spec": {"replicas": 5}})).status == 200
    found = await things("GET", f"{THINGS}/t")
    assert found.owners == {
        "Update controller status": [".status", ".status.x"],
        "Update maker": [".spec", ".spec.mode"],
        "Update scaler scale": [".spec.replicas"],
    }
