"""The actions of rules that need no code of the user: drop, set, remove, jsonPatch, mergePatch and mapAddresses.

An action never changes the tree that it gets. It returns the same tree if it changes nothing, which is how a rule knows what it touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

from kubeloop.merge import PatchError, json_patch, merge_patch
from kubeloop.merge.go_text import same
from kubeloop.merge.json_patch import MAX_OPERATIONS
from kubeloop.proxy.rules.addresses import ADDRESS_FIELDS, AddressMap
from kubeloop.proxy.rules.context import RewriteContext
from kubeloop.proxy.rules.documents import FieldKey
from kubeloop.proxy.rules.errors import ActionFailed
from kubeloop.proxy.rules.object_paths import FieldPath, identity_mistake, overlaps, value_mistake
from kubeloop.types import JSONObject, JSONValue

#: Reports a mistake in an action: the place below the action's value, and the text.
Report = Callable[[FieldKey, str], None]

_NEEDS_VALUE: Final = ("add", "replace", "test")
_NEEDS_FROM: Final = ("move", "copy")


class RuleAction(Protocol):
    """One action of a rule that is applied without waiting."""

    #: Whether it hides objects.
    hides: ClassVar[bool]

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        """Return the changed object, the same object if nothing changes, or None to hide it.

        Raises:
            ActionFailed: The action does not fit the object.
        """

    def may_change(self, path: Sequence[str]) -> bool:
        """Return whether the action could change the field at a path, something in it, or something around it."""

    @property
    def paths(self) -> Sequence[tuple[str, ...]] | None:
        """The paths of all fields that the action reads or changes. None: it may read everything."""


class DropObject:
    hides: ClassVar[bool] = True
    paths: ClassVar[Sequence[tuple[str, ...]]] = ()

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        del tree, context
        return None

    def may_change(self, path: Sequence[str]) -> bool:
        del path
        return False


class SetFields:
    hides: ClassVar[bool] = False

    def __init__(self, fields: Sequence[tuple[FieldPath, JSONValue]]) -> None:
        self._fields = tuple(fields)
        self.paths = [path.names for path, _ in fields]

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        del context
        for path, value in self._fields:
            tree = path.set(tree, value)
        return tree

    def may_change(self, path: Sequence[str]) -> bool:
        return any(overlaps(field.names, path) for field, _ in self._fields)


class RemoveFields:
    hides: ClassVar[bool] = False

    def __init__(self, fields: Sequence[FieldPath]) -> None:
        self._fields = tuple(fields)
        self.paths = [path.names for path in fields]

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        del context
        for path in self._fields:
            tree = path.remove(tree)
        return tree

    def may_change(self, path: Sequence[str]) -> bool:
        return any(overlaps(field.names, path) for field in self._fields)


class PatchObject:
    """A JSON patch. Only the fields of the object's first level that it names are copied."""

    hides: ClassVar[bool] = False

    def __init__(self, operations: list[JSONObject]) -> None:
        self._operations = operations
        pointers = [_tokens(operation[name]) for operation in operations for name in ("path", "from") if name in operation]
        #: None: the patch reads the whole object.
        self._roots = None if () in pointers else frozenset(pointer[0] for pointer in pointers)
        self.paths = None if self._roots is None else [(root,) for root in self._roots]
        written = [
            _tokens(operation[name])
            for operation in operations
            for name in ("path", "from")
            if name in operation and operation["op"] != "test" and not (name == "from" and operation["op"] == "copy")
        ]
        self._written = tuple(_names(pointer) for pointer in written)

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        del context
        roots = tree.keys() if self._roots is None else self._roots
        part = {name: tree[name] for name in roots if name in tree}
        try:
            patched: Any = json_patch(part, self._operations)
        except PatchError as error:
            raise ActionFailed(f"jsonPatch: {error}") from None
        changed = {name: value for name, value in patched.items() if name not in part or not same(part[name], value)}
        removed = part.keys() - patched.keys()
        if not changed and not removed:
            return tree
        return {**({name: value for name, value in tree.items() if name not in removed} if removed else tree), **changed}

    def may_change(self, path: Sequence[str]) -> bool:
        return any(overlaps(written, path) for written in self._written)


class MergeFields:
    """A JSON merge patch, with the result of ``kubeloop.merge.merge_patch``, which copies the whole object."""

    hides: ClassVar[bool] = False

    def __init__(self, patch: JSONObject) -> None:
        self._patch = patch
        self.paths = [
            path
            for name, value in patch.items()
            for path in ([(name, inner) for inner in value] if isinstance(value, dict) and value else [(name,)])
        ]

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        del context
        return _merge(tree, self._patch)

    def may_change(self, path: Sequence[str]) -> bool:
        patch: JSONValue = self._patch
        for name in path:
            if not isinstance(patch, dict):
                return True
            if name not in patch:
                return False
            patch = patch[name]
        return True


