"""Deployments, ReplicaSets and pods for the tests of the controllers."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec, DeploymentStrategy, ReplicaSet, ReplicaSetSpec
from kubeloop.api.core.v1 import Container, Pod, PodSpec, PodTemplateSpec
from kubeloop.codec import decode
from kubeloop.meta import LabelSelector, ObjectMeta, Resource

R = TypeVar("R", bound=Resource)


def read(kind: type[R], document: dict[str, object]) -> R:
    """Return an object as its JSON says."""
    return decode(kind, json.dumps(document).encode())


def template(app: str, image: str = "x:1") -> PodTemplateSpec:
    return PodTemplateSpec(metadata=ObjectMeta(labels={"app": app}), spec=pod_spec(image))


def pod_spec(image: str = "x:1", **fields: Any) -> PodSpec:
    """With a short grace: upstream's namespace controller waits for half the longest before it looks again."""
    return PodSpec(containers=[Container(name="c", image=image)], **({"termination_grace_period_seconds": 1} | fields))


def deployment(name: str, replicas: int = 2, strategy: DeploymentStrategy | None = None, **spec: Any) -> Deployment:
    return Deployment(
        metadata=ObjectMeta(name=name),
        spec=DeploymentSpec(
            replicas=replicas,
            selector=LabelSelector(match_labels={"app": name}),
            template=template(name),
            strategy=strategy or DeploymentStrategy(),
            **spec,
        ),
    )


def replica_set(name: str, replicas: int = 2, **spec: Any) -> ReplicaSet:
    return ReplicaSet(
        metadata=ObjectMeta(name=name),
        spec=ReplicaSetSpec(replicas=replicas, selector=LabelSelector(match_labels={"app": name}), template=template(name), **spec),
    )


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, labels=labels or {}), spec=pod_spec(**spec))


def is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def is_rolled_out(deployment: Deployment) -> bool:
    """What ``kubectl rollout status`` waits for."""
    status, wanted = deployment.status, deployment.spec.replicas or 0
    return (
        (status.observed_generation or 0) >= deployment.metadata.generation
        and (status.updated_replicas or 0) == wanted
        and (status.replicas or 0) == wanted
        and (status.available_replicas or 0) == wanted
    )
