"""A StatefulSet of process pods with claims of the host-path provisioner: its data survives its pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.client import Client
from tests.kubelet.test_process_pods import is_ready, until

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(180)]
TIMEOUT = 60.0


def database(storage_class: str) -> dict[str, Any]:
    script = "echo $HOSTNAME >> /data/starts; sleep 1000"
    container = {"name": "db", "image": "shell", "args": [script], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    return {
        "replicas": 2,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }


async def starts(client: Client, pod: str) -> list[str]:
    return (await client.pods.exec(pod, ["cat", "/data/starts"])).stdout.decode().split()


@pytest.mark.parametrize("binding", ["Immediate", "WaitForFirstConsumer"])
async def test_the_data_of_a_stateful_set_survives_its_pods_and_a_scale_to_zero(client: Client, tmp_path: Path, binding: str) -> None:
    name = f"disks-{client.namespace}"
    fields = {"provisioner": "kubeloop.dev/host-path", "parameters": {"directory": str(tmp_path)}, "volumeBindingMode": binding}
    await client.create(StorageClass.from_dict({"metadata": {"name": name}, **fields}))
    await client.create(StatefulSet.from_dict({"metadata": {"name": "db"}, "spec": database(name)}))
    await client.wait_for(StatefulSet, "db", lambda stateful_set: stateful_set.status.ready_replicas == 2, timeout=TIMEOUT)
    assert await starts(client, "db-1") == ["db-1"]

    former = await client.get(Pod, "db-1")
    await client.delete(Pod, "db-1")

    async def replaced() -> bool:
        pods = [one async for one in client.list(Pod, field_selector="metadata.name=db-1")]
        return any(one.metadata.uid != former.metadata.uid and is_ready(one.to_dict()["status"]) for one in pods)

    await until(replaced, timeout=TIMEOUT)
    assert await starts(client, "db-1") == ["db-1"] * 2

    await client.patch(StatefulSet, "db", {"spec": {"replicas": 0}})
    await client.wait_for(StatefulSet, "db", lambda stateful_set: not stateful_set.status.replicas, timeout=TIMEOUT)
    assert [one.metadata.name async for one in client.list(PersistentVolumeClaim)] == ["data-db-0", "data-db-1"]
    await client.patch(StatefulSet, "db", {"spec": {"replicas": 2}})
    await client.wait_for(StatefulSet, "db", lambda stateful_set: stateful_set.status.ready_replicas == 2, timeout=TIMEOUT)
    assert await starts(client, "db-0") == ["db-0"] * 2
    assert await starts(client, "db-1") == ["db-1"] * 3

    await client.delete(StatefulSet, "db")
    for claim in ("data-db-0", "data-db-1"):
        volume = (await client.get(PersistentVolumeClaim, claim)).spec.volume_name or ""
        await client.delete(PersistentVolumeClaim, claim)
        await client.wait_gone(PersistentVolume, volume, timeout=TIMEOUT)
    await client.delete(StorageClass, name)
