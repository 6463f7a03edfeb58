"""kubeloop for scripts and notebooks: the same names and methods, but methods block instead of being awaited. See docs/blocking.md.

Each name is created from its asynchronous class at its first use; the generated ``__init__.pyi`` declares the types.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from kubeloop.blocking.homes import HOMES

_PROGRAMS = frozenset({"Controller", "Manager", "Result", "TerminalError"})

__all__ = sorted([*HOMES, "BlockingContext", "BlockingIterator"])


def __getattr__(name: str) -> Any:
    if name in ("BlockingContext", "BlockingIterator"):
        home = "kubeloop.blocking." + ("contexts" if name == "BlockingContext" else "iterators")
        value = getattr(importlib.import_module(home), name)
    elif name in HOMES:
        from kubeloop.blocking.facade import blocking_function, facade_of
        from kubeloop.blocking.rules import is_async

        value = getattr(importlib.import_module(HOMES[name]), name)
        if isinstance(value, type) and is_async(value):
            value = facade_of(value)
        elif inspect.iscoroutinefunction(value):
            value = blocking_function(value)
    elif name in _PROGRAMS:
        raise AttributeError(f"kubeloop.blocking has no {name}: a controller is a program with an event loop; take kubeloop.{name}")
    else:
        raise AttributeError(f"module 'kubeloop.blocking' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
