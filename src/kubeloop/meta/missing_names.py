"""The error for a name that a package does not have: it says where the name is defined, or suggests a similar name.

Loaded when such an error is raised. Names are read from ``__all__`` and the classes in the source of each module, so a name is found
even if the extra that its module needs is not installed. Only an import statement imports that module, to name the extra.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kubeloop.meta.errors import ConfigError

_ROOT = "kubeloop"
_CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
_STABLE = re.compile(r"\.v[0-9]+$")


def missing_name(package: str, name: str) -> AttributeError | ImportError:
    """Return the error that ``__getattr__`` of ``package`` raises.

    ``from package import name`` discards the text of an AttributeError, so its error is an ImportError. Everything else, such as
    ``hasattr``, gets an AttributeError.

    Args:
        package: Full name of the package.
        name: The name that the package does not have.
    """
    if name.startswith("_") or not name.isidentifier():
        return AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    if find_spec(f"{package}.{name}") is not None:  # from package import module: the import system loads it next
        return AttributeError(f"{package} has no name {name!r} yet; load the module first: import {package}.{name}", name=name)
    meant, question = (name, "it is") if homes_of(name) else (_nearest(package, name), "did you mean {}? It is")
    homes = homes_of(meant)
    text = f"{package} has no name {name!r}"
    if meant and package in _promised().get(meant, []):
        text += f"; did you mean {meant}?"
    elif homes:
        text += f"; {question.format(meant)} in {' and '.join(homes)}: from {homes[0]} import {meant}"
    caller = sys._getframe(2)
    if caller.f_code.co_name == "_handle_fromlist" and caller.f_globals.get("__name__") == "importlib._bootstrap":
        return ImportError(text + (_lack(homes[0], meant) if homes else ""), name=package)
    return AttributeError(text, name=name)  # with a name, Python adds no guess to it


def _nearest(package: str, name: str) -> str:
    """Return the most similar name, one of the package's own if possible, or an empty text if none is similar."""
    own = [other for other, found in _promised().items() if package in found]
    for names in (own, [*_promised(), *_models()]):
        near = difflib.get_close_matches(name, (other for other in names if other[0].isupper() == name[0].isupper()), n=1, cutoff=0.75)
        if near:
            return near[0]
    return ""


def homes_of(name: str) -> list[str]:
    """Return the modules that a name can be imported from: those of built-in models, then a package that exports it, else its class's."""
    return _models().get(name, []) + _promised().get(name, [])[:1] or _classes().get(name, [])[:1]


def _lack(home: str, name: str) -> str:
    """Return a text that names the extra that ``home`` needs and that is not installed, or an empty text."""
    try:
        getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == _ROOT:
            return ""
        return f"; {importlib.import_module('kubeloop.testing.extras').not_installed(error)}"
    except ConfigError as error:  # from a package that names the missing extra
        return f"; {error}"
    except Exception:  # noqa: BLE001  # this is the text of another error; the import that it proposes shows this one
        return ""
    return ""


@cache
def _promised() -> dict[str, list[str]]:
    """Map each name in the ``__all__`` of a package to these packages, outer ones first."""
    result: dict[str, list[str]] = {}
    for module, path in _sources("__init__.py"):
        for statement in ast.parse(path.read_text("utf-8")).body:
            if (
                isinstance(statement, ast.Assign)
                and ast.unparse(statement.targets[0]) == "__all__"
                and isinstance(statement.value, ast.List)
            ):
                for item in statement.value.elts:
                    result.setdefault(ast.literal_eval(item), []).append(module)
    return result


@cache
def _models() -> dict[str, list[str]]:
    """Map each built-in model to its modules; only to those of stable versions if it has one."""
    result = {name: homes for name, homes in _classes().items() if homes[0].startswith(f"{_ROOT}.api.")}
    return {name: [home for home in homes if _STABLE.search(home)] or homes for name, homes in result.items()}


@cache
def _classes() -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for module, path in _sources("*.py"):
        for name in _CLASS.findall(path.read_text("utf-8")):
            result.setdefault(name, []).append(module)
    return result


def _sources(pattern: str) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of each module: modules of ``kubeloop.api`` first, and outer modules before nested ones."""
    root = Path(__file__).parents[1]
    paths = sorted(root.rglob(pattern), key=lambda path: (path.parts[len(root.parts)] != "api", len(path.parts), path))
    for path in paths:
        parts = path.relative_to(root).with_suffix("").parts
        yield ".".join((_ROOT, *(parts[:-1] if parts[-1] == "__init__" else parts))), path
