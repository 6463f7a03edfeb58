"""Continuity between a list and the watches that follow it, under rules that may change.

A watch that continues a list at a resourceVersion must know which objects its client can see at that version, and the client must have got
them under the present rules. The resourceVersion stays that of the API server, so the proxy remembers the lists that it has served.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import ApiError

Key = tuple[str, str]

#: Number of lists that are remembered, and the number of keys in all of them together (about 150 bytes each).
_LISTS: Final = 1024
_KEYS: Final = 200_000


class ListScope(NamedTuple):
    """The objects that a client lists and watches. Clients of the same user and program at the same address are one client."""

    user: str
    user_agent: str
    remote: str
    group: str
    resource: str
    namespace: str
    label_selector: str
    field_selector: str


@dataclass(slots=True)
class _ServedList:
    generation: int
    keys: frozenset[Key] | None


class Continuity:
    """Remembers which lists were served under which rules.

    Attributes:
        generation: Number of the present rules; each reload increases it.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._lists: OrderedDict[tuple[ListScope, str], _ServedList] = OrderedDict()
        self._keys = 0
        self._barriers: dict[tuple[str, str], tuple[int, int]] = {}

    def advance(self) -> None:
        """Begin a new generation: the rules have changed."""
        self.generation += 1

    def record(self, scope: ListScope, version: str, generation: int, keys: set[Key] | None) -> None:
        """Remember a list that was served.

        Args:
            scope: Client and objects.
            version: The resourceVersion of the list.
            generation: The generation when the list began.
            keys: The objects that the client can see. None: the list is a page, or its keys do not matter.
        """
        entry = scope, version
        self._drop(entry)
        kept = frozenset(keys) if keys is not None and len(keys) <= _KEYS else None
        self._lists[entry] = _ServedList(generation, kept)
        self._keys += len(kept or ())
        while len(self._lists) > _LISTS or self._keys > _KEYS:
            self._drop(next(iter(self._lists)))

    def visible(self, scope: ListScope, version: str) -> set[Key] | None:
        """Return the objects that a client can see at a version, if they are known."""
        served = self._lists.get((scope, version))
        if served is None or served.generation != self.generation or served.keys is None:
            return None
        return set(served.keys)

    async def check(self, scope: ListScope, version: str, newest: Callable[[], Awaitable[int]]) -> None:
        """Check that a client that watches from ``version`` has got its objects under the present rules.

        Args:
            scope: Client and objects.
            version: The resourceVersion of the watch.
            newest: Returns the API server's newest resourceVersion of the resource.

        Raises:
            ApiError: 410 Expired: the rules have changed since, and the client must list again.
        """
        if not self.generation:
            return  # the rules are those with which the proxy started
        resource = scope.group, scope.resource
        barrier = self._barriers.get(resource)
        if barrier is None or barrier[0] != self.generation:
            # A version beyond the newest one of now can only come from a watch under the present rules: older watches have ended.
            generation = self.generation
            barrier = generation, await newest()
            self._barriers[resource] = barrier
        served = self._lists.get((scope, version))
        if served is not None and served.generation == self.generation:
            return
        if not version.isdecimal() or int(version) <= barrier[1]:
            raise rules_changed()

    def _drop(self, entry: tuple[ListScope, str]) -> None:
        dropped = self._lists.pop(entry, None)
        if dropped is not None:
            self._keys -= len(dropped.keys or ())


def rules_changed() -> ApiError:
    """Return the error that makes clients list again."""
    return api_errors.refusal(410, "Expired", "the rules of the proxy have changed; list the objects again")
