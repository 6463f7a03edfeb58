"""Examples in docstrings as programs: doctests with ``await`` at the top level, as ``python -m asyncio`` takes them.

An example knows ``asyncio``, ``Path``, every name of the module that defines its class, the public names of ``kubeloop``, and:

``client``
    A ``Client`` of an embedded server that runs no controllers. Its default namespace is new and empty.
``cluster``
    The ``LocalCluster`` that runs this server. ``KUBECONFIG`` leads to it too.
``ConfigMap``, ``Deployment``, ``Namespace``, ``Node``, ``Pod``, ``Secret``, ``Service``, ``ObjectMeta``
    Kinds that examples use.

The working directory is an empty folder. ``...`` in an output stands for any text.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import kubeloop
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Namespace, Node, Pod, Secret, Service
from kubeloop.meta import ObjectMeta

_KINDS = (ConfigMap, Deployment, Namespace, Node, Pod, Secret, Service, ObjectMeta)
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def names_for(cls: type) -> dict[str, Any]:
    """Return the variables that the example of a class knows, apart from those of its server."""
    public = {name: getattr(kubeloop, name) for name in kubeloop.__all__}
    kinds = {kind.__name__: kind for kind in _KINDS}
    return {"__name__": "__example__", "asyncio": asyncio, "Path": Path, **public, **kinds, **vars(sys.modules[cls.__module__])}


def statements(cls: type) -> list[doctest.Example]:
    """Return the statements of the example in a class's docstring, with their outputs."""
    return doctest.DocTestParser().get_examples(inspect.getdoc(cls) or "", cls.__name__)


async def failures(cls: type, names: Mapping[str, Any]) -> list[str]:
    """Run the example of a class.

    Args:
        cls: The class. Its docstring may have no example.
        names: Variables that the example can use.

    Returns:
        For each statement with another output than the docstring states, and for the first that raises an unexpected exception,
        the statement and the difference.
    """
    variables = dict(names)
    differences: list[str] = []
    for example in statements(cls):
        code: CodeType = compile(example.source, f"<{cls.__name__}>", "single", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        raised: BaseException | None = None
        with contextlib.redirect_stdout(io.StringIO()) as output, _displayed():
            try:
                result = eval(code, variables)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # noqa: BLE001 - compared below
                raised = error
        if raised is not None and example.exc_msg is None:
            return [*differences, f"{cls.__name__}: {example.source}raises {type(raised).__name__}: {raised}"]
        got = output.getvalue() if raised is None else _last_line(raised)
        expected = example.want if example.exc_msg is None else example.exc_msg
        checker = doctest.OutputChecker()
        if not checker.check_output(expected, got, _OPTIONS):
            differences.append(f"{cls.__name__}: {example.source}" + checker.output_difference(example, got, _OPTIONS))
    return differences


def _last_line(error: BaseException) -> str:
    """Return the end of a traceback, without the module of the error."""
    return "".join(traceback.format_exception_only(error)).removeprefix(f"{type(error).__module__}.")


@contextlib.contextmanager
def _displayed() -> Iterator[None]:
    """Print the values of expressions, as the interactive interpreter does, without a variable ``_``."""
    hook = sys.displayhook
    sys.displayhook = lambda value: None if value is None else print(repr(value))
    try:
        yield
    finally:
        sys.displayhook = hook
