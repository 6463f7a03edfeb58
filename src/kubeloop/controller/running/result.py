"""What a reconcile says when it ends: nothing more to do, come back later, or give up."""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.meta import KubeloopError


@dataclass(frozen=True, slots=True)
class Result:
    """Success, and what is to follow.

    ``requeue_after``: in so many seconds the same key is reconciled again, exactly then, its back-off forgotten (behaviour R205).
    ``requeue``: it is reconciled again with growing delay, as after an error, but nothing is logged or counted as one.
    ``priority``: of that next reconcile; None keeps what this one had (behaviour R206). Neither: it waits for a change.

    Raises:
        ValueError: ``requeue_after`` is not above zero, or both are given, or a priority without either.
    """

    requeue_after: float | None = None
    requeue: bool = False
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is not None and not self.requeue_after > 0:
            raise ValueError(
                f"requeue_after must be above 0 seconds, not {self.requeue_after}; raise an error to be called again with back-off"
            )
        if self.requeue and self.requeue_after is not None:
            raise ValueError(f"requeue (with back-off) and requeue_after={self.requeue_after} (exactly then): give one of them")
        if self.priority is not None and not self.requeue and self.requeue_after is None:
            raise ValueError(f"priority={self.priority} is that of the next reconcile: give requeue=True or requeue_after=, too")


class TerminalError(KubeloopError):
    """Raised by a reconcile that cannot succeed until somebody changes the object: logged and counted, not tried again.

    The key's back-off is forgotten: whatever the next change brings is a first try.
    """
