"""OwnerReferencesPermissionEnforcement: who says what owns an object may delete it, and may hold up the deletion of the owners.

Source: plugin/pkg/admission/gc.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.refusing import refused
from kubeloop.apiserver.authorization.access import Access, Authorizer
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersion, GroupVersionKind

JSONObject = dict[str, Any]

#: Where nothing is checked: old kubelets damage owner references there, and what they say of them is not taken.
_UNCHECKED = (GroupResource("", "pods"), "status")


class OwnerPermissions:
    def __init__(self, registry: Registry, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        if attributes.obj is None or attributes.operation not in ("CREATE", "UPDATE"):
            return
        owners, before = _owners(attributes.obj), _owners(attributes.old)
        if owners == before:
            return
        gvr, user = attributes.resource.gvr, attributes.user
        if (gvr.group_resource, attributes.subresource) == _UNCHECKED:
            return
        await self._authorizer.prepare(user)
        if attributes.operation != "CREATE":
            access = Access(user, "delete", *gvr, attributes.subresource, attributes.namespace, attributes.name)
            decision = self._authorizer.authorize(access)
            if not decision.allowed:
                why = f"cannot set an ownerRef on a resource you can't delete: {decision.reason}, <nil>"
                raise refused(attributes, why)
        blocking = list(_newly_blocking(owners, before))
        if not blocking or self._authorizer.authorize(Access(user, "update", "*", "*", "*", "finalizers", name="*")).allowed:
            return
        for owner in blocking:
            self._check(attributes, owner)

    def _check(self, attributes: Attributes, owner: JSONObject) -> None:
        """Raises Forbidden."""
        where = GroupVersion.parse(owner["apiVersion"])
        resource = self._registry.kind(GroupVersionKind(*where, owner["kind"]))
        if resource is None:
            why = f'no matches for kind "{owner["kind"]}" in version "{owner["apiVersion"]}"'
            subject = f"cannot find RESTMapping for APIVersion {owner['apiVersion']} Kind {owner['kind']}"
            raise refused(attributes, f"cannot set blockOwnerDeletion in this case because {subject}: {why}")
        namespace = attributes.namespace if resource.namespaced else ""
        access = Access(attributes.user, "update", *resource.gvr, "finalizers", namespace, owner["name"])
        decision = self._authorizer.authorize(access)
        if not decision.allowed:
            subject = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
            raise refused(attributes, f"{subject}: {decision.reason}, <nil>")


def _owners(obj: JSONObject | None) -> list[JSONObject]:
    found: list[JSONObject] = ((obj or {}).get("metadata") or {}).get("ownerReferences") or []
    return found


def _newly_blocking(owners: list[JSONObject], before: list[JSONObject]) -> Iterator[JSONObject]:
    blocked = {one.get("uid") for one in before if one.get("blockOwnerDeletion")}
    return (one for one in owners if one.get("blockOwnerDeletion") and one.get("uid") not in blocked)
