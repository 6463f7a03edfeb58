"""Orders in which items wait: first come, first served; or tenants taking turns. Unlike a deque they let an item leave from the middle."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FifoOrder(Generic[T]):
    """First come, first served. No item is in it twice."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: OrderedDict[T, None] = OrderedDict()

    def append(self, item: T) -> None:
        """Last in line."""
        self._items[item] = None

    def popleft(self) -> T:
        """The first in line, which leaves it.

        Raises:
            KeyError: nobody waits.
        """
        return self._items.popitem(last=False)[0]

    def discard(self, item: T) -> None:
        """``item`` leaves the line, wherever it stands, if it does."""
        self._items.pop(item, None)

    def take(self, item: T) -> None:
        """``item`` leaves as if it were the first."""
        self._items.pop(item, None)

    def __iter__(self) -> Iterator[T]:
        """The next ones first. The order must not be changed meanwhile."""
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class FairOrder(Generic[T]):
    """Tenants take turns, one item each; within a tenant first come, first served.

    Guarantees
        With n tenants waiting, an item that is the first of its tenant is at most n turns away, however many items others have.
        A tenant that comes anew has its turn after all that wait already. Tenants without items are forgotten.

    ``tenant`` gives the tenant of an item, the same one each time: ``lambda key: key.namespace``.
    """

    __slots__ = ("_count", "_lines", "_tenant")

    def __init__(self, tenant: Callable[[T], Hashable]) -> None:
        self._tenant = tenant
        self._lines: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()  # In the order of their turns; none of them is empty.
        self._count = 0

    def append(self, item: T) -> None:
        """Last in the line of its tenant."""
        tenant = self._tenant(item)
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = OrderedDict()
        line[item] = None
        self._count += 1

    def popleft(self) -> T:
        """The first of the tenant whose turn it is.

        Raises:
            KeyError: nobody waits.
        """
        tenant, line = self._lines.popitem(last=False)
        item = line.popitem(last=False)[0]
        self._count -= 1
        if line:
            self._lines[tenant] = line
        return item

    def discard(self, item: T) -> None:
        """``item`` leaves; its tenant, if nothing of it is left, loses its turn."""
        tenant = self._tenant(item)
        line = self._lines.get(tenant)
        if line is None or item not in line:
            return
        del line[item]
        self._count -= 1
        if not line:
            del self._lines[tenant]

    def take(self, item: T) -> None:
        """``item`` leaves as if its turn had come: its tenant goes to the end."""
        tenant = self._tenant(item)
        self.discard(item)
        if tenant in self._lines:
            self._lines.move_to_end(tenant)

    def __iter__(self) -> Iterator[T]:
        """The items of the tenant whose turn is next first. The order must not be changed meanwhile."""
        for line in self._lines.values():
            yield from line

    def __len__(self) -> int:
        return self._count
