"""Parses CEL source into a syntax tree with expanded macros."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Final

from kubeloop.cel.expression_reader import read
from kubeloop.cel.faults import CompileError, Issue, TooDeep, render
from kubeloop.cel.standard_macros import ACCUMULATOR, ACCUMULATORS, BadMacro, StandardMacros
from kubeloop.cel.syntax import (
    MOST_LEVELS,
    CallNode,
    Comprehension,
    Const,
    Ident,
    ListLiteral,
    MapLiteral,
    Node,
    Parsed,
    Select,
    StructLiteral,
    is_too_deep,
)
from kubeloop.cel.tokens import NO_IDENTIFIER, SyntaxErrorReport

# Expands macros: those of the language, comprehensions over two variables, ``sortBy``, and ``cel.bind``.
#
# The expansion is cel-go's (ext/comprehensions.go, ext/lists.go), so that costs and messages are the same.


_QUANTIFIERS = {"all", "exists", "existsOne", "exists_one"}
_TRANSFORMS = {"transformList", "transformMap", "transformMapEntry"}


def expand(parsed: Parsed, earlier_issues: Sequence[Issue] = (), *, bindings: bool = False) -> None:
    """Expand the macro calls of a syntax tree in place; ``cel.bind`` only with ``bindings``.

    ``earlier_issues`` are errors found earlier, which are reported with those of the macros.

    Raises:
        CompileError: The arguments of a macro are invalid, or ``earlier_issues`` is not empty.
    """
    expander = _Expander(parsed, bindings)
    parsed.root = expander.node(parsed.root)
    issues = [*earlier_issues, *expander.issues]
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


# Syntax errors with cel-go's messages, if the library ``cel-expr-python`` is installed, whose grammar has the same source.
#
# Only messages depend on the library: without it, common mistakes have the same message, but some of several mistakes in a text may be
# missing.


_AROUND: Final = re.compile(r"\A(?:INVALID_ARGUMENT|CANCELLED): | {1,2}\[(?:INVALID_ARGUMENT|CANCELLED)\]\Z")
#: cel-go prints an unknown line as -1, the library as an unsigned number.
_UNKNOWN_LINE: Final = "<input>:4294967295:"
#: Patterns of the library's messages that differ from cel-go's, with their replacements.
_WORDS: Final = (
    (re.compile(r"(?<=\n)ERROR: <input>:-1:0: <<nil>> parsetree\Z"), ""),
    (re.compile(r"(?:all|exists|exists_one|existsOne)\(\) variable name must be a simple identifier"), "argument must be a simple name"),
    (re.compile(r"(?:map|filter)\(\) variable name must be a simple identifier"), "argument is not an identifier"),
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"'\\u003F'"), "'?'"),
    (re.compile(r"no viable alternative at input '.(true|false|null)'"), r"mismatched input '\1' expecting IDENTIFIER"),
)
#: No name follows ``.?``: cel-go reports it twice.
_NO_FIELD: Final = re.compile(
    r"(ERROR: (<input>:\d+:\d+:) Syntax error: mismatched input '[^\n]*' expecting \{IDENTIFIER, ESC_IDENTIFIER\}(\n \| .*\n \| .*))"
)


@cache
def _parser() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional
    except ImportError:
        return None
    return cel.NewEnv(extensions=[ext_optional.ExtOptional()])


def syntax_words(source: str) -> str:
    """Return cel-go's message for a text with syntax errors, or an empty string if the library is missing or its message does not apply."""
    parser = _parser()
    if parser is None:
        return ""
    try:
        parser.compile(source, disable_check=True)
    except RuntimeError as exc:
        text = _AROUND.sub("", str(exc)).replace(_UNKNOWN_LINE, "<input>:-1:")
    else:
        return ""
    if "recursion" in text:
        return ""  # the library stops at 32 levels, so its message is not about the text
    if not source:
        text = text.replace("<input>:1:1:", "<input>:1:0:")  # as cel-go reports an empty text
    for theirs, ours in _WORDS:
        text = theirs.sub(ours, text)
    return _NO_FIELD.sub(rf"\1\nERROR: \2 {NO_IDENTIFIER}\3", text).rstrip("\n")


_MOST_CHARACTERS: Final = 100_000
_NOWHERE: Final = "ERROR: <input>:-1:0: "


def parse(source: str, *, bindings: bool = False) -> Parsed:
    """Return the syntax tree of an expression with all of Kubernetes' macros expanded; ``cel.bind`` only with ``bindings``.

    Raises:
        CompileError: The text is not an expression.
    """
    text = _clean(source)
    if len(text) > _MOST_CHARACTERS:
        raise CompileError(f"{_NOWHERE}expression code point size exceeds limit: size: {len(text)}, limit {_MOST_CHARACTERS}")
    try:
        parsed, issues = read(text)
    except TooDeep:
        raise CompileError(f"{_NOWHERE}expression recursion limit exceeded: {MOST_LEVELS}") from None
    except SyntaxErrorReport as fault:
        raise CompileError(syntax_words(text) or _rendered(text, fault.issues)) from None
    if is_too_deep(parsed.root):
        raise CompileError(f"{_NOWHERE}max recursion depth exceeded")
    expand(parsed, issues, bindings=bindings)
    return parsed


def _rendered(text: str, issues: list[Issue]) -> str:
    shown = render(text, issues)
    # As cel-go reports an empty text.
    return shown if text else shown.replace("<input>:1:1:", "<input>:1:0:")


def _clean(source: str) -> str:
    """Replace lone surrogates, which are not characters, by ``?``."""
    return source.encode("utf-8", "replace").decode()
