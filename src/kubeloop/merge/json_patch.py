"""JSON patches: applies them, and computes the patch from one JSON tree to another."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kubeloop.merge.errors import PatchError
from kubeloop.merge.go_text import copy_tree, json_type, same
from kubeloop.types import JSONValue

#: An API server refuses longer patches (k8s.io/apiserver pkg/endpoints/handlers/patch.go).
MAX_OPERATIONS = 10_000
#: Maximum bytes that all copy operations of a patch together may add, as JSON: copying a parent into its child would double it each time.
MAX_COPIED = 3 * 1024 * 1024
_MISSING = object()


@dataclass(slots=True)
class _Root:
    tree: JSONValue
    copied: int = 0


def json_patch(doc: JSONValue, patch: JSONValue, *, lenient: bool = False) -> JSONValue:
    """Return ``doc`` with the operations of ``patch`` applied in order; neither is changed, and the result shares nothing with them.

    With ``lenient``, a member of a wrong type counts as missing when its operation is applied, as in the patch library of an API server;
    else it is reported before the first operation, as by the server's own check.

    Raises:
        PatchError: 400 if ``patch`` is not a list of operations, 413 if it has more than 10,000, 422 if an operation does not apply or all
            copies together add more than 3 MiB.
    """
    operations = _loose(patch) if lenient else _operations(patch)
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}", 413)
    root = _Root(copy_tree(doc))
    for operation in operations:
        apply = _OPERATIONS.get(operation.get("op") or "unknown")
        if apply is None:
            raise _refuse(f"Unexpected kind: {operation.get('op') or 'unknown'}")
        apply(root, operation)
    return root.tree


def _operations(patch: JSONValue) -> list[dict[str, Any]]:
    if not isinstance(patch, list):
        raise _undecodable(patch, "value of type []handlers.jsonPatchOp")
    for operation in patch:
        if not isinstance(operation, dict):
            raise _undecodable(operation, "value of type handlers.jsonPatchOp")
        for name in ("op", "path", "from"):
            if not isinstance(operation.get(name, ""), str | None):
                raise _undecodable(operation[name], f"struct field jsonPatchOp.{name} of type string")
    return patch


def _loose(patch: JSONValue) -> list[dict[str, Any]]:
    """Return the operations of a patch without the members that should be strings and are not."""
    if not isinstance(patch, list):
        raise _undecodable(patch, "value of type jsonpatch.Patch", "")
    for operation in patch:
        if not isinstance(operation, dict | None):
            raise _undecodable(operation, "value of type jsonpatch.Operation", "")
    return [{name: value for name, value in (operation or {}).items() if name == "value" or isinstance(value, str)} for operation in patch]


def _undecodable(value: JSONValue, go_type: str, doing: str = "error decoding patch: ") -> PatchError:
    return PatchError(f"{doing}json: cannot unmarshal {json_type(value)} into Go {go_type}", 400)


def _refuse(message: str) -> PatchError:
    return PatchError(message, 422)


def _add(root: _Root, operation: dict[str, Any]) -> None:
    path = _pointer(operation, "path", "add operation failed to decode path: missing value")
    holder, key = _holder(root, path, f'add operation does not apply: doc is missing path: "{path}": missing value')
    _insert(holder, key, copy_tree(operation.get("value")), f"error in add for path: '{path}'")


def _remove(root: _Root, operation: dict[str, Any]) -> None:
    path = _pointer(operation, "path", "remove operation failed to decode path: missing value")
    holder, key = _holder(root, path, f'remove operation does not apply: doc is missing path: "{path}": missing value')
    _delete(holder, key, f"error in remove for path: '{path}'")


def _replace(root: _Root, operation: dict[str, Any]) -> None:
    path = _pointer(operation, "path", "replace operation failed to decode path: operation missing path field: missing value")
    value = copy_tree(operation.get("value"))
    if not path:
        if not isinstance(value, dict | list):
            raise _refuse("replace operation value must be object or array: %!w(<nil>)")
        root.tree = value
        return
    holder, key = _holder(root, path, f"replace operation does not apply: doc is missing path: {path}: missing value")
    if isinstance(holder, dict):
        holder[key] = value
        return
    try:
        holder[_index(key, len(holder))] = value
    except (IndexError, ValueError):
        raise _refuse(f"replace operation does not apply: doc is missing key: {path}: missing value") from None


def _move(root: _Root, operation: dict[str, Any]) -> None:
    source = _pointer(operation, "from", "move operation failed to decode from: operation, missing from field: missing value")
    holder, key = _holder(root, source, f"move operation does not apply: doc is missing from path: {source}: missing value")
    value = _read(holder, key, f"error in move for path: '{key}'")
    _delete(holder, key, f"error in move for path: '{key}'")
    path = _pointer(operation, "path", "move operation failed to decode path: operation missing path field: missing value")
    holder, key = _holder(root, path, f"move operation does not apply: doc is missing destination path: {path}: missing value")
    _insert(holder, key, value, f"error in move for path: '{path}'")


def _copy(root: _Root, operation: dict[str, Any]) -> None:
    source = _pointer(operation, "from", "copy operation failed to decode from: operation, missing from field: missing value")
    holder, key = _holder(root, source, f"copy operation does not apply: doc is missing from path: {source}: missing value")
    value = _read(holder, key, f"error in copy for from: '{source}'")
    path = _pointer(operation, "path", "copy operation failed to decode path: missing value")
    holder, key = _holder(root, path, f"copy operation does not apply: doc is missing destination path: {path}: missing value")
    value = None if value is _MISSING else value
    root.copied += len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))
    if root.copied > MAX_COPIED:
        what = f"the accumulated size increase of copy is {root.copied}, exceeding the limit {MAX_COPIED}"
        raise _refuse(f"Unable to complete the copy, {what}")
    _insert(holder, key, copy_tree(value), "error while adding value during copy")


def _test(root: _Root, operation: dict[str, Any]) -> None:
    path = _pointer(operation, "path", "test operation failed to decode path: operation missing path field: missing value")
    wanted = operation.get("value")
    if not path:
        found = root.tree
    else:
        holder, key = _holder(root, path, f"test operation does not apply: is missing path: {path}: missing value")
        found = _read(holder, key, f"error in test for path: '{path}'")
    if not same(None if found is _MISSING else found, wanted):
        raise _refuse(f"testing value {path} failed: test failed")


_OPERATIONS = {"add": _add, "remove": _remove, "replace": _replace, "move": _move, "copy": _copy, "test": _test}


def _pointer(operation: dict[str, Any], name: str, message: str) -> str:
    value: str | None = operation.get(name)
    if value is None:
        raise _refuse(message)
    return value


def _holder(root: _Root, path: str, message: str) -> tuple[dict[str, JSONValue] | list[JSONValue], str]:
    """Return the container of a path's last token, and the token."""
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]
    if not tokens:
        raise _refuse(message)
    node = root.tree
    for token in tokens[:-1]:
        try:
            node = node[token] if isinstance(node, dict) else node[_index(token, len(node))] if isinstance(node, list) else None
        except (IndexError, KeyError, ValueError):
            node = None
    if not isinstance(node, dict | list):
        raise _refuse(message)
    return node, tokens[-1]


