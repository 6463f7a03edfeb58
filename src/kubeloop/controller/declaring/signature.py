"""How a controller class writes ``reconcile``: checked once, when the class is made, with a message that says how to write it."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, get_type_hints

from kubeloop.controller.declaring.declaration import DeclarationError
from kubeloop.meta import ObjectKey, Resource


def check_reconcile(cls: type[Any], *, by_key: bool, kind: type[Resource] | None) -> None:
    """That ``cls.reconcile`` is a method, plain or async, of one argument: the object, or (``by_key``) its key.

    Raises:
        DeclarationError: it is not.
    """
    found = inspect.getattr_static(cls, "reconcile", None)
    wanted = f"def reconcile(self, {'key: ObjectKey' if by_key else 'obj: ' + (kind.__name__ if kind else 'Foo')}) -> Result | None"
    way = f"write `async {wanted}`, or a plain def, which then runs in a thread"
    if isinstance(found, staticmethod | classmethod) or not callable(found):
        raise DeclarationError(f"{cls.__name__}.reconcile is no method; {way}")
    if inspect.isasyncgenfunction(found) or inspect.isgeneratorfunction(found):
        raise DeclarationError(f"{cls.__name__}.reconcile yields, so that calling it does nothing; return a Result or None: {way}")
    parameters = list(inspect.signature(found).parameters.values())
    if not parameters or parameters[0].kind not in (parameters[0].POSITIONAL_ONLY, parameters[0].POSITIONAL_OR_KEYWORD):
        raise DeclarationError(f"{cls.__name__}.reconcile lacks self; {way}")
    parameters = parameters[1:]
    given = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one.name for one in given[1:] if one.default is one.empty]
    needed += [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if needed:
        raise DeclarationError(f"{cls.__name__}.reconcile wants more than one argument ({', '.join(needed)}); {way}")
    if not given:
        if not any(one.kind is one.VAR_POSITIONAL for one in parameters):
            raise DeclarationError(f"{cls.__name__}.reconcile takes no argument; {way}")
        return
    _check_type(cls, found, given[0], by_key, kind, way)


def _check_type(cls: type[Any], function: Any, first: inspect.Parameter, by_key: bool, kind: type[Resource] | None, way: str) -> None:
    """What the argument is said to be. Names that cannot be resolved yet are taken at their word."""
    said = first.annotation
    if isinstance(said, str):
        text = said
        # Names of a module that is still being imported, or of a function's own, are not known now. Whatever evaluating them raises:
        # the annotation is taken at its word then.
        with contextlib.suppress(Exception):
            said = get_type_hints(function)[first.name]
        if isinstance(said, str) and text.split(".")[-1] == "ObjectKey":
            said = ObjectKey
    if said is ObjectKey and not by_key:
        raise DeclarationError(f"{cls.__name__}.reconcile takes an ObjectKey; derive from KeyController, or take the object: {way}")
    if not (isinstance(said, type) and issubclass(said, Resource)):
        return
    if by_key:
        raise DeclarationError(f"{cls.__name__}.reconcile takes a {said.__name__}; derive from Controller, or take the key: {way}")
    if kind is not None and not issubclass(kind, said):
        raise DeclarationError(f"{cls.__name__} is a controller of {kind.__name__}, but its reconcile takes a {said.__name__}; {way}")
