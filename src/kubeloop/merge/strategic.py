"""Strategic merge patch: a merge patch in which the schema decides which lists are merged, and by which key.

Source: k8s.io/apimachinery pkg/util/strategicpatch; Kubernetes' "Update API Objects in Place Using kubectl patch"; the design
proposals "preserve-order" ($setElementOrder) and "add-new-patchStrategy" ($retainKeys). Comments beside the code give the rules.
"""

from __future__ import annotations

from collections import deque

from kubeloop.merge.errors import PatchError
from kubeloop.merge.go_text import copy_tree, go_string, go_text, go_type, same
from kubeloop.merge.strategic_lists import FieldMerge, PatchSchema, element_kind, in_order, items_equal, require_objects, split_by_presence
from kubeloop.schema import Schemas, TypeSchema
from kubeloop.types import JSONObject, JSONValue

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
ELEMENT_ORDER = "$setElementOrder"


def strategic_merge(doc: JSONObject, patch: JSONValue, schema: TypeSchema | None, schemas: Schemas) -> JSONObject:
    """Return ``doc`` with a strategic merge patch applied. ``doc`` and ``patch`` stay unchanged, and the result shares nothing with them.

    The directives are ``$patch: replace | delete`` in an object or list element, ``$retainKeys``, ``$deleteFromPrimitiveList/FIELD`` and
    ``$setElementOrder/FIELD``.

    Args:
        doc: The object.
        patch: The patch.
        schema: The schema of the whole object. None: there is none.
        schemas: The document of that schema, for references.

    Raises:
        PatchError: 400 for a malformed patch or directive, and for kinds without a schema (custom resources); 422 for lists of lists; 500,
            as upstream, for an element without its merge key, an unknown directive, elements of mixed types, an order that leaves out an
            element.
    """
    return merge_in(doc, copy_tree(patch), schema, schemas)


def merge_in(doc: JSONObject, patch: JSONValue, schema: TypeSchema | None, schemas: Schemas) -> JSONObject:
    """Return ``doc`` with ``patch`` applied like ``strategic_merge``, but consume ``patch``.

    After an error, ``patch`` holds the part that was not applied, which an API server quotes in its message.

    Args:
        doc: The object.
        patch: The patch; it is changed.
        schema: The schema of the whole object. None: there is none.
        schemas: The document of that schema, for references.

    Raises:
        PatchError: See ``strategic_merge``.
    """
    if schema is None:
        raise PatchError("strategic merge patch format is not supported", 400)
    if not isinstance(patch, dict):
        raise PatchError("invalid JSON document", 400)
    return _merge_map(copy_tree(doc), patch, PatchSchema(schema, schemas))


def _merge_map(original: JSONObject, patch: JSONObject, schema: PatchSchema) -> JSONObject:
    """Merge two maps, changing both in place."""
    if DIRECTIVE in patch:
        return _directed(patch)
    _retain_keys(original, patch)
    _merge_ordered_lists(original, patch, schema)
    for name, value in patch.items():
        deletes = name.startswith(DELETE_FROM)
        key = _field_of(name, DELETE_FROM, "primitive list") if deletes else name
        if value is None:
            original.pop(key, None)
        elif key not in original or type(original[key]) is not type(value):
            if not deletes:
                _take(original, key, value)
        elif isinstance(value, dict):
            field = schema.field(key)
            original[key] = value if field.strategy == "replace" else _merge_map(original[key], value, field.schema)
        elif isinstance(value, list):
            original[key] = _merge_list_field(original[key], value, schema.list_field(key), deletes=deletes)
        else:
            original[key] = value
    return original


def _directed(patch: JSONObject) -> JSONObject:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        del patch[DIRECTIVE]
        return patch
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _unknown_directive(directive: JSONValue, patch: JSONObject) -> PatchError:
    return PatchError(f"unknown patch type: {go_string(directive)} in map: {go_text(patch)}", 500)


def _take(original: JSONObject, key: str, value: JSONValue) -> None:
    """Set a field that the original lacks or has with another type. Nulls and elements with a directive are removed from the value."""
    _drop_nulls(value)
    if isinstance(value, dict) and DIRECTIVE in value:
        original.pop(key, None)
    else:
        original[key] = _without_directives(value)


def _drop_nulls(value: JSONValue) -> None:
    if isinstance(value, dict):
        for key in [key for key, child in value.items() if child is None]:
            del value[key]
        for child in value.values():
            _drop_nulls(child)
    elif isinstance(value, list):
        for child in value:
            _drop_nulls(child)


def _without_directives(value: JSONValue) -> JSONValue:
    if isinstance(value, dict):
        return {key: _without_directives(child) for key, child in value.items() if not (isinstance(child, dict) and DIRECTIVE in child)}
    if isinstance(value, list):
        return [_without_directives(child) for child in value if not (isinstance(child, dict) and DIRECTIVE in child)]
    return value


def _retain_keys(original: JSONObject, patch: JSONObject) -> None:
    """Apply ``$retainKeys``, which lists all fields that may stay. Unions use it, where a new member must remove the old one."""
    if RETAIN_KEYS not in patch:
        return
    retained = patch.pop(RETAIN_KEYS)
    if not isinstance(retained, list):
        raise PatchError("invalid patch format of retainKeys", 400)
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_FROM, ELEMENT_ORDER)) and key not in retained:
            raise PatchError("invalid patch format of retainKeys", 400)
    for key in [key for key in original if key not in retained]:
        del original[key]


