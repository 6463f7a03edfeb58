"""Imports the controllers and webhooks at ``module:attribute``, as ``python -m`` would."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kubeloop.codegen.crd.classes import imported
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.names import dns1035_label, dns1123_label
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.controller import ControllerBase
    from kubeloop.controller.webhooks import Service, Webhooks

_WANTED = "a list of controllers, a controller, its class, or a function without arguments that returns one of these"


def controllers_at(target: str) -> list[ControllerBase[Any]]:
    """Return the controllers of ``module:attribute``; classes are called without arguments. ``Webhooks`` beside them are left out.

    Raises:
        ConfigError: there is no such module or attribute, it fails, or it has another type; the message names the expected types.
    """
    found = named(target, _WANTED)
    if inspect.isfunction(found):
        found = _called(found, target)
    from kubeloop.controller.webhooks import Webhooks

    many = [one for one in (found if isinstance(found, Iterable) else [found]) if not isinstance(one, Webhooks)]
    if not many:
        raise ConfigError(f"{target}: holds no controller")
    return [_controller(one, target) for one in many]


def named(target: str, expected: str) -> Any:
    """Return the object at ``module:attribute``. ``expected`` describes the expected types, for messages.

    Raises:
        ConfigError: there is no such module or attribute; the text lists alternatives. With a cause: the module fails during import.
    """
    name, colon, path = target.partition(":")
    if not name or not colon or not path:
        raise ConfigError(f"{target}: write MODULE:NAME, where NAME is {expected}")
    found: Any = imported(name, target)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{target}: {getattr(found, '__name__', found)} has no {part}; {_candidates(found, part)}")
        found = getattr(found, part)
    return found


def _candidates(module: Any, missed: str) -> str:
    """Return similar names of a module: its functions, controller classes, and lists."""
    from kubeloop.controller import ControllerBase

    name = getattr(module, "__name__", "")

    def could_be(value: Any) -> bool:
        if isinstance(value, type):
            return issubclass(value, ControllerBase) and value.__module__ == name
        own = inspect.isfunction(value) and value.__module__ == name
        return own or isinstance(value, ControllerBase | list | tuple)

    found = [name for name, value in getattr(module, "__dict__", {}).items() if not name.startswith("_") and could_be(value)]
    near = difflib.get_close_matches(missed, found, 1)
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(found)}" if found else "there is no controller in it"


def _controller(value: Any, target: str) -> ControllerBase[Any]:
    from kubeloop.controller import ControllerBase

    if isinstance(value, type) and issubclass(value, ControllerBase):
        value = _called(value, target)
    if not isinstance(value, ControllerBase):
        raise ConfigError(f"{target}: an object of {type(value).__qualname__} is not a controller; expected {_WANTED}")
    return value


def _called(make: Any, target: str) -> Any:
    try:
        inspect.signature(make).bind()
    except TypeError:
        raise ConfigError(f"{target}: {make.__name__} takes arguments; expected {_WANTED}") from None
    try:
        return make()
    except Exception as error:  # any error of the user's code
        raise ConfigError(f"{target}: {make.__name__}() failed: {type(error).__name__}: {error}") from error


def conversions_of(target: str, service: str) -> dict[str, JSONObject]:
    """Return ``spec.conversion`` by name of CustomResourceDefinition, for the kinds with converters at ``target``.

    Raises:
        ConfigError: There is no ``Webhooks`` at ``target``, or ``service`` is not NAMESPACE/NAME.
    """
    return {name: conversion(b"") for name, conversion in webhooks_at(target).definitions(service_of(service)).items()}


def webhooks_at(target: str) -> Webhooks:
    """Return the ``Webhooks`` at MODULE:NAME.

    Raises:
        ConfigError: There is no object of that name, or it is not a ``Webhooks``.
    """
    from kubeloop.controller.webhooks import Webhooks

    wanted = "a Webhooks, in which webhooks are declared"
    found = named(target, wanted)
    if not isinstance(found, Webhooks):
        raise ConfigError(f"{target}: {found!r} is not {wanted}")
    return found


def service_of(text: str) -> Service:
    """Return the Service that NAMESPACE/NAME names.

    Raises:
        ConfigError: The text has another form, or a part of it is no name.
    """
    from kubeloop.controller.webhooks import Service

    namespace, slash, name = text.partition("/")
    faults = dns1123_label(namespace) or dns1035_label(name)
    if not slash or faults:
        raise ConfigError(f'--service "{text}": must be NAMESPACE/NAME' + (f"; {faults[0]}" if slash and faults else ""))
    return Service(namespace, name)
