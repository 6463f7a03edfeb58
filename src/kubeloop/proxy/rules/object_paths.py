"""Paths of fields in rules, such as ``spec.containers[*].image``: parsed once, and applied by copying only what changes.

A tree that is given is never changed; a result shares with it every part that is equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from kubeloop.merge.go_text import same
from kubeloop.proxy.rules.errors import ActionFailed
from kubeloop.proxy.rules.structure import type_name
from kubeloop.types import JSONObject, JSONValue


class _Each(Enum):
    EACH = "*"


#: The segment ``[*]``: every item of a list.
EACH: Final = _Each.EACH
Segment: TypeAlias = str | int | _Each

#: Fields that say which object it is and in which state. Caches, watches and writes of clients depend on them.
IDENTITY: Final = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
    ("metadata", "resourceVersion"),
)
#: Mappings of text to text.
_TEXT_MAPS: Final = (("metadata", "labels"), ("metadata", "annotations"))
_TOKEN: Final = re.compile(
    r"""
    (?:^|(?<=.)\.) (?P<name>[^.\[\]"'\s]+)
    | \[ (?P<index>\d{1,9}) \]
    | \[ (?P<each>\*) \]
    | \[ (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) \]
    """,
    re.VERBOSE | re.ASCII,
)


class FieldPath:
    """The path of a field, or of several if it contains ``[*]``.

    >>> path = FieldPath.parse("spec.containers[*].image")
    >>> path.set({"spec": {"containers": [{"name": "a"}]}}, "hidden")
    {'spec': {'containers': [{'name': 'a', 'image': 'hidden'}]}}
    """

    __slots__ = ("_last_item", "segments", "text")

    def __init__(self, segments: Sequence[Segment], text: str) -> None:
        self.segments = tuple(segments)
        self.text = text
        #: Position of the last list item; mappings below it are created, those above are not.
        self._last_item = max((index for index, segment in enumerate(segments) if not isinstance(segment, str)), default=-1)

    @classmethod
    def parse(cls, text: str) -> FieldPath:
        """Parse a path: names separated by dots, ``[0]``, ``[*]``, and quoted names in brackets.

        Raises:
            ValueError: The text is no path; the message names the position.
        """
        segments: list[Segment] = []
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None or (not segments and token["name"] is None):
                expected = 'expected a path such as spec.nodeName, spec.containers[*].image or metadata.annotations["a.b/c"]'
                raise ValueError(f"wrong path at character {at + 1}; {expected}")
            segments.append(_segment(token))
            at = token.end()
        if not segments:
            raise ValueError("the path is empty; expected a path such as spec.nodeName")
        return cls(segments, text)

    @property
    def names(self) -> tuple[str, ...]:
        """The names before the first list item."""
        first = next((index for index, segment in enumerate(self.segments) if not isinstance(segment, str)), len(self.segments))
        return tuple(segment for segment in self.segments[:first] if isinstance(segment, str))

    def set(self, tree: JSONObject, value: JSONValue) -> JSONObject:
        """Return the tree with the value at the path, or the tree itself if it has that value already.

        Missing mappings are created, missing list items are not.

        Raises:
            ActionFailed: A field on the way has another type than the path expects.
        """
        result: JSONObject = self._set(tree, 0, value)
        return result

    def remove(self, tree: JSONObject) -> JSONObject:
        """Return the tree without the fields at the path, or the tree itself if it has none."""
        result: JSONObject = self._remove(tree, 0)
        return result

    def _set(self, node: Any, at: int, value: JSONValue) -> Any:
        segment = self.segments[at]
        is_last = at + 1 == len(self.segments)
        if isinstance(segment, str):
            if not isinstance(node, dict):
                raise self._wrong_type(node, at, "a mapping")
            if is_last:
                return node if segment in node and same(node[segment], value) else {**node, segment: value}
            child = node.get(segment)
            if child is None:
                if at < self._last_item:
                    return node
                child = {}
            changed = self._set(child, at + 1, value)
            return node if changed is child else {**node, segment: changed}
        if not isinstance(node, list):
            raise self._wrong_type(node, at, "a list")
        chosen = range(len(node)) if segment is EACH else range(segment, min(segment + 1, len(node)))
        result = node
        for index in chosen:
            child = node[index]
            changed = (child if same(child, value) else value) if is_last else self._set(child, at + 1, value)
            if changed is not child:
                result = list(node) if result is node else result
                result[index] = changed
        return result

    def _remove(self, node: Any, at: int) -> Any:
        segment = self.segments[at]
        is_last = at + 1 == len(self.segments)
        if isinstance(segment, str):
            if not isinstance(node, dict) or segment not in node:
                return node
            if is_last:
                return {key: child for key, child in node.items() if key != segment}
            child = node[segment]
            changed = self._remove(child, at + 1)
            return node if changed is child else {**node, segment: changed}
        if not isinstance(node, list):
            return node
        chosen = range(len(node)) if segment is EACH else range(segment, min(segment + 1, len(node)))
        if is_last:
            return [*node[: chosen.start], *node[chosen.stop :]] if chosen else node
        result = node
        for index in chosen:
            child = node[index]
            changed = self._remove(child, at + 1)
            if changed is not child:
                result = list(node) if result is node else result
                result[index] = changed
        return result

    def _wrong_type(self, node: Any, at: int, expected: str) -> ActionFailed:
        return ActionFailed(f"{self.text}: {shown_path(self.segments[:at]) or 'the object'} is {type_name(node)}, expected {expected}")


def overlaps(path: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether one of two paths is the other one or a field around it."""
    return all(mine == theirs for mine, theirs in zip(path, other, strict=False))


def identity_mistake(path: Sequence[str]) -> str:
    """Return why a rule may not change a field, or an empty text if it may."""
    fixed = [field for field in IDENTITY if overlaps(path, field)]
    if not fixed:
        return ""
    shown = ".".join(fixed[0])
    if len(path) < len(fixed[0]):
        shown += f", which is part of {'.'.join(path) or 'the object'},"
    return f"{shown} cannot be changed; clients identify the object by it"


def value_mistake(path: Sequence[str], value: JSONValue) -> str:
    """Return why no client could read an object with this value at a path, or an empty text.

    Labels and annotations are text. In YAML ``yes`` and ``1`` are not, which is easily overlooked.
    """
    if tuple(path[:2]) not in _TEXT_MAPS or len(path) > len(_TEXT_MAPS[0]) + 1:
        return ""
    if len(path) > len(_TEXT_MAPS[0]):
        members = {path[-1]: value}
    elif isinstance(value, dict):
        members = value
    else:
        return "" if value is None else f"{'.'.join(path)} is a mapping of text, got {type_name(value)}"
    wrong = next((name for name, member in members.items() if not isinstance(member, str | None)), None)
    return "" if wrong is None else f'the value of "{wrong}" is {type_name(members[wrong])}, expected text; put it into quotes'


def identity_change(before: JSONObject, after: JSONObject) -> str:
    """Return the first identity field that differs between two states of an object, or an empty text."""
    for field in IDENTITY:
        old: Any = before
        new: Any = after
        for name in field:
            old = old.get(name) if isinstance(old, dict) else None
            new = new.get(name) if isinstance(new, dict) else None
        if not same(old, new):
            return ".".join(field)
    return ""


def shown_path(segments: Sequence[Segment]) -> str:
    """Return the text that ``FieldPath.parse`` reads as these segments."""
    shown = ""
    for segment in segments:
        if not isinstance(segment, str):
            shown += f"[{'*' if segment is EACH else segment}]"
        elif _TOKEN.fullmatch(segment):
            shown += f".{segment}" if shown else segment
        else:
            shown += '["' + segment.replace("\\", "\\\\").replace('"', '\\"') + '"]'
    return shown


def _segment(token: re.Match[str]) -> Segment:
    if token["name"] is not None:
        return token["name"]
    if token["index"] is not None:
        return int(token["index"])
    if token["each"] is not None:
        return EACH
    return re.sub(r"\\(.)", r"\1", token["quoted"][1:-1], flags=re.DOTALL)
