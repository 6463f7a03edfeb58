"""The condition of a rule, ``spec.when``: compiled once, with the fields of the object that it reads."""

from __future__ import annotations

import re
from typing import Any, Final

from kubeloop.cel import CompileError, Environment, Program, compile_expression
from kubeloop.cel.parser import parse
from kubeloop.cel.syntax import Ident, Node, Select, children, walk
from kubeloop.cel.types import BOOL, DYN, STRING, Type, list_of, map_of, struct
from kubeloop.proxy.rules.context import HeadMetadata
from kubeloop.proxy.rules.errors import ActionFailed
from kubeloop.proxy.rules.structure import closest, quoted
from kubeloop.types import JSONObject

_REQUEST: Final = ("verb", "group", "version", "resource", "subresource", "namespace", "name", "userAgent")
#: The fields of the variables that ``RewriteContext`` makes, so that a rule that reads another field does not compile.
_FIELDS: Final[dict[str, dict[str, Type]]] = {
    "request": dict.fromkeys(_REQUEST, STRING),
    "user": {"name": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))},
}
_ENVIRONMENT: Final = Environment({"object": DYN, **{name: struct(name) for name in _FIELDS}}, _FIELDS)
_UNDEFINED: Final = re.compile(r"undefined field '(.*)'$")
#: Fields of the object that ``HeadMetadata`` holds.
_HEAD: Final = frozenset({("metadata", "name"), ("metadata", "namespace"), ("metadata", "labels")})
#: Fields of the object that never change during its life.
_IMMUTABLE: Final = frozenset({("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"), ("apiVersion",), ("kind",)})


class Condition:
    """A CEL expression over ``object``, ``request`` and ``user`` that returns whether a rule applies.

    >>> condition = Condition("object.metadata.name == 'web-0' && 'devs' in user.groups")
    >>> condition.decides_by_head, condition.is_immutable, condition.uses_user
    (True, True, True)

    Attributes:
        decides_by_head: ``HeadMetadata`` is enough, unless a field that the expression reads is missing there.
        is_immutable: It reads only fields of the object that never change.
        uses_object: It reads the object.
        uses_request: It reads the request.
        uses_user: It reads the user.
    """

    __slots__ = ("_program", "decides_by_head", "is_immutable", "uses_object", "uses_request", "uses_user")

    def __init__(self, expression: str) -> None:
        """Compile an expression.

        Raises:
            ValueError: The expression is wrong; each line of the message is one mistake with its position.
        """
        try:
            self._program: Program = compile_expression(expression, _ENVIRONMENT)
        except CompileError as error:
            # The other lines of a message repeat the expression and mark the position.
            lines = [line + _hint(line, expression) for line in str(error).splitlines() if not line.startswith(" | ")]
            raise ValueError("\n".join(lines)) from None
        result = self._program.result
        if result not in (BOOL, DYN):
            raise ValueError(f"expected an expression that returns bool, got {result}")
        self.uses_object = self._program.uses("object")
        self.uses_request = self._program.uses("request")
        self.uses_user = self._program.uses("user")
        fields = set(_object_fields(parse(expression).root))
        self.decides_by_head = all(field[:2] in _HEAD for field in fields)
        self.is_immutable = all(field in _IMMUTABLE or field[:2] in _IMMUTABLE for field in fields)

    def evaluate(self, variables: dict[str, Any]) -> bool:
        """Return the value of the expression.

        Args:
            variables: ``object``, ``request`` and ``user``.

        Raises:
            ActionFailed: The evaluation failed, or its value is no boolean.
        """
        result = self._program.run(variables)
        if result.error is not None:
            raise ActionFailed(f"when: {result.error}")
        if result.value is True or result.value is False:
            return bool(result.value)
        raise ActionFailed(f"when: the expression returned {type(result.value).__name__}, expected bool")

    def evaluate_head(self, head: HeadMetadata, variables: dict[str, Any]) -> bool | None:
        """Return the value for an object with this metadata, or None if the whole object is needed.

        A field that is empty in the head may be missing in the object or empty. It is left out here, so that reading it fails, and the
        object decides. Where another part of the expression decides despite of that, it does so for the object too.
        """
        if not self.decides_by_head:
            return None
        metadata: JSONObject = {}
        if head.name:
            metadata["name"] = head.name
        if head.namespace:
            metadata["namespace"] = head.namespace
        if head.labels is not None:
            metadata["labels"] = head.labels
        result = self._program.run({**variables, "object": {"metadata": metadata}})
        return bool(result.value) if result.value is True or result.value is False else None


def _hint(line: str, expression: str) -> str:
    """Return the fields of ``request`` or ``user`` for a message about a field that does not exist; empty for other messages."""
    undefined = _UNDEFINED.search(line)
    if undefined is None:
        return ""
    field = undefined[1]
    selections = [node for node in walk(parse(expression).root) if isinstance(node, Select) and node.field == field]
    named = {node.operand.name.lstrip(".") for node in selections if isinstance(node.operand, Ident)} & _FIELDS.keys()
    variables = sorted(named or _FIELDS)
    near = closest(field, [each for name in variables for each in _FIELDS[name]])
    meant = f"; did you mean {quoted(near)}?" if near else ";"
    existing = "; ".join(f"{name} has {', '.join(_FIELDS[name])}" for name in variables)
    return f"{meant} {existing}"


def _object_fields(node: Node) -> list[tuple[str, ...]]:
    """Return the paths below ``object`` that an expression reads; an empty path for a use that may read everything.

    The macro ``has`` tests whether a field exists, which a head does not say of name, namespace and labels: the path of
    the field around it counts.
    """
    path: list[str] = []
    inner = node
    while isinstance(inner, Select):
        path = [] if inner.test_only else [inner.field, *path]
        inner = inner.operand
    if isinstance(inner, Ident):
        # A loop may have a variable of this name; its fields count too, which is only slower.
        return [tuple(path)] if inner.name.lstrip(".") == "object" else []
    if path or isinstance(node, Select):
        return _object_fields(inner)
    return [field for child in children(node) for field in _object_fields(child)]
