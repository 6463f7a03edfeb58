"""Cuts parts out of objects by position, without decoding the rest: all but some paths, or ``metadata.managedFields``."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct, defstruct, field

from kubeloop.codec.paths import EACH, Each, Segment, parse_path
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.type_checks import described

# Cuts ``metadata.managedFields`` out of an object by position, without decoding the rest.
#
# The projection returns their bytes; their position is searched for and verified, else the object is decoded and cut as a tree.


Buffer = bytes | memoryview

#: JSON escapes a quote inside a string, so these bytes can only be a key.
_KEY = b'"managedFields":'
_COMMA, _BRACE = 0x2C, 0x7D


class ManagedFieldsStripper:
    """Cuts managedFields out of the objects of one kind.

    ``openings`` are the beginnings of documents of the kind as servers write them, up to ``metadata``. The first one is put in front of a
    document without a kind.
    """

    __slots__ = ("_opening", "_openings")

    def __init__(self, *openings: bytes) -> None:
        self._opening = openings[0]
        self._openings = (b'{"metadata":{', *(opening + b'"metadata":{' for opening in openings))

    def apply(self, managed_fields: Raw, document: Buffer, named: bool) -> bytes:
        """Return the document without managedFields.

        ``managed_fields`` is the value of ``metadata.managedFields``, decoded from this document. ``named`` says whether the document has
        kind and apiVersion.
        """
        whole = bytes(document)
        value = memoryview(managed_fields)
        at = whole.find(_KEY)
        start = at + len(_KEY)
        end = start + len(value)
        # In metadata, only managedFields holds a list under that key. Where metadata is not the first field, an earlier field may.
        if at < 0 or not whole.startswith(value, start) or not (whole.startswith(self._openings) or whole.find(_KEY, end) < 0):
            return self._as_tree(whole, named)
        if whole[at - 1] == _COMMA:
            at -= 1
        elif whole[end] == _COMMA:
            end += 1
        elif whole[end] != _BRACE:
            return self._as_tree(whole, named)
        view = memoryview(whole)
        return b"".join((view[:at], view[end:]) if named else (self._opening, view[1:at], view[end:]))

    def _as_tree(self, document: bytes, named: bool) -> bytes:
        tree: dict[str, Any] = msgspec.json.decode(document)
        tree["metadata"].pop("managedFields", None)
        rest = msgspec.json.encode(tree)
        return rest if named else b"".join((self._opening, rest[1:]))


_NOTHING = Raw(b"")
_HERE = ""

#: All of ObjectMeta but managedFields. Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go.
_METADATA = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers"),
)

Tree = dict[Segment, Any]


def covers(kept: Iterable[str], path: str) -> bool:
    """Return whether the paths ``kept`` include everything at ``path``.

    Raises:
        ValueError: A path is malformed.
    """
    wanted = parse_path(path)
    if wanted in (("apiVersion",), ("kind",)):
        return True
    return any(wanted[: len(each)] == each for each in map(parse_path, kept))


class Pruning:
    """Cuts objects down to a set of paths. It is compiled once per set.

    Guarantees
        The result holds the values at the paths, byte for byte, and nothing else. ``kind`` and ``apiVersion`` are left out.
        A part of another type than the path expects is left out; the object is not refused for it.
        ``metadata`` is always present, even if empty.

    Raises
        ValueError: a path is malformed (constructor). DecodeError: the document is not a JSON object.
    """

    def __init__(self, paths: Iterable[str], *, managed_fields: bool = False) -> None:
        """Create the pruning for a set of paths.

        ``managed_fields`` says whether a path to the whole ``metadata`` includes managedFields. A path that names them always does.
        """
        tree: Tree = {"metadata": {}}
        for path in paths:
            segments = parse_path(path)
            if segments == ("metadata",):
                names = (*_METADATA, "managedFields") if managed_fields else _METADATA
                tree["metadata"].update({name: {_HERE: {}} for name in names})
                continue
            node = tree
            for segment in segments:
                node = node.setdefault(segment, {})
            node[_HERE] = {}
        tree.pop("apiVersion", None)
        tree.pop("kind", None)
        self._tree = tree
        metadata = _struct("Metadata", tree["metadata"])
        rest = {segment: node for segment, node in tree.items() if segment != "metadata"}
        pruned = defstruct("Pruned", [("metadata", metadata), *_fields(rest)], gc=False, omit_defaults=True)
        self._decode: Callable[[Buffer], Struct] = msgspec.json.Decoder(pruned).decode
        self._encode: Callable[[Struct], bytes] = msgspec.json.Encoder().encode

    def apply(self, document: Buffer) -> bytes:
        try:
            return self._encode(self._decode(document))
        except msgspec.ValidationError:
            return self._tolerant(document)
        except msgspec.DecodeError as error:
            raise DecodeError(f"not JSON: {error}") from None

    def _tolerant(self, document: Buffer) -> bytes:
        tree = msgspec.json.decode(document)
        if not isinstance(tree, dict):
            raise DecodeError(f"wanted an object, got {described(tree)}")
        kept = _cut(tree, self._tree) or {}
        if not isinstance(kept.get("metadata"), dict):
            kept = {"metadata": {}} | {name: value for name, value in kept.items() if name != "metadata"}
        return msgspec.json.encode(kept)


def _struct(name: str, tree: Tree) -> type[Struct]:
    return defstruct(name, _fields(tree), gc=False, omit_defaults=True)


def _fields(tree: Tree) -> list[tuple[str, Any, Any]]:
    result: list[tuple[str, Any, Any]] = []
    for number, (segment, node) in enumerate(tree.items()):
        if segment != _HERE:
            kind = _kind(node)
            result.append((f"f{number}_", kind, field(default=_NOTHING if kind is Raw else None, name=str(segment))))
    return result


def _kind(node: Tree) -> Any:
    if _HERE in node:
        return Raw
    if EACH not in node:
        return _struct("Part", node) | None
    if len(node) > 1:
        raise ValueError("two paths disagree whether a field is a list ([*]) or an object")
    item = _kind(node[EACH])
    return Raw if item is Raw else types.GenericAlias(list, (item,)) | None


def _cut(value: Any, node: Tree) -> Any:
    if _HERE in node:
        return value
    if EACH in node:
        return [kept for item in value if (kept := _cut(item, node[EACH])) is not None] if isinstance(value, list) else None
    if not isinstance(value, dict):
        return None
    cut = {name: _cut(value[name], below) for name, below in node.items() if not isinstance(name, Each) and name in value}
    return {name: kept for name, kept in cut.items() if kept is not None or _HERE in node[name]}
