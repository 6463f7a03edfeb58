"""Finalizers: added and removed on the server one at a time, without losing finalizers of other writers.

Source: Kubernetes documentation, "Finalizers"; controller-runtime pkg/controller/controllerutil (AddFinalizer, RemoveFinalizer).
"""

from __future__ import annotations

from typing import Any, TypeVar

from kubeloop.client import Client, retry_on_conflict
from kubeloop.client.options import WriteOptions
from kubeloop.meta import KubeloopError, NotFound, Resource
from kubeloop.meta.names import qualified_name
from kubeloop.meta.type_checks import described

R = TypeVar("R", bound=Resource)


class FinalizerError(KubeloopError):
    """A finalizer cannot be added, because the object is being deleted or is gone."""


def has_finalizer(obj: Resource, name: str) -> bool:
    return name in obj.metadata.finalizers


async def add_finalizer(client: Client, obj: R, name: str, *, options: WriteOptions | None = None) -> R:
    """Add a finalizer to an object, and return the object's new state, or ``obj`` itself if it already has the finalizer.

    Guarantees
        Nothing is sent if the finalizer exists. The patch requires the version that was read, so that finalizers of other writers are
        neither lost nor restored; on conflict the object is read and patched again, five times in all. ``obj`` is not changed.
        Only the object with this uid is changed, never a successor with the same name.

    Args:
        client: The client of the cluster.
        obj: The object, as it was read.
        name: The finalizer, DOMAIN/NAME.
        options: Options of the patch, such as the field manager.

    Raises:
        FinalizerError: the object is being deleted (servers reject new finalizers then), or another object has its name now.
        NotFound: the object does not exist.
        Conflict: other writers kept changing the object.
        ValueError: ``name`` is not DOMAIN/NAME.
        TypeError: ``name`` is not a string.
    """
    if not isinstance(name, str):
        raise TypeError(f"name={described(name)} is not a finalizer; give a text such as example.com/what-it-waits-for")
    if "/" not in name or (faults := qualified_name(name)):
        why = faults[0] if "/" in name else "a finalizer needs a domain in front"
        raise ValueError(f'finalizer "{name}": {why}; write it as example.com/what-it-waits-for')

    def added(current: R) -> list[str] | None:
        if name in current.metadata.finalizers:
            return None
        if current.metadata.deletion_timestamp is not None:
            raise FinalizerError(f'{current.kind} "{current.object_key()}" is being deleted: finalizer {name} can no longer be added')
        return [*current.metadata.finalizers, name]

    try:
        return await _changed(client, obj, added, options)
    except _Replaced:
        raise FinalizerError(f'{obj.kind} "{obj.object_key()}" (uid {obj.metadata.uid}) is gone; another one has its name') from None


async def remove_finalizer(client: Client, obj: R, name: str, *, options: WriteOptions | None = None) -> R | None:
    """Remove a finalizer from an object.

    Guarantees
        The guarantees of ``add_finalizer``. If this was the last finalizer of an object that is being deleted, the object is gone when the
        call returns.

    Args:
        client: The client of the cluster.
        obj: The object, as it was read.
        name: The finalizer.
        options: Options of the patch, such as the field manager.

    Returns:
        The object's new state. None if it does not exist any more, or another object has its name.

    Raises:
        Conflict: other writers kept changing the object.
    """

    def removed(current: R) -> list[str] | None:
        finalizers = current.metadata.finalizers
        return [one for one in finalizers if one != name] if name in finalizers else None

    try:
        return await _changed(client, obj, removed, options)
    except (NotFound, _Replaced):
        return None


class _Replaced(Exception):
    """The object was deleted, and another object has its name now."""


async def _changed(client: Client, obj: R, change: Any, options: WriteOptions | None) -> R:
    known: R | None = obj

    async def attempt() -> R:
        nonlocal known
        current, known = known, None
        if current is None:
            current = await client.get(type(obj), obj.metadata.name, namespace=obj.metadata.namespace or None)
            if obj.metadata.uid and current.metadata.uid != obj.metadata.uid:
                raise _Replaced
        finalizers = change(current)
        if finalizers is None:
            return current
        version, uid = current.metadata.resource_version, current.metadata.uid
        metadata: dict[str, Any] = {"finalizers": finalizers, "resourceVersion": version, "uid": uid}
        patch = {"metadata": {key: value for key, value in metadata.items() if value or key == "finalizers"}}
        namespace = current.metadata.namespace or None
        return await client.patch(type(obj), current.metadata.name, patch, namespace=namespace, options=options)

    return await retry_on_conflict(attempt, clock=client.clock)
