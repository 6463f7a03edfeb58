"""kubectl with claims, volumes and pods that use them: the same with our own binder and with that of the real kube-controller-manager."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import PersistentVolume
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.client import Client
from kubeloop.meta import NotFound
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

RunKubectl = Callable[..., Awaitable[str]]

#: NAME stands for a class, a volume and a storage class of the test alone: volumes belong to all namespaces.
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAME}
spec:
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: NAME
  persistentVolumeReclaimPolicy: POLICY
  hostPath: {path: /data}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: NAME, resources: {requests: {storage: 1Gi}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "x:1", volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"""
LOCAL = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: NAME}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
"""
BOUND, RELEASED = "--for=jsonpath={.status.phase}=Bound", "--for=jsonpath={.status.phase}=Released"
PHASES = "jsonpath={.status.phase} {.spec.volumeName}"


@pytest.fixture
async def kubectl(client: Client, bare_server: ServerUnderTest, tmp_path: Path) -> AsyncIterator[RunKubectl]:
    """kubectl in a thread, as the controllers work in the test's loop; what the test has made outside its namespace is deleted."""
    name = str(client.namespace)
    runner = Kubectl(Path(bare_server.kubeconfig), tmp_path, name)

    async def run(*args: str, stdin: str = "", policy: str = "Retain") -> str:
        document = stdin.replace("NAME", name).replace("POLICY", policy)
        return await asyncio.to_thread(runner, *args, stdin=document or None)

    yield run
    with contextlib.suppress(NotFound):
        await client.delete(StorageClass, name)
    with contextlib.suppress(NotFound):
        await client.delete(PersistentVolume, name)
        await client.patch(PersistentVolume, name, {"metadata": {"finalizers": None}})  # Those of a bound volume would keep it.


async def test_a_pod_starts_when_a_volume_for_its_claim_is_created(client: Client, kubectl: RunKubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=f"{CLAIM}---{POD}")
    await kubectl("wait", "pod/p", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "--timeout=30s")
    message = await kubectl("get", "pod", "p", "-o", "jsonpath={.status.conditions[0].message}")
    assert message.startswith("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. ")
    text = await described(kubectl, "pvc/data", "ProvisioningFailed")
    assert f'persistentvolume-controller storageclass.storage.k8s.io "{client.namespace}" not found' in text
    await kubectl("apply", "-f", "-", stdin=VOLUME)
    await kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=40s")
    row = (await kubectl("get", "pvc", "data")).splitlines()[1].split()
    assert row[:6] == ["data", "Bound", client.namespace, "2Gi", "RWO", client.namespace]
    row = (await kubectl("get", "pv", str(client.namespace))).splitlines()[1].split()
    assert row[1:6] == ["2Gi", "RWO", "Retain", "Bound", f"{client.namespace}/data"]
    await kubectl("delete", "pod/p", "pvc/data")
    await kubectl("wait", f"pv/{client.namespace}", RELEASED, "--timeout=30s")


async def test_a_claim_that_waits_for_a_pod_is_bound_when_a_pod_uses_it(client: Client, kubectl: RunKubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=f"{LOCAL}---{VOLUME}---{CLAIM}")
    assert "waiting for first consumer to be created before binding" in await described(kubectl, "pvc/data", "WaitForFirstConsumer")
    assert (await kubectl("get", "pvc", "data", "-o", PHASES)).split() == ["Pending"]
    await kubectl("apply", "-f", "-", stdin=POD)
    await kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=40s")
    assert (await kubectl("get", "pvc", "data", "-o", PHASES)).split() == ["Bound", client.namespace]


async def test_a_released_volume_that_cannot_be_deleted_has_failed(client: Client, kubectl: RunKubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=f"{VOLUME}---{CLAIM}", policy="Delete")
    await kubectl("wait", "pvc/data", BOUND, "--timeout=40s")
    await kubectl("delete", "pvc/data")
    await kubectl("wait", f"pv/{client.namespace}", "--for=jsonpath={.status.phase}=Failed", "--timeout=30s")
    message = await kubectl("get", f"pv/{client.namespace}", "-o", "jsonpath={.status.message}")
    assert message == "host_path deleter only supports /tmp/.+ but received provided /data"


async def test_a_claim_is_lost_when_its_volume_is_deleted(client: Client, kubectl: RunKubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=f"{VOLUME}---{CLAIM}")
    await kubectl("wait", "pvc/data", BOUND, "--timeout=40s")
    await kubectl("delete", f"pv/{client.namespace}", "--wait=false")
    await kubectl("patch", f"pv/{client.namespace}", "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')
    await kubectl("wait", "pvc/data", "--for=jsonpath={.status.phase}=Lost", "--timeout=30s")
    assert "Bound claim has lost its PersistentVolume. Data on the volume is lost!" in await described(kubectl, "pvc/data", "ClaimLost")


async def described(kubectl: RunKubectl, target: str, reason: str) -> str:
    """Return what ``kubectl describe`` prints of an object as soon as it has an event of that reason, with single spaces."""
    for _ in range(60):
        text = await kubectl("describe", target)
        if reason in text:
            return " ".join(text.split())
        await asyncio.sleep(0.5)
    raise AssertionError(f"{target} has no event {reason}:\n{text}")
