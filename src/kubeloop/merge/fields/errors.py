"""What field sets and managers refuse."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

from kubeloop.merge.fields.elements import ElementError, Path, path_text
from kubeloop.meta.errors import KubeloopError


class TypeMismatch(KubeloopError):
    """A value does not fit its type; ``str()`` is what Kubernetes says after "failed to create typed patch object (...): "."""


class _Mismatches:
    """A block in which what has no identity, and what is nested beyond recursion, is a mismatch of types."""

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
    """A block in which the text of a mismatch of types begins with ``text`` and a colon, as Kubernetes says what it was doing."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(fault, TypeMismatch):
            raise TypeMismatch(f"{self._text}: {fault}") from None


class MissingVersion(KubeloopError):
    """An API version that no longer is; a converter raises it, and entries of managers in that version are dropped."""


class Conflict(NamedTuple):
    """``manager`` (in whatever terms the caller tells managers apart) owns ``path``, which the applied configuration wants otherwise."""

    manager: Any
    path: Path

    @property
    def field(self) -> str:
        """``.spec.replicas``"""
        return path_text(self.path)


class ApplyConflict(KubeloopError):
    """Others own fields that would change; nothing was applied.

    ``conflicts`` are by manager in the order given, then in the order of fields.
    """

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts = tuple(conflicts)
        super().__init__(f"Apply failed with {len(self.conflicts)} conflict{'' if len(self.conflicts) == 1 else 's'}")
