"""The program that a command is about: the controllers that ``module:attribute`` names, imported as ``python -m`` would."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kubeloop.codegen.crd.classes import imported
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.controller import ControllerBase

_WANTED = "a list of controllers, a controller, its class, or a function without arguments that returns one of these"


def controllers_at(target: str) -> list[ControllerBase[Any]]:
    """The controllers of ``module:attribute``; what is a class there is made, without arguments.

    Raises:
        ConfigError: no such module or attribute, it fails, or it is something else; says what is wanted.
    """
    name, colon, path = target.partition(":")
    if not colon or not path:
        raise ConfigError(f"{target}: say MODULE:NAME, where NAME is {_WANTED}")
    found: Any = imported(name, target)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{target}: {getattr(found, '__name__', found)} has no {part}")
        found = getattr(found, part)
    if inspect.isfunction(found):
        found = _called(found, target)
    many = list(found) if isinstance(found, Iterable) else [found]
    if not many:
        raise ConfigError(f"{target}: holds no controller")
    return [_controller(one, target) for one in many]


def _controller(value: Any, target: str) -> ControllerBase[Any]:
    from kubeloop.controller import ControllerBase

    if isinstance(value, type) and issubclass(value, ControllerBase):
        value = _called(value, target)
    if not isinstance(value, ControllerBase):
        raise ConfigError(f"{target}: {value!r} is no controller; wanted is {_WANTED}")
    return value


def _called(make: Any, target: str) -> Any:
    try:
        inspect.signature(make).bind()
    except TypeError:
        raise ConfigError(f"{target}: {make.__name__} takes arguments; wanted is {_WANTED}") from None
    try:
        return make()
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(f"{target}: {make.__name__}() failed: {type(error).__name__}: {error}") from error
