"""ControllerRevisions: the history of the templates of a StatefulSet or DaemonSet.

The data of a revision is a patch that restores the template. Data, hash and name are equal to upstream's, byte for byte, so that either
controller can continue the other's history. Source: Kubernetes pkg/controller/history/controller_history.go; getPatch in
statefulset/stateful_set_utils.go and daemon/update.go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kubeloop.api.apps.v1 import ControllerRevision, DaemonSet, StatefulSet
from kubeloop.client import Client, DeleteOptions
from kubeloop.codec import to_dict
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.workloads.template import safe_encoded, without_nulls
from kubeloop.meta import AlreadyExists, Conflict, KubeloopError, NotFound, ObjectMeta
from kubeloop.meta.field_error import go_float, go_json
from kubeloop.types import JSONObject

#: The label with the revision on pods of StatefulSets and DaemonSets, and on revisions of DaemonSets.
REVISION_LABEL = "controller-revision-hash"
#: The label with the hash on revisions of StatefulSets.
HASH_LABEL = "controller.kubernetes.io/hash"
#: Number of old revisions that are kept if the object has no limit (the server's default).
HISTORY_LIMIT = 10
#: Maximum length of the prefix of a name, so that the name with its hash has at most 253 bytes.
_LONGEST_PREFIX = 223
#: Integers above this may be rounded: upstream decodes the numbers in templates of StatefulSets, but not of DaemonSets, as float64.
_EXACT = 2**53
_BEGINNING = datetime.min.replace(tzinfo=UTC)


def template_patch(owner: StatefulSet | DaemonSet) -> JSONObject:
    """Return the patch that restores the present template of ``owner``, with sorted keys, because upstream compares bytes."""
    template: JSONObject = to_dict(owner)["spec"]["template"]
    if isinstance(owner, StatefulSet):
        template = _as_floats(template)
    patch: JSONObject = _sorted({"spec": {"template": {**template, "$patch": "replace"}}})
    return patch


def template_of(revision: ControllerRevision) -> JSONObject:
    """Return the template that a revision restores."""
    template: JSONObject = dict(((revision.data or {}).get("spec") or {}).get("template") or {})
    template.pop("$patch", None)
    return template


def encode_data(data: JSONObject) -> bytes:
    """Encode the data of a revision like Go's encoding/json encodes a map."""
    return go_json(data, sort_keys=True).encode()


def _sorted(node: Any) -> Any:
    """Return a copy of a JSON tree with the keys of all maps sorted."""
    if isinstance(node, dict):
        return {key: _sorted(node[key]) for key in sorted(node)}
    return [_sorted(value) for value in node] if isinstance(node, list) else node


def _as_floats(node: Any) -> Any:
    """Return a copy of a JSON tree in which large integers are rounded like by a conversion to float64 and back."""
    match node:
        case dict():
            return {key: _as_floats(value) for key, value in node.items()}
        case list():
            return [_as_floats(value) for value in node]
        case bool():
            return node
        case int() if abs(node) > _EXACT:
            return int(go_float(float(node)))
        case _:
            return node


def revision_hash(data: JSONObject, collision_count: int | None) -> str:
    """Return the hash in the name of a StatefulSet's revision.

    Args:
        data: The data of the revision.
        collision_count: The collision count in the owner's status; None and 0 are different.
    """
    text = encode_data(data) + (b"" if collision_count is None else b"%d" % collision_count)
    digest = 0x811C9DC5
    for byte in text:
        digest = (digest * 0x01000193 & 0xFFFFFFFF) ^ byte
    return safe_encoded(digest)


def revision_name(prefix: str, value: str) -> str:
    """Return the name of a revision: the owner's name and a hash."""
    return f"{prefix[:_LONGEST_PREFIX]}-{value}"


def _rank(revision: ControllerRevision) -> tuple[int, datetime, str]:
    return revision.revision, revision.metadata.creation_timestamp or _BEGINNING, revision.metadata.name


