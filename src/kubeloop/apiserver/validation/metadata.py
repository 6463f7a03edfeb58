"""ObjectMeta on create and update: names, labels, annotations, owner references, finalizers, managed fields.

Source: k8s.io/apimachinery pkg/api/validation/objectmeta.go and pkg/apis/core/validation (finalizer names).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeloop.apiserver.validation.formats import each, immutable, not_negative
from kubeloop.apiserver.validation.selectors import labels
from kubeloop.meta.field_error import FieldError, FieldErrorType, forbidden, invalid, required, too_long
from kubeloop.meta.names import dns1123_label, path_segment, qualified_name
from kubeloop.types import JSONObject

#: Messages about a name, or about a prefix of one when the second argument is true.
NameRule = Callable[[str, bool], list[str]]

ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}


def object_meta(metadata: JSONObject, *, namespaced: bool, name_rule: NameRule, path: str = "metadata") -> Iterator[FieldError]:
    """A whole ObjectMeta, after names were generated."""
    if prefix := metadata.get("generateName"):
        yield from each(f"{path}.generateName", prefix, name_rule(prefix, True))
    if name := metadata.get("name"):
        yield from each(f"{path}.name", name, name_rule(name, False))
    else:
        yield required(f"{path}.name", "name or generateName is required")
    namespace = metadata.get("namespace", "")
    if not namespaced:
        if namespace:
            yield forbidden(f"{path}.namespace", "not allowed on this type")
    elif not namespace:
        yield required(f"{path}.namespace")
    else:
        yield from each(f"{path}.namespace", namespace, dns1123_label(namespace, False))
    yield from not_negative(f"{path}.generation", metadata.get("generation"))
    yield from labels(f"{path}.labels", metadata.get("labels"))
    yield from annotation_map(f"{path}.annotations", metadata.get("annotations"))
    yield from owner_references(f"{path}.ownerReferences", metadata.get("ownerReferences") or [])
    yield from finalizers(f"{path}.finalizers", metadata.get("finalizers") or [])
    yield from managed_fields(f"{path}.managedFields", metadata.get("managedFields") or [])


def embedded_meta(metadata: JSONObject, path: str) -> Iterator[FieldError]:
    """The ObjectMeta of a resource inside a custom object: whatever kind it is, so any name will do, in a namespace or not."""
    return object_meta(metadata, namespaced=bool(metadata.get("namespace")), name_rule=path_segment, path=path)


def object_meta_update(metadata: JSONObject, old: JSONObject, *, path: str = "metadata") -> Iterator[FieldError]:
    """What an update may not change, and the parts that are checked again."""
    if old.get("deletionTimestamp"):
        yield from _no_new_finalizers(f"{path}.finalizers", metadata.get("finalizers") or [], old.get("finalizers") or [])
    if not metadata.get("resourceVersion"):
        yield invalid(f"{path}.resourceVersion", "", "must be specified for an update")
    if (metadata.get("generation") or 0) < (old.get("generation") or 0):
        yield invalid(f"{path}.generation", metadata.get("generation") or 0, "must not be decremented")
    for name in ("name", "namespace", "uid"):
        yield from immutable(f"{path}.{name}", metadata.get(name, ""), old.get(name, ""))
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if metadata.get(name) != old.get(name):
            yield invalid(f"{path}.{name}", metadata.get(name), "field is immutable")
    yield from labels(f"{path}.labels", metadata.get("labels"))
    yield from annotation_map(f"{path}.annotations", metadata.get("annotations"))
    yield from owner_references(f"{path}.ownerReferences", metadata.get("ownerReferences") or [])
    yield from managed_fields(f"{path}.managedFields", metadata.get("managedFields") or [])


def annotation_map(path: str, found: dict[str, str] | None) -> Iterator[FieldError]:
    size = 0
    for key, value in (found or {}).items():
        yield from each(path, key, qualified_name(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT:
        yield too_long(path, ANNOTATIONS_LIMIT)


def owner_references(path: str, references: list[JSONObject]) -> Iterator[FieldError]:
    controller = ""
    for reference in references:
        yield from _owner_reference(path, reference)
        if not reference.get("controller"):
            continue
        this = f"{reference.get('kind', '')}/{reference.get('name', '')}"
        if controller:
            detail = f'Only one reference can have Controller set to true. Found "true" in references for {controller} and {this}'
            yield invalid(path, references, detail)
        else:
            controller = this


def _owner_reference(path: str, reference: JSONObject) -> Iterator[FieldError]:
    api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
    if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", api_version, "version must not be empty")
    for name in ("kind", "name", "uid"):
        if not reference.get(name):
            yield invalid(f"{path}.{name}", "", "must not be empty")
    if (api_version, kind) == ("v1", "Event"):
        yield invalid(path, reference, "/v1, Kind=Event is disallowed from being an owner")


def finalizers(path: str, found: list[str]) -> Iterator[FieldError]:
    for name in found:
        yield from each(path, name, qualified_name(name))
    if {"orphan", "foregroundDeletion"} <= set(found):
        yield invalid(path, found, "finalizer orphan and foregroundDeletion cannot be both set")


def standard_finalizers(metadata: JSONObject, path: str = "metadata") -> Iterator[FieldError]:
    """The further rule of core and its sibling groups: without a domain only Kubernetes' own finalizers."""
    for at, name in enumerate(metadata.get("finalizers") or ()):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            yield invalid(f"{path}.finalizers[{at}]", name, "name is neither a standard finalizer name nor is it fully qualified")


def _no_new_finalizers(path: str, new: list[str], old: list[str]) -> Iterator[FieldError]:
    if extra := sorted(set(new) - set(old)):
        shown = ", ".join(f'"{one}"' for one in extra)
        yield forbidden(path, f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}")


def managed_fields(path: str, entries: list[JSONObject]) -> Iterator[FieldError]:
    for at, entry in enumerate(entries):
        here = f"{path}[{at}]"
        if entry.get("operation", "") not in ("Apply", "Update"):
            yield invalid(f"{here}.operation", entry.get("operation", ""), "must be `Apply` or `Update`")
        if entry.get("fieldsType", "") not in ("", "FieldsV1"):
            yield invalid(f"{here}.fieldsType", entry["fieldsType"], "must be `FieldsV1`")
        yield from field_manager(f"{here}.manager", entry.get("manager", ""))
        if len(entry.get("subresource", "").encode()) > 256:
            yield too_long(f"{here}.subresource", 256)


def field_manager(path: str, name: str) -> Iterator[FieldError]:
    """Also for the query parameter ``fieldManager``."""
    if len(name.encode()) > 128:
        yield too_long(path, 128)
    if name.isprintable():
        return
    at = 0
    for char in name:
        if not char.isprintable():
            yield invalid(path, name, f"invalid character U+{ord(char):04X} (at position {at})")
        at += len(char.encode())


def template_meta(path: str, metadata: JSONObject | None, allowed: tuple[str, ...] = ("labels", "annotations")) -> Iterator[FieldError]:
    """Metadata of a template of which only labels and annotations count: anything else is refused."""
    metadata = metadata or {}
    yield from annotation_map(f"{path}.annotations", metadata.get("annotations"))
    yield from labels(f"{path}.labels", metadata.get("labels"))
    for name, value in metadata.items():
        if name not in allowed and value:
            yield FieldError(FieldErrorType.FORBIDDEN, f"{path}.{name}", None, "cannot be set")
