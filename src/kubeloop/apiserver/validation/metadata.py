"""Rules for object metadata, label selectors and conditions, which all kinds share.

Source: k8s.io/apimachinery pkg/api/validation/objectmeta.go, pkg/apis/meta/v1/validation; pkg/apis/core/validation (finalizer names).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kubeloop.apiserver.validation.formats import check_immutable, check_not_negative, check_one_of, each
from kubeloop.meta.field_error import FieldError, FieldErrorType, duplicate, forbidden, invalid, required, too_long
from kubeloop.meta.names import dns1123_label, label_value, path_segment, qualified_name, wrong_pattern
from kubeloop.types import JSONObject


def validate_labels(path: str, field_value: dict[str, str] | None) -> Iterator[FieldError]:
    """Validate the keys and values of labels. All errors are reported at the map itself."""
    for key, value in (field_value or {}).items():
        yield from each(path, key, qualified_name(key))
        yield from each(path, value, label_value(value))


def validate_label_selector(path: str, selector: JSONObject | None, *, any_value: bool = False) -> Iterator[FieldError]:
    """Validate a label selector; None is valid. ``any_value`` skips the values of expressions, for stored objects with invalid values."""
    if selector is None:
        return
    yield from validate_labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from validate_requirement(f"{path}.matchExpressions[{index}]", expression, any_value=any_value)


def validate_requirement(path: str, expression: JSONObject, *, any_value: bool = False, any_operator: bool = False) -> Iterator[FieldError]:
    """Validate one expression of a selector.

    Args:
        path: Path of the expression.
        expression: A LabelSelectorRequirement.
        any_value: Skip the values.
        any_operator: Skip the operator.

    Returns:
        The errors.
    """
    operator, values, key = expression.get("operator", ""), expression.get("values") or [], expression.get("key", "")
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif not any_operator:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from each(f"{path}.key", key, qualified_name(key))
    if not any_value:
        for index, value in enumerate(values):
            yield from each(f"{path}.values[{index}]", value, label_value(value))


def matches(selector: JSONObject, field_value: dict[str, str]) -> bool:
    """Return whether a valid LabelSelector matches labels. An empty selector matches all."""
    if any(field_value.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches(expression, field_value) for expression in selector.get("matchExpressions") or ())


def _matches(expression: JSONObject, value: dict[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value.get(key) in values
        case "NotIn":
            return key not in value or value[key] not in values
        case "Exists":
            return key in value
        case _:
            return key not in value


def is_empty(selector: JSONObject) -> bool:
    """Return whether a LabelSelector is empty."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_LIMIT = 1024
_MESSAGE_LIMIT = 32 * 1024


def validate_conditions(path: str, value: list[JSONObject]) -> Iterator[FieldError]:
    """Validate a list of conditions."""
    types: set[str] = set()
    for index, condition in enumerate(value):
        here, kind = f"{path}[{index}]", condition.get("type", "")
        if kind in types:
            yield duplicate(f"{here}.type", kind)
        types.add(kind)
        yield from _condition(here, condition)


def _condition(path: str, condition: JSONObject) -> Iterator[FieldError]:
    kind, reason = condition.get("type", ""), condition.get("reason", "")
    yield from each(f"{path}.type", kind, qualified_name(kind))
    yield from check_one_of(f"{path}.status", condition.get("status", ""), ("False", "True", "Unknown"))
    if condition.get("observedGeneration", 0) < 0:
        yield invalid(f"{path}.observedGeneration", condition["observedGeneration"], "must be greater than or equal to zero")
    if condition.get("lastTransitionTime") is None:
        yield required(f"{path}.lastTransitionTime")
    if not reason:
        yield required(f"{path}.reason")
    else:
        if not re.fullmatch(_REASON, reason):
            rule = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters "
            rule += "or '_,:', and must end with an alphanumeric character or '_'"
            text = wrong_pattern(rule, _REASON, "my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
            yield invalid(f"{path}.reason", reason, text)
        if len(reason.encode()) > _REASON_LIMIT:
            yield too_long(f"{path}.reason", _REASON_LIMIT)
    if len(condition.get("message", "").encode()) > _MESSAGE_LIMIT:
        yield too_long(f"{path}.message", _MESSAGE_LIMIT)


#: Returns messages about a name, or about a prefix of a name if the second argument is True.
NameRule = Callable[[str, bool], list[str]]

ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}


def validate_object_meta(metadata: JSONObject, *, namespaced: bool, name_rule: NameRule, path: str = "metadata") -> Iterator[FieldError]:
    """Validate an ObjectMeta, after names were generated.

    Args:
        metadata: The ObjectMeta.
        namespaced: Whether the kind has namespaces.
        name_rule: The rule for names of the kind.
        path: Path of the metadata.

    Returns:
        The errors.
    """
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
    yield from check_not_negative(f"{path}.generation", metadata.get("generation"))
    yield from validate_labels(f"{path}.labels", metadata.get("labels"))
    yield from validate_annotation_map(f"{path}.annotations", metadata.get("annotations"))
    yield from validate_owner_references(f"{path}.ownerReferences", metadata.get("ownerReferences") or [])
    yield from validate_finalizers(f"{path}.finalizers", metadata.get("finalizers") or [])
    yield from validate_managed_fields(f"{path}.managedFields", metadata.get("managedFields") or [])


