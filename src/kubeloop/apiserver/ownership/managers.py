"""Entries of managedFields: the name of a field manager, the limit on updates, times, and the annotation of kubectl apply."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from kubeloop.apiserver.ownership.entries import UPDATE, Managed, identifier, seconds
from kubeloop.apiserver.ownership.scopes import Scope
from kubeloop.apiserver.validation.metadata import ANNOTATIONS_LIMIT
from kubeloop.merge.fields import FieldSet, TypeMismatch, compare, field_set
from kubeloop.merge.fields.checking import check
from kubeloop.merge.fields.elements import json_text
from kubeloop.merge.fields.managing import VersionedSet
from kubeloop.types import JSONObject

# Who a write belongs to: the name of a field manager, as a request says it or as its User-Agent does.
#
# Source: k8s.io/apiserver pkg/endpoints/handlers/create.go (managerOrUserAgent), Kubernetes documentation "Server-Side Apply", "Managers".


#: Bytes of a manager's name.
LONGEST = 128
#: Of a request that says neither.
UNKNOWN = "unknown"
#: The server itself.
SERVER = "kube-apiserver"


def manager_of(field_manager: str, user_agent: str) -> str:
    """``field_manager`` (already validated) if there is one, else what stands before the first slash of the User-Agent.

    Of the latter only printable characters count, and only as many as fit. Never empty.
    """
    return field_manager or _prefix(user_agent) or UNKNOWN


def _prefix(user_agent: str) -> str:
    name = user_agent.partition("/")[0]
    if name.isascii() and name.isprintable() and len(name) <= LONGEST:
        return name
    kept, size = [], 0
    for char in name:
        if not char.isprintable():
            continue
        size += len(char.encode("utf-8", "surrogatepass"))
        if size > LONGEST:
            break
        kept.append(char)
    return "".join(kept)


# A write that changes nothing but the times of managedFields changes nothing.
#
# Source: k8s.io/apiserver pkg/endpoints/handlers/fieldmanager/equality.go (IgnoreManagedFieldsTimestampsTransformer).


def keep_times(old: JSONObject, new: JSONObject, is_same: Callable[[], bool]) -> bool:
    """Give ``new`` the times of ``old`` if nothing else differs. True if so; else ``new`` is left as it was.

    ``is_same`` compares the objects as they then are, and is asked only when it matters.
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


# At most ten managers that update: beyond that the oldest of a version melt into one named "ancient-changes".
#
# Source: k8s.io/apimachinery pkg/util/managedfields/internal/capmanagers.go. Who applies is never melted down.


MOST_UPDATERS = 10
ANCIENT = "ancient-changes"


def cap(managed: Managed) -> None:
    """Changes ``managed`` where it has more than ``MOST_UPDATERS`` managers that update."""
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
            continue  # the first of its version makes room only once a second one joins it
        bucket = identifier(ANCIENT, UPDATE, version, "")
        if bucket not in managed.fields:
            managed.fields[bucket] = managed.fields.pop(first)
        managed.fields[bucket] = VersionedSet(owned.set | managed.fields[bucket].set, version, owned.applied)
        managed.times[bucket] = managed.times.get(manager)
        managed.fields.pop(manager, None)
        excess -= 1


# From client-side apply to server-side apply: what ``kubectl apply`` wrote down earlier counts as kubectl's own.
#
# Source: k8s.io/apimachinery pkg/util/managedfields/internal (lastappliedmanager.go, lastappliedupdater.go).


#: The one manager for whom this is done.
KUBECTL: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def allowed_conflicts(live: JSONObject, scope: Scope) -> FieldSet:
    """Fields that the annotation has as they are live: taking them from others is the same user's move from one apply to the other."""
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


def renew(obj: JSONObject, config: JSONObject) -> JSONObject:
    """``obj`` with its annotation, if it has one, saying ``config``; without one that grew too large."""
    annotations = _annotations(obj)
    if not annotations.get(ANNOTATION):
        return obj
    kept = dict(annotations)
    kept[ANNOTATION] = _text(config)
    if sum(len(name.encode()) + len(value.encode()) for name, value in kept.items()) > ANNOTATIONS_LIMIT:
        del kept[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": kept}}


def _text(config: JSONObject) -> str:
    """As upstream encodes it: names sorted, a line break at the end."""
    metadata = {**config["metadata"]}
    if "annotations" in metadata:
        metadata["annotations"] = {name: value for name, value in _annotations(config).items() if name != ANNOTATION}
    return json_text({**config, "metadata": metadata}) + "\n"


def _annotations(obj: JSONObject) -> dict[str, str]:
    metadata = obj.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
