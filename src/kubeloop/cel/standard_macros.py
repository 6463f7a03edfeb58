"""The macros of the language itself and those of optional values, expanded as cel-go does (parser/macro.go, cel/library.go)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kubeloop.cel.syntax import CallNode, Comprehension, Const, Ident, ListLiteral, Node, Select, walk

ACCUMULATOR: Final = "@result"
#: The name of the accumulator in expanded macros.
ACCUMULATORS: Final = (ACCUMULATOR, "__result__")
_UNUSED: Final = "#unused"


class BadMacro(Exception):
    """A macro call cannot be expanded. The exception holds the faulty node."""

    def __init__(self, node: Node, text: str) -> None:
        super().__init__(text)
        self.node = node
        self.text = text


@dataclass(frozen=True, slots=True)
class StandardMacros:
    """Expands calls of the standard macros. ``new`` returns the identifier of a new node at the position of a given node."""

    new: Callable[[Node], int]

    def expanded(self, node: CallNode) -> Node:
        """Return the expansion of the call, or the call itself if it is not a macro.

        Raises:
            BadMacro: The call cannot be expanded.
        """
        target, count = node.target, len(node.args)
        if target is None:
            return self._has(node) if (node.function, count) == ("has", 1) else node
        match node.function, count:
            case "all" | "exists" | "exists_one" | "existsOne", 2:
                return self._quantifier(node, target)
            case "map", 2 | 3:
                return self._collected(node, target, None if count == 2 else node.args[1], node.args[-1])
            case "filter", 2:
                return self._collected(node, target, node.args[1], node.args[0])
            case "optMap" | "optFlatMap", 2:
                return self._optional(node, target)
        return node

    @staticmethod
    def _has(node: CallNode) -> Node:
        field = node.args[0]
        if not isinstance(field, Select) or field.test_only:
            raise BadMacro(field, "invalid argument to has() macro")
        return Select(node.id, field.operand, field.field, test_only=True)

    @staticmethod
    def _variable(node: CallNode, otherwise: str) -> str:
        name = node.args[0]
        if not isinstance(name, Ident):
            raise BadMacro(name, otherwise)
        if name.name in ACCUMULATORS:
            raise BadMacro(name, "iteration variable overwrites accumulator variable")
        return name.name

    def _quantifier(self, node: CallNode, target: Node) -> Node:
        variable, test = self._variable(node, "argument must be a simple name"), node.args[1]
        final: Node = self._result(node)
        match node.function:
            case "all":
                initial: Node = self._const(node, True)
                condition: Node = self._call(node, "@not_strictly_false", self._result(node))
                step = self._call(node, "_&&_", self._result(node), test)
            case "exists":
                initial = self._const(node, False)
                condition = self._call(node, "@not_strictly_false", self._call(node, "!_", self._result(node)))
                step = self._call(node, "_||_", self._result(node), test)
            case _:
                initial, condition = self._const(node, 0), self._const(node, True)
                more = self._call(node, "_+_", self._result(node), self._const(node, 1))
                step = self._call(node, "_?_:_", test, more, self._result(node))
                final = self._call(node, "_==_", final, self._const(node, 1))
        return Comprehension(node.id, variable, target, ACCUMULATOR, initial, condition, step, final)

    def _collected(self, node: CallNode, target: Node, test: Node | None, element: Node) -> Node:
        """Expand ``map`` and ``filter``: a list of the transformed elements for which ``test`` holds."""
        variable = self._variable(node, "argument is not an identifier")
        step: Node = self._call(node, "_+_", self._result(node), ListLiteral(self.new(node), [element]))
        if test is not None:
            step = self._call(node, "_?_:_", test, step, self._result(node))
        initial = ListLiteral(self.new(node), [])
        return Comprehension(node.id, variable, target, ACCUMULATOR, initial, self._const(node, True), step, self._result(node))

    def _optional(self, node: CallNode, target: Node) -> Node:
        name = node.args[0]
        if not isinstance(name, Ident):
            raise BadMacro(name, f"{node.function}() variable name must be a simple identifier")
        value = CallNode(self.new(node), "value", [], self._copied(target))
        over, variable = ListLiteral(self.new(node), []), Ident(self.new(node), name.name)
        made: Node = Comprehension(self.new(node), _UNUSED, over, name.name, value, self._const(node, False), variable, node.args[1])
        if node.function == "optMap":
            made = self._call(node, "optional.of", made)
        there = CallNode(self.new(node), "hasValue", [], target)
        return CallNode(node.id, "_?_:_", [there, made, self._call(node, "optional.none")])

    def _copied(self, node: Node) -> Node:
        copied = copy.deepcopy(node)
        for one in walk(copied):
            one.id = self.new(one)
        return copied

    def _result(self, node: Node) -> Node:
        return Ident(self.new(node), ACCUMULATOR)

    def _const(self, node: Node, value: bool | int) -> Node:
        return Const(self.new(node), value)

    def _call(self, node: Node, function: str, *args: Node) -> Node:
        return CallNode(self.new(node), function, list(args))