def _index(token: str, length: int) -> int:
    """Convert a token to an index of a list of that length.

    Raises:
        ValueError: The token is not a number.
        IndexError: The index is out of bounds.
    """
    index = int(token) if token.lstrip("+-").isdecimal() and token.isascii() else _no_number(token)
    if not -length <= index < length:
        raise IndexError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + length if index < 0 else index


def _no_number(token: str) -> int:
    raise ValueError(f'strconv.Atoi: parsing "{token}": invalid syntax')


def _read(holder: dict[str, JSONValue] | list[JSONValue], key: str, context: str) -> JSONValue:
    """Return a member or item of a container; ``_MISSING`` for a member that an object does not have."""
    if isinstance(holder, dict):
        return holder.get(key, _MISSING)
    try:
        return holder[_index(key, len(holder))]
    except (IndexError, ValueError) as error:
        raise _refuse(f"{context}: {error}") from None


def _delete(holder: dict[str, JSONValue] | list[JSONValue], key: str, context: str) -> None:
    if isinstance(holder, dict):
        if key not in holder:
            raise _refuse(f"{context}: Unable to remove nonexistent key: {key}: missing value")
        del holder[key]
        return
    try:
        del holder[_index(key, len(holder))]
    except (IndexError, ValueError) as error:
        raise _refuse(f"{context}: {error}") from None


