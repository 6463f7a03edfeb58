"""What a controller's runner asks about its keys when they are spread over replicas: may it, and what has it gained."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kubeloop.meta import ObjectKey

T = TypeVar("T")

Gained = Callable[[Callable[[ObjectKey], bool]], None]
"""Called with a predicate of gained keys; enqueues the existing ones."""


class Ownership(Protocol):
    """Of one controller. For the event loop's thread."""

    def owns(self, key: ObjectKey) -> bool:
        """Whether ``key`` is this replica's now: worth putting into the queue. Another answer may be right a moment later."""

    def guarded(self, reconcile: Callable[[ObjectKey], Awaitable[T]]) -> Callable[[ObjectKey], Awaitable[T | None]]:
        """``reconcile`` for owned keys only: for others nothing is done, and None is the answer. While it runs the key stays here; if this
        replica can no longer be sure of its keys, it is cancelled, and None is the answer: the next owner of the key reconciles again."""

    def on_gained(self, callback: Gained) -> Callable[[], None]:
        """Call ``callback`` whenever keys have been gained: what changed of them before was filtered out here. Returns what ends that."""
