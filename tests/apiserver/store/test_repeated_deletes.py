"""Another deletion of an object that is being deleted: it may hasten it; else it changes nothing and calls no admission."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError, Invalid
from kubeloop.meta.time import parse_time

pytestmark = pytest.mark.server

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmission"


async def send(client: Client, method: str, path: str, body: Any = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    answer = await client.transport.request(method, path, body=data, headers={"Content-Type": "application/json"} if data else None)
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def running_pod(client: Client, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = {"metadata": {"name": name}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}
    await send(client, "POST", path, pod)
    return f"{path}/{name}"


@asynccontextmanager
async def deletions_denied(client: Client, namespace: str, probe: str) -> AsyncIterator[None]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    matched = {"resourceRules": [rule], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    policy = {"matchConstraints": matched, "validations": [{"expression": "false"}]}
    await send(client, "POST", f"{POLICIES}policies", {"metadata": {"name": namespace}, "spec": policy})
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    await send(client, "POST", f"{POLICIES}policybindings", {"metadata": {"name": namespace}, "spec": binding})
    try:
        async with asyncio.timeout(30):  # a real server knows it a moment later
            while True:
                try:
                    await send(client, "DELETE", f"{probe}?dryRun=All")
                except Invalid:
                    break
                await asyncio.sleep(0.05)
        yield
    finally:
        await send(client, "DELETE", f"{POLICIES}policybindings/{namespace}")
        await send(client, "DELETE", f"{POLICIES}policies/{namespace}")


async def test_admission_is_not_asked_about_a_deletion_that_is_under_way(client: Client, namespace: str) -> None:
    going, staying = await running_pod(client, namespace, "going"), await running_pod(client, namespace, "staying")
    before = await send(client, "DELETE", going, {"gracePeriodSeconds": 100})
    async with deletions_denied(client, namespace, staying):
        for options in (None, {"gracePeriodSeconds": 100}, {"gracePeriodSeconds": 101, "propagationPolicy": "Foreground"}):
            again = await send(client, "DELETE", going, options)
            assert again["metadata"] == before["metadata"]
        with pytest.raises(ApiError, match="denied request"):
            await send(client, "DELETE", going, {"gracePeriodSeconds": 1})


async def test_grace_is_shortened_from_when_the_deletion_began(client: Client, namespace: str) -> None:
    path = await running_pod(client, namespace, "p")
    before = await send(client, "DELETE", path, {"gracePeriodSeconds": 10_000})
    after = await send(client, "DELETE", path, {"gracePeriodSeconds": 9_000})
    ended, ends = (parse_time(one["metadata"]["deletionTimestamp"]) for one in (before, after))
    assert (ended - ends, after["metadata"]["deletionGracePeriodSeconds"]) == (timedelta(seconds=1000), 9000)
    assert (await send(client, "DELETE", path, {"gracePeriodSeconds": 0}))["metadata"]["name"] == "p"
