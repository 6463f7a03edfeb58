"""Conditions of waits: an object's condition, a value at a JSONPath, or a function; with texts that describe them and the present state.

Source: kubectl wait (pkg/cmd/wait): names and values of conditions are compared case-insensitively, and never of an older generation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.client.waits.readiness import is_ready, missing_for_readiness
from kubeloop.client.waits.trees import describe_condition, status_of, tree_of
from kubeloop.merge import JSONPath, JSONPathError
from kubeloop.merge.go_text import go_text
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import described_word

R = TypeVar("R", bound=Resource)
R_contra = TypeVar("R_contra", bound=Resource, contravariant=True)


@dataclass(frozen=True)
class WaitCondition(Generic[R_contra]):
    """A condition of a wait. ``text`` completes "not ... within 30 s"; ``seen`` describes an object's present state.

    ``met`` may raise ``WaitFailed``: the condition can never be met. ``secret_text`` replaces ``text`` for objects whose values must not
    appear in errors.
    """

    text: str
    met: Callable[[R_contra], object]
    seen: Callable[[R_contra], str]
    secret_text: str = ""

    def text_for(self, kind: type[Resource]) -> str:
        return self.secret_text if self.secret_text and holds_secrets(kind) else self.text


def holds_secrets(kind: type[Resource]) -> bool:
    """Return whether the kind is Secret, typed or not."""
    return (kind.api_version, kind.kind) == ("v1", "Secret")


def condition_for(want: Callable[[R], object] | str | WaitCondition[R]) -> WaitCondition[R]:
    """Return the condition for a function, or for a text of ``kubectl wait --for``.

    Raises:
        ValueError: Kubectl does not know such a text, or the JSONPath is malformed.
    """
    if isinstance(want, WaitCondition):
        return want
    if not isinstance(want, str):
        return WaitCondition("as wanted", want, _version)
    form, _, rest = want.partition("=")
    if form == "create" and not rest:
        return WaitCondition("there", lambda _: True, _version)
    if form == "condition" and rest:
        name, _, status = rest.partition("=")
        return condition(name, status or "True")
    if form == "jsonpath" and rest:
        path, brace, value = rest.rpartition("}=")
        return jsonpath(f"{path}}}" if brace else rest, value if brace else None)
    # The value is not shown: it may belong to a Secret.
    shown = f"{form}=..." if rest else form
    ways = "condition=NAME[=STATUS], jsonpath={PATH}[=VALUE] or create"
    raise ValueError(f'"{shown}" cannot be waited for; use {ways}, or give a function')


def condition(name: str, status: str = "True") -> WaitCondition[Resource]:
    """Return a ``WaitCondition``: the status condition ``name`` has ``status``, and is not older than the newest spec."""
    return WaitCondition(
        f"{name}={status}",
        lambda obj: status_of(tree_of(obj), name).lower() == status.lower(),
        lambda obj: describe_condition(tree_of(obj), name),
    )


def jsonpath(path: str, value: str | None = None) -> WaitCondition[Resource]:
    """Return a ``WaitCondition``: a single value at ``path`` (``{.status.phase}``, kubectl's JSONPath) equals ``value``; None: any value.

    Raises:
        ValueError: The path is malformed.
    """
    try:
        compiled = JSONPath(path, allow_missing=True)
    except JSONPathError as error:
        raise ValueError(f"jsonpath={path}: {error}") from None

    def found(obj: Resource) -> str | None:
        parts = compiled.find(tree_of(obj))
        if not parts or not parts[0]:
            return None
        if len(parts) > 1:
            raise ValueError(f"jsonpath={path}: given jsonpath expression matches more than one list")
        if len(parts[0]) > 1:
            raise ValueError(f"jsonpath={path}: given jsonpath expression matches more than one value")
        if value is not None and isinstance(parts[0][0], dict | list):
            raise ValueError(f"jsonpath={path}: jsonpath leads to a nested object or list which is not supported")
        return go_text(parts[0][0])

    def met(obj: Resource) -> bool:
        there = found(obj)
        return there is not None and (value is None or there.strip() == value.strip())

    def seen(obj: Resource) -> str:
        there = found(obj)
        if there is None:
            return f"nothing at {path}"
        return f"{path} has another value" if holds_secrets(type(obj)) else f"{path} is {described_word(there)}"

    if value is None:
        return WaitCondition(f"anything at {path}", met, seen)
    return WaitCondition(f"{path}={value}", met, seen, secret_text=f"{path} with the wanted value")


def ready() -> WaitCondition[Resource]:
    """Return a ``WaitCondition``: the object is ready, as its kind defines it (see ``readiness``)."""
    return WaitCondition("ready", lambda obj: is_ready(tree_of(obj)), lambda obj: missing_for_readiness(tree_of(obj)))


def _version(obj: Resource) -> str:
    return f"last seen at resourceVersion {obj.metadata.resource_version}"


def require_seconds(seconds: object) -> None:
    """Check that a timeout is a finite number of seconds.

    Raises:
        TypeError: ``seconds`` is not a finite number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise TypeError(f"timeout={described_word(seconds)}: must be a number of seconds; each wait has an end")