class MapAddresses:
    hides: ClassVar[bool] = False

    def __init__(self, addresses: AddressMap) -> None:
        self._addresses = addresses
        self.paths = [path for paths in ADDRESS_FIELDS.values() for path in paths]

    def apply(self, tree: JSONObject, context: RewriteContext) -> JSONObject | None:
        return self._addresses.apply(context.group, context.resource, tree)

    def may_change(self, path: Sequence[str]) -> bool:
        return any(overlaps(field, path) for fields in ADDRESS_FIELDS.values() for field in fields)


def parse_action(name: str, value: Any, report: Report) -> RuleAction | None:
    """Return the action for a value whose structure is valid, or None after a mistake was reported.

    Args:
        name: The name of the action, such as ``set``; not ``python``.
        value: The value of the action in the rule.
        report: Receives the mistakes.
    """
    match name:
        case "drop":
            return DropObject()
        case "set":
            paths = {text: _path((text,), text, report) for text in value}
            fields = [(path, value[text]) for text, path in paths.items() if path is not None]
            for path, member in fields:
                if len(path.names) == len(path.segments) and (mistake := value_mistake(path.names, member)):
                    report((path.text,), mistake)
            return SetFields(fields)
        case "remove":
            removed = [_path((index,), text, report) for index, text in enumerate(value)]
            return RemoveFields([path for path in removed if path is not None])
        case "jsonPatch":
            return PatchObject(value) if _check_operations(value, report) else None
        case "mergePatch":
            for key, text in _merge_mistakes(value, ()):
                report(key, text)
            return MergeFields(value)
        case _:
            try:
                return MapAddresses(AddressMap(value["to"], value.get("port")))
            except ValueError:
                report(("to",), f'expected an IP address, such as 127.0.0.9, got "{value["to"]}"')
                return None


def _path(key: FieldKey, text: str, report: Report) -> FieldPath | None:
    try:
        path = FieldPath.parse(text)
    except ValueError as error:
        report(key, str(error))
        return None
    mistake = identity_mistake(path.names)
    if mistake:
        report(key, mistake)
    return path


def _check_operations(operations: list[JSONObject], report: Report) -> bool:
    """Report operations that can never be applied, or may not be; return whether there are none."""
    mistakes: list[tuple[FieldKey, str]] = []
    if len(operations) > MAX_OPERATIONS:
        mistakes.append(((), f"expected at most {MAX_OPERATIONS} operations, got {len(operations)}"))
    for index, operation in enumerate(operations):
        mistakes += [((index,), text) for text in _operation_mistakes(operation)]
    for key, text in mistakes:
        report(key, text)
    return not mistakes


def _operation_mistakes(operation: JSONObject) -> list[str]:
    op, path = operation["op"], _tokens(operation["path"])
    if op in _NEEDS_VALUE and "value" not in operation:
        return [f"value is missing; {op} needs it"]
    if op in _NEEDS_FROM and "from" not in operation:
        return [f"from is missing; {op} needs it"]
    result = []
    if op not in _NEEDS_FROM and "from" in operation:
        result.append(f"{op} has no field from")
    if op not in _NEEDS_VALUE and "value" in operation:
        result.append(f"{op} has no field value")
    if op == "move" and len(path) > len(source := _tokens(operation["from"])) and path[: len(source)] == source:
        # RFC 6902 section 4.4.
        result.append("a field cannot move into itself")
    if op != "test" and (mistake := identity_mistake(path)):
        result.append(mistake)
    if op in ("add", "replace") and (mistake := value_mistake(path, operation["value"])):
        result.append(mistake)
    if op == "move" and (mistake := identity_mistake(_tokens(operation["from"]))):
        result.append(mistake)
    return result


def _merge_mistakes(patch: JSONObject, key: tuple[str, ...]) -> list[tuple[FieldKey, str]]:
    result: list[tuple[FieldKey, str]] = []
    for name, value in patch.items():
        path = (*key, name)
        if path == ("metadata",) and isinstance(value, dict):
            result += _merge_mistakes(value, path)
        elif mistake := identity_mistake(path) or value_mistake(path, value):
            result.append((path, mistake))
    return result


def _merge(tree: JSONObject, patch: JSONObject) -> JSONObject:
    result = tree
    for name, value in patch.items():
        if value is None:
            if name in tree:
                result = dict(tree) if result is tree else result
                del result[name]
            continue
        old = tree.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            new = _merge(old, value)
        else:
            # As in merge_patch, only a value that replaces an object keeps its nulls.
            new = value if isinstance(old, dict) else merge_patch({}, {name: value})[name]
        if name not in tree or (new is not old and not same(new, old)):
            result = dict(tree) if result is tree else result
            result[name] = new
    return result


def _tokens(pointer: str) -> tuple[str, ...]:
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])


def _names(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the tokens before the first that may be an index of a list."""
    first = next((index for index, token in enumerate(tokens) if re.fullmatch(r"[-+]?\d*", token)), len(tokens))
    return tuple(tokens[:first])