def validate_embedded_meta(metadata: JSONObject, path: str) -> Iterator[FieldError]:
    """Validate the ObjectMeta of a resource inside a custom object. Its kind is unknown, so any name and namespace are valid."""
    return validate_object_meta(metadata, namespaced=bool(metadata.get("namespace")), name_rule=path_segment, path=path)


def validate_object_meta_update(metadata: JSONObject, old: JSONObject, *, path: str = "metadata") -> Iterator[FieldError]:
    """Validate the ObjectMeta of an update: immutable fields must be unchanged, and changeable fields valid."""
    if old.get("deletionTimestamp"):
        yield from _no_new_finalizers(f"{path}.finalizers", metadata.get("finalizers") or [], old.get("finalizers") or [])
    if not metadata.get("resourceVersion"):
        yield invalid(f"{path}.resourceVersion", "", "must be specified for an update")
    if (metadata.get("generation") or 0) < (old.get("generation") or 0):
        yield invalid(f"{path}.generation", metadata.get("generation") or 0, "must not be decremented")
    for name in ("name", "namespace", "uid"):
        yield from check_immutable(f"{path}.{name}", metadata.get(name, ""), old.get(name, ""))
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if metadata.get(name) != old.get(name):
            yield invalid(f"{path}.{name}", metadata.get(name), "field is immutable")
    yield from validate_labels(f"{path}.labels", metadata.get("labels"))
    yield from validate_annotation_map(f"{path}.annotations", metadata.get("annotations"))
    yield from validate_owner_references(f"{path}.ownerReferences", metadata.get("ownerReferences") or [])
    yield from validate_managed_fields(f"{path}.managedFields", metadata.get("managedFields") or [])


def validate_annotation_map(path: str, field_value: dict[str, str] | None) -> Iterator[FieldError]:
    """Validate annotations: their keys, and their total size."""
    size = 0
    for key, value in (field_value or {}).items():
        yield from each(path, key, qualified_name(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT:
        yield too_long(path, ANNOTATIONS_LIMIT)


def validate_owner_references(path: str, references: list[JSONObject]) -> Iterator[FieldError]:
    """Validate owner references."""
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


def validate_finalizers(path: str, value: list[str]) -> Iterator[FieldError]:
    """Validate the names of finalizers."""
    for name in value:
        yield from each(path, name, qualified_name(name))
    if {"orphan", "foregroundDeletion"} <= set(value):
        yield invalid(path, value, "finalizer orphan and foregroundDeletion cannot be both set")


def check_standard_finalizers(metadata: JSONObject, path: str = "metadata") -> Iterator[FieldError]:
    """Check that finalizers without a domain are Kubernetes' own, as the core group and its related groups require."""
    for index, name in enumerate(metadata.get("finalizers") or ()):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            yield invalid(f"{path}.finalizers[{index}]", name, "name is neither a standard finalizer name nor is it fully qualified")


def _no_new_finalizers(path: str, new: list[str], old: list[str]) -> Iterator[FieldError]:
    if extra := sorted(set(new) - set(old)):
        shown = ", ".join(f'"{one}"' for one in extra)
        yield forbidden(path, f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}")


def validate_managed_fields(path: str, entries: list[JSONObject]) -> Iterator[FieldError]:
    """Validate the entries of managedFields."""
    for index, entry in enumerate(entries):
        here = f"{path}[{index}]"
        if entry.get("operation", "") not in ("Apply", "Update"):
            yield invalid(f"{here}.operation", entry.get("operation", ""), "must be `Apply` or `Update`")
        if entry.get("fieldsType", "") not in ("", "FieldsV1"):
            yield invalid(f"{here}.fieldsType", entry["fieldsType"], "must be `FieldsV1`")
        yield from validate_field_manager(f"{here}.manager", entry.get("manager", ""))
        if len(entry.get("subresource", "").encode()) > 256:
            yield too_long(f"{here}.subresource", 256)


def validate_field_manager(path: str, name: str) -> Iterator[FieldError]:
    """Validate the name of a field manager, which may come from the query parameter ``fieldManager``."""
    if len(name.encode()) > 128:
        yield too_long(path, 128)
    if name.isprintable():
        return
    index = 0
    for char in name:
        if not char.isprintable():
            yield invalid(path, name, f"invalid character U+{ord(char):04X} (at position {index})")
        index += len(char.encode())


def check_template_meta(
    path: str, metadata: JSONObject | None, allowed: tuple[str, ...] = ("labels", "annotations")
) -> Iterator[FieldError]:
    """Check that the metadata of a template sets only allowed fields."""
    metadata = metadata or {}
    yield from validate_annotation_map(f"{path}.annotations", metadata.get("annotations"))
    yield from validate_labels(f"{path}.labels", metadata.get("labels"))
    for name, value in metadata.items():
        if name not in allowed and value:
            yield FieldError(FieldErrorType.FORBIDDEN, f"{path}.{name}", None, "cannot be set")
