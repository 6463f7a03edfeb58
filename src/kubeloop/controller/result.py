"""The results of a reconcile: nothing more to do, reconcile again later, or give up."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta

from kubeloop.meta import KubeloopError
from kubeloop.meta.type_checks import described_word


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a successful reconcile, and when to reconcile again. Without arguments: at the next change.

    Args:
        requeue_after: Seconds after which the key is reconciled again; its back-off is reset.
        requeue: Reconcile again with growing delay, as after an error, but without logging or counting an error.
        priority: Priority of that next reconcile. None: unchanged.

    Raises:
        TypeError: an argument has another type (a ``timedelta`` has ``total_seconds()``).
        ValueError: ``requeue_after`` is not above zero or not finite, or both are given, or a priority without either.

    Example:
        >>> Result(requeue_after=30)
        Result(requeue_after=30...)
    """

    # Behaviours R205, R206: requeue_after and priority.

    requeue_after: float | None = None
    requeue: bool = False
    priority: int | None = None

    def __post_init__(self) -> None:
        after: object = self.requeue_after
        if after is not None and (not isinstance(after, int | float) or isinstance(after, bool)):
            way = "; write requeue_after=....total_seconds()" if isinstance(after, timedelta) else ""
            raise TypeError(f"requeue_after must be a number of seconds, not {described_word(after)}{way}")
        if after is not None and not after > 0:
            raise ValueError(f"requeue_after must be above 0 seconds, not {after}; raise an error to be called again with back-off")
        if after == math.inf:
            raise ValueError("requeue_after=inf is never; return None to be called again when something changes")
        for name, value, kind in (("requeue", self.requeue, bool), ("priority", self.priority, int | None)):
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise TypeError(f"{name} must be {'True or False' if kind is bool else 'a whole number'}, not {described_word(value)}")
        if self.requeue and self.requeue_after is not None:
            raise ValueError(f"requeue (with back-off) and requeue_after={self.requeue_after} (exactly then): give one of them")
        if self.priority is not None and not self.requeue and self.requeue_after is None:
            raise ValueError(f"priority={self.priority} is that of the next reconcile: give requeue=True or requeue_after=, too")


@dataclass(frozen=True, slots=True)
class PartlyFailed(Result):
    """The result of a reconcile that failed partly. It counts as an error, but ``requeue_after`` delays the retry instead of a back-off."""

    error: BaseException = field(default_factory=RuntimeError)
    text: str = ""


class TerminalError(KubeloopError):
    """Raised by a reconcile that cannot succeed until its object is changed: logged and counted, not retried.

    The key's back-off is reset, so that the next change starts without a delay.
    """
