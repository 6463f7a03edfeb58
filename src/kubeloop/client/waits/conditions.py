"""What is waited for: a condition, a value at a JSONPath, or whatever a function says; with words for what it is and what there is instead.

Source: kubectl wait (pkg/cmd/wait): names and values of conditions are compared without regard to case, and never of an older generation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.client.waits.readiness import is_ready, what_is_missing
from kubeloop.client.waits.trees import describe_condition, status_of, tree_of
from kubeloop.merge import JSONPath, JSONPathError
from kubeloop.merge.go_text import go_text
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import described_word

R = TypeVar("R", bound=Resource)
R_contra = TypeVar("R_contra", bound=Resource, contravariant=True)


@dataclass(frozen=True)
class Want(Generic[R_contra]):
    """``text`` completes "not ... within 30 s". ``met`` may raise ``WaitFailed``: it will never be. ``seen``: how an object is instead.

    ``secret_text`` replaces ``text`` for objects whose values no error may show.
    """

    text: str
    met: Callable[[R_contra], object]
    seen: Callable[[R_contra], str]
    secret_text: str = ""

    def text_for(self, kind: type[Resource]) -> str:
        return self.secret_text if self.secret_text and holds_secrets(kind) else self.text


def holds_secrets(kind: type[Resource]) -> bool:
    """Whether it is the kind Secret, typed or not."""
    return (kind.api_version, kind.kind) == ("v1", "Secret")


def wanted(want: Callable[[R], object] | str | Want[R]) -> Want[R]:
    """From a function, or from the words of ``kubectl wait --for``.

    Raises:
        ValueError: the words are none of kubectl's, or the JSONPath is malformed.
    """
    if isinstance(want, Want):
        return want
    if not isinstance(want, str):
        return Want("as wanted", want, _version)
    form, _, rest = want.partition("=")
    if form == "create" and not rest:
        return Want("there", lambda _: True, _version)
    if form == "condition" and rest:
        name, _, status = rest.partition("=")
        return condition(name, status or "True")
    if form == "jsonpath" and rest:
        path, brace, value = rest.rpartition("}=")
        return jsonpath(f"{path}}}" if brace else rest, value if brace else None)
    # Not the value: it may be one of a Secret.
    shown = f"{form}=..." if rest else form
    ways = "condition=NAME[=STATUS], jsonpath={PATH}[=VALUE] or create"
    raise ValueError(f'"{shown}" cannot be waited for; say {ways}, or give a function')


def condition(name: str, status: str = "True") -> Want[Resource]:
    """The condition ``name`` has that status, and the object's controller has seen its newest spec."""
    return Want(
        f"{name}={status}",
        lambda obj: status_of(tree_of(obj), name).lower() == status.lower(),
        lambda obj: describe_condition(tree_of(obj), name),
    )


def jsonpath(path: str, value: str | None = None) -> Want[Resource]:
    """The one value at ``path`` reads so; with None: there is one. ``{.status.phase}``, in kubectl's dialect.

    Raises:
        ValueError: the path is malformed.
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
        return Want(f"anything at {path}", met, seen)
    return Want(f"{path}={value}", met, seen, secret_text=f"{path} with the wanted value")


def ready() -> Want[Resource]:
    """What "ready" means for the object's kind (see ``readiness``)."""
    return Want("ready", lambda obj: is_ready(tree_of(obj)), lambda obj: what_is_missing(tree_of(obj)))


def _version(obj: Resource) -> str:
    return f"last seen at resourceVersion {obj.metadata.resource_version}"


def require_seconds(seconds: object) -> None:
    """Refuse a time that is none.

    Raises:
        TypeError: it is no number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise TypeError(f"timeout={described_word(seconds)}: must be a number of seconds; each wait has an end")
