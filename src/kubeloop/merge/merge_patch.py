"""JSON merge patch: null removes, objects merge, everything else replaces.

Source: RFC 7386. As in the library behind kube-apiserver (evanphx/json-patch v4), nulls are also removed from objects within a
list that replaces a value other than an object.
"""

from __future__ import annotations

from kubeloop.merge.errors import PatchError
from kubeloop.merge.go_text import copy_tree, json_type, same
from kubeloop.types import JSONObject, JSONValue


def merge_patch(doc: JSONValue, patch: JSONValue) -> JSONObject:
    """Return ``doc`` with ``patch`` merged in; neither is changed, and the result shares nothing with them.

    Raises:
        PatchError: 400 if ``patch`` is not an object, because an API server accepts only objects.
    """
    if not isinstance(patch, dict):
        raise PatchError(
            f"error decoding patch: json: cannot unmarshal {json_type(patch)} into Go value of type map[string]interface {{}}", 400
        )
    return _merge(doc, patch) if isinstance(doc, dict) else _without_nulls(patch)


def _merge(doc: JSONObject, patch: JSONObject) -> JSONObject:
    # Members keep the document's order; members of the patch are set below.
    result = {key: None if key in patch else copy_tree(value) for key, value in doc.items() if key not in patch or patch[key] is not None}
    for key, value in patch.items():
        if value is None:
            continue
        old = doc.get(key)
        if isinstance(old, dict):
            result[key] = _merge(old, value) if isinstance(value, dict) else copy_tree(value)
        else:
            result[key] = _without_nulls(value)
    return result


def _without_nulls(value: JSONValue) -> JSONValue:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value


def create_merge_patch(old: JSONObject, new: JSONObject) -> JSONObject:
    """Return the smallest merge patch that turns ``old`` into ``new``, or an empty object if they are equal.

    Guarantees
        ``merge_patch(old, create_merge_patch(old, new))`` equals ``new`` if no object in ``new`` has a null member.

    Not guaranteed
        A merge patch cannot express a null member in ``new``: it is treated as missing, unless ``old`` has it too.
        A list is replaced as a whole.
    """
    patch: JSONObject = {key: None for key, value in old.items() if new.get(key) is None and (value is not None or key not in new)}
    for key, value in new.items():
        if value is None:
            continue
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            below = create_merge_patch(before, value)
            if below:
                patch[key] = below
        elif not same(before, value):
            patch[key] = copy_tree(value)
    return patch
