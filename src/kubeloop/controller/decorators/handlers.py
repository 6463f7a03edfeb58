"""The handlers that a class declares, read and checked once: what cannot work is refused when the class is made, by class and method."""

from __future__ import annotations

import difflib
import inspect
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from kubeloop.codec.paths import EACH, Segment, parse_path, walk
from kubeloop.codec.shape import Shape, ValueForm, fields_of
from kubeloop.controller.builder.declaration import MARK
from kubeloop.controller.decorators.decorators import Terms, When
from kubeloop.controller.errors import DeclarationError
from kubeloop.meta import Resource, Unstructured

_ARGUMENTS = {"change": ("obj", "old", "new")}
_OF_EACH_WRITE = (("metadata", "resourceVersion"), ("metadata", "managedFields"))
_SPELLINGS = {
    "create": "@on_create",
    "change": '@on_change("spec.replicas")',
    "delete": "@on_delete",
    "resume": "@on_resume",
    "timer": "@every(60)",
}


@dataclass(frozen=True, slots=True)
class DeclaredHandler:
    """One handler: a method, and when it is called. ``id`` is unique in its class."""

    id: str
    method: str
    terms: Terms
    plain: bool
    segments: tuple[Segment, ...] = ()

    def value(self, tree: dict[str, Any]) -> Any:
        """What stands at the path; None if nothing does; a list for a path with ``[*]``."""
        found = list(walk(tree, self.segments))
        return found if EACH in self.segments else (found[0] if found else None)


@dataclass(frozen=True, slots=True)
class Handlers:
    """Of one class, each kind in the order in which the class defines them."""

    all: tuple[DeclaredHandler, ...]

    def of(self, when: When) -> list[DeclaredHandler]:
        return [one for one in self.all if one.terms.when == when]


def handlers_of(cls: type[Any], kind: type[Resource] | None) -> Handlers:
    """The handlers of a class, those of its bases first.

    Raises:
        DeclarationError: a handler is no method of the right arguments, its path is not in the kind, its times make no
            sense, or two have one id.
    """
    found: dict[str, list[DeclaredHandler]] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            marks: tuple[Terms, ...] = getattr(member, MARK, ())
            if name in found and not marks:
                del found[name]  # overridden by a member that is no handler
            if marks:
                found[name] = [_handler(cls, name, member, terms, kind) for terms in marks]
    handlers = [one for several in found.values() for one in several]
    for twice, count in Counter(one.id for one in handlers).items():
        if count > 1:
            raise DeclarationError(f'{cls.__name__}: {count} handlers have the id "{twice}"; give each its own id, id="..."')
    return Handlers(tuple(handlers))


def _handler(cls: type[Any], name: str, member: Any, terms: Terms, kind: type[Resource] | None) -> DeclaredHandler:
    owner = f"{cls.__name__}.{name}"
    _check_arguments(owner, member, terms)
    plain = not inspect.iscoroutinefunction(member)
    _check_times(owner, terms, plain)
    segments: tuple[Segment, ...] = ()
    if terms.when == "change":
        try:
            segments = parse_path(terms.path)
        except ValueError as error:
            raise DeclarationError(f"{owner}: {error}") from None
        if segments == ("metadata",) or segments[:2] in _OF_EACH_WRITE:
            raise DeclarationError(
                f'{owner}: path "{terms.path}" changes with each write, also with that of what has been handled: it would be called '
                'without end; name what matters: @on_change("spec"), @on_change("metadata.labels"), @on_change("metadata.annotations")'
            )
        if kind is not None:
            _check_path(owner, kind, terms.path, segments)
    marks = len(getattr(member, MARK, ()))
    # Several decorators on one method: each needs its own name.
    default = name if marks < 2 else f"{name}/{terms.when}" + (f"/{terms.path}" if terms.path else "")
    return DeclaredHandler(terms.id or default, name, terms, plain, segments)


def _check_arguments(owner: str, member: Any, terms: Terms) -> None:
    expected = ("self", *_ARGUMENTS.get(terms.when, ("obj",)))
    hint = f"write {_SPELLINGS[terms.when]} above `async def {owner.rpartition('.')[2]}({', '.join(expected)}) -> None`, or a plain def"
    if isinstance(member, staticmethod | classmethod) or not callable(member):
        raise DeclarationError(f"{owner} is no method; {hint}")
    if inspect.isasyncgenfunction(member) or inspect.isgeneratorfunction(member):
        raise DeclarationError(f"{owner} yields, so that calling it does nothing; {hint}")
    parameters = inspect.signature(member).parameters.values()
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in positional if one.default is one.empty]
    required_names = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if required_names or len(needed) > len(expected) or (len(positional) < len(expected) and not takes_any):
        raise DeclarationError(f"{owner} takes ({', '.join(map(str, parameters))}); {hint}")


def _check_times(owner: str, terms: Terms, plain: bool) -> None:
    if terms.when == "timer" and not (_is_time(terms.every) and terms.every > 0):
        raise DeclarationError(f"{owner}: every({terms.every!r}) must be a number of seconds above 0")
    for name, value in (("initial_delay", terms.initial_delay), ("backoff", terms.backoff)):
        if not _is_time(value) or value < 0:
            raise DeclarationError(f"{owner}: {name}={value!r} must be a number of seconds, 0 or more")
    retries: object = terms.retries
    if retries is not None and (not isinstance(retries, int) or retries < 1):
        raise DeclarationError(f"{owner}: retries={terms.retries!r} must be a number of calls, 1 or more, or None for no limit")
    if terms.timeout is not None:
        if not _is_time(terms.timeout) or terms.timeout <= 0:
            raise DeclarationError(f"{owner}: timeout={terms.timeout!r} must be a number of seconds above 0")
        if plain:
            raise DeclarationError(f"{owner}: timeout= is for async handlers; a thread cannot be stopped. Write async def, or leave it out")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_path(owner: str, kind: type[Resource], path: str, segments: tuple[Segment, ...]) -> None:
    if issubclass(kind, Unstructured):
        return
    shape = Shape(ValueForm.STRUCT, kind)
    done = ""
    for segment in segments:
        if shape.form is ValueForm.ANY:
            return
        if segment is EACH or not isinstance(segment, str):
            if shape.form is not ValueForm.LIST or shape.item is None:
                raise DeclarationError(f'{owner}: path "{path}": {kind.__name__} has no list at "{done}"')
            shape, done = shape.item, f"{done}[*]"
            continue
        here = f"{done}.{segment}".lstrip(".")
        if shape.form is ValueForm.STRUCT:
            fields = fields_of(shape.type).by_wire
            if segment not in fields:
                # A name as Python has it, where the wire's is wanted, is the likeliest slip.
                alike = [wire for wire, field in fields.items() if field.name == segment]
                alike += difflib.get_close_matches(segment, fields, 1)
                hint = f'; did you mean "{f"{done}.{alike[0]}".lstrip(".")}"?' if alike else f"; there are {', '.join(fields)}"
                raise DeclarationError(f'{owner}: path "{path}": {kind.__name__} has no field "{here}"{hint}')
            shape = fields[segment].shape
        elif shape.form is ValueForm.MAP and shape.item is not None:
            shape = shape.item
        else:
            raise DeclarationError(f'{owner}: path "{path}": "{done}" of {kind.__name__} holds nothing that could have a field "{segment}"')
        done = here
