"""JSONPath in kubectl's dialect: printer columns, wait conditions, output templates without ``range``.

Source: Kubernetes documentation, "JSONPath Support"; k8s.io/client-go util/jsonpath. Not Goessner's dialect: a template is text with
expressions in braces, ``[0]`` of an empty list is an error by default, ``$`` and ``@`` are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubeloop.merge.jsonpath_parser import (
    FilterNode,
    JSONPathError,
    LiteralNode,
    MemberNode,
    Node,
    Recursive,
    Slice,
    UnionNode,
    Wildcard,
    parse,
)
from kubeloop.meta.field_error import go_json, go_number
from kubeloop.types import JSONValue

__all__ = ["JSONPath", "JSONPathError"]


class JSONPath:
    """A compiled template such as ``{.status.conditions[?(@.type=="Ready")].status}``; immutable and reusable for many documents.

    >>> pod = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    >>> JSONPath('{.status.conditions[?(@.type=="Ready")].status}').values(pod)
    ['True']

    Without braces the whole text is one expression, and a missing first dot is added, as kubectl does. With ``allow_missing``, a member or
    index that a document lacks yields no value instead of an error.

    Raises:
        JSONPathError: the template is malformed, or uses a feature that this dialect lacks (``range``, functions).
    """

    __slots__ = ("_allow_missing", "_parts", "template")

    def __init__(self, template: str, *, allow_missing: bool = False) -> None:
        self.template = template
        self._allow_missing = allow_missing
        self._parts = parse(_braced(template))

    def find(self, doc: JSONValue) -> list[list[JSONValue]]:
        """Return the values that each part (an expression in braces, or the text between) selects, in order.

        Raises:
            JSONPathError: A member or index is missing (unless ``allow_missing``), or a value is not a list where a list is needed.
        """
        return [_Search(self._allow_missing).follow([doc], part) for part in self._parts]

    def values(self, doc: JSONValue) -> list[JSONValue]:
        """Return all selected values in one list.

        Raises:
            JSONPathError: See ``find``.
        """
        return [value for part in self.find(doc) for value in part]

    def first(self, doc: JSONValue) -> JSONValue:
        """Return the first selected value, or None if there is none.

        Raises:
            JSONPathError: See ``find``.
        """
        return next(iter(self.values(doc)), None)

    def render(self, doc: JSONValue) -> str:
        """Format the selected values as ``kubectl -o jsonpath``: the values of an expression are separated by spaces.

        Raises:
            JSONPathError: See ``find``.
        """
        return "".join(" ".join(map(self.text, part)) for part in self.find(doc))

    @staticmethod
    def text(value: JSONValue) -> str:
        """Format one value as kubectl prints it: strings bare, objects and lists as Go's JSON with sorted keys."""
        if isinstance(value, str):
            return value
        return go_number(value) if isinstance(value, float) else go_json(value, sort_keys=True)

    def __repr__(self) -> str:
        return f"JSONPath({self.template!r})"


def _braced(template: str) -> str:
    text = template.strip()
    if "{" in text or not text:
        return template
    return f"{{{text}}}" if text[0] in ".[$@" else f"{{.{text}}}"


class _Search:
    """Evaluates a template on one document."""

    def __init__(self, allow_missing: bool) -> None:
        self._allow_missing = allow_missing

    def follow(self, values: list[JSONValue], nodes: Iterable[Node]) -> list[JSONValue]:
        for node in nodes:
            values = list(self._step(values, node))
        return values

    def _step(self, values: list[JSONValue], node: Node) -> Iterator[JSONValue]:
        match node:
            case LiteralNode(value=value):
                yield value
            case MemberNode(name=name):
                yield from self._fields(values, name)
            case Wildcard():
                for value in values:
                    yield from _children(value)
            case Recursive():
                for value in values:
                    yield from _descend(value)
            case Slice():
                for value in values:
                    yield from self._slice(value, node)
            case UnionNode(members=members):
                for member in members:
                    yield from self.follow(values, member)
            case FilterNode():
                for value in values:
                    yield from self._filter(value, node)

    def _fields(self, values: list[JSONValue], name: str) -> Iterator[JSONValue]:
        result = [value[name] for value in values if isinstance(value, dict) and name in value]
        if not result and not self._allow_missing:
            raise JSONPathError(f"{name} is not found")
        return iter(result)

    def _slice(self, value: JSONValue, node: Slice) -> Iterator[JSONValue]:
        if value is None:
            return
        if not isinstance(value, list):
            raise JSONPathError(f"{_type_name(value)} is not array or slice")
        length = len(value)
        start = node.start if node.start is not None else 0
        start += length if start < 0 else 0
        if node.single:
            stop = start + 1
        else:
            stop = node.stop if node.stop is not None else length
            stop += length if stop < 0 else 0
        if start == stop:
            return
        fault = ""
        if not 0 <= start < length:
            fault = f"array index out of bounds: index {start}, length {length}"
        elif not 0 <= stop <= length:
            fault = f"array index out of bounds: index {stop - 1}, length {length}"
        elif start > stop:
            fault = f"starting index {start} is greater than ending index {stop}"
        if fault:
            if self._allow_missing:
                return
            raise JSONPathError(fault)
        if node.step <= 0:
            raise JSONPathError("step must be > 0")
        yield from value[start : stop : node.step]

    def _filter(self, value: JSONValue, node: FilterNode) -> Iterator[JSONValue]:
        if not isinstance(value, list):
            raise JSONPathError(f"{JSONPath.text(value)} is not array or slice and cannot be filtered")
        lenient = _Search(True)
        for element in value:
            left = lenient.follow([element], node.left)
            if not node.operator:
                if left:
                    yield element
                continue
            right = lenient.follow([element], node.right)
            if len(left) > 1 or len(right) > 1:
                raise JSONPathError("can only compare one element at a time")
            if left and right and _compare(left[0], node.operator, right[0]):
                yield element


def _children(value: JSONValue) -> Iterable[JSONValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _descend(value: JSONValue) -> Iterator[JSONValue]:
    """Yield the value and every container below it."""
    children = list(_children(value))
    if children:
        yield value
        for child in children:
            yield from _descend(child)


def _type_name(value: JSONValue) -> str:
    return {dict: "map[string]interface {}", str: "string", bool: "bool", int: "int64", float: "float64"}[type(value)]


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


def _compare(left: JSONValue, operator: str, right: JSONValue) -> bool:
    if _comparable(left) != _comparable(right):
        raise JSONPathError("incompatible types for comparison")
    if operator not in ("==", "!=") and _comparable(left) is bool:
        raise JSONPathError("invalid type for comparison")
    return _COMPARISONS[operator](left, right)


def _comparable(value: JSONValue) -> type:
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    if isinstance(value, str):
        return str
    raise JSONPathError("invalid type for comparison")
