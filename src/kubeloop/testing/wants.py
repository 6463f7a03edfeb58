"""What a test wants of a state: a function of it, a part of its tree, or that it is not there; and what is amiss, in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar

from kubeloop.testing.shown import tree

T = TypeVar("T")

Want: TypeAlias = Callable[[T], object] | Mapping[str, Any] | list[Any] | None
"""``lambda web: web.status.ready_replicas == 3``; or a part of the tree in wire names, ``{"status": {"readyReplicas": 3}}``, where
``...`` is any value and None none; of several objects a list of such parts, in the order of their names; or None: not there."""


def amiss(want: Want[T], state: T | None) -> list[str]:
    """Why ``state`` is not as wanted, one line each; nothing if it is.

    A function wants what makes it true; an exception of its own, ``assert`` too, is a reason. It is not asked about what is not there.
    """
    if want is None:
        return [] if state is None or state == [] else ["it is there"]
    if state is None:
        return ["it is not there"]
    if callable(want):
        return _judged(want, state)
    return differences(want, tree(state))


def describe(want: Want[Any]) -> str:
    """What is wanted, in a line."""
    if want is None:
        return "gone"
    if not callable(want):
        return f"{want!r}"
    try:
        lines = inspect.getsource(want).strip().splitlines()
    except (OSError, TypeError):
        lines = []
    name = getattr(want, "__name__", "")
    if name != "<lambda>":
        return name or repr(want)
    return lines[0].strip() if len(lines) == 1 else "a lambda"


def differences(want: object, found: object, path: str = "") -> list[str]:
    """Where ``found`` is not as ``want`` says, path by path; what ``want`` does not name is not looked at."""
    if isinstance(want, EllipsisType):
        return [] if found is not None else [f"{path or 'it'}: wanted any value, is not there"]
    if isinstance(want, Mapping):
        if not isinstance(found, Mapping):
            return [f"{path or 'it'}: wanted {dict(want)!r}, is {_said(found)}"]
        if found.get("kind") == "Secret":
            return [line for key, value in want.items() for line in _of_a_secret(value, found.get(key), str(key), path)]
        return [line for key, value in want.items() for line in differences(value, found.get(key), f"{path}.{key}" if path else str(key))]
    if isinstance(want, list):
        if not isinstance(found, list) or len(found) != len(want):
            count = f"{len(found)} items" if isinstance(found, list) else _said(found)
            return [f"{path or 'it'}: wanted {len(want)} items, is {count}"]
        return [line for at, (one, other) in enumerate(zip(want, found, strict=True)) for line in differences(one, other, f"{path}[{at}]")]
    # 1 == True in Python, and not in JSON.
    if want == found and isinstance(want, bool) == isinstance(found, bool):
        return []
    return [f"{path or 'it'}: wanted {want!r}, is {_said(found)}"]


def _of_a_secret(want: object, found: object, key: str, path: str) -> list[str]:
    """As any other object's, but for its values."""
    at = f"{path}.{key}" if path else key
    lines = differences(want, found, at)
    return [f"{at}: not as wanted; the values of a Secret are not shown"] if lines and key in ("data", "stringData") else lines


def _said(found: object) -> str:
    return "not there" if found is None else repr(found)


def _judged(want: Callable[[T], object], state: T) -> list[str]:
    try:
        answer = want(state)
    except Exception as error:  # noqa: BLE001 - what a test's own function raises about a state is why it is not yet as wanted
        return [f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]]
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{describe(want)} is async, and nobody awaits it; say what is wanted by a plain function")
    if answer:
        return []
    if answer is None:
        return [f"{describe(want)} returned None; a function of asserts must end with: return True"]
    return [f"{describe(want)} returned {answer!r}"]
