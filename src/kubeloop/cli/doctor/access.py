"""Checks whether this user may do what the program's informers and writes require, by SelfSubjectAccessReviews; lists missing roles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kubeloop.api.authorization.v1 import ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec
from kubeloop.cli.doctor.findings import DoctorFinding
from kubeloop.client import Client
from kubeloop.controller.permissions import Permission, rules_of
from kubeloop.meta import ApiError, NotFound
from kubeloop.types import JSONObject

_API = "rbac.authorization.k8s.io/v1"
#: Maximum number of concurrent reviews.
_TOGETHER = 10


@dataclass(frozen=True, slots=True)
class Missing:
    """Missing permissions in ``namespace``; "" means all namespaces, or a cluster-scoped kind."""

    permission: Permission
    namespace: str = ""


async def access(client: Client, permissions: Sequence[Permission], namespace: str | None) -> tuple[list[DoctorFinding], list[Missing]]:
    """Return a finding for each resource, and the missing permissions. ``namespace`` None: in all namespaces."""
    slots = asyncio.Semaphore(_TOGETHER)

    async def allowed(permission: Permission, verb: str) -> bool:
        async with slots:
            return await _allowed(client, permission, verb, namespace)

    found: list[DoctorFinding] = []
    missing: list[Missing] = []
    try:
        for one in permissions:
            answers = await asyncio.gather(*(allowed(one, verb) for verb in one.verbs))
            lacking = tuple(verb for verb, yes in zip(one.verbs, answers, strict=True) if not yes)
            found.append(_finding(one, lacking, namespace))
            if lacking:
                missing.append(Missing(replace(one, verbs=lacking), (namespace or "") if one.namespaced else ""))
    except NotFound:
        said = "the server has no SelfSubjectAccessReview, so that permissions cannot be checked"
        return [DoctorFinding("permission", "all", "unknown", said)], []
    except ApiError as error:
        return [*found, DoctorFinding("permission", "all", "unknown", f"the server does not answer reviews: {error}")], missing
    return found, missing


def manifest(missing: Iterable[Missing], name: str, user: str) -> list[JSONObject]:
    """Return roles that grant the missing permissions to ``user``: a Role per namespace, a ClusterRole for all namespaces."""
    parts = user.split(":")
    if user.startswith("system:serviceaccount:") and len(parts) == 4:
        subject = {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    else:
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    by_namespace: dict[str, list[Permission]] = {}
    for one in missing:
        by_namespace.setdefault(one.namespace, []).append(one.permission)
    documents: list[JSONObject] = []
    for namespace, some in sorted(by_namespace.items()):
        kind, where = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
        metadata = {"name": name, **where}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        documents.append({"apiVersion": _API, "kind": kind, "metadata": metadata, "rules": rules_of(some)})
        binding = {"apiVersion": _API, "kind": f"{kind}Binding", "metadata": metadata, "roleRef": reference, "subjects": [subject]}
        documents.append(binding)
    return documents


async def _allowed(client: Client, permission: Permission, verb: str, namespace: str | None) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    where = namespace if namespace and permission.namespaced else ""
    asked = ResourceAttributes(verb=verb, group=permission.group, resource=resource, subresource=subresource, namespace=where)
    review = await client.create(SelfSubjectAccessReview(spec=SelfSubjectAccessReviewSpec(resource_attributes=asked)))
    return review.status.allowed


def _finding(permission: Permission, lacking: tuple[str, ...], namespace: str | None) -> DoctorFinding:
    where = f' in namespace "{namespace}"' if namespace and permission.namespaced else ""
    for_whom = f" (for {permission.why})" if permission.why else ""
    if not lacking:
        return DoctorFinding("permission", permission.name, "ok", f"{', '.join(permission.verbs)}{where}")
    said = f"may not {', '.join(lacking)}{where}{for_whom}"
    return DoctorFinding("permission", permission.name, "failed", said, "kubeloop doctor --fix prints the roles that are missing")
