"""Expands macros: those of the language, comprehensions over two variables, ``sortBy``, and ``cel.bind``.

The expansion is cel-go's (ext/comprehensions.go, ext/lists.go), so that costs and messages are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kubeloop.cel.faults import CompileError, Issue, render
from kubeloop.cel.standard_macros import ACCUMULATOR, ACCUMULATORS, BadMacro, StandardMacros
from kubeloop.cel.syntax import CallNode, Comprehension, Const, Ident, ListLiteral, MapLiteral, Node, Parsed, Select, StructLiteral

_QUANTIFIERS = {"all", "exists", "existsOne", "exists_one"}
_TRANSFORMS = {"transformList", "transformMap", "transformMapEntry"}


def expand(parsed: Parsed, others: Sequence[Issue] = (), *, bindings: bool = False) -> None:
    """Replace calls of macros in place; those of ``cel.bind`` only with ``bindings``. ``others`` are issues found earlier.

    Raises:
        CompileError: a variable is not a simple name, or two have the same name; or ``others`` is not empty.
    """
    expander = _Expander(parsed, bindings)
    parsed.root = expander.node(parsed.root)
    issues = [*others, *expander.issues]
    if issues:
        raise CompileError(render(parsed.source, issues))


class _Expander:
    def __init__(self, parsed: Parsed, bindings: bool) -> None:
        self.parsed = parsed
        self.bindings = bindings
        self.next = max(parsed.positions, default=0) + 1
        self.issues: list[Issue] = []
        self.standard = StandardMacros(self._id)

    def node(self, node: Node) -> Node:
        match node:
            case Select():
                node.operand = self.node(node.operand)
            case ListLiteral():
                node.elements = [self.node(one) for one in node.elements]
            case MapLiteral() | StructLiteral():
                for entry in node.entries:
                    if not isinstance(entry.key, str):
                        entry.key = self.node(entry.key)
                    entry.value = self.node(entry.value)
            case Comprehension():
                node.over, node.initial = self.node(node.over), self.node(node.initial)
                node.condition, node.step, node.result = self.node(node.condition), self.node(node.step), self.node(node.result)
            case CallNode():
                node.args = [self.node(one) for one in node.args]
                if node.target is not None:
                    node.target = self.node(node.target)
                return self._call(node)
        return node

    def _call(self, node: CallNode) -> Node:
        target, count = node.target, len(node.args)
        try:
            if target is None:
                return self.standard.expanded(node)
            if node.function in _QUANTIFIERS and count == 3:
                return self._quantifier(node, target)
            if node.function in _TRANSFORMS and count in (3, 4):
                return self._transform(node, target)
            if node.function == "sortBy" and count == 2:
                return self._sort_by(node, target)
            if self.bindings and node.function == "bind" and count == 3 and isinstance(target, Ident) and target.name == "cel":
                return self._bind(node)
            return self.standard.expanded(node)
        except BadMacro as exc:
            self.issues.append(Issue(self.parsed.positions.get(exc.node.id, 0), exc.text))
        return node

    def _variables(self, node: CallNode) -> tuple[str, str]:
        names = []
        for one in node.args[:2]:
            if not isinstance(one, Ident):
                raise self._error(one, "argument must be a simple name")
            names.append(one.name)
        if names[0] == names[1]:
            raise self._error(node.args[1], f"duplicate variable name: {names[0]}")
        for one, name in zip(node.args, names, strict=False):
            if name in ACCUMULATORS:
                raise self._error(one, "iteration variable overwrites accumulator variable")
        return names[0], names[1]

    @staticmethod
    def _error(node: Node, text: str) -> BadMacro:
        return BadMacro(node, text)

    def _id(self, like: Node) -> int:
        number = self.next
        self.next += 1
        self.parsed.positions[number] = self.parsed.positions.get(like.id, 0)
        return number

    def _quantifier(self, node: CallNode, target: Node) -> Node:
        first, second = self._variables(node)
        body, new = node.args[2], partial(self._id, node)

        def result() -> Node:
            return Ident(new(), ACCUMULATOR)

        final: Node = result()
        match node.function:
            case "all":
                initial: Node = Const(new(), True)
                condition: Node = CallNode(new(), "@not_strictly_false", [result()])
                step: Node = CallNode(new(), "_&&_", [result(), body])
            case "exists":
                initial = Const(new(), False)
                condition = CallNode(new(), "@not_strictly_false", [CallNode(new(), "!_", [result()])])
                step = CallNode(new(), "_||_", [result(), body])
            case _:
                initial, condition = Const(new(), 0), Const(new(), True)
                more = CallNode(new(), "_+_", [result(), Const(new(), 1)])
                step = CallNode(new(), "_?_:_", [body, more, result()])
                final = CallNode(new(), "_==_", [final, Const(new(), 1)])
        return Comprehension(node.id, first, target, ACCUMULATOR, initial, condition, step, final, second)

    def _transform(self, node: CallNode, target: Node) -> Node:
        first, second = self._variables(node)
        new = partial(self._id, node)

        def result() -> Node:
            return Ident(new(), ACCUMULATOR)

        made = node.args[-1]
        initial: Node = MapLiteral(new(), [])
        match node.function:
            case "transformList":
                initial = ListLiteral(new(), [])
                step: Node = CallNode(new(), "_+_", [result(), ListLiteral(new(), [made])])
            case "transformMap":
                step = CallNode(new(), "cel.@mapInsert", [result(), Ident(new(), first), made])
            case _:
                step = CallNode(new(), "cel.@mapInsert", [result(), made])
        if len(node.args) == 4:
            step = CallNode(new(), "_?_:_", [node.args[2], step, result()])
        return Comprehension(node.id, first, target, ACCUMULATOR, initial, Const(new(), True), step, result(), second)

    def _bind(self, node: CallNode) -> Node:
        """Expand ``cel.bind(x, value, expression)`` into a fold over an empty list whose accumulator is x."""
        name, value, made = node.args
        if not isinstance(name, Ident):
            raise self._error(name, "cel.bind() variable names must be simple identifiers")
        new = partial(self._id, node)
        over: Node = ListLiteral(new(), [])
        return Comprehension(node.id, "#unused", over, name.name, value, Const(new(), False), Ident(new(), name.name), made)

    def _sort_by(self, node: CallNode, target: Node) -> Node:
        """Expand ``list.sortBy(x, key)``: bind the list, fold the keys, sort by them."""
        name, key = node.args
        if isinstance(target, Const | MapLiteral | StructLiteral):
            raise self._error(target, "sortBy can only be applied to a list, identifier, comprehension, call or select expression")
        if not isinstance(name, Ident):
            raise self._error(name, "argument is not an identifier")
        new = partial(self._id, node)
        bound = "@__sortBy_input__"
        step = CallNode(new(), "_+_", [Ident(new(), ACCUMULATOR), ListLiteral(new(), [key])])
        keys = Comprehension(
            new(), name.name, Ident(new(), bound), ACCUMULATOR, ListLiteral(new(), []), Const(new(), True), step, Ident(new(), ACCUMULATOR)
        )
        sort = CallNode(new(), "@sortByAssociatedKeys", [keys], Ident(new(), bound))
        return Comprehension(node.id, "#unused", ListLiteral(new(), []), bound, target, Const(new(), False), Ident(new(), bound), sort)
