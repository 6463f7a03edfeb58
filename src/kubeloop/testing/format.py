"""Objects as text: YAML without server-set fields and secrets, differences line by line, and golden files to compare with."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubeloop.codec import to_dict, write_yaml
from kubeloop.codec.redact_secrets import masked, plain
from kubeloop.meta import Resource
from kubeloop.types import JSONValue

#: Maximum number of lines of a state or a difference.
_LINES = 80


def tree(value: object) -> JSONValue:
    """Return a JSON copy of an object, a list of objects, or a JSON tree."""
    if isinstance(value, Resource):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: tree(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [tree(one) for one in value]
    return value


def text(state: object) -> str:
    """Return the YAML of one state; several objects are several documents. An empty list becomes a line that says so."""
    found = tree(state)
    if found is None or found == []:
        return "(nothing)\n"
    documents = found if isinstance(found, list) else [found]
    return write_yaml(*(_ordered(_tidy(one)) for one in documents))


def order(key: str) -> tuple[bool, str]:
    """Return the sort key of a field name: apiVersion, kind, metadata and name come first, then the other fields by name."""
    return key not in ("apiVersion", "kind", "metadata", "name"), key


def difference(before: str, after: str, before_name: str, after_name: str) -> str:
    """Return the difference of two texts as a unified diff; "" if they are equal.

    Args:
        before: The first text.
        after: The second text.
        before_name: Its name in the header.
        after_name: Its name in the header.
    """
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="", n=2)
    return "\n".join(shortened(list(lines)))


def shortened(lines: list[str]) -> list[str]:
    """Return the first 80 lines, and a line with the number of omitted lines."""
    return lines if len(lines) <= _LINES else [*lines[:_LINES], f"... {len(lines) - _LINES} more lines"]


def indented(block: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in block.splitlines())


def _ordered(value: JSONValue) -> JSONValue:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=order)}
    return [_ordered(one) for one in value] if isinstance(value, list) else value


def _tidy(document: JSONValue) -> JSONValue:
    if not isinstance(document, dict):
        return document
    shown = plain(masked(document))
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        shown = {**shown, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    return shown


#: Server-set fields, whose values vary.
_OF_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink")
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$")


@dataclass
class _Run:
    """The data of kubeloop's pytest plugin about the running test: whether to update golden files, and the folder of the test."""

    update: bool = False
    folder: Path = field(default_factory=Path)


RUN = _Run()


def assert_golden(
    obj: Resource | Mapping[str, Any] | Iterable[Resource | Mapping[str, Any]],
    path: str | Path,
    *,
    replace: Mapping[str, str] | None = None,
    drop: Iterable[str] = (),
    update: bool | None = None,
) -> None:
    """Compare objects with the YAML at ``path``, relative to the folder of the test (without kubeloop's plugin: the working directory).

    The YAML has no uid, resourceVersion, generation, timestamps and managedFields of metadata, and no uids of owners. Any other time is
    written as ``<time>``.

    Args:
        obj: An object, a tree, or several; several objects are several documents, in their order.
        path: The golden file.
        replace: Text -> replacement in every string, such as ``{kube_client.namespace: "<namespace>"}``.
        drop: More paths to leave out (``"status"``, ``"spec.template.metadata"``).
        update: Write the file instead. None: if pytest was called with ``--update-golden``.

    Raises:
        AssertionError: the text differs, or there is no such file; the message is the difference, and says how to accept it.
    """
    file = RUN.folder / path
    said = normalised_text(obj, replace=replace, drop=drop)
    if RUN.update if update is None else update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(said, encoding="utf-8")
        return
    accept = "if it is right now, accept it with: pytest --update-golden"
    if not file.exists():
        raise AssertionError(f"{path}: there is no such file yet; {accept}\n{said}")
    changes = difference(file.read_text(encoding="utf-8"), said, str(path), "the object")
    if changes:
        raise AssertionError(f"not as {path} says; {accept}\n{changes}")


def normalised_text(obj: Any, *, replace: Mapping[str, str] | None = None, drop: Iterable[str] = ()) -> str:
    """Return the text that ``assert_golden`` compares."""
    found = [obj] if isinstance(obj, Resource | Mapping) else list(obj)
    return write_yaml(*(_normalised(tree(one), replace or {}, drop) for one in found))


def _normalised(document: dict[str, JSONValue], replace: Mapping[str, str], drop: Iterable[str]) -> JSONValue:
    metadata = dict(document.get("metadata") or {})
    for name in _OF_SERVER:
        metadata.pop(name, None)
    if metadata.get("ownerReferences"):
        metadata["ownerReferences"] = [
            {key: value for key, value in owner.items() if key != "uid"} for owner in metadata["ownerReferences"]
        ]
    document = {**document, "metadata": metadata}
    for path in drop:
        document = _without(document, path.split("."))
    return _replaced(document, replace)


def _without(value: JSONValue, names: list[str]) -> JSONValue:
    if not isinstance(value, dict) or names[0] not in value:
        return value
    if len(names) == 1:
        return {key: one for key, one in value.items() if key != names[0]}
    return {**value, names[0]: _without(value[names[0]], names[1:])}


def _replaced(value: JSONValue, replace: Mapping[str, str]) -> JSONValue:
    if isinstance(value, dict):
        return {_replaced(key, replace): _replaced(value[key], replace) for key in sorted(value, key=order)}
    if isinstance(value, list):
        return [_replaced(one, replace) for one in value]
    if not isinstance(value, str):
        return value
    if _TIME.match(value):
        return "<time>"
    for text, other in replace.items():
        value = value.replace(text, other)
    return value
