"""``python -m tools.public_api``: compares the public API of kubeloop with the stored one, ``tests/typing/public_api.txt``.

The stored file has a line for each public name: functions and methods with their signatures, attributes with their types, errors with
their base classes. Its last section has the classes that no package exports but that public attributes, properties and methods return.
docs/api-stability.md says which packages are public. ``--update`` rewrites the file.

Exit status: 1 if the file is not up to date.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import enum
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from kubeloop.blocking.stubs.sources import attributes, origin

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests" / "typing" / "public_api.txt"
UPDATE = "python -m tools.public_api --update"

#: The packages whose ``__all__`` is public. A name that two of them have is described under the first.
PACKAGES = (
    "kubeloop",
    "kubeloop.client",
    "kubeloop.client.discovery",
    "kubeloop.client.streams",
    "kubeloop.cache",
    "kubeloop.controller",
    "kubeloop.controller.election",
    "kubeloop.controller.events",
    "kubeloop.controller.manager.settings",
    "kubeloop.controller.sharding",
    "kubeloop.controller.webhooks",
    "kubeloop.workqueue",
    "kubeloop.testing",
    "kubeloop.config",
    "kubeloop.config.kubeconfig",
    "kubeloop.transport",
    "kubeloop.meta",
    "kubeloop.declare",
    "kubeloop.codec",
    "kubeloop.merge",
    "kubeloop.cel",
    "kubeloop.schema",
    "kubeloop.pki",
    "kubeloop.timing",
)
#: Exported classes whose objects only kubeloop creates (docs/api-stability.md): their constructors are not public.
CONSTRUCTED_BY_KUBELOOP = (
    "ExecSession",
    "Informer",
    "ListCall",
    "Lister",
    "Log",
    "LogCall",
    "MergedLogs",
    "PortForward",
    "ProxyCall",
    "RunnableContext",
    "Subresource",
    "Watch",
)
#: The heading of the classes that programs get from public names, but cannot import from a public package.
RETURNED = "returned by public names"
#: Methods of Python's own protocols that callers use by their syntax.
_PROTOCOLS = ("__aenter__", "__aiter__", "__await__", "__call__", "__contains__", "__enter__", "__getitem__", "__iter__", "__len__")


def public_api() -> str:
    """The text that describes the public API now; the same for every version of Python."""
    lines: list[str] = []
    known: dict[int, str] = {}
    modules = [importlib.import_module(package) for package in PACKAGES]
    public = {id(getattr(module, name)) for module in modules for name in module.__all__}
    for package, module in zip(PACKAGES, modules, strict=True):
        lines += ["", f"[{package}]"] if lines else [f"[{package}]"]
        for name in sorted(module.__all__):
            value = getattr(module, name)
            home = known.setdefault(id(value), package) if _is_described(value) else package
            lines += [f"{name} = {home}.{name}"] if home != package else list(_described(name, value, public))
    lines += ["", f"[{RETURNED}]"]
    for cls in sorted(_returned_classes(modules, public), key=lambda cls: (cls.__name__, cls.__module__)):
        lines += _described(cls.__name__, cls, public, constructor=False)
    return "\n".join(lines) + "\n"


def classes_for_examples(package: str) -> dict[str, type]:
    """Return the classes of a public package whose docstrings need an example, by name.

    Errors, enums and protocols need none; a class that an earlier package exports belongs to that one.
    """
    exports = [_exports(name) for name in PACKAGES[: PACKAGES.index(package) + 1]]
    earlier = {id(value) for names in exports[:-1] for value in names.values()}
    return {name: value for name, value in exports[-1].items() if _needs_example(value) and id(value) not in earlier}


def _needs_example(value: Any) -> bool:
    if not inspect.isclass(value) or not _is_own(value):
        return False
    return not issubclass(value, BaseException | enum.Enum) and not getattr(value, "_is_protocol", False)


def _exports(package: str) -> dict[str, Any]:
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def changes(stored: str, now: str) -> list[str]:
    """The lines that differ, as a unified diff without context."""
    return list(difflib.unified_diff(stored.splitlines(), now.splitlines(), "stored", "now", lineterm="", n=0))


def _returned_classes(modules: Iterable[types.ModuleType], public: Collection[int]) -> list[type]:
    """Find the classes of kubeloop that no package exports and that public names return, directly or through such classes."""
    found: dict[int, type] = {}
    pending = [value for module in modules for value in (getattr(module, name) for name in module.__all__) if _is_described(value)]
    while pending:
        for cls in _classes_from(pending.pop(), public):
            private = cls.__name__.startswith("_") or not _is_own(cls) or cls.__module__.startswith("kubeloop.api.")
            if id(cls) not in public and id(cls) not in found and not private:
                found[id(cls)] = cls
                pending.append(cls)
    return list(found.values())


def _classes_from(value: Any, public: Collection[int]) -> Iterator[type]:
    """The classes in the types of what a function, or an object of a class, returns."""
    if not inspect.isclass(value):
        yield from _classes_in(_returned(value), value.__module__)
        return
    for text, module in attributes(value).values():
        yield from _classes_in(text, module)
    for name, raw in _own(value, public).items():
        if name.startswith("_") and name not in _PROTOCOLS:
            continue
        function = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
        if inspect.isfunction(function):
            yield from _classes_in(_returned(function), function.__module__)


def _classes_in(annotation: Any, module: str) -> Iterator[type]:
    """The classes of kubeloop that an annotation names; type aliases are followed."""
    if not isinstance(annotation, str):
        return
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if not isinstance(node, ast.Name):
            continue
        try:
            found = origin(module, node.id)
        except LookupError:
            continue
        if not found.module.startswith("kubeloop."):
            continue
        value = found.value()
        if inspect.isclass(value):
            yield value
        elif get_origin(value) is not None:
            yield from (each for each in get_args(value) if inspect.isclass(each))


def _is_described(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _described(name: str, value: Any, public: Collection[int], *, constructor: bool = True) -> Iterator[str]:
    if inspect.isclass(value) and not isinstance(value, types.GenericAlias):
        yield f"class {name}({', '.join(_bases(value, public))})"
        for _, line in sorted(_members(value, public, constructor=constructor and name not in CONSTRUCTED_BY_KUBELOOP)):
            yield f"    {line}"
    elif inspect.isfunction(value):
        yield _function(name, value)
    elif get_origin(value) is not None or isinstance(value, types.UnionType):
        yield f"{name}: type alias"
    else:
        yield f"{name}: {type(value).__name__}"


def _bases(cls: type, public: Collection[int]) -> list[str]:
    """The bases with a meaning for callers: those of Python, and public ones of kubeloop."""
    return [base.__name__ for base in cls.__bases__ if base is not object and (id(base) in public or not _is_own(base))]


def _members(cls: type, public: Collection[int], *, constructor: bool) -> Iterator[tuple[str, str]]:
    """Names and lines; what a public base class has already is left out."""
    members = _own(cls, public)
    if issubclass(cls, enum.Enum):
        yield from ((member.name, f"{member.name} = {member.value!r}") for member in cls)
    fields: frozenset[str] = frozenset()
    if issubclass(cls, msgspec.Struct):
        fields = frozenset(cls.__struct_fields__)
        for field in msgspec.structs.fields(cls):
            yield field.name, f"{field.name}: {_field_type(cls, field.name)}{_field_default(field)}"
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        fields = frozenset(cls._fields)
        yield from ((name, f"{name}: {_field_type(cls, name)}") for name in cls._fields)
    else:
        if constructor and "__init__" in members:
            yield "", _function("__init__", members["__init__"])
        # A dataclass with slots has its fields among its members; its constructor names them, too.
        without_constructor = getattr(cls, "__dataclass_fields__", {}) if not constructor else {}
        for name, (text, _) in attributes(cls).items():
            if name not in members or name in without_constructor:
                yield name, f"{name}: {text}"
    for name, raw in members.items():
        if name in fields or (name.startswith("_") and name not in _PROTOCOLS):
            continue
        if isinstance(raw, property):
            yield name, f"{name}: {_text(_returned(raw.fget))} (property{', can be set' if raw.fset else ''})"
        elif isinstance(raw, classmethod | staticmethod):
            # Of a builtin (time.monotonic) the versions of Python disagree about the signature.
            text = f"{name}(...)" if inspect.isbuiltin(raw.__func__) else _function(name, raw.__func__)
            yield name, f"{type(raw).__name__} {text}"
        elif inspect.isfunction(raw):
            yield name, _function(name, raw)


def _own(cls: type, public: Collection[int]) -> dict[str, Any]:
    """Members that the class and its private base classes define."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base is not cls and id(base) in public:
            break
        if _is_own(base):
            for name, raw in vars(base).items():
                found.setdefault(name, raw)
    return found


