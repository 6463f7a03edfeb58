"""Finds the definitions of names in annotations: the imports and definitions of the module, including those for type checkers."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """The definition of a name. ``module`` "" means a builtin; ``name`` "" means the module itself."""

    module: str
    name: str

    def value(self) -> Any:
        module = importlib.import_module(self.module or "builtins")
        return getattr(module, self.name) if self.name else module


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


@functools.cache
def _names(module: str) -> dict[str, Origin]:
    result: dict[str, Origin] = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            result |= {alias.asname or alias.name: Origin(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            result |= {alias.asname or alias.name.partition(".")[0]: Origin(alias.name, "") for alias in node.names}
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            result[node.name] = Origin(module, node.name)
        elif isinstance(node, ast.Assign):
            result |= {target.id: Origin(module, target.id) for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            result[node.target.id] = Origin(module, node.target.id)
    return result


def origin(module: str, name: str) -> Origin:
    """Return the origin of a name in a module. Raise LookupError if the module neither defines nor imports the name."""
    found = _names(module).get(name)
    if found is not None and found.name and found.module != module and found.module.startswith("kubeloop"):
        # Follow re-exports to the module that defines the name.
        return origin(found.module, found.name) if found.name in _names(found.module) else found
    if found is None and hasattr(builtins, name):
        found = Origin("", name)
    if found is None:
        raise LookupError(f"{module}: the name {name} has no known definition")
    return found


def attributes(cls: type[Any]) -> dict[str, tuple[str, str]]:
    """Return the public attributes of objects of ``cls``: annotation and module by name.

    It uses annotations of the class, and ``self.NAME`` in ``__init__`` with an annotation, a parameter or a constant.
    """
    result: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("kubeloop."):
            continue
        for node in tree_of(base.__module__).body:
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                result |= {name: (text, base.__module__) for name, text in _attributes(node).items()}
    return {name: said for name, said in result.items() if not name.startswith("_") and not is_class_variable(said[0])}


def is_class_variable(text: str) -> bool:
    return text.startswith("ClassVar")


def _attributes(node: ast.ClassDef) -> dict[str, str]:
    result: dict[str, str] = {}
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            result[one.target.id] = ast.unparse(one.annotation)
        elif isinstance(one, ast.FunctionDef) and one.name == "__init__":
            arguments = [*one.args.args, *one.args.kwonlyargs]
            parameters = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation is not None}
            for inner in ast.walk(one):
                result |= _of_self(inner, parameters, result)
    return result


def _of_self(node: ast.AST, parameters: dict[str, str], known: dict[str, str]) -> dict[str, str]:
    if isinstance(node, ast.AnnAssign) and _is_self(node.target):
        assert isinstance(node.target, ast.Attribute)
        return {node.target.attr: ast.unparse(node.annotation)}
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_self(node.targets[0]):
        assert isinstance(node.targets[0], ast.Attribute)
        name, value = node.targets[0].attr, node.value
        if name in known:
            return {}
        if isinstance(value, ast.Name) and value.id in parameters:
            return {name: parameters[value.id]}
        if isinstance(value, ast.Constant) and isinstance(value.value, bool | int | float | str):
            return {name: type(value.value).__name__}
    return {}


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
