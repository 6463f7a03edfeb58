"""Predicates: decide which events lead to a reconcile. They read heads and projected paths, never a whole object.

They filter reconciles, not the cache: use selectors of the informer to keep objects out of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.cache import EventType, Head, InformerEvent
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

    def __init__(self, test: Callable[[InformerEvent[Any]], bool], paths: tuple[str, ...] = ()) -> None:
        self._test = test
        self.paths = paths

    def __call__(self, event: InformerEvent[Any]) -> bool:
        return self._test(event)

    def __and__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) and other(event), self.paths + other.paths)

    def __or__(self, other: Predicate) -> Predicate:
        return Predicate(lambda event: self(event) or other(event), self.paths + other.paths)

    def __invert__(self) -> Predicate:
        return Predicate(lambda event: not self(event), self.paths)


def _on_update(differs: Callable[[Head, Head], bool], paths: tuple[str, ...] = ()) -> Predicate:
    """Return a predicate that rejects updates and resyncs for which ``differs(old, new)`` is False, and accepts all other events.

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
    """Return a predicate that rejects updates that did not change the value at ``path``. Creations and deletions pass.

    ``path`` has wire names: ``spec.nodeName``, ``metadata.annotations``.
    """
    return _on_update(lambda old, new: bool(old.value(path) != new.value(path)), (path,))


#: Rejects resyncs, which change nothing. Creations and deletions pass.
resource_version_changed = _on_update(lambda old, new: old.resource_version != new.resource_version)

#: Rejects updates that did not change the desired state: ``metadata.generation`` rises with the spec, not with status or metadata. Updates
#: of kinds without a generation (ConfigMaps, Pods before 1.33) never pass. The update that sets the deletion timestamp passes, since it
#: raises the generation. Creations and deletions pass.
generation_changed = _on_update(lambda old, new: old.generation != new.generation)

#: Rejects updates that did not change a label. Creations and deletions pass.
labels_changed = _on_update(lambda old, new: old.labels != new.labels)

#: Rejects updates that did not change an annotation. Creations and deletions pass.
annotations_changed = path_changed("metadata.annotations")

#: Accepts deletions, and the first event of an object that shows its deletion timestamp.
deletion = Predicate(
    lambda event: event.type is EventType.DELETED or (event.head.deleting and not (event.old is not None and event.old.deleting)),
)


def labels_match(selector: str | Selector) -> Predicate:
    """Return a predicate that accepts events of objects whose labels match now, or matched before the update.

    Raises:
        ValueError: the text is not a valid label selector.
    """
    parsed = parse_label_selector(selector) if isinstance(selector, str) else selector
    return Predicate(
        lambda event: parsed.matches(event.head.labels) or (event.old is not None and parsed.matches(event.old.labels)),
    )
