"""Renders a facade, or a function, for the stub."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, get_overloads

from kubeloop.blocking.rules import CONSTRUCTED, EITHER, STREAM, WITHOUT, public, returned_name
from kubeloop.blocking.stubs.annotations import WIDTH, Imports, Translator
from kubeloop.blocking.stubs.sources import Origin, attributes, origin

_EXIT = "(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None"


#: Classes of the standard library, which have no annotations.
_STANDARD = {
    "StreamReader": """
        def at_eof(self) -> bool: ...
        def read(self, n: int = -1) -> bytes: ...
        def readexactly(self, n: int) -> bytes: ...
        def readline(self) -> bytes: ...
        def readuntil(self, separator: bytes = b"\\n") -> bytes: ...
        def __iter__(self) -> BlockingIterator[bytes]: ...
    """,
    "StreamWriter": """
        def can_write_eof(self) -> bool: ...
        def close(self) -> None: ...
        def drain(self) -> None: ...
        def is_closing(self) -> bool: ...
        def wait_closed(self) -> None: ...
        def write(self, data: bytes) -> None: ...
        def write_eof(self) -> None: ...
        def writelines(self, data: list[bytes]) -> None: ...
    """,
}


def class_lines(cls: type[Any], imports: Imports) -> list[str]:
    """Return the stub's lines for the facade of a class.

    Raises:
        ValueError: Objects of the class can be awaited, but ``rules.EITHER`` does not name the class.
    """
    if cls.__name__ in _STANDARD:
        return [f"class {cls.__name__}:", *(f"    {line.strip()}" for line in _STANDARD[cls.__name__].strip().splitlines())]
    if hasattr(cls, "__await__") and cls.__name__ not in EITHER:
        raise ValueError(f"{cls.__module__}.{cls.__name__} can be awaited; say in rules.EITHER that methods give it")
    members = public(cls)
    translator = Translator(imports, frozenset(members))
    parameters = [imports.variable(one) for one in getattr(cls, "__parameters__", ())]
    base = f"({imports.name(Origin('typing', 'Generic'))}[{', '.join(parameters)}])" if parameters else ""
    body: list[str] = []
    for name, (text, module) in sorted(attributes(cls).items()):
        if name not in members and name not in WITHOUT.get(cls.__name__, frozenset()):
            body.append(f"{name}: {translator.translate(text, module)}")
    if cls.__name__ in CONSTRUCTED:
        body += _function("__init__", cls.__init__, translator)
    body += _special(cls, translator, imports)
    for name, raw in members.items():
        body += _member(name, raw, translator, imports)
    return [f"class {cls.__name__}{base}:", *(f"    {line}" for line in body or ["..."])]


def function_lines(function: Callable[..., Any], imports: Imports) -> list[str]:
    return _function(function.__name__, function, Translator(imports, frozenset()))


def _member(name: str, raw: Any, translator: Translator, imports: Imports) -> list[str]:
    if isinstance(raw, property):
        assert raw.fget is not None
        returned = translator.translate(_returned(raw.fget), raw.fget.__module__)
        lines = ["@property", f"def {name}(self) -> {returned}: ..."]
        return lines if raw.fset is None else [*lines, f"@{name}.setter", f"def {name}(self, value: {returned}) -> None: ..."]
    if isinstance(raw, classmethod | staticmethod):
        return [f"@{type(raw).__name__}", *_function(name, raw.__func__, translator)]
    if not inspect.isfunction(raw):
        return []
    if returned_name(raw) in EITHER:
        return [*_function(name, raw, translator, awaited=True), *_function(name + STREAM, raw, translator)]
    overloads = get_overloads(raw)
    if not overloads:
        return _function(name, raw, translator)
    mark = imports.name(Origin("typing", "overload"))
    return [line for one in overloads for line in (f"@{mark}", *_function(name, one, translator))]


def _special(cls: type[Any], translator: Translator, imports: Imports) -> list[str]:
    lines: list[str] = []
    if hasattr(cls, "__aenter__"):
        imports.name(Origin("types", "TracebackType"))
        enter = cls.__aenter__
        lines += [f"def __enter__(self) -> {translator.translate(_returned(enter), enter.__module__)}: ...", f"def __exit__{_EXIT}: ..."]
    if hasattr(cls, "__anext__"):
        item = translator.translate(_returned(cls.__anext__), cls.__anext__.__module__)
        lines += [f"def __iter__(self) -> {_iterator(imports)}[{item}]: ...", f"def __next__(self) -> {item}: ..."]
    elif hasattr(cls, "__aiter__"):
        lines.append(f"def __iter__(self) -> {translator.translate(_returned(cls.__aiter__), cls.__aiter__.__module__)}: ...")
    elif hasattr(cls, "__iter__"):
        lines += _function("__iter__", cls.__iter__, translator)
    for name in ("__len__", "__contains__", "__getitem__"):
        if hasattr(cls, name):
            lines += _function(name, getattr(cls, name), translator)
    return lines


def _iterator(imports: Imports) -> str:
    return imports.name(Origin("kubeloop.blocking.iterators", "BlockingIterator"))


def _function(name: str, function: Callable[..., Any], translator: Translator, *, awaited: bool = False) -> list[str]:
    module = function.__module__
    given: list[str] = []
    seen_star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not seen_star:
            given.append("*")
            seen_star = True
        seen_star = seen_star or parameter.kind is parameter.VAR_POSITIONAL
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        text = stars + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {translator.translate(_text(parameter.annotation), module)}"
        if parameter.default is not parameter.empty:
            text += " = " + _default(parameter.default)
        given.append(text)
    returned = _awaited(_returned(function), module, translator) if awaited else translator.translate(_returned(function), module)
    line = f"def {name}({', '.join(given)}) -> {returned}: ..."
    if len(line) <= WIDTH - 4:
        return [line]
    one = f"    {', '.join(given)}"
    if len(one) <= WIDTH - 4:
        return [f"def {name}(", one, f") -> {returned}: ..."]
    return [f"def {name}(", *(f"    {text}," for text in given), f") -> {returned}: ..."]


def _awaited(text: str, module: str, translator: Translator) -> str:
    """Return the type of the result of awaiting an object whose type is ``text``, such as ``ListCall[R]``."""
    node = ast.parse(text, mode="eval").body
    base = node.value if isinstance(node, ast.Subscript) else node
    assert isinstance(base, ast.Name)
    cls = origin(module, base.id).value()
    wait = cls.__await__
    generator = ast.parse(_returned(wait), mode="eval").body
    assert isinstance(generator, ast.Subscript)
    assert isinstance(generator.slice, ast.Tuple)
    arguments = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
    if isinstance(node, ast.Subscript) and not arguments:
        arguments = [node.slice]
    known = [one.__name__ for one in getattr(cls, "__parameters__", ())]
    variables = {name: translator.translate(ast.unparse(one), module) for name, one in zip(known, arguments, strict=True)}
    return translator.translate(ast.unparse(generator.slice.elts[2]), wait.__module__, variables)


def _returned(function: Callable[..., Any]) -> str:
    return _text(inspect.get_annotations(function).get("return", "None"))


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: object) -> str:
    plain = value is None or (isinstance(value, bool | int | float | str) and type(value) in (bool, int, float, str))
    text = repr(value).replace("'", '"') if plain else "..."
    return text if len(text) < 50 and "inf" not in text else "..."