def in_order(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Sort revisions by number, the lowest first; equal numbers by creation time and name."""
    return sorted(revisions, key=_rank)


def next_number(revisions: Sequence[ControllerRevision]) -> int:
    """Return the number of a new revision: one more than the highest of ``revisions``."""
    return max((one.revision for one in revisions), default=0) + 1


class RevisionMatch(NamedTuple):
    """The revision of the present template of a StatefulSet.

    ``revision`` is None if it does not exist yet. ``rollback`` says that it is an older revision, which must get the newest number.
    """

    revision: ControllerRevision | None
    rollback: bool


def find_match(revisions: Sequence[ControllerRevision], data: JSONObject) -> RevisionMatch:
    """Return the revision whose data equals the patch of the present template.

    Nulls in the newest revision are ignored: kube-controller-manager before 1.34 wrote the template's creationTimestamp as null.

    Args:
        revisions: All revisions, in order.
        data: The patch of the present template.
    """
    encoded = encode_data(data)
    equal = [one for one in revisions if encode_data(one.data or {}) == encoded]
    if equal:
        newest = encode_data(revisions[-1].data or {}) == encoded
        return RevisionMatch(revisions[-1] if newest else equal[-1], rollback=not newest)
    if revisions and without_nulls(revisions[-1].data or {}) == without_nulls(data):
        return RevisionMatch(revisions[-1], rollback=False)
    return RevisionMatch(None, rollback=False)


def new_revision(owner: StatefulSet, data: JSONObject, number: int, collision_count: int) -> ControllerRevision:
    """Return the revision to create for the present template of a StatefulSet.

    Args:
        owner: The StatefulSet.
        data: The patch of the template.
        number: The number of the revision.
        collision_count: The collision count in the owner's status.

    Returns:
        The object to create.
    """
    value = revision_hash(data, collision_count)
    metadata = ObjectMeta(
        name=revision_name(owner.metadata.name, value),
        namespace=owner.metadata.namespace,
        labels={**owner.spec.template.metadata.labels, HASH_LABEL: value},
        annotations=dict(owner.metadata.annotations),
    )
    revision = ControllerRevision(metadata=metadata, data=data, revision=number)
    set_controller_reference(owner, revision)
    return revision


async def create_revision(
    client: Client, revision: ControllerRevision, prefix: str, collision_count: int
) -> tuple[ControllerRevision, int]:
    """Create a revision; if a revision of another template has the same hash, retry with another name.

    Args:
        client: Creates the revision.
        revision: The object to create.
        prefix: Name of the owner.
        collision_count: The collision count in the owner's status.

    Returns:
        The revision as it is on the server, and the collision count after all collisions.
    """
    data = revision.data or {}
    while True:
        revision.metadata.name = revision_name(prefix, revision_hash(data, collision_count))
        try:
            return await client.create(revision), collision_count
        except AlreadyExists:
            existing = await client.get(ControllerRevision, revision.metadata.name, namespace=revision.metadata.namespace)
        if encode_data(existing.data or {}) == encode_data(data):
            return existing, collision_count
        collision_count += 1


async def delete_revision(client: Client, revision: ControllerRevision) -> None:
    """Delete a revision; do nothing if it was already deleted or replaced."""
    with contextlib.suppress(NotFound, Conflict):
        await client.delete(revision, options=DeleteOptions(uid=revision.metadata.uid))


def surplus_revisions(revisions: Sequence[ControllerRevision], live: Collection[str], limit: int | None) -> list[ControllerRevision]:
    """Return the oldest unused revisions of a StatefulSet beyond its history limit.

    Args:
        revisions: All revisions, in order.
        live: Names of the revisions of pods and status, which do not count and are never returned.
        limit: spec.revisionHistoryLimit. None: the server's default. Negative: no limit.
    """
    limit = HISTORY_LIMIT if limit is None else limit
    unused = [one for one in revisions if one.metadata.name not in live]
    return unused[: len(unused) - limit] if 0 <= limit < len(unused) else []


def failure_text(error: KubeloopError) -> str:
    """Return the text of an error for Events, as upstream: the message of the server's Status, or else the text of the exception."""
    status = getattr(error, "status", None)
    return str(getattr(status, "message", None) or error)
