"""Checks of the arguments of informers, made by the call that receives them. An error names the argument and valid values.

An error never shows a value that may hold credentials or the contents of an object: it names the type of the value instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from kubeloop.cache.reflector.steps import WatchPolicy
from kubeloop.client import Client
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import described, described_word


def check_kind(kind: object, call: str) -> None:
    """Check that ``kind`` is a subclass of ``Resource``. ``call`` is the name of the function that received ``kind``, for the error.

    Raises:
        TypeError: ``kind`` is not a subclass of ``Resource``.
    """
    if isinstance(kind, Resource):
        name = type(kind).__name__
        raise TypeError(f"{call}() was given a {name} object; give the class: {call}({name})")
    if not isinstance(kind, type) or not issubclass(kind, Resource):
        raise TypeError(
            f"{call}() was given {described_word(kind)}, which is not a class of objects; "
            'give one, such as Pod, or Unstructured.for_kind("apps/v1", "Deployment")'
        )


def paths(argument: str, value: Iterable[str], hint: str = "") -> tuple[str, ...]:
    """Return the field paths in ``value`` without duplicates. Errors name the argument and end with ``hint``.

    Raises:
        TypeError: the value is a string, is not iterable, or contains an item that is not a string.
    """
    if isinstance(value, str):
        shown = described_word(value)
        example = shown if shown.startswith("'") else "'spec.nodeName'"
        raise TypeError(f"{argument}={shown} is text; give a list: {argument}=[{example}]{hint}")
    if not isinstance(value, Iterable):
        raise TypeError(f'{argument}={described(value)} is not a list of paths; give one: {argument}=["spec.nodeName"]')
    listed: tuple[object, ...] = tuple(value)
    for each in listed:
        if not isinstance(each, str):
            raise TypeError(f'{argument}: {described(each)} is not a path; give paths as text: {argument}=["spec.nodeName"]')
    return tuple(dict.fromkeys(each for each in listed if isinstance(each, str)))


def check_seconds(argument: str, value: object) -> None:
    """Check a number of seconds.

    Raises:
        TypeError: the value is not a number. ValueError: it is negative or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument}={described_word(value)} is not a number; give seconds: {argument}=30 (0 is never)")
    if not 0 <= value < math.inf:
        raise ValueError(f"{argument}={described(value)} is not a period; give seconds: {argument}=30 (0 is never)")


def check_page_size(value: object) -> None:
    """Check the number of objects per page.

    Raises:
        TypeError: the value is not an integer. ValueError: it is negative.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"page_size={described_word(value)} is not a whole number; give the objects of a page: page_size=500 (0 is the usual size)"
        )
    if value < 0:
        raise ValueError(f"page_size={value} is negative; give the objects of a page: page_size=500 (0 is the usual size)")


def check_flag(argument: str, value: object) -> None:
    """Check a boolean.

    Raises:
        TypeError: the value is neither True nor False.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{argument}={described_word(value)} is neither True nor False; give one of them")


def check_queue(value: object) -> None:
    """Check the class of a queue.

    Raises:
        TypeError: the value is not callable.
    """
    if not callable(value):
        raise TypeError(f"queue={described_word(value)} cannot create a queue; give a class: queue=DeltaFifo, or leave it out")


def check_transform(value: object) -> None:
    """Check a transform; None is valid.

    Raises:
        TypeError: the value is not callable.
    """
    if value is not None and not callable(value):
        raise TypeError(
            f"transform={described(value)} is not a function; "
            "give a function that takes an object's JSON tree and returns the tree to store"
        )


def check_client(value: object, argument: str = "client") -> None:
    """Check that a value is a ``Client``.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, Client):
        raise TypeError(f"{argument} is a {type(value).__name__}, not a Client; give one: async with Client.from_config() as client")


def check_clients(value: object) -> None:
    """Check that a value is an iterable, as a mapping or list of clients is. Its items are not checked.

    Raises:
        TypeError: the value is a string or is not iterable.
    """
    if not isinstance(value, Iterable) or isinstance(value, str):
        kind = type(value).__name__
        raise TypeError(f'clients is a {kind}; give clients by name: MulticlusterInformerFactory({{"east": client, "west": other}})')


def check_policy(value: object) -> None:
    """Check a watch policy; None is valid.

    Raises:
        TypeError: the value is not a ``WatchPolicy``.
    """
    if value is not None and not isinstance(value, WatchPolicy):
        raise TypeError(f"policy={described(value)} is not a policy; give a WatchPolicy(...), or leave it out")


def check_folder(argument: str, value: object) -> None:
    """Check the path of a folder; None is valid.

    Raises:
        TypeError: the value is not a path.
    """
    if value is not None and not isinstance(value, str | Path):
        raise TypeError(f'{argument}={described(value)} is not a folder; give a path: {argument}=Path("cache")')


def check_name(argument: str, value: object) -> None:
    """Check a name; None is valid.

    Raises:
        TypeError: the value is not a string.
    """
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{argument}={described(value)} is not text; give a name, or leave it out")
