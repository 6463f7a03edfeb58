"""Arguments of informers: each is looked at by the call that it was given to. An error names the argument, and what to give.

No value is shown of what may hold credentials or an object's contents: its type is named instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from kubeloop.cache.reflector.policy import WatchPolicy
from kubeloop.client import Client
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import described, described_word


def check_kind(kind: object, call: str) -> None:
    """``call``: the function that it was given to.

    Raises:
        TypeError: no class of objects.
    """
    if isinstance(kind, Resource):
        name = type(kind).__name__
        raise TypeError(f"{call}() was given a {name} object; give the class: {call}({name})")
    if not isinstance(kind, type) or not issubclass(kind, Resource):
        raise TypeError(
            f"{call}() was given {described_word(kind)}, no class of objects; "
            'give one, such as Pod, or Unstructured.of("apps/v1", "Deployment")'
        )


def paths(argument: str, given: Iterable[str], hint: str = "") -> tuple[str, ...]:
    """The paths of a list, each once.

    Raises:
        TypeError: no list of texts.
    """
    if isinstance(given, str):
        shown = described_word(given)
        example = shown if shown.startswith("'") else "'spec.nodeName'"
        raise TypeError(f"{argument}={shown} is text; give a list: {argument}=[{example}]{hint}")
    if not isinstance(given, Iterable):
        raise TypeError(f'{argument}={described(given)} is no list of paths; give one: {argument}=["spec.nodeName"]')
    found: tuple[object, ...] = tuple(given)
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f'{argument}: {described(each)} is no path; give paths as text: {argument}=["spec.nodeName"]')
    return tuple(dict.fromkeys(each for each in found if isinstance(each, str)))


def check_seconds(argument: str, given: object) -> None:
    """
    Raises:
        TypeError: no number. ValueError: no period.
    """
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{argument}={described_word(given)} is no number; give seconds: {argument}=30 (0 is never)")
    if not 0 <= given < math.inf:
        raise ValueError(f"{argument}={described(given)} is no period; give seconds: {argument}=30 (0 is never)")


def check_page_size(given: object) -> None:
    """
    Raises:
        TypeError: no whole number. ValueError: a negative one.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(
            f"page_size={described_word(given)} is no whole number; give the objects of a page: page_size=500 (0 is the usual size)"
        )
    if given < 0:
        raise ValueError(f"page_size={given} is negative; give the objects of a page: page_size=500 (0 is the usual size)")


def check_flag(argument: str, given: object) -> None:
    """
    Raises:
        TypeError: neither True nor False.
    """
    if not isinstance(given, bool):
        raise TypeError(f"{argument}={described_word(given)} is neither True nor False; give one of them")


def check_queue(given: object) -> None:
    """
    Raises:
        TypeError: nothing that makes a queue.
    """
    if not callable(given):
        raise TypeError(f"queue={described_word(given)} makes no queue; give a class: queue=DeltaFifo, or leave it out")


def check_transform(given: object) -> None:
    """
    Raises:
        TypeError: no function.
    """
    if given is not None and not callable(given):
        raise TypeError(
            f"transform={described(given)} is no function; give a function that takes an object's JSON tree and returns the tree to store"
        )


def check_client(given: object, argument: str = "client") -> None:
    """
    Raises:
        TypeError: no client.
    """
    if not isinstance(given, Client):
        raise TypeError(f"{argument} is a {type(given).__name__}, no Client; give one: async with Client.from_config() as client")


def check_clients(given: object) -> None:
    """
    Raises:
        TypeError: neither a mapping of names to clients, nor a list of clients.
    """
    if not isinstance(given, Iterable) or isinstance(given, str):
        kind = type(given).__name__
        raise TypeError(f'clients is a {kind}; give clients by name: MulticlusterInformers({{"east": client, "west": other}})')


def check_policy(given: object) -> None:
    """
    Raises:
        TypeError: no policy.
    """
    if given is not None and not isinstance(given, WatchPolicy):
        raise TypeError(f"policy={described(given)} is no policy; give a WatchPolicy(...), or leave it out")


def check_folder(argument: str, given: object) -> None:
    """
    Raises:
        TypeError: no path of a folder.
    """
    if given is not None and not isinstance(given, str | Path):
        raise TypeError(f'{argument}={described(given)} is no folder; give a path: {argument}=Path("cache")')


def check_name(argument: str, given: object) -> None:
    """
    Raises:
        TypeError: no text.
    """
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{argument}={described(given)} is no text; give a name, or leave it out")
