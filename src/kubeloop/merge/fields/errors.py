"""Errors of field sets and field managers."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

from kubeloop.merge.fields.elements import ElementError, Path, path_text
from kubeloop.meta.errors import KubeloopError


class TypeMismatch(KubeloopError):
    """A value does not fit its type. The message is the part of Kubernetes' message after "failed to create typed patch object (...): "."""


class _Mismatches:
    """Context manager that converts an ElementError (a list item without a key) and a RecursionError (deep nesting) to TypeMismatch."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(fault, ElementError):
            raise TypeMismatch(str(fault)) from None
        if isinstance(fault, RecursionError):
            raise TypeMismatch("nested too deeply") from None


MISMATCHES: Final = _Mismatches()


class prefixed:  # noqa: N801 - a block, as contextlib.suppress is
    """Context manager that prefixes the message of a TypeMismatch with ``text`` and a colon, as Kubernetes names the failed step."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(fault, TypeMismatch):
            raise TypeMismatch(f"{self._text}: {fault}") from None


class MissingVersion(KubeloopError):
    """An API version no longer exists.

    Implementations of ``Versions`` raise it, and the fields that managers own in that version are dropped.
    """


class FieldConflict(NamedTuple):
    """A conflict: ``manager`` owns ``path``, and the applied configuration has another value there.

    ``manager`` is in the form in which the caller identifies managers.
    """

    manager: Any
    path: Path

    @property
    def field(self) -> str:
        """The path as messages print it: ``.spec.replicas``."""
        return path_text(self.path)


class ApplyConflict(KubeloopError):
    """Other managers own fields that would change, so that nothing was applied.

    ``conflicts`` are in the order of the managers, then of their fields.
    """

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        self.conflicts = tuple(conflicts)
        super().__init__(f"Apply failed with {len(self.conflicts)} conflict{'' if len(self.conflicts) == 1 else 's'}")
