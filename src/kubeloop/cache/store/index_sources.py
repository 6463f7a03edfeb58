"""The sources of an index (a path, a function, ``ByLabel``, ``Sorted``), and the index that is made from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.store.index import Index, IndexValues, SecondaryIndex, by_function, by_label, by_path
from kubeloop.cache.store.sorted_index import SortedIndex, sort_by_function, sort_by_path
from kubeloop.meta import Resource
from kubeloop.meta.label_requirement import Operator, Requirement
from kubeloop.meta.type_checks import described

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class ByLabel:
    """Index by the value of one label. Objects without the label are not in it.

    It costs nothing per event beyond the index itself, since heads carry labels.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod, indexes={"team": ByLabel("team")})
        ...     await pods.wait_synced()
        ...     print(pods.lister.by_index("team", "web"))
        []
    """

    label: str


@dataclass(frozen=True)  # with slots, Sorted[Pod](...) fails: a generic's instances get their type arguments
class Sorted(Generic[R]):
    """Sorted index for ``lister.range``.

    An error of ``key`` or of a function is logged with the object's key; the object is then not in this index.

    Args:
        source: A path, which costs nothing per event, or a function of the typed object, which decodes it at each change.
        key: Returns the sort key of a path's value, for values whose text sorts otherwise: ``Sorted("spec.storage", key=to_bytes)``.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod, indexes={"created": Sorted("metadata.creationTimestamp")})
        ...     await pods.wait_synced()
        ...     print(pods.lister.range("created", reverse=True, limit=10))
        []
    """

    source: str | Callable[[R], Any]
    key: Callable[[Any], Any] | None = None


IndexSource: TypeAlias = str | Callable[[R], IndexValues] | ByLabel | Sorted[R]
"""A path (``spec.nodeName``) or ``ByLabel("team")``, which cost nothing; a function of the typed object, which decodes it at each change;
``Sorted`` of a path or a function."""


def check_sources(indexes: Mapping[str, IndexSource[R]]) -> None:
    """Check the sources of indexes when they are declared, instead of at the first object.

    Raises:
        TypeError: a source is of a wrong type; the message names it and valid sources. ValueError: the key of a ``ByLabel`` is not a valid
            label key.
    """
    if not isinstance(indexes, Mapping):
        raise TypeError(f'indexes={described(indexes)} has no names; give a name to each: indexes={{"node": "spec.nodeName"}}')
    for name, index in indexes.items():
        source = index.source if isinstance(index, Sorted) else index
        if isinstance(source, ByLabel):
            Requirement.checked(source.label, Operator.EXISTS, ())
        elif not isinstance(source, str) and not callable(source):
            raise TypeError(
                f'index "{name}" over {described(index)}: give a path such as "spec.nodeName", a function of the object, ByLabel or Sorted'
            )


def path_of(source: IndexSource[R]) -> str | None:
    """Return the path that heads must carry for a source; None if it needs none."""
    wanted = source.source if isinstance(source, Sorted) else source
    return wanted if isinstance(wanted, str) else None


def make_index(name: str, source: IndexSource[R], attributes: Mapping[str, str], decode: Callable[[Head], R]) -> SecondaryIndex:
    """Return the index for a source.

    The values of a function are remembered, since the function may return others later; values at paths and labels cannot change.

    Args:
        name: Name of the index.
        source: A path, a function, ``ByLabel`` or ``Sorted``.
        attributes: Path -> attribute of the head that carries it.
        decode: Decodes a head, for functions.
    """
    if isinstance(source, ByLabel):
        return Index(name, source, by_label(source.label))
    if isinstance(source, Sorted):
        return _sorted(name, source, attributes, decode)
    if isinstance(source, str):
        return Index(name, source, by_path(attributes[source]))
    return Index(name, source, by_function(name, lambda head: source(decode(head))), remember=True)


def _sorted(name: str, sort: Sorted[R], attributes: Mapping[str, str], decode: Callable[[Head], R]) -> SecondaryIndex:
    source, key = sort.source, sort.key
    if not isinstance(source, str):
        function = source if key is None else lambda each: key(source(each))
        return SortedIndex(name, sort, sort_by_function(name, lambda head: function(decode(head))), remember=True)
    get = attrgetter(attributes[source])
    if key is None:
        return SortedIndex(name, sort, sort_by_path(get))

    def read(head: Head) -> Any:
        value = get(head)
        if isinstance(value, tuple | list):
            return [key(each) for each in value]
        return None if value is None else key(value)

    return SortedIndex(name, sort, sort_by_function(name, read), remember=True)
