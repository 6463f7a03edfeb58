"""Query: predicates of heads for label selectors and field values. They decode nothing and have no side effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.store.index import index_key
from kubeloop.codec.paths import parse_path
from kubeloop.meta import KubeloopError, LabelSelector, Selector, parse_label_selector, selector_from, selector_from_labels
from kubeloop.meta.type_checks import described

Labels: TypeAlias = str | Mapping[str, str] | Selector | LabelSelector
"""A label selector: a string as in kubectl (``app=web,tier!=db``), a mapping of required labels, or a parsed selector."""

Value: TypeAlias = str | int | float | bool | None
"""A scalar to compare a field with; None and "" both match a field without a value."""

Where: TypeAlias = Callable[[Head], object] | Mapping[str, Value]
"""A mapping of paths that heads carry to the values that they must all have, or a predicate of the head."""

Predicate: TypeAlias = Callable[[Head], object]

_OWN: dict[tuple[Any, ...], Callable[[Head], Any]] = {
    ("metadata", "name"): attrgetter("name"),
    ("metadata", "namespace"): attrgetter("namespace"),
    ("metadata", "uid"): attrgetter("uid"),
    ("metadata", "resourceVersion"): attrgetter("resource_version"),
    ("metadata", "generation"): attrgetter("generation"),
}


class UnreadPath(KubeloopError):
    """A query names a path that heads do not carry; the message says how to add it."""


def field(path: str, attributes: Mapping[str, str]) -> Callable[[Head], Any]:
    """Return a function that reads ``path`` of a head. ``attributes``: the attributes of heads by path.

    Raises:
        UnreadPath: heads do not carry the path. ValueError: the path is malformed.
    """
    attribute = attributes.get(path)
    if attribute is not None:
        return attrgetter(attribute)
    segments = parse_path(path)
    own = _OWN.get(segments)
    if own is not None:
        return own
    if len(segments) == 3 and segments[:2] == ("metadata", "labels") and isinstance(segments[2], str):
        label = segments[2]
        return lambda head: head.labels.get(label)
    read = ", ".join(attributes) or "none"
    raise UnreadPath(
        f'path "{path}" is not read by this informer (besides metadata it reads: {read}); '
        f'give it to informers.for_kind(..., paths=["{path}"]), or indexes={{"name": "{path}"}} to find by it without a search'
    )


def selector_of(labels: Labels) -> Selector:
    """Return the selector for any accepted form of a label selector.

    Raises:
        ValueError: a malformed selector. TypeError: the value is not a selector.
    """
    if not isinstance(labels, str | Mapping | Selector | LabelSelector):
        raise TypeError(
            f"label_selector={described(labels)} is not a selector; "
            'give text ("app=web,tier!=db"), equal pairs, a Selector or a LabelSelector'
        )
    if isinstance(labels, Selector):
        return labels
    if isinstance(labels, LabelSelector):
        return selector_from(labels)
    return parse_label_selector(labels) if isinstance(labels, str) else selector_from_labels(labels)


def by_labels(selector: Selector) -> Predicate:
    """Return a predicate that matches the labels of heads. Equal label sets are one mapping, so each is checked once per query."""
    matches = selector.matches
    known: dict[int, bool] = {}

    def predicate(head: Head) -> bool:
        labels = head.labels
        actual = known.get(id(labels))
        if actual is None:
            actual = known[id(labels)] = matches(labels)
        return actual

    return predicate


def by_field(path: str, value: Value, attributes: Mapping[str, str]) -> Predicate:
    """Return a predicate that is true if the value at the path, or one item of a list or of a path with ``[*]``, equals ``value``.

    Values compare as indexes spell them: ``1`` and ``"1"`` are equal, an absent value equals "".

    Raises:
        TypeError: the value is neither a scalar nor None. UnreadPath, ValueError: see ``field``.
    """
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError(f'"{path}" with {described(value)}: give one text, number or boolean to compare with, or None for absent fields')
    read, expected = field(path, attributes), index_key(value)

    def predicate(head: Head) -> bool:
        actual = read(head)
        if isinstance(actual, tuple | list):
            return any(index_key(item) == expected for item in actual)
        return index_key(actual) == expected

    return predicate


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """Return the conjunction of two predicates; None is always true."""
    if first is None or second is None:
        return first or second
    left, right = first, second
    return lambda head: left(head) and right(head)