def _field_of(name: str, prefix: str, description: str) -> str:
    head, slash, field = name.partition("/")
    if head != prefix or not slash:
        raise PatchError(f"invalid patch format of {description}", 400)
    return field


def _merge_ordered_lists(original: JSONObject, patch: JSONObject, schema: PatchSchema) -> None:
    """Merge the lists for which the patch gives an order, and take them out of the patch.

    That order takes precedence over the order of the patch's own list, which takes precedence over the original's. Elements that only the
    original has stay beside their neighbours.
    """
    for name in [name for name in patch if name.startswith(ELEMENT_ORDER)]:
        order = _list(patch.pop(name))
        key = _field_of(name, ELEMENT_ORDER, "setElementOrder list")
        old = _list(original[key]) if key in original else None
        new = _list(patch[key]) if key in patch else None
        field = schema.list_field(key)
        _check_order(new or [], order, field.key)
        if old is None and new is None:
            continue
        before = list(old or [])
        if new is None:
            merged = before
        elif old is None:
            merged = _without_directives(new)
        else:
            replaced = any(isinstance(element, dict) and element.get(DIRECTIVE) == "replace" for element in new)
            merged = _merge_list_field(old, new, field)
            before = before if replaced else _places_left(before, merged, field)
        kind = element_kind(old or [], new or [])
        named, others = split_by_presence(merged, order, field.key)
        original[key] = in_order(named, others, order, before, field.key, kind)
        patch.pop(key, None)


def _places_left(old: list[JSONValue], merged: list[JSONValue], field: FieldMerge) -> list[JSONValue]:
    """Return the old list as upstream sees it after merging: the remaining elements, then new ones in place of the deleted ones.

    Upstream reuses the old list's memory, so those count as elements that the server had. Clients depend on this order.
    """
    if not field.key or field.strategy != "merge":
        return old
    kept, _ = split_by_presence(old, merged, field.key)
    _, new = split_by_presence(merged, old, field.key)
    return kept + new[: len(old) - len(kept)]


def _list(value: JSONValue) -> list[JSONValue]:
    if not isinstance(value, list):
        raise PatchError(f"expected a []interface {{}}, but received a {go_type(value)}", 500)
    return value


def _check_order(new: list[JSONValue], order: list[JSONValue], key: str) -> None:
    """Check that the patch's elements appear in the order, as a subsequence; deleted elements need not."""
    if not new or not order:
        return
    if key:
        require_objects(new)
    wanted = deque(element for element in new if not (key and isinstance(element, dict) and element.get(DIRECTIVE) == "delete"))
    rest = deque(order)
    while wanted and rest:
        # Elements with another directive are skipped while there is an order left to compare with, as upstream does.
        if (isinstance(wanted[0], dict) and DIRECTIVE in wanted[0]) or items_equal(wanted[0], rest.popleft(), key):
            wanted.popleft()
    if wanted:
        raise PatchError(f"The order in patch list:\n{go_text(new)}\n doesn't match {ELEMENT_ORDER} list:\n{go_text(order)}\n", 500)


def _merge_list_field(old: list[JSONValue], new: list[JSONValue], field: FieldMerge, *, deletes: bool = False) -> list[JSONValue]:
    if field.strategy != "merge" and not deletes:
        return new
    if not old and not new:
        return old
    kind = element_kind(old, new)
    if kind is not dict:
        if deletes:
            return [value for value in old if not any(same(value, gone) for gone in new)]
        merged = _distinct([*old, *new])
    else:
        if not field.key:
            raise PatchError(f"cannot merge lists without merge key for {field.schema.kind}", 500)
        old, new = _apply_element_directives(old, new, field.key)
        merged = _merge_elements(old, new, field)
    named, others = split_by_presence(merged, new, field.key)
    return in_order(named, others, new, old, field.key, kind)


def _distinct(values: list[JSONValue]) -> list[JSONValue]:
    result: list[JSONValue] = []
    for value in values:
        if not any(same(value, known) for known in result):
            result.append(value)
    return result


def _apply_element_directives(old: list[JSONValue], new: list[JSONValue], key: str) -> tuple[list[JSONValue], list[JSONValue]]:
    """Apply ``$patch`` directives of elements; return the remaining elements of both lists."""
    plain: list[JSONValue] = []
    replace = False
    for element in new:
        if DIRECTIVE not in element:
            plain.append(element)
            continue
        match element[DIRECTIVE]:
            case "delete":
                if key not in element:
                    raise PatchError(f"map: {go_text(element)} does not contain declared merge key: {key}", 500)
                old = [value for value in old if not (key in value and same(value[key], element[key]))]
            case "replace":
                # At any position in the list; the other elements of the patch become the list.
                replace = True
            case "merge":
                raise PatchError("merging lists cannot yet be specified in the patch", 500)
            case unknown:
                raise _unknown_directive(unknown, element)
    return (plain, []) if replace else (old, plain)


def _merge_elements(old: list[JSONValue], new: list[JSONValue], field: FieldMerge) -> list[JSONValue]:
    merged = list(old)
    for element in new:
        if field.key not in element:
            raise PatchError(f"map: {go_text(element)} does not contain declared merge key: {field.key}", 500)
        for position, known in enumerate(merged):
            if field.key in known and same(known[field.key], element[field.key]):
                merged[position] = _merge_map(known, element, field.schema)
                break
        else:
            merged.append(element)
    return merged
