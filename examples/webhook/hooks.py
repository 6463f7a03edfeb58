"""A policy for Deployments in namespaces labelled ``example.com/policy=enforced``: defaults, limits, a warning, and protection."""

from __future__ import annotations

from kubeloop.api.apps.v1 import Deployment
from kubeloop.controller.webhooks import AdmissionRequest, Denied, Warnings, Webhooks
from kubeloop.meta import LabelSelector
from kubeloop.meta.field_error import FieldError, invalid, required

MOST_REPLICAS = 5
ENFORCED = LabelSelector(match_labels={"example.com/policy": "enforced"})

hooks = Webhooks()


@hooks.mutating(Deployment, namespace_selector=ENFORCED)
def defaults(deployment: Deployment, request: AdmissionRequest[Deployment]) -> None:
    """Keep few old ReplicaSets, and note the user that created the object."""
    if deployment.spec.revision_history_limit is None or deployment.spec.revision_history_limit == 10:
        deployment.spec.revision_history_limit = 2
    if request.operation == "CREATE":
        deployment.metadata.annotations["example.com/author"] = request.user.username


@hooks.validating(Deployment, namespace_selector=ENFORCED)
def limits(deployment: Deployment) -> Warnings | None:
    """At most five replicas, and a team label; images should have a tag."""
    errors: list[FieldError] = []
    replicas = deployment.spec.replicas or 0
    if replicas > MOST_REPLICAS:
        errors.append(invalid("spec.replicas", replicas, f"at most {MOST_REPLICAS} here"))
    if "team" not in deployment.metadata.labels:
        errors.append(required("metadata.labels[team]", "whom to ask about it"))
    if errors:
        raise Denied(errors=errors)
    containers = deployment.spec.template.spec.containers
    return Warnings(*(f'image "{one.image}" has no tag' for one in containers if ":" not in (one.image or "").rpartition("/")[2]))


@hooks.validating(Deployment, operations=["DELETE"], namespace_selector=ENFORCED)
def protect(deployment: Deployment) -> None:
    """A marked object stays."""
    if deployment.metadata.annotations.get("example.com/protected") == "true":
        raise Denied("it is protected: remove its annotation example.com/protected first")
