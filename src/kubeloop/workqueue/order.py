"""``FairOrder``: an order of waiting items in which tenants take turns. (For first in, first out, the queues use an ``OrderedDict``.)

Each item has the time at which it was added, and can be removed from the middle.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairOrder(Generic[T]):
    """Order in which tenants take turns, one item each; within a tenant first in, first out.

    Guarantees
        With n waiting tenants, the first item of a tenant is at most n turns away, even if the others have many items.
        A new tenant has its turn after all waiting ones. Tenants without items are forgotten.

    ``tenant`` returns the tenant of an item (``lambda key: key.namespace``). It is called once, when the item is added; the result applies
    as long as the item waits.
    """

    __slots__ = ("_lines", "_tenant", "_tenants")

    def __init__(self, tenant: Callable[[T], Hashable]) -> None:
        self._tenant = tenant
        self._lines: OrderedDict[Hashable, OrderedDict[T, float]] = OrderedDict()  # Tenants in the order of their turns; no line is empty.
        self._tenants: dict[T, Hashable] = {}  # Tenant of each waiting item.

    def __setitem__(self, item: T, added: float) -> None:
        """Append an item to the line of its tenant. It must not wait already."""
        self.put(item, added, self._tenant(item))

    def put(self, item: T, added: float, tenant: Hashable) -> None:
        """Append an item to the line of this tenant, without a call of ``tenant``."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = OrderedDict()
        line[item] = added
        self._tenants[item] = tenant

    def append(self, item: T) -> None:
        """Append an item without a time."""
        self[item] = 0.0

    def popitem(self, last: bool = True) -> tuple[T, float]:
        """Remove and return the first item of the tenant whose turn it is. ``last``, an argument of OrderedDict, must be False.

        Raises:
            KeyError: no item waits.
        """
        if last:
            raise ValueError("the last one of a fair order is not defined")
        tenant, line = self._lines.popitem(last=False)
        found = line.popitem(last=False)
        del self._tenants[found[0]]
        if line:
            self._lines[tenant] = line
        return found

    def popleft(self) -> T:
        """Remove and return the next item without its time."""
        return self.popitem(last=False)[0]

    def pop(self, item: T) -> float:
        """Remove a waiting ``item``. Its tenant keeps its turn if other items of it wait.

        Raises:
            KeyError: the item does not wait.
        """
        tenant = self._tenants.pop(item)
        line = self._lines[tenant]
        added = line.pop(item)
        if not line:
            del self._lines[tenant]
        return added

    def tenant_of(self, item: T) -> Hashable:
        """Return the tenant of a waiting ``item``."""
        return self._tenants[item]

    def end_turn(self, item: T) -> None:
        """Move the tenant of a waiting ``item`` to the end."""
        self._lines.move_to_end(self._tenants[item])

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items by tenant, in the order of turns. The order must not change meanwhile."""
        for line in self._lines.values():
            yield from line

    def __len__(self) -> int:
        return len(self._tenants)
