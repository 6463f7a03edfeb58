"""Writes of objects that rules touch: denied, passed, or mapped back to the API server's object.

An object that was read through the proxy has changed values. If a client wrote it back, the API server would store them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubeloop.codec import protobuf
from kubeloop.codec.yaml import read_yaml
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Access
from kubeloop.endpoints.negotiation import JSON, PROTOBUF
from kubeloop.merge import PatchError, json_patch
from kubeloop.merge.json_patch import json_diff
from kubeloop.meta.errors import ApiError, DecodeError, KubeloopError
from kubeloop.meta.field_error import FieldError, FieldErrorType
from kubeloop.meta.kinds import GroupKind, GroupResource
from kubeloop.proxy.rules import RewriteRule, Rewritten
from kubeloop.proxy.rules.documents import FieldKey
from kubeloop.proxy.rules.structure import shown_key
from kubeloop.proxy.selections import SelectedRules
from kubeloop.types import JSONObject, JSONValue

#: Maximum number of fields that an error names.
_MAX_FIELDS: Final = 10

#: Media types of bodies that are JSON or YAML. Apply patches are YAML, which includes JSON.
_YAML: Final = ("application/yaml", "application/apply-patch+yaml")
_PATCHES: Final = ("application/apply-patch+yaml",)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def denied(access: Access, rules: Collection[str]) -> ApiError:
    """Return the error for a write that rules deny. It begins with the rules, as that of an admission plugin: it is no refusal by RBAC.

    Args:
        access: The request.
        rules: The names of the rules.
    """
    why = f"{_sentence(rules, 'denies', 'deny')} this write, because clients see the object changed or not at all (writes: Deny)"
    return api_errors.forbidden(GroupResource(access.group, access.resource), access.name, why)


def denied_collection(access: Access, rules: Collection[str]) -> ApiError:
    """Return the error for the deletion of a collection of which clients do not see every object as it is.

    Args:
        access: The request.
        rules: The names of the rules for the resource.
    """
    why = f"{_sentence(rules, 'denies', 'deny')} the deletion of a collection, because clients see its objects changed or not at all"
    return api_errors.forbidden(GroupResource(access.group, access.resource), access.name, f"{why}; delete objects by their names")


def _sentence(rules: Collection[str], verb: str, plural: str) -> str:
    """Return the beginning of a sentence about rules: ``the proxy's rule hide-nodes changes``. Without rules it is about the proxy."""
    subjects = {0: "the proxy", 1: f"the proxy's rule {', '.join(rules)}"}
    return f"{subjects[len(rules)]} {verb}" if len(rules) in subjects else f"the proxy's rules {', '.join(rules)} {plural}"


