"""Finds the custom kinds of a target: ``package.module:Class``, a module, or a package with all of its modules."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from kubeloop.meta.errors import ConfigError
from kubeloop.meta.resource import Resource


def classes_at(target: str) -> list[type[Resource]]:
    """Import the module of a target, and return its ``@custom_resource`` classes in the order of their definition.

    The module may also be in the working directory.

    Raises:
        ConfigError: There is no such module or class, it fails during import, or it contains no custom kind.
    """
    name, colon, path = target.partition(":")
    module = imported(name, target)
    if colon:
        return [_named(module, path, target)]
    result = [cls for each in _modules(module, target) for cls in vars(each).values() if _declares(cls, each.__name__)]
    if not result:
        raise ConfigError(f"{target}: no custom kind in it; decorate a Resource class with @custom_resource, or name one: {name}:CLASS")
    return list(dict.fromkeys(result))


def imported(name: str, target: str) -> ModuleType:
    """Import the module ``name``, which may also be in the working directory. ``target`` is the user's text, for messages.

    Raises:
        ConfigError: There is no such module, or it fails during import.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise ConfigError(f"{target}: name the module as Python imports it: {module}")
    try:
        with _event_loops_refused():
            return importlib.import_module(name)
    except _RunsAtImport:
        reason = f"{name} runs its program while it is imported"
        raise ConfigError(f'{target}: {reason}: write asyncio.run(main()) below `if __name__ == "__main__":` only') from None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"{target}: no module {error.name} here or on PYTHONPATH") from None
        raise ConfigError(f"{target}: cannot be imported: {error}") from error
    except Exception as error:  # any error of the user's module
        raise ConfigError(f"{target}: cannot be imported: {type(error).__name__}: {error}") from error


class _RunsAtImport(Exception):
    """A module calls asyncio.run() at its top level."""


@contextmanager
def _event_loops_refused() -> Iterator[None]:
    """Make ``asyncio.run`` raise. A controller that a module starts at its top level would never let the import end."""

    def refuse(_runner: asyncio.Runner, coroutine: Any, **_options: Any) -> Any:
        coroutine.close()
        raise _RunsAtImport

    run = asyncio.Runner.run
    asyncio.Runner.run = refuse  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        asyncio.Runner.run = run  # type: ignore[method-assign]


def _modules(module: ModuleType, target: str) -> Iterator[ModuleType]:
    yield module
    for info in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        if info.name.rpartition(".")[2] != "__main__":
            yield imported(info.name, target)


def _named(module: ModuleType, path: str, target: str) -> type[Resource]:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        near = [name for name, value in vars(module).items() if _declares(value, module.__name__)]
        raise ConfigError(f"{target}: {module.__name__} has no {path}; its custom kinds: {', '.join(near) or 'none'}")
    if not (isinstance(found, type) and issubclass(found, Resource) and "__kind_info__" in found.__dict__):
        raise ConfigError(f'{target}: no custom kind; decorate it with @custom_resource("GROUP/VERSION", plural="...")')
    return found


def _declares(value: Any, module: str) -> bool:
    """Return whether the value is a kind that the module defines rather than imports."""
    if not (isinstance(value, type) and issubclass(value, Resource) and value.__module__ == module):
        return False
    info = value.__dict__.get("__kind_info__")
    return info is not None and info.plural is not None and info.namespaced is not None
