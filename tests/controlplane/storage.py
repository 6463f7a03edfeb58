"""Volumes, claims, classes and pods with volumes for the tests of binding and scheduling."""

from __future__ import annotations

from typing import Any

from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.api.storage.v1 import StorageClass
from tests.controlplane.workloads import read

HOSTNAME = "kubernetes.io/hostname"


def volume(name: str, size: str = "1Gi", *, labels: dict[str, str] | None = None, node: str = "", **spec: Any) -> PersistentVolume:
    """Return a hostPath volume; with ``node`` only that node can use it. A ``source`` replaces the path."""
    source = spec.pop("source", {"hostPath": {"path": "/data"}})
    chosen: dict[str, Any] = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **source, **spec}
    if node:
        terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}]
        chosen["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    metadata = {"name": name, "labels": labels or {}}
    return read(PersistentVolume, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": chosen})


def claim(name: str = "data", size: str = "1Gi", *, annotations: dict[str, str] | None = None, **spec: Any) -> PersistentVolumeClaim:
    chosen = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    metadata = {"name": name, "annotations": annotations or {}}
    return read(PersistentVolumeClaim, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": chosen})


def storage_class(
    name: str, provisioner: str = "kubernetes.io/no-provisioner", *, delayed: bool = False, default: bool = False
) -> StorageClass:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    mode = "WaitForFirstConsumer" if delayed else "Immediate"
    document = {"metadata": {"name": name, "annotations": annotations}, "provisioner": provisioner, "volumeBindingMode": mode}
    return read(StorageClass, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **document})


def user(name: str, *claims: str, **spec: Any) -> Pod:
    """Return a pod that uses claims."""
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    chosen = {"containers": [{"name": "c", "image": "x:1"}], "volumes": volumes, "terminationGracePeriodSeconds": 1, **spec}
    return read(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": chosen})
