"""Scope of a manager: which namespaces and which objects of each kind its informers keep, with defaults for all kinds.

What a kind says comes first, then what is said for all (controller-runtime pkg/cache; behaviour S225).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from kubeloop.client.mapping import ALL_NAMESPACES
from kubeloop.client.selector_text import Fields, Labels, field_text, label_text
from kubeloop.meta import Resource, names


class Selection(TypedDict):
    """Arguments of ``Informers.of``."""

    namespace: str | tuple[str, ...]
    label_selector: str | None
    field_selector: str | None


@dataclass(frozen=True, slots=True)
class KindScope:
    """For one kind. What is None is as for all kinds; ``ALL_NAMESPACES``, and ``""`` for a selector, override that.

    Raises:
        ValueError: as ``CacheScope``.
    """

    namespaces: str | Sequence[str] | None = None
    label_selector: Labels | None = None
    field_selector: Fields | None = None

    def __post_init__(self) -> None:
        _check("KindScope", self.namespaces, self.label_selector, self.field_selector)


@dataclass(frozen=True, slots=True)
class CacheScope:
    """What the informers of a manager keep. ``namespaces`` do not concern cluster-scoped kinds, selectors do.

    ::

        kinds = {Secret: KindScope(label_selector="team=web"), Node: KindScope(label_selector="pool=gpu")}
        CacheScope(namespaces=["shop", "bank"], kinds=kinds)

    Raises:
        ValueError: a name that can be no namespace, or a selector that cannot be read; says which.
    """

    namespaces: str | Sequence[str] = ALL_NAMESPACES
    label_selector: Labels | None = None
    field_selector: Fields | None = None
    kinds: Mapping[type[Resource], KindScope] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("CacheScope", self.namespaces, self.label_selector, self.field_selector)

    def select(self, kind: type[Resource], *, namespaced: bool) -> Selection:
        """What an informer of ``kind`` is to be asked for: ``informers.of(kind, **scope.select(kind, namespaced=True))``."""
        own = self.kinds.get(kind, KindScope())
        namespaces = _names(self.namespaces if own.namespaces is None else own.namespaces) if namespaced else ()
        return Selection(
            namespace=namespaces[0] if len(namespaces) == 1 else namespaces or ALL_NAMESPACES,
            label_selector=label_text(self.label_selector if own.label_selector is None else own.label_selector) or None,
            field_selector=field_text(self.field_selector if own.field_selector is None else own.field_selector) or None,
        )

    def covers(self, kind: type[Resource], namespace: str) -> bool:
        """Whether objects of a namespaced kind in this namespace can be in the cache; ``ALL_NAMESPACES`` asks for all."""
        own = self.kinds.get(kind, KindScope())
        namespaces = _names(self.namespaces if own.namespaces is None else own.namespaces)
        return not namespaces or namespace in namespaces


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Sorted, each once; empty means all."""
    found = (given,) if isinstance(given, str) else tuple(given or ())
    return () if ALL_NAMESPACES in found else tuple(sorted(set(found)))


def _check(what: str, namespaces: str | Sequence[str] | None, label_selector: Labels | None, field_selector: Fields | None) -> None:
    for name in _names(namespaces):
        if faults := names.dns1123_label(name):
            raise ValueError(f"{what}: namespace {name!r} cannot be: {'; '.join(faults)}")
    if label_selector:
        label_text(label_selector)
    if field_selector:
        field_text(field_selector)
