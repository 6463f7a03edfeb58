"""The lives of objects that a Kubernetes 1.36 API server recorded, lived again: each answer, and who owns what after each write.

The recording is ``tests/merge/fields/recorded.json``, which also holds ``kubeloop.merge.fields`` to it. On both servers.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.types import JSONObject
from tests.apiserver.ownership.conftest import Managers, Reply

pytestmark = pytest.mark.server


GROUP = f"lives{os.getpid()}.example.com"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RECORDED: JSONObject = json.loads(
    (Path(__file__).parents[2] / "merge" / "fields" / "recorded.json").read_text().replace("fields.example.com", GROUP)
)
PLURALS = {"NetworkPolicy": "networkpolicies"}
#: Fields of a Service: each run allocates other values.
ALLOCATED = ("clusterIP", "clusterIPs")


def definition(schema: str) -> JSONObject:
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": RECORDED["schemas"][schema]}}
        for name in ("v1", "v2")
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": versions},
    }


@pytest.fixture
async def defined(managers: Managers) -> AsyncIterator[Managers]:
    """With the definition of Thing."""
    assert (await managers("POST", CRDS, definition("before"))).status == 201
    await until_sets_are(managers, {'v:"x"': {}})
    yield managers
    await managers("DELETE", f"{CRDS}/things.{GROUP}")
    async with asyncio.timeout(20):
        while (await managers("GET", f"{CRDS}/things.{GROUP}")).status != 404:
            await asyncio.sleep(0.05)


async def until_sets_are(managers: Managers, owned: JSONObject) -> None:
    """A real server serves a new schema a moment after it was written."""
    path = f"/apis/{GROUP}/v1/namespaces/{{ns}}/things/probe"
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": "probe"}, "set": ["x"]}
    async with asyncio.timeout(20):
        while True:
            reply = await managers.apply("probe", path, body)
            if reply.status < 300:
                await managers("DELETE", path)
                if reply.entries[0]["fieldsV1"] == {"f:set": owned}:
                    return
            await asyncio.sleep(0.05)


def path_of(kind: str, api_version: str) -> str:
    root = "apis" if "/" in api_version else "api"
    return f"/{root}/{api_version}/namespaces/{{ns}}/{PLURALS.get(kind, kind.lower() + 's')}"


async def write(managers: Managers, kind: str, name: str, step: JSONObject) -> Reply:
    collection = path_of(kind, step["apiVersion"])
    match step["op"]:
        case "create":
            return await managers("POST", f"{collection}?fieldManager={step['manager']}", step["body"])
        case "apply":
            return await managers.apply(step["manager"], f"{collection}/{name}", step["body"], force=step.get("force", False))
        case _:
            return await managers.merge(step["manager"], f"{collection}/{name}", step["body"])


def comparable(obj: JSONObject) -> JSONObject:
    """Without what differs from run to run, and what the recording leaves out."""
    left_out = ("managedFields", "namespace", "generation", "uid", "creationTimestamp", "resourceVersion")
    out = {name: value for name, value in obj.items() if name != "status"}
    out["metadata"] = {name: value for name, value in obj["metadata"].items() if name not in left_out}
    if obj["kind"] == "Service":
        out["spec"] = {name: value for name, value in obj["spec"].items() if name not in ALLOCATED}
    return out


def owners_of(reply: Reply) -> list[list[Any]]:
    found = [[entry["manager"], entry["operation"], entry["apiVersion"], entry["fieldsV1"]] for entry in reply.entries]
    return sorted(found, key=json.dumps)


CASES = [case for case in RECORDED["cases"] if case["kind"] != "Thing"]
THINGS = [case for case in RECORDED["cases"] if case["kind"] == "Thing"]


async def live_through(managers: Managers, case: JSONObject) -> None:
    name = case["steps"][0]["body"]["metadata"]["name"]
    for number, step in enumerate(case["steps"], 1):
        where = f"{case['title']}, step {number}"
        if step["op"] == "schema":
            current = (await managers("GET", f"{CRDS}/things.{GROUP}")).body
            after = definition("after")
            after["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
            assert (await managers("PUT", f"{CRDS}/things.{GROUP}", after)).status == 200
            await until_sets_are(managers, {})
            continue
        reply = await write(managers, case["kind"], name, step)
        if "conflicts" in step:
            assert reply.status == 409, where
            assert sorted(field for field, _ in reply.causes) == step["conflicts"], where
        elif "null" in step:
            assert reply.status == 422, where
            assert f'{step["null"]}: Invalid value: "null"' in reply.message, where
        else:
            assert reply.status in (200, 201), f"{where}: {reply.body}"
            assert owners_of(reply) == sorted(step["owners"], key=json.dumps), where
            assert comparable(reply.body) == comparable(step["object"]), where


@pytest.mark.parametrize("case", [pytest.param(case, id=case["title"]) for case in CASES])
async def test_a_built_in_object_lives_as_recorded(managers: Managers, case: JSONObject) -> None:
    await live_through(managers, case)


async def test_custom_objects_live_as_recorded(defined: Managers) -> None:
    for case in THINGS:
        await live_through(defined, case)
