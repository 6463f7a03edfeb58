"""Admission handles bodies that validation rejects later: none causes an internal error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubeloop.apiserver.admission.plugins import AdmissionOptions
from kubeloop.apiserver.admission.table import LACKING, ORDER
from kubeloop.client import Client
from kubeloop.meta.errors import ApiError
from kubeloop.testing import HandlerServer

NAMESPACE = "/api/v1/namespaces/default"
REFERENCES = [{"name": "E", "valueFrom": {"secretKeyRef": {}}}]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """All plug-ins run, a limit range, a quota and a strict account are there."""
    options = AdmissionOptions(enable=tuple(name for name in ORDER if name not in LACKING and name != "AlwaysDeny"))
    async with HandlerServer(admission=options) as server:
        client = server.client()
        limits = [{"type": "Container", "default": {"cpu": "1"}}, {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]
        await send(client, f"{NAMESPACE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
        await send(client, f"{NAMESPACE}/limitranges", {"metadata": {"name": "empty"}})
        await send(client, f"{NAMESPACE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}})
        strict = {"kubernetes.io/enforce-mountable-secrets": "true"}
        await send(client, f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default", "annotations": strict}})
        yield client


async def send(client: Client, path: str, body: Any) -> int:
    try:
        await client.transport.request("POST", path, body=msgspec.json.encode(body), headers={"Content-Type": "application/json"})
    except ApiError as fault:
        return fault.status.code
    return 201


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        pytest.param("pods", {}, id="a pod of nothing"),
        pytest.param("pods", {"metadata": {"name": "p"}, "spec": None}, id="a pod without a spec"),
        pytest.param("pods", {"metadata": {"name": "p"}, "spec": {"containers": [{}]}}, id="a container of nothing"),
        pytest.param("pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"env": REFERENCES}]}}, id="a nameless one with a Secret"),
        pytest.param("pods", {"metadata": {"name": "p"}, "spec": {"volumes": [{}, {"projected": {}}]}}, id="volumes of nothing"),
        pytest.param("pods", {"metadata": {"name": "p", "ownerReferences": [{}]}, "spec": {"containers": [{}]}}, id="an owner of nothing"),
        pytest.param("persistentvolumeclaims", {"metadata": {"name": "c"}}, id="a claim without a spec"),
        pytest.param("services", {"metadata": {"name": "s"}}, id="a service without a spec"),
        pytest.param("replicationcontrollers", {"metadata": {"name": "r"}, "spec": {"template": {}}}, id="a template of nothing"),
        pytest.param("configmaps", {"metadata": {"name": "a", "ownerReferences": [{"blockOwnerDeletion": True}]}}, id="a nameless owner"),
        pytest.param("limitranges", {"metadata": {"name": "m"}, "spec": {"limits": [{}]}}, id="a limit of nothing"),
    ],
)
async def test_is_answered(client: Client, resource: str, body: dict[str, Any]) -> None:
    assert await send(client, f"{NAMESPACE}/{resource}", body) in (201, 400, 403, 422)
