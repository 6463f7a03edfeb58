"""Ownership claims of controllers: a controller adopts orphans that match its selector and releases objects that no longer match.

Source: Kubernetes pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TypeVar

from kubeloop.client import Client
from kubeloop.controller import controller_of
from kubeloop.meta import Invalid, NotFound, Resource, Selector

R = TypeVar("R", bound=Resource)


async def claim(client: Client, owner: Resource, candidates: Iterable[R], selector: Selector) -> list[R]:
    """Adopt and release objects; return those of ``candidates`` that belong to ``owner`` afterwards.

    An owner that is being deleted neither adopts nor releases. Before it adopts an object, the owner is read from the server: a cache may
    still show an owner that was deleted and created again, and two owners would fight over the object.

    Args:
        client: Writes owner references.
        owner: The controller's object.
        candidates: Objects of the owner's namespace.
        selector: Selects the objects to adopt.
    """
    claimed: list[R] = []
    adopting: bool | None = None
    for obj in candidates:
        reference = controller_of(obj)
        matches = selector.matches(obj.metadata.labels)
        if reference is not None:
            if reference.uid != owner.metadata.uid:
                continue
            if matches:
                claimed.append(obj)
            elif owner.metadata.deletion_timestamp is None:
                await release(client, owner.metadata.uid, obj)
        elif matches and obj.metadata.deletion_timestamp is None and owner.metadata.deletion_timestamp is None:
            if adopting is None:
                adopting = await _may_adopt(client, owner)
            if adopting and (adopted := await _adopt(client, owner, obj)) is not None:
                claimed.append(adopted)
    return claimed


async def release(client: Client, owner_uid: str, obj: Resource) -> None:
    """Remove one owner reference from ``obj``, unless the object is gone or has been replaced."""
    await _patch_owners(client, obj, [{"$patch": "delete", "uid": owner_uid}])


async def _may_adopt(client: Client, owner: Resource) -> bool:
    try:
        live = await client.get_metadata(type(owner), owner.metadata.name, namespace=owner.metadata.namespace or None)
    except NotFound:
        return False
    return live.metadata.uid == owner.metadata.uid and live.metadata.deletion_timestamp is None


async def _adopt(client: Client, owner: Resource, obj: R) -> R | None:
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return await _patch_owners(client, obj, [reference])


async def _patch_owners(client: Client, obj: R, references: list[dict[str, object]]) -> R | None:
    # The uid in the patch is a precondition: the server refuses to change it, so an object of the same name is never changed.
    change = {"metadata": {"uid": obj.metadata.uid, "ownerReferences": references}}
    with contextlib.suppress(NotFound, Invalid):
        return await client.patch(type(obj), obj.metadata.name, change, type="strategic", namespace=obj.metadata.namespace or None)
    return None
