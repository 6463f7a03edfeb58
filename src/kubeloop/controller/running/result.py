"""What a reconcile says when it ends: nothing more to do, come back later, or give up."""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.meta import KubeloopError


@dataclass(frozen=True, slots=True)
class Result:
    """Success. In ``requeue_after`` seconds the same key is reconciled again, exactly then, without back-off; None waits for a change.

    Raises:
        ValueError: ``requeue_after`` is not above zero. To try again with back-off, raise an error.
    """

    requeue_after: float | None = None

    def __post_init__(self) -> None:
        if self.requeue_after is not None and not self.requeue_after > 0:
            raise ValueError(
                f"requeue_after must be above 0 seconds, not {self.requeue_after}; raise an error to be called again with back-off"
            )


class TerminalError(KubeloopError):
    """Raised by a reconcile that cannot succeed until somebody changes the object: logged and counted, not tried again.

    The key's back-off is forgotten: whatever the next change brings is a first try.
    """
