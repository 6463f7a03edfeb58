"""Watches and channels: what leads to reconciles, beside changes of the controller's own kind. ``Owns`` is for kinds that it creates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubeloop.cache import Event, Head
from kubeloop.controller.handler.mapping import MapFunc, MapHead
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.meta import KubeloopError, ObjectKey, Resource
from kubeloop.meta.type_checks import described, described_word

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Watch(Generic[R]):
    """Reconcile what ``to`` names whenever an object of ``kind`` changes and all ``predicates`` agree.

    ``to`` is called with the new state and, for an update, with the old one too (so that what an object no longer refers to is
    reconciled as well); keys named twice are reconciled once (behaviour R218). It is one of

    - a mapping: ``to_owner(Foo)``, ``to_label("example.com/foo")``, ``to_field("spec.fooName")``, ``to_index("secret")``, ``to_same_name``;
    - a function of a ``Head``, plain or async: an async one holds back the later events of that kind, and nothing else;
    - the name of a method of the controller, for functions that want its listers or its client.

    ``paths`` (wire names) are read into the heads that it gets:
    ``Watch(Pod, to=lambda pod: [ObjectKey("", "", pod.value("spec.nodeName"))], paths=["spec.nodeName"])``.
    ``metadata_only``: nothing but metadata is asked of the server; ``metadata_lister(kind)`` reads it.
    """

    kind: type[R]
    to: MapHead | MapFunc | str
    predicates: tuple[Predicate, ...] = ()
    paths: tuple[str, ...] = ()
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class Owns(Generic[R]):
    """A kind that the controller creates: its owner is reconciled when it changes. ``owns=[Deployment]`` is short for it.

    The owner is the controller reference; with ``every_owner``, each owner reference of the kind counts.
    ``predicates``, ``metadata_only``: as for ``Watch``.
    """

    kind: type[R]
    every_owner: bool = False
    predicates: tuple[Predicate, ...] = ()
    metadata_only: bool = False


T = TypeVar("T")


class SourceError(KubeloopError):
    """A source of a controller is broken permanently, or gave something that names no object; the text names both and the fix."""


@dataclass(frozen=True, slots=True)
class Channel(Generic[T]):
    """Reconcile what comes out of ``source``: keys, objects, heads or events; or anything, if ``to`` says which keys it stands for.

    ``source`` is an ``asyncio.Queue``, an async iterator, or a function that opens one. The function is called again, with growing
    pauses, when what it opened breaks; an iterator that breaks ends the controller, since what it had to tell is lost.
    A source that ends is not opened again. Items that come before the controller runs wait in its queue; predicates do not apply.
    """

    source: asyncio.Queue[T] | AsyncIterable[T] | Callable[[], AsyncIterable[T]]
    to: Callable[[T], Iterable[ObjectKey]] | None = None
    priority: int = 0
    name: str = "channel"

    def __post_init__(self) -> None:
        """Raises TypeError: ``source`` cannot be read."""
        found: object = self.source
        if not isinstance(found, asyncio.Queue | AsyncIterable) and not callable(found):
            raise TypeError(
                f"Channel({described(found)}, name={described_word(self.name)}): "
                "give an asyncio.Queue, an async iterator, or a function that opens one"
            )

    @property
    def reopens(self) -> bool:
        """Whether it can be opened again."""
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
        """What an item stands for.

        Raises:
            SourceError: it is nothing that names an object, and there is no ``to``; or ``to`` gives something else than keys.
        """
        if self.to is not None:
            found = list(self.to(item))
            if not all(isinstance(key, ObjectKey) for key in found):
                raise SourceError(
                    f"to= of source {self.name} gave {described(found)} for {described(item)}; "
                    'give ObjectKeys: ObjectKey("", namespace, name)'
                )
            return found
        return [_key(item, self.name)]


def _key(item: Any, name: str) -> ObjectKey:
    if isinstance(item, ObjectKey):
        return item
    if isinstance(item, Event):
        return item.key
    if isinstance(item, Head):
        return ObjectKey("", item.namespace, item.name)
    if isinstance(item, Resource):
        return ObjectKey("", item.metadata.namespace, item.metadata.name)
    raise SourceError(
        f"source {name} gave {described(item)}, which names no object; "
        "give ObjectKeys or objects, or say what it means with Channel(..., to=)"
    )
