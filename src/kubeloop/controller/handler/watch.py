"""Watches and channels: triggers of reconciles besides changes of the controller's own kind. ``Owns``: kinds that it creates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubeloop.cache import Head, InformerEvent
from kubeloop.controller.handler.map_funcs import MapFunc, MapHead
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.meta import KubeloopError, ObjectKey, Resource
from kubeloop.meta.type_checks import described, described_word

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class WatchedKind(Generic[R]):
    """Reconciles the keys that ``to`` returns whenever an object of ``kind`` changes and all ``predicates`` accept the event.

    ``to`` is called with the new state and, for an update, with the old one too (so that an object that is no longer referred to is
    reconciled as well); repeated keys are reconciled once. It is one of

    - a mapping: ``to_owner(Foo)``, ``to_label("example.com/foo")``, ``to_field("spec.fooName")``, ``to_index("secret")``, ``to_same_name``;
    - a function of a ``Head``, plain or async: an async function delays the later events of that kind only;
    - the name of a method of the controller, for functions that use its listers or its client.

    Args:
        kind: The watched kind.
        to: The mapping to keys.
        predicates: Changes that count; all must accept the event.
        paths: Paths (wire names) to read into the heads that ``to`` gets.
        metadata_only: Request only metadata; ``metadata_lister(kind)`` reads it.

    Example:
        >>> to_node = WatchedKind(Pod, to=lambda pod: [ObjectKey("", "", pod.value("spec.nodeName"))], paths=("spec.nodeName",))
        >>> class Drainer(Controller[Node], watches=[to_node]):
        ...     async def reconcile(self, node: Node) -> None: ...
    """

    # Behaviour R218.

    kind: type[R]
    to: MapHead | MapFunc | str
    predicates: tuple[Predicate, ...] = ()
    paths: tuple[str, ...] = ()
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class Owns(Generic[R]):
    """A kind that the controller creates: its changes reconcile the owner. ``owns=[Deployment]`` is short for ``Owns(Deployment)``.

    The owner is found by the controller reference; with ``every_owner``, by each owner reference of the kind.
    ``predicates``, ``metadata_only``: see ``WatchedKind``.

    Example:
        >>> class Scaler(Controller[ConfigMap], owns=[Owns(Pod, metadata_only=True)]):
        ...     async def reconcile(self, config_map: ConfigMap) -> None: ...
    """

    kind: type[R]
    every_owner: bool = False
    predicates: tuple[Predicate, ...] = ()
    metadata_only: bool = False


T = TypeVar("T")


class SourceError(KubeloopError):
    """A source of a controller failed permanently, or returned an item that does not name an object; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Channel(Generic[T]):
    """A source of reconciles outside the cluster. It yields keys, objects, heads or events, or other items that ``to`` maps to keys.

    Items that arrive before the controller runs wait in its queue; predicates do not apply.

    Args:
        source: An ``asyncio.Queue``, an async iterator, or a function that returns a new async iterator. If that iterator fails, the
            function is called again, with growing delays. An iterator without a function that fails ends the controller, since its items
            are lost. A source that ends is not opened again.
        to: Maps an item to keys. None: items are keys, objects, heads or events.
        priority: Priority of the reconciles.
        name: Name in logs.

    Example:
        >>> from kubeloop.controller import KeyController
        >>> ticks: asyncio.Queue[ObjectKey] = asyncio.Queue()
        >>> class Refresher(KeyController[ConfigMap], sources=[Channel(ticks, name="ticks")]):
        ...     async def reconcile(self, key: ObjectKey) -> None:
        ...         print("refresh", key.name)
    """

    source: asyncio.Queue[T] | AsyncIterable[T] | Callable[[], AsyncIterable[T]]
    to: Callable[[T], Iterable[ObjectKey]] | None = None
    priority: int = 0
    name: str = "channel"

    def __post_init__(self) -> None:
        """Check the source. Raises TypeError if ``source`` cannot be read."""
        found: object = self.source
        if not isinstance(found, asyncio.Queue | AsyncIterable) and not callable(found):
            raise TypeError(
                f"Channel({described(found)}, name={described_word(self.name)}): "
                "give an asyncio.Queue, an async iterator, or a function that opens one"
            )

    @property
    def reopens(self) -> bool:
        """Whether the source can be opened again."""
        return not isinstance(self.source, asyncio.Queue) and callable(self.source)

    async def items(self) -> AsyncIterator[T]:
        source = self.source
        if isinstance(source, asyncio.Queue):
            while True:
                yield await source.get()
        opened: AsyncIterable[T] = source if isinstance(source, AsyncIterable) else source()
        async for item in opened:
            yield item

    def keys(self, item: T) -> list[ObjectKey]:
        """Return the keys of an item.

        Raises:
            SourceError: the item does not name an object, and ``to`` is None; or ``to`` returned something other than keys.
        """
        if self.to is not None:
            found = list(self.to(item))
            if not all(isinstance(key, ObjectKey) for key in found):
                raise SourceError(
                    f"to= of source {self.name} returned {described(found)} for {described(item)}; "
                    'return ObjectKeys: ObjectKey("", namespace, name)'
                )
            return found
        return [_key(item, self.name)]


def _key(item: Any, name: str) -> ObjectKey:
    if isinstance(item, ObjectKey):
        return item
    if isinstance(item, InformerEvent):
        return item.key
    if isinstance(item, Head):
        return ObjectKey("", item.namespace, item.name)
    if isinstance(item, Resource):
        return ObjectKey("", item.metadata.namespace, item.metadata.name)
    raise SourceError(
        f"source {name} yielded {described(item)}, which does not name an object; "
        "yield ObjectKeys or objects, or map the items with Channel(..., to=)"
    )