def _is_own(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "kubeloop"


def _field_type(cls: type, name: str) -> str:
    for base in cls.__mro__:
        annotations = inspect.get_annotations(base)
        if name in annotations:
            return _text(annotations[name])
    return "?"


def _field_default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f" = {_default(field.default)}"
    return " = ..." if field.default_factory is not msgspec.NODEFAULT else ""


def _function(name: str, function: Callable[..., Any]) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parts: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        mark = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        text = mark + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        parts.append(text)
    kind = "async " if inspect.iscoroutinefunction(function) else ""
    returned = _returned(function)
    return f"{kind}def {name}({', '.join(parts)})" + (f" -> {_text(returned)}" if returned is not None else "")


def _returned(function: Callable[..., Any] | None) -> Any:
    return None if function is None else inspect.get_annotations(function).get("return")


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "?")


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return repr(value) if value is None or (isinstance(value, bool | int | float | str | tuple) and "0x" not in repr(value)) else "..."


def main(arguments: list[str] | None = None) -> int:
    """Compare or update; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[2].strip().partition("\n")[0] if __doc__ else None)
    parser.add_argument("--update", action="store_true", help="rewrite the stored file")
    now = public_api()
    if parser.parse_args(arguments).update:
        STORED.write_text(now)
        return 0
    different = changes(STORED.read_text(), now)
    if different:
        print(*different, sep="\n")
        print(f"the public API has changed; if it shall, run: {UPDATE}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
