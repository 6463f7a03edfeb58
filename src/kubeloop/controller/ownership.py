"""Ownership: reads and writes owner references under the rules that the garbage collector relies on.

Source: Kubernetes documentation, "Owners and Dependents"; controller-runtime pkg/controller/controllerutil.
"""

from __future__ import annotations

from kubeloop.meta import GroupVersion, KubeloopError, ObjectMeta, OwnerReference, Resource, kind_info


class OwnershipError(KubeloopError):
    """An invalid owner reference: the garbage collector would delete the object, or two controllers would both own it."""


def controller_of(obj: Resource | ObjectMeta) -> OwnerReference | None:
    """Return the owner reference with ``controller: true``, or None."""
    metadata = obj if isinstance(obj, ObjectMeta) else obj.metadata
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def is_controlled_by(obj: Resource, owner: Resource) -> bool:
    """Return whether ``owner`` (by uid) is the controller of ``obj``."""
    reference = controller_of(obj)
    return reference is not None and reference.uid == owner.metadata.uid


def set_controller_reference(owner: Resource, obj: Resource, *, block_owner_deletion: bool = True) -> None:
    """Make ``owner`` the controller of ``obj``, which is changed in memory only. A repeated call changes nothing.

    Raises:
        OwnershipError: ``obj`` has another controller; or the owner is in another namespace, or namespaced while ``obj`` is not (the
            garbage collector would consider the owner missing and delete ``obj``); or the owner has no uid, because it has not been created
            yet.
    """
    other = controller_of(obj)
    if other is not None and not _names(other, owner):
        raise OwnershipError(
            f"{_label(obj)} is already controlled by {other.kind} {other.name} (uid {other.uid}); "
            f"it cannot be controlled by {_label(owner)} too"
        )
    _put(owner, obj, OwnerReference(controller=True, block_owner_deletion=block_owner_deletion))


def set_owner_reference(owner: Resource, obj: Resource) -> None:
    """Make ``obj`` a dependent of ``owner``, which is deleted after ``owner``, without making ``owner`` its controller. In memory only.

    Raises:
        OwnershipError: as for ``set_controller_reference``, except that another controller is allowed.
    """
    _put(owner, obj, OwnerReference())


def _put(owner: Resource, obj: Resource, reference: OwnerReference) -> None:
    _check(owner, obj)
    reference.api_version, reference.kind = owner.api_version, owner.kind
    reference.name, reference.uid = owner.metadata.name, owner.metadata.uid
    references = obj.metadata.owner_references
    for index, known in enumerate(references):
        if _names(known, owner):
            if reference.controller is None and known.uid == reference.uid:
                reference.controller, reference.block_owner_deletion = known.controller, known.block_owner_deletion
            references[index] = reference
            return
    obj.metadata.owner_references = [*references, reference]


def _check(owner: Resource, obj: Resource) -> None:
    if not owner.metadata.uid:
        raise OwnershipError(f"{_label(owner)} has no uid yet and cannot own {_label(obj)}; create it first")
    if owner.metadata.namespace and owner.metadata.namespace != obj.metadata.namespace:
        where = f'in namespace "{obj.metadata.namespace}"' if obj.metadata.namespace else "cluster-scoped or without a namespace yet"
        raise OwnershipError(
            f'{_label(owner)} in namespace "{owner.metadata.namespace}" cannot own {_label(obj)}, which is {where}: '
            "owners live in the same namespace or in none"
        )


def _names(reference: OwnerReference, owner: Resource) -> bool:
    """Return whether a reference names ``owner``, by group, kind and name: a recreated owner replaces the reference to its predecessor."""
    if reference.kind != owner.kind or reference.name != owner.metadata.name:
        return False
    try:
        return GroupVersion.parse(reference.api_version).group == kind_info(owner).gvk.group
    except ValueError:
        return False


def _label(obj: Resource) -> str:
    return f"{obj.kind} {obj.metadata.name or obj.metadata.generate_name + '*'}"
