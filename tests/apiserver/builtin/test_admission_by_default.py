"""Default plug-ins of admission: runtime classes, claim expansion, subjects of certificates, topology of nodes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError

pytestmark = pytest.mark.server

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


async def send(client: Client, method: str, path: str, body: Any = None, content: str = "application/json") -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    answer = await client.transport.request(method, path, body=data, headers={"Content-Type": content} if data else None)
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def refused(client: Client, method: str, path: str, body: Any = None, content: str = "application/json") -> tuple[int, str]:
    with pytest.raises(ApiError) as refusal:
        await send(client, method, path, body, content)
    return refusal.value.status.code, refusal.value.status.message


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False, **spec}}


@pytest.fixture
async def runtime(client: Client, namespace: str) -> AsyncIterator[str]:
    """A RuntimeClass with overhead and scheduling, known to admission."""
    name = f"{namespace}-class"
    tolerations = [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]
    scheduling = {"nodeSelector": {"kind": "fast"}, "tolerations": tolerations}
    body = {"metadata": {"name": name}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": scheduling}
    await send(client, "POST", CLASSES, body)
    yield name
    await send(client, "DELETE", f"{CLASSES}/{name}")


async def test_a_pod_of_an_unknown_class_is_refused(client: Client, namespace: str) -> None:
    found = await refused(client, "POST", f"/api/v1/namespaces/{namespace}/pods", pod(runtimeClassName="none"))
    assert found == (403, 'pods "p" is forbidden: pod rejected: RuntimeClass "none" not found')


async def test_a_pod_gets_the_overhead_and_the_scheduling_of_its_class(client: Client, namespace: str, runtime: str) -> None:
    own = [{"key": "a", "operator": "Equal", "value": "y"}, {"key": "z", "operator": "Exists", "effect": "NoSchedule"}]
    sent = pod(runtimeClassName=runtime, nodeSelector={"own": "1"}, tolerations=own)
    spec = (await send(client, "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", sent))["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"kind": "fast", "own": "1"}
    assert [one["key"] for one in spec["tolerations"] if len(one["key"]) == 1] == ["z", "a", "b"]
    assert not any(one.get("value") == "y" for one in spec["tolerations"])


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            {"overhead": {"cpu": "1"}}, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead", id="of its overhead"
        ),
        pytest.param(
            {"nodeSelector": {"kind": "slow"}},
            "conflict: runtimeClass.scheduling.nodeSelector[kind] = fast; pod.spec.nodeSelector[kind] = slow",
            id="of its node selector",
        ),
    ],
)
async def test_a_pod_does_not_contradict_its_class(client: Client, namespace: str, runtime: str, spec: dict[str, Any], why: str) -> None:
    found = await refused(client, "POST", f"/api/v1/namespaces/{namespace}/pods", pod(runtimeClassName=runtime, **spec))
    assert found == (403, f'pods "p" is forbidden: {why}')


async def test_overhead_without_a_class_is_refused(client: Client, namespace: str) -> None:
    found = await refused(client, "POST", f"/api/v1/namespaces/{namespace}/pods", pod(overhead={"cpu": "1"}))
    why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    assert found == (403, f'pods "p" is forbidden: {why}')


async def test_a_claim_grows_when_it_is_bound_and_its_class_lets_it(client: Client, namespace: str) -> None:
    name = f"{namespace}-storage"
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    merge = "application/merge-patch+json"
    await send(client, "POST", STORAGE, {"metadata": {"name": name}, "provisioner": "p"})
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    volume = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/v"}, "claimRef": {"namespace": namespace, "name": "c"}}
    await send(client, "POST", VOLUMES, {"metadata": {"name": name}, "spec": volume})
    try:
        claim = {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
        await send(client, "POST", claims, {"metadata": {"name": "c"}, "spec": claim})
        larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        code, message = 422, ""
        async with asyncio.timeout(20):
            while code == 422:  # immutable until it is bound: by the binder, or where none runs by the test
                await send(client, "PATCH", f"{claims}/c/status", {"status": {"phase": "Bound"}}, merge)
                code, message = await refused(client, "PATCH", f"{claims}/c", larger, merge)
        assert code == 403
        assert message.endswith("the storageclass that provisions the pvc must support resize")
        await send(client, "PATCH", f"{STORAGE}/{name}", {"allowVolumeExpansion": True}, merge)
        async with asyncio.timeout(20):  # a real server hears of the class a moment later
            while True:
                try:
                    grown = await send(client, "PATCH", f"{claims}/c", larger, merge)
                    break
                except ApiError:
                    await asyncio.sleep(0.05)
        assert grown["spec"]["resources"]["requests"]["storage"] == "2Gi"
    finally:
        await send(client, "DELETE", f"{VOLUMES}/{name}")
        await send(client, "DELETE", f"{STORAGE}/{name}")


async def test_a_request_for_an_administrators_certificate_is_refused(client: Client, namespace: str) -> None:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"), x509.NameAttribute(NameOID.COMMON_NAME, "me")]
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name(names))
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    encoded = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": encoded, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    found = await refused(client, "POST", REQUESTS, {"metadata": {"name": f"{namespace}-csr"}, "spec": spec})
    why = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    assert found == (403, f'certificatesigningrequests.certificates.k8s.io "{namespace}-csr" is forbidden: {why}')


async def test_a_pod_bears_the_topology_of_its_node(client: Client, namespace: str) -> None:
    node = f"{namespace}-node"
    labels = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "x"}
    await send(client, "POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": labels}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wanted = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    try:
        async with asyncio.timeout(20):  # a real server hears of the node a moment later
            while True:
                given = (await send(client, "POST", f"{pods}?dryRun=All", pod(nodeName=node)))["metadata"].get("labels")
                if given:
                    break
                await asyncio.sleep(0.05)
        assert given == wanted
        await send(client, "POST", pods, pod(schedulerName="nobody"))
        await send(
            client,
            "POST",
            f"{pods}/p/binding",
            {"metadata": {"name": "p", "labels": {"own": "1"}}, "target": {"kind": "Node", "name": node}},
        )
        assert (await send(client, "GET", f"{pods}/p"))["metadata"]["labels"] == {**wanted, "own": "1"}
    finally:
        await send(client, "DELETE", f"/api/v1/nodes/{node}")
