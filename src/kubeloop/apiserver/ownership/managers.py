"""Names of field managers, the limit on entries, times of entries, and the annotation of client-side kubectl apply."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from kubeloop.apiserver.ownership.entries import UPDATE, ManagedFields, identifier, seconds
from kubeloop.apiserver.ownership.scopes import Scope
from kubeloop.apiserver.validation.metadata import ANNOTATIONS_LIMIT
from kubeloop.merge.fields import FieldSet, TypeMismatch, compare, field_set
from kubeloop.merge.fields.checks import check
from kubeloop.merge.fields.elements import json_text
from kubeloop.merge.fields.managers import VersionedSet
from kubeloop.types import JSONObject

# The field manager of a write: the query parameter, or the User-Agent.
#
# Source: k8s.io/apiserver pkg/endpoints/handlers/create.go (managerOrUserAgent), Kubernetes documentation "Server-Side Apply", "Managers".


#: Maximum bytes of a manager's name.
LONGEST = 128
#: Manager of a request without parameter and User-Agent.
UNKNOWN = "unknown"
#: Manager of the server's own writes.
SERVER = "kube-apiserver"


def manager_of(field_manager: str, user_agent: str) -> str:
    """Return the field manager of a request: ``field_manager``, or if that is empty, the User-Agent before the first slash.

    Of the User-Agent only printable characters are used, up to the maximum length. The result is never empty.
    """
    return field_manager or _prefix(user_agent) or UNKNOWN


def _prefix(user_agent: str) -> str:
    name = user_agent.partition("/")[0]
    if name.isascii() and name.isprintable() and len(name) <= LONGEST:
        return name
    retained, size = [], 0
    for char in name:
        if not char.isprintable():
            continue
        size += len(char.encode("utf-8", "surrogatepass"))
        if size > LONGEST:
            break
        retained.append(char)
    return "".join(retained)


# A write that changes only the times of managedFields changes nothing.
#
# Source: k8s.io/apiserver pkg/endpoints/handlers/fieldmanager/equality.go (IgnoreManagedFieldsTimestampsTransformer).


def restore_times(old: JSONObject, new: JSONObject, is_same: Callable[[], bool]) -> bool:
    """Copy the times of ``old`` to ``new`` if nothing else differs. Return whether they were copied; if not, ``new`` is unchanged.

    ``is_same`` compares the objects after the copy. It is called only if the managedFields differ in nothing but times.
    """
    before, after = old["metadata"].get("managedFields") or [], new["metadata"].get("managedFields") or []
    if len(before) != len(after) or all(one.get("time") == other.get("time") for one, other in zip(before, after, strict=True)):
        return False
    if not all(_timeless(one) == _timeless(other) for one, other in zip(before, after, strict=True)):
        return False
    new["metadata"]["managedFields"] = before
    if is_same():
        return True
    new["metadata"]["managedFields"] = after
    return False


def _timeless(entry: JSONObject) -> JSONObject:
    return {name: value for name, value in entry.items() if name != "time"}


# At most ten managers with operation Update: beyond that, the oldest of a version are merged into "ancient-changes".
#
# Source: k8s.io/apimachinery pkg/util/managedfields/internal/capmanagers.go. Managers that apply are never merged.


MOST_UPDATERS = 10
ANCIENT = "ancient-changes"


def cap_updaters(managed: ManagedFields) -> None:
    """Merge the oldest managers of ``managed``, in place, if more than ``MOST_UPDATERS`` have the operation Update."""
    if len(managed.fields) <= MOST_UPDATERS:
        return
    updaters = [manager for manager, owned in managed.fields.items() if not owned.applied]
    excess = len(updaters) - MOST_UPDATERS
    if excess <= 0:
        return
    updaters.sort(key=lambda manager: (seconds(managed.times.get(manager)), manager))
    first_of: dict[str, str] = {}
    for manager in updaters:
        if excess <= 0:
            return
        owned = managed.fields[manager]
        version = owned.api_version
        first = first_of.setdefault(version, manager)
        if first == manager:
            continue  # The first manager of a version is merged only when a second one follows.
        bucket = identifier(ANCIENT, UPDATE, version, "")
        if bucket not in managed.fields:
            managed.fields[bucket] = managed.fields.pop(first)
        managed.fields[bucket] = VersionedSet(owned.set | managed.fields[bucket].set, version, owned.applied)
        managed.times[bucket] = managed.times.get(manager)
        managed.fields.pop(manager, None)
        excess -= 1


# From client-side apply to server-side apply: fields in the annotation of ``kubectl apply`` count as owned by kubectl.
#
# Source: k8s.io/apimachinery pkg/util/managedfields/internal (lastappliedmanager.go, lastappliedupdater.go).


#: The only manager with this treatment.
KUBECTL: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def allowed_conflicts(live: JSONObject, scope: Scope) -> FieldSet:
    """Return the fields whose values in kubectl's last-applied annotation and in the live object are equal.

    Conflicts about these fields are ignored, so that kubectl can change from client-side to server-side apply.
    """
    text = _annotations(live).get(ANNOTATION)
    if not text:
        return FieldSet()
    try:
        applied = json.loads(text)
    except ValueError:
        return FieldSet()
    if not isinstance(applied, dict) or applied.get("apiVersion") != scope.api_version or not applied.get("kind"):
        return FieldSet()
    type_ = scope.versions.type_of(scope.api_version)
    try:
        check(applied, type_)
        change = compare(applied, live, type_)
        return field_set(applied, type_) - change.modified - change.added - change.removed
    except TypeMismatch:
        return FieldSet()


def update_last_applied(obj: JSONObject, config: JSONObject) -> JSONObject:
    """Return ``obj`` with ``config`` as its last-applied annotation, if it has this annotation.

    The annotation is removed if it would exceed the size limit.
    """
    annotations = _annotations(obj)
    if not annotations.get(ANNOTATION):
        return obj
    retained = dict(annotations)
    retained[ANNOTATION] = _text(config)
    if sum(len(name.encode()) + len(value.encode()) for name, value in retained.items()) > ANNOTATIONS_LIMIT:
        del retained[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": retained}}


def _text(config: JSONObject) -> str:
    """Encode a configuration for the last-applied annotation as upstream does: without that annotation, names sorted."""
    metadata = {**config["metadata"]}
    if "annotations" in metadata:
        metadata["annotations"] = {name: value for name, value in _annotations(config).items() if name != ANNOTATION}
    return json_text({**config, "metadata": metadata}) + "\n"


def _annotations(obj: JSONObject) -> dict[str, str]:
    metadata = obj.get("metadata")
    result = metadata.get("annotations") if isinstance(metadata, dict) else None
    return result if isinstance(result, dict) else {}
