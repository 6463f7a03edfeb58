"""Small faults for a source: each mutation changes one operator, constant, condition or statement of a function."""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Pow: ast.Mult,
}  # fmt: skip
#: Calls whose absence no test needs to notice.
_UNTESTED_CALLS = ("_LOG", "log", "logger", "warnings")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutation:
    """One changed node.

    Attributes:
        function: The qualified name of the outermost function around the node: ``Class.method``.
        first: The first line of that function, that of its first decorator.
        lines: The first and the last line of the node, counted from 1.
        source: The whole changed source.
    """

    function: str
    first: int
    lines: tuple[int, int]
    source: str

    def diff(self, original: str, name: str) -> str:
        """The change as a unified diff of a file called ``name``."""
        changed = difflib.unified_diff(original.splitlines(), self.source.splitlines(), name, name, lineterm="", n=1)
        return "\n".join(changed)


def mutations(source: str) -> Iterator[Mutation]:
    """All mutations of the bodies of the functions of a source, in order of their place."""
    tree = ast.parse(source)
    for scope, function in _outermost_functions(tree, ""):
        first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        for node, replacement in _replacements(function):
            assert node.end_lineno is not None
            yield Mutation(scope, first, (node.lineno, node.end_lineno), _replaced(source, node, replacement))


def _outermost_functions(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            yield f"{scope}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _outermost_functions(child, f"{scope}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _outermost_functions(child, scope)


def _replacements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """The nodes of a function's body with what replaces them. Docstrings, annotations and defaults are left as they are."""
    for statement in function.body:
        for node in _walk(statement):
            if isinstance(node, ast.stmt):
                yield from ((node, other) for other in _other_statements(node))
            elif isinstance(node, ast.expr):
                yield from ((node, other) for other in _other_expressions(node))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a statement that run when its function is called."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return
    if isinstance(node, ast.Call) and _is_untested(node):
        return
    yield node
    # Inside an f-string no other quotes may stand, and a message of an error may be worded in another way.
    if isinstance(node, ast.JoinedStr | ast.Raise):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _is_untested(call: ast.Call) -> bool:
    words = ast.unparse(call.func).split(".")
    return any(word in _UNTESTED_CALLS for word in words[:-1]) or words[0] in ("cast", "assert_never")


def _other_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(node, ast.Expr):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _is_untested(call):
            yield ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and not _is_false(node.value):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Assign) and not _is_false(node.value) and not isinstance(node.targets[0], ast.Tuple):
        yield ast.Assign(node.targets, ast.Constant(None), lineno=node.lineno)
    elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        yield ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value)
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Raise | ast.Delete):
        yield ast.Pass()


def _other_expressions(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        changed = copy.deepcopy(node)
        changed.ops[0] = _COMPARISONS[type(node.ops[0])]()
        yield changed
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not _has_text(node):
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
        elif isinstance(node.value, str) and node.value.isidentifier():
            yield ast.Constant(f"{node.value}X")
    elif isinstance(node, ast.Call):
        for number, keyword in enumerate(node.keywords):
            if keyword.arg == "name" and "create_task" in ast.unparse(node.func):
                continue  # it shows in logs only
            changed_call = copy.deepcopy(node)
            del changed_call.keywords[number]
            yield changed_call


def _is_false(node: ast.expr) -> bool:
    """Whether the value is as false as the None that would replace it."""
    return isinstance(node, ast.Constant) and not node.value


def _has_text(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str)) for each in ast.walk(node)
    )


def _replaced(source: str, node: ast.expr | ast.stmt, replacement: ast.expr | ast.stmt) -> str:
    """The source with another node in the place of one."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    text = ast.unparse(replacement)
    if isinstance(replacement, ast.BoolOp | ast.Compare | ast.BinOp | ast.IfExp | ast.UnaryOp):
        text = f"({text})"
    whole = b"".join(lines)
    return (whole[:begin] + text.encode() + whole[end:]).decode()
