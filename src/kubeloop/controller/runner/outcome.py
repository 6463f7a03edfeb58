"""What becomes of a reconcile: what is counted, what is said, and which errors nobody planned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ReconcileCounts:
    """Since the start. ``errors`` includes terminal errors, timeouts and panics; ``seconds`` is wall-clock time spent in reconciles.

    ``successes``, ``requeues_asked`` (with back-off) and ``requeues_after`` are the outcomes without an error; ``requeues`` counts all keys
    that were put back, errors included. ``panics`` are errors that nobody plans (see ``is_panic``). ``hanging``: reconciles that go on now
    although their time has passed.
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
    """Whether it is a mistake in the program, as a nil pointer or an index out of range is one in Go; ``SystemExit`` included."""
    return isinstance(error, _MISTAKES) or not isinstance(error, Exception)
