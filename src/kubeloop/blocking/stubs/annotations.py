"""Converts annotations of the asynchronous interface to those of the blocking one: an awaitable becomes its result."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from kubeloop.blocking.rules import is_async
from kubeloop.blocking.stubs.sources import Origin, origin

#: Awaitable types, each with the index of the type argument that is the type of the awaited result.
_GIVEN = {"Awaitable": 0, "Coroutine": 2}
_ITERATED = frozenset({"AsyncIterator", "AsyncGenerator", "AsyncIterable"})
_OPENED = "AbstractAsyncContextManager"

WIDTH = 140


class Imports:
    """The imports of the stub, each name once; a second name with the same spelling gets a number."""

    def __init__(self) -> None:
        self._by_name: dict[str, Origin] = {}
        self._names: dict[Origin, str] = {}
        #: Facades that were named and are to be written.
        self.facades: dict[str, type[Any]] = {}
        self.variables: dict[str, TypeVar] = {}

    def name(self, definition: Origin) -> str:
        found = self._names.get(definition)
        if found is None:
            number, found = 1, definition.name
            while found in self._by_name or found in self.facades:
                number += 1
                found = f"{definition.name}_{number}"
            self._by_name[found] = definition
            self._names[definition] = found
        return found

    def facade(self, cls: type[Any]) -> str:
        """Return the name of a class's facade. Raise ValueError if two classes with a facade have the same name."""
        known = self.facades.setdefault(cls.__name__, cls)
        if known is not cls:
            raise ValueError(
                f"two classes are named {cls.__name__}: {known.__module__} and {cls.__module__}; one of them needs another name"
            )
        return cls.__name__

    def variable(self, variable: TypeVar) -> str:
        known = self.variables.setdefault(variable.__name__, variable)
        if known.__bound__ != variable.__bound__:
            raise ValueError(f"type variables named {variable.__name__} have different bounds: {known.__bound__}, {variable.__bound__}")
        return variable.__name__

    def module(self, name: str) -> str:
        self._names.setdefault(Origin(name, ""), name)
        return name

    def lines(self) -> list[str]:
        modules = sorted({where.module for where in self._names if not where.name})
        lines = [f"import {name}" for name in modules]
        by_module: dict[str, list[str]] = {}
        for where, name in self._names.items():
            if where.name:
                by_module.setdefault(where.module, []).append(where.name if where.name == name else f"{where.name} as {name}")
        for module, names in sorted(by_module.items()):
            line = f"from {module} import {', '.join(sorted(names))}"
            wrapped = [f"from {module} import (", *(f"    {name}," for name in sorted(names)), ")"]
            lines += [line] if len(line) <= WIDTH else wrapped
        return lines


class Translator:
    """Converts the annotations of one class. ``members``: its public names, which hide builtins of the same name."""

    def __init__(self, imports: Imports, members: frozenset[str]) -> None:
        self._imports = imports
        self._members = members

    def translate(self, text: str, module: str, variables: Mapping[str, str] | None = None) -> str:
        """Convert an annotation. ``variables`` maps type variables to types. Raise LookupError if the annotation has an unknown name."""
        return ast.unparse(self._expression(ast.parse(text, mode="eval").body, module, variables or {}))

    def _expression(self, node: ast.expr, module: str, variables: Mapping[str, str]) -> ast.expr:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._expression(ast.parse(node.value, mode="eval").body, module, variables)
        if isinstance(node, ast.Name):
            if node.id in variables:
                return ast.parse(variables[node.id], mode="eval").body
            return ast.parse(self._named(origin(module, node.id)), mode="eval").body
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = origin(module, node.value.id)
            if not found.name:
                return ast.parse(self._named(Origin("" if found.module == "builtins" else found.module, node.attr)), mode="eval").body
        if isinstance(node, ast.Subscript):
            return self._subscript(node, module, variables)
        if isinstance(node, ast.BinOp):
            left, right = (self._expression(one, module, variables) for one in (node.left, node.right))
            return ast.BinOp(left, node.op, right)
        if isinstance(node, ast.List | ast.Tuple):
            return type(node)([self._expression(one, module, variables) for one in node.elts], node.ctx)
        return node

    def _subscript(self, node: ast.Subscript, module: str, variables: Mapping[str, str]) -> ast.expr:
        base = ast.unparse(node.value).rpartition(".")[2]
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base in _GIVEN:
            return self._expression(arguments[_GIVEN[base]], module, variables)
        if base == "Literal":
            return ast.Subscript(self._expression(node.value, module, variables), node.slice, node.ctx)
        if base in _ITERATED or base == _OPENED:
            name, home = ("BlockingContext", "contexts") if base == _OPENED else ("BlockingIterator", "iterators")
            head: ast.expr = ast.Name(self._imports.name(Origin(f"kubeloop.blocking.{home}", name)))
            return ast.Subscript(head, self._expression(arguments[0], module, variables), node.ctx)
        inner = self._expression(node.slice, module, variables)
        return ast.Subscript(self._expression(node.value, module, variables), inner, node.ctx)

    def _named(self, definition: Origin) -> str:
        if not definition.module:
            if definition.name in self._members and hasattr(builtins, definition.name):
                return f"{self._imports.module('builtins')}.{definition.name}"
            return definition.name
        value = definition.value()
        if isinstance(value, TypeVar):
            return self._imports.variable(value)
        if inspect.isclass(value) and is_async(value):
            return self._imports.facade(value)
        return self._imports.name(definition)
