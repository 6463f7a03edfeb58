"""A desired child: with name, namespace, owner and set label, and a digest that identifies the desired state."""

from __future__ import annotations

import base64
import copy
import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeloop.client import Client
from kubeloop.client.verbs.apply import apply_body
from kubeloop.controller.ownership import set_controller_reference
from kubeloop.meta import GroupKind, KubeloopError, Resource, Unstructured, kind_info
from kubeloop.meta.names import label_value
from kubeloop.meta.resource import source_of

#: Label of each child: set name and owner's uid, ``SET.UID``. Only objects with it and the owner reference are pruned.
SET_LABEL: Final = "kubeloop.dev/child-set"
#: Annotation of each applied child: digest of the applied state, so that a restart does not apply an unchanged child again.
APPLIED: Final = "kubeloop.dev/applied"
#: Annotation of each patched child: the fields that were set, without values, so that undesired fields can be removed.
FIELDS_SET: Final = "kubeloop.dev/fields-set"

#: A label's value holds 63 characters, the uid and the dot take 37.
_LONGEST_SET: Final = 26
_SECRET: Final = GroupKind("", "Secret")


class UnplacedChild(KubeloopError):
    """A child has no name or namespace, or occurs twice among the children."""


@dataclass(frozen=True, slots=True)
class DesiredChild:
    """The desired state of one child. ``tree`` has the fields to apply, without this module's annotations; ``digest`` is their digest."""

    kind: type[Resource]
    group_kind: GroupKind
    namespace: str
    name: str
    tree: dict[str, Any]
    digest: str

    @property
    def key(self) -> tuple[GroupKind, str, str]:
        return self.group_kind, self.namespace, self.name

    def annotated(self, name: str, value: str) -> dict[str, Any]:
        """Return the tree with one more annotation."""
        metadata = self.tree["metadata"]
        return {**self.tree, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), name: value}}}


def check_set_name(name: str) -> None:
    """Check the name of a set. Raises ValueError if it cannot be part of a label."""
    if not name or len(name) > _LONGEST_SET or label_value(name):
        raise ValueError(f'name="{name}" of a set of children: letters, digits, "-", "_" and ".", {_LONGEST_SET} characters at most')


def set_label(name: str, owner: Resource) -> str:
    return f"{name}.{owner.metadata.uid}"


async def desired_child(client: Client, owner: Resource, child: Resource, set_name: str) -> DesiredChild:
    """Return the desired state of a child. The passed object is not changed.

    Args:
        client: Maps the kind to its resource.
        owner: The owner.
        child: The desired object.
        set_name: Name of the set of children.

    Raises:
        OwnershipError: ``owner`` cannot own the child (see ``set_controller_reference``).
        UnknownKind: the server does not serve the kind.
        UnplacedChild: the child has no name, or is namespaced and neither it nor its owner has a namespace.
        ValueError: the child was read from a server.
    """
    kind = type(child)
    mapping = await client.mapping(kind)
    if not child.metadata.name:
        raise UnplacedChild(
            f"a {child.kind} of {owner.kind} {owner.metadata.name} has no metadata.name: children are found again by name; "
            f"derive one from the owner's, such as {owner.metadata.name}-{child.kind.lower()}"
        )
    placed = _with_own_metadata(child)
    metadata = placed.metadata
    if not mapping.namespaced:
        metadata.namespace = ""
    elif not metadata.namespace:
        metadata.namespace = owner.metadata.namespace
        if not metadata.namespace:
            raise UnplacedChild(f"{child.kind} {metadata.name} has no metadata.namespace, and its owner {owner.kind} has none to lend")
    for note in (APPLIED, FIELDS_SET):
        metadata.annotations.pop(note, None)
    metadata.labels = {**metadata.labels, SET_LABEL: set_label(set_name, owner)}
    set_controller_reference(owner, placed)
    body = apply_body(placed)
    tree: dict[str, Any] = msgspec.json.decode(body)
    if kind_info(placed).gvk.group_kind == _SECRET:
        _fold_string_data(tree)
    digest = hashlib.sha256(msgspec.json.encode(tree, order="sorted")).hexdigest()[:16]
    return DesiredChild(kind, kind_info(placed).gvk.group_kind, metadata.namespace, metadata.name, tree, digest)


def _with_own_metadata(child: Resource) -> Resource:
    """Return a copy of ``child`` with separate metadata. The rest is shared, since it is only read and expensive to copy."""
    if source_of(child) is not None:
        return copy.deepcopy(child)  # with its source, by which the caller rejects it or identifies an extracted apply configuration
    if isinstance(child, Unstructured):
        tree = child.to_dict()
        return type(child).from_dict({**tree, "metadata": copy.deepcopy(tree.get("metadata"))})
    placed = copy.copy(child)
    placed.metadata = copy.deepcopy(child.metadata)
    return placed


def _fold_string_data(tree: dict[str, Any]) -> None:
    """Convert ``stringData`` to ``data`` as a server does. A server never returns ``stringData``, so it cannot be compared."""
    strings = tree.pop("stringData", None)
    if isinstance(strings, dict):
        encoded = {name: base64.b64encode(str(value).encode()).decode() for name, value in strings.items()}
        tree["data"] = {**tree.get("data", {}), **encoded}
