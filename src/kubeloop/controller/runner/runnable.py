"""The protocol of the objects that a manager runs (``Runnable``), and their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kubeloop.controller.builder.context import RunnableContext
from kubeloop.workqueue import QueueStats


@dataclass(slots=True)
class ReconcileCounts:
    """Counts of a controller's reconciles since the start.

    Attributes:
        active: Reconciles that run now.
        reconciles: Reconciles that have ended.
        successes: Ended without an error and without a requeue.
        requeues_asked: Ended with ``Result(requeue=True)``.
        requeues_after: Ended with ``Result(requeue_after=...)``.
        errors: Ended with an error, terminal errors, timeouts and panics included.
        terminal_errors: Ended with ``TerminalError``.
        timeouts: Exceeded their time limit.
        panics: Ended with a programming error (``is_panic``).
        hanging: Reconciles that still run although their time limit has passed.
        requeues: Keys that were added again, including those after errors.
        seconds: Wall-clock time of all reconciles together.
        last_key: Key of the last reconcile.
        last_error: Text of the last error.
        last_error_key: Key of the last error.

    Example:
        >>> ReconcileCounts(reconciles=3, successes=2, errors=1).errors
        1
    """

    active: int = 0
    reconciles: int = 0
    successes: int = 0
    requeues_asked: int = 0
    requeues_after: int = 0
    errors: int = 0
    terminal_errors: int = 0
    timeouts: int = 0
    panics: int = 0
    hanging: int = 0
    requeues: int = 0
    seconds: float = 0.0
    last_key: str = ""
    last_error: str = ""
    last_error_key: str = ""


_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a programming error, such as AttributeError or IndexError; ``SystemExit`` counts too."""
    return isinstance(error, _MISTAKES) or not isinstance(error, Exception)


@dataclass(frozen=True, slots=True)
class RunnerStats:
    """State of one controller at one moment. ``last_change`` is the event that last added a key: ``Deployment shop/web updated``.

    Example:
        >>> from kubeloop import Manager
        >>> class Printer(Controller[ConfigMap]):
        ...     async def reconcile(self, config_map: ConfigMap) -> None: ...
        >>> manager = Manager(client, [Printer()])
        >>> [(stats.name, stats.workers) for stats in manager.stats]
        [('configmap', 1)]
    """

    name: str
    workers: int
    queue: QueueStats
    counts: ReconcileCounts
    last_change: str = ""


@runtime_checkable
class Runnable(Protocol):
    """Protocol of the objects that a manager runs."""

    @property
    def name(self) -> str: ...

    @property
    def stats(self) -> RunnerStats: ...

    @property
    def needs_leader(self) -> bool:
        """Whether the runnable runs in one replica only, the leader. Without leader election it runs in every replica."""

    @property
    def warm_up(self) -> bool:
        """Whether ``connect`` and ``synced`` are called before this replica leads, and only ``run`` afterwards."""
        # Behaviour R211.

    async def connect(self, context: RunnableContext) -> None:
        """Create informers and register handlers. The runnable must not act on objects yet."""

    async def synced(self, timeout: float) -> None:
        """Wait until every handler has seen its initial objects. The informers are synced when this is called."""
        # Behaviour R207.

    async def run(self) -> None:
        """Work until ``stop``."""

    def stop(self) -> None:
        """Start no new work; ``run`` returns when the running work has ended."""

    async def close(self) -> None:
        """Release all resources. Called once, when ``run`` has ended or was cancelled, or if it was never called."""
