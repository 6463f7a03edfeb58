"""What a controller class declares about itself, read once per class: kind, owned kinds, watches, predicates, workers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin

from kubeloop.controller.triggers.predicates import Predicate
from kubeloop.controller.triggers.watch import Watch
from kubeloop.meta import KubeloopError, Resource


class DeclarationError(KubeloopError, TypeError):
    """A controller class does not say what it must, or says it in a way that cannot work; the text names the class and the way out."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Complete and checked; ``name`` is never empty."""

    kind: type[Resource]
    name: str
    owns: tuple[type[Resource], ...] = ()
    watches: tuple[Watch[Any], ...] = ()
    reads: tuple[type[Resource], ...] = ()
    predicates: tuple[Predicate, ...] = ()
    workers: int = 1
    timeout: float | None = None
    indexes: dict[type[Resource], dict[str, Any]] = field(default_factory=dict)


def kind_argument(cls: type[Any], base: type[Any]) -> type[Resource] | None:
    """``Foo`` of ``class FooController(Controller[Foo])``, here or in a class that it inherits from; None if it is still a variable."""
    for candidate in cls.__mro__:
        for parent in candidate.__dict__.get("__orig_bases__", ()):
            origin = get_origin(parent)
            if isinstance(origin, type) and issubclass(origin, base):
                (argument,) = get_args(parent)[:1]
                if isinstance(argument, type) and issubclass(argument, Resource):
                    return argument
                if not isinstance(argument, TypeVar):
                    raise DeclarationError(
                        f"{cls.__name__}: {argument!r} is not a kind; write Controller[Foo] with Foo a Resource subclass"
                    )
    return None


def takes_key(reconcile: Any) -> bool:
    """Whether reconcile's argument is declared as an ``ObjectKey``; read from the source text of annotations, which may not resolve yet."""
    parameters = [one for one in inspect.signature(reconcile).parameters.values() if one.name != "self"]
    if not parameters:
        return False
    annotation = parameters[0].annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.split(".")[-1] == "ObjectKey"


def checked(cls_name: str, what: str, value: Any, of: type[Any]) -> tuple[Any, ...]:
    """A sequence of the right things, as a tuple.

    Raises:
        DeclarationError: it is something else, such as a single class where a list is wanted.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DeclarationError(f"{cls_name}: {what} must be a list, such as {what}=[...], not {value!r}")
    for item in value:
        right = isinstance(item, type) and issubclass(item, of) if of is Resource else isinstance(item, of)
        if not right:
            raise DeclarationError(f"{cls_name}: {what} holds {item!r}, which is no {'kind' if of is Resource else of.__name__}")
    return tuple(value)