def _insert(holder: dict[str, JSONValue] | list[JSONValue], key: str, value: JSONValue, context: str) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    elif key == "-":
        holder.append(value)
    else:
        try:
            holder.insert(_index(key, len(holder) + 1), value)
        except IndexError as error:
            raise _refuse(f"{context}: {error}") from None
        except ValueError as error:
            raise _refuse(f"{context}: value was not a proper array index: '{key}': {error}") from None


Operation = dict[str, Any]


def json_diff(before: dict[str, JSONValue], after: dict[str, JSONValue]) -> list[Operation]:
    """Return a patch of ``add``, ``remove`` and ``replace`` (RFC 6902) with which ``json_patch(before, patch)`` equals ``after``.

    The patch is empty if the trees are equal.

    Guarantees
        The patch names only differing values, at the deepest possible place, so that concurrent changes beside them survive; 1, 1.0 and
        true are three values. Members are in the order of ``before``, then of ``after``. The patch shares nothing with the trees.

    Not guaranteed
        The patch may not be the shortest. Items of a list are paired from both its ends; an item that moved is rewritten. Where that would
        need more operations than an API server accepts (10,000), whole members of the root are replaced.
    """
    result: list[Operation] = []
    _members("", before, after, result)
    if len(result) <= MAX_OPERATIONS:
        return result
    coarse: list[Operation] = []
    for name in [*before, *(name for name in after if name not in before)]:
        path = _below("", name)
        if name not in after:
            coarse.append({"op": "remove", "path": path})
        elif name not in before or not same(before[name], after[name]):
            coarse.append({"op": "add", "path": path, "value": copy_tree(after[name])})
    return coarse


def _values(path: str, before: JSONValue, after: JSONValue, operations: list[Operation]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        _members(path, before, after, operations)
    elif isinstance(before, list) and isinstance(after, list):
        _items(path, before, after, operations)
    elif not same(before, after):
        operations.append({"op": "replace", "path": path, "value": copy_tree(after)})


def _members(path: str, before: dict[str, JSONValue], after: dict[str, JSONValue], operations: list[Operation]) -> None:
    for name, value in before.items():
        if name in after:
            _values(_below(path, name), value, after[name], operations)
        else:
            operations.append({"op": "remove", "path": _below(path, name)})
    for name, value in after.items():
        if name not in before:
            operations.append({"op": "add", "path": _below(path, name), "value": copy_tree(value)})


def _items(path: str, before: list[JSONValue], after: list[JSONValue], operations: list[Operation]) -> None:
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and same(before[start], after[start]):
        start += 1
    tail = 0
    while tail < shorter - start and same(before[-1 - tail], after[-1 - tail]):
        tail += 1
    old_end, new_end = len(before) - tail, len(after) - tail
    both = min(old_end, new_end)
    for at in range(start, both):
        _values(f"{path}/{at}", before[at], after[at], operations)
    # From the back, so that each index still refers to the same item.
    operations.extend({"op": "remove", "path": f"{path}/{at}"} for at in range(old_end - 1, both - 1, -1))
    operations.extend({"op": "add", "path": f"{path}/{at}", "value": copy_tree(after[at])} for at in range(both, new_end))


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