def decoded_body(body: bytes, content_type: str) -> JSONObject | None:
    """Return the object in the body of a write; None if the body is no object, which the API server refuses.

    Args:
        body: The body.
        content_type: Its media type. Empty: JSON.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    try:
        if media_type == PROTOBUF:
            tree: Any = protobuf.decode(body)
        elif media_type in _YAML:
            documents = read_yaml(body)
            tree = documents[0] if len(documents) == 1 else None
        else:
            tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, DecodeError, KubeloopError, ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def checked_body(body: bytes, content_type: str) -> tuple[JSONObject, bytes, str]:
    """Return the object in the body of a write that rules are applied to, and the body and media type that are sent.

    The API server must store the object that the rules have seen. Programs read repeated names in JSON, aliases in YAML and repeated fields
    in protobuf differently; so these are refused, or written again.

    Raises:
        ApiError: 400: the body is no object, or it is ambiguous. 415: the proxy does not know its media type.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in ("", JSON, PROTOBUF, *_YAML):
        raise api_errors.unsupported_media_type()
    tree = decoded_body(body, content_type)
    if tree is None:
        raise api_errors.bad_request("the proxy cannot read the object in the body, so that it cannot apply its rules")
    if media_type in ("", JSON):
        try:
            json.loads(body, object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            raise api_errors.bad_request("the object in the body has a field twice, so that the proxy cannot apply its rules") from None
        return tree, body, content_type
    return tree, msgspec.json.encode(tree), media_type if media_type in _PATCHES else JSON


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError


def check_patch(selection: SelectedRules, body: bytes, content_type: str, access: Access) -> None:
    """Check that a JSON patch reads no value that rules may change: its success, or a copied value, would show the original.

    Args:
        selection: The rules for the object.
        body: The patch.
        content_type: Its media type; only JSON patches are checked.
        access: The request, for the message.

    Raises:
        ApiError: 403: it does.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json-patch+json":
        return
    try:
        operations = msgspec.json.decode(body, type=list[_Operation])
    except (msgspec.DecodeError, RecursionError):
        raise api_errors.bad_request("the proxy cannot read the JSON patch, so that it cannot apply its rules") from None
    for operation in operations:
        pointer = operation.path if operation.op == "test" else operation.from_ if operation.op in ("copy", "move") else None
        if pointer is None:
            continue
        names = [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]
        if selection.may_change_path(*names):
            read = pointer or "the whole object"
            why = f"the proxy denies this JSON patch, because it reads {read}, which the proxy's rules may change for clients"
            raise api_errors.forbidden(GroupResource(access.group, access.resource), access.name, why)


class _Operation(msgspec.Struct):
    op: str = ""
    path: str = ""
    from_: str = msgspec.field(default="", name="from")


def withheld(status: JSONObject, rules: tuple[str, ...]) -> JSONObject:
    """Return the Status of a refused write of a changed object without its message and causes, which can quote original values."""
    kept: JSONObject = {name: status[name] for name in ("kind", "apiVersion", "metadata", "status", "reason", "code") if name in status}
    listed = ", ".join(rules)
    message = f"the API server refused the write; the proxy withholds why, because its rule {listed} changes this object for its clients"
    details = status.get("details")
    if isinstance(details, dict):
        kept["details"] = {name: details[name] for name in ("name", "group", "kind", "retryAfterSeconds") if name in details}
    return kept | {"message": message}


@dataclass(frozen=True, slots=True)
class ReversedWrite:
    """An update that is mapped back to the API server's object, and the error if that is not possible.

    Attributes:
        kind: Group and kind of the object.
        name: Its name.
        rules: The rules that change the object for the client.
    """

    kind: GroupKind
    name: str
    rules: tuple[RewriteRule, ...]

    def refusal(self, tree: JSONObject, changes: Sequence[JSONObject]) -> ApiError:
        """Return the error for changes that cannot be mapped back: it names their fields, and the rules that change these.

        Args:
            tree: The object whose fields they are.
            changes: Operations of a JSON patch. The first ten are named.
        """
        return self._invalid(
            (field, f"{self._rules_of(field)}, so that the write cannot be mapped back") for field in _fields(tree, changes)
        )

    def hides(self, tree: JSONObject, changes: Sequence[JSONObject], rules: Sequence[str]) -> ApiError:
        """Return the error for changes after which the object would be hidden.

        Args:
            tree: The object whose fields they are.
            changes: Operations of a JSON patch. The first ten are named.
            rules: The rules that would touch the object. The last one hides it.
        """
        why = f"{_sentence(rules[-1:], 'hides', 'hide')} the object after this write"
        return self._invalid((field, why) for field in _fields(tree, changes))

    def _rules_of(self, field: FieldKey) -> str:
        path = [str(part) for part in field]
        changing = [rule.name for rule in self.rules if rule.may_change(path)]
        return f"{_sentence(changing or [rule.name for rule in self.rules], 'changes', 'change')} this field for clients (writes: Reverse)"

    def _invalid(self, errors: Iterable[tuple[FieldKey, str]]) -> ApiError:
        forbidden = FieldErrorType.FORBIDDEN
        return api_errors.invalid(
            self.kind, self.name, [FieldError(forbidden, shown_key(field) or "metadata", detail=why) for field, why in errors]
        )


def mapped_back(original: JSONObject, seen: JSONObject, written: JSONObject, write: ReversedWrite) -> JSONObject:
    """Return the API server's object with the changes that a client made to what it sees.

    Args:
        original: The API server's object.
        seen: The object as the client sees it.
        written: The object that the client writes.
        write: Makes the error.

    Raises:
        ApiError: 422: a change is in a part of the object whose original differs, so that it cannot be mapped back.
    """
    changes = json_diff(_plain(seen), _plain(written))
    try:
        result = json_patch(original, [*changes])
    except PatchError:
        raise write.refusal(written, [_first_failure(original, changes)]) from None
    assert isinstance(result, dict), "a difference of two objects never replaces the whole object"
    return result


def check_reverse(again: Rewritten, seen: JSONObject, written: JSONObject, write: ReversedWrite) -> None:
    """Check that a mapped object looks to its client as the client wrote it.

    Args:
        again: What the client sees of the mapped object.
        seen: The object as the client saw it before.
        written: The object that the client writes.
        write: Makes the error.

    Raises:
        ApiError: 422: it does not.
    """
    if again.object is None:
        raise write.hides(written, json_diff(_plain(seen), _plain(written)), again.rules)
    expected, found = _plain(written), _plain(again.object)
    if expected != found:
        raise write.refusal(written, json_diff(expected, found))


def _first_failure(original: JSONObject, changes: Sequence[JSONObject]) -> JSONObject:
    """Return the first operation of a patch that does not apply."""

    def fails(count: int) -> bool:
        try:
            json_patch(original, [*changes[:count]])
        except PatchError:
            return True
        return False

    # Each attempt copies the object, so there are few: a longer part of the patch fails if a shorter one does.
    return changes[bisect_left(range(1, len(changes)), True, key=fails)]


def _fields(tree: JSONObject, changes: Sequence[JSONObject]) -> list[FieldKey]:
    """Return the fields of operations; an item of a list by its index."""
    return [_field(tree, change["path"]) for change in changes[:_MAX_FIELDS]] or [()]


def _field(tree: JSONValue, pointer: str) -> FieldKey:
    field: list[str | int] = []
    for token in pointer.split("/")[1:]:
        if isinstance(tree, list) and token.isdecimal():
            field.append(int(token))
            tree = tree[int(token)] if int(token) < len(tree) else None
        else:
            field.append(token.replace("~1", "/").replace("~0", "~"))
            tree = tree.get(field[-1]) if isinstance(tree, dict) else None
    return tuple(field)


def _plain(tree: JSONObject) -> JSONObject:
    """Return an object without the parts that rules remove from each changed object."""
    metadata = dict(tree.get("metadata") or {})
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
    if "annotations" in metadata and not metadata["annotations"]:
        del metadata["annotations"]
    return tree | {"metadata": metadata}
