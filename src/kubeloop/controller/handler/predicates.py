"""Predicates: decide which events lead to a reconcile. They read heads and projected paths, never a whole object.

They filter reconciles, not the cache: use selectors of the informer to keep objects out of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.cache import Event, EventType, Head
from kubeloop.meta import Selector, parse_label_selector


class Predicate:
    """Decides whether an event leads to a reconcile. Predicates combine with ``&``, ``|`` and ``~``.

    Args:
        test: Returns whether to reconcile for an event.
        paths: Read into each head of the watched kind, so that ``event.head.value(path)`` decodes nothing.

    Example:
        >>> named = Predicate(lambda event: event.head.name.startswith("web-"))
        >>> changed_web = named & (generation_changed | labels_changed)
    """

    __slots__ = ("_test", "paths")

    def __init__(self, test: Callable[[Event[Any]], bool], paths: tuple[str, ...] = ()) -> None:
        self._test = test
        self.paths = paths

    def __call__(self, event: Event[Any]) -> bool:
        return self._test(event)

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) and other(event), self.paths + other.paths)

    def __or__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) or other(event), self.paths + other.paths)

    def __invert__(self) -> Predicate:
        return Predicate(lambda event: not self(event), self.paths)


def _on_update(differs: Callable[[Head, Head], bool], paths: tuple[str, ...] = ()) -> Predicate:
    """Return a predicate that rejects updates without a difference.

    An object that was recreated between two events counts as changed, even if its fields are equal (behaviour T238).
    """
    return Predicate(
        lambda event: (
            event.type not in (EventType.MODIFIED, EventType.RESYNC)
            or event.old is None
            or event.old.uid != event.head.uid
            or differs(event.old, event.head)
        ),
        paths,
    )


def path_changed(path: str) -> Predicate:
    """Return a predicate for updates that changed the value at ``path`` (wire names: ``spec.nodeName``, ``metadata.annotations``)."""
    return _on_update(lambda old, new: bool(old.value(path) != new.value(path)), (path,))


#: Updates that changed anything at all; a resync does not.
resource_version_changed = _on_update(lambda old, new: old.resource_version != new.resource_version)

#: Updates that changed the desired state: ``metadata.generation`` rises with the spec, not with status or metadata. Kinds without a
#: generation (ConfigMaps, Pods before 1.33) never pass. The first mark of deletion passes too, as it raises the generation.
generation_changed = _on_update(lambda old, new: old.generation != new.generation)

#: Updates that changed a label.
labels_changed = _on_update(lambda old, new: old.labels != new.labels)

#: Updates that changed an annotation.
annotations_changed = path_changed("metadata.annotations")

#: Updates by which a deletion began, and deletions.
deletion = Predicate(
    lambda event: event.type is EventType.DELETED or (event.head.deleting and not (event.old is not None and event.old.deleting)),
)


def labels_match(selector: str | Selector) -> Predicate:
    """Return a predicate for objects whose labels match now, or matched before the update.

    Raises:
        ValueError: the text is not a valid label selector.
    """
    parsed = parse_label_selector(selector) if isinstance(selector, str) else selector
    return Predicate(
        lambda event: parsed.matches(event.head.labels) or (event.old is not None and parsed.matches(event.old.labels)),
    )
