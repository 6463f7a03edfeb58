"""``eventually`` and ``consistently``: wait for a state, or check that it stays. They use watches; a failure shows the actual state.

Seconds are those of the target's clock; a ``FakeClock`` is advanced here, so that an hour takes no time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar, cast, overload

from kubeloop.testing.fake_time import UNSEEN, step, went_on
from kubeloop.testing.format import difference, indented, shortened, tree
from kubeloop.testing.targets import UNKNOWN, ObjectProbe
from kubeloop.timing import Clock, FakeClock

T = TypeVar("T")

Want: TypeAlias = Callable[[T], object] | Mapping[str, Any] | list[Any] | None
"""``lambda web: web.status.ready_replicas == 3``; or a part of the tree in wire names, ``{"status": {"readyReplicas": 3}}``, where
``...`` is any value and None none; of several objects a list of such parts, in the order of their names; or None: not there."""


def amiss(want: Want[T], state: T | None) -> list[str]:
    """Return why ``state`` does not meet the condition, one line each; empty if it does.

    A function returns true for an expected state; an exception in it, ``assert`` too, is a reason. It is not called for a missing object.
    """
    if want is None:
        return [] if state is None or state == [] else ["it is there"]
    if state is None:
        return ["it is not there"]
    if callable(want):
        return _judged(want, state)
    return differences(want, tree(state))


def describe(want: Want[Any]) -> str:
    """Describe the condition in one line."""
    if want is None:
        return "gone"
    if not callable(want):
        return f"{want!r}"
    try:
        lines = inspect.getsource(want).strip().splitlines()
    except (OSError, TypeError):
        lines = []
    name = getattr(want, "__name__", "")
    if name != "<lambda>":
        return name or repr(want)
    return lines[0].strip() if len(lines) == 1 else "a lambda"


def differences(want: object, actual: object, path: str = "") -> list[str]:
    """Return the differences of ``actual`` from ``want``, path by path; fields that ``want`` does not name are ignored."""
    if isinstance(want, EllipsisType):
        return [] if actual is not None else [f"{path or 'it'}: wanted any value, is not there"]
    if isinstance(want, Mapping):
        if not isinstance(actual, Mapping):
            return [f"{path or 'it'}: wanted {dict(want)!r}, is {_said(actual)}"]
        if actual.get("kind") == "Secret":
            return [line for key, value in want.items() for line in _of_a_secret(value, actual.get(key), str(key), path)]
        return [line for key, value in want.items() for line in differences(value, actual.get(key), f"{path}.{key}" if path else str(key))]
    if isinstance(want, list):
        if not isinstance(actual, list) or len(actual) != len(want):
            count = f"{len(actual)} items" if isinstance(actual, list) else _said(actual)
            return [f"{path or 'it'}: wanted {len(want)} items, is {count}"]
        return [line for at, (one, other) in enumerate(zip(want, actual, strict=True)) for line in differences(one, other, f"{path}[{at}]")]
    # 1 == True in Python, and not in JSON.
    if want == actual and isinstance(want, bool) == isinstance(actual, bool):
        return []
    return [f"{path or 'it'}: wanted {want!r}, is {_said(actual)}"]


def _of_a_secret(want: object, actual: object, key: str, path: str) -> list[str]:
    """Compare as for other objects, without showing values."""
    at = f"{path}.{key}" if path else key
    lines = differences(want, actual, at)
    return [f"{at}: not as wanted; the values of a Secret are not shown"] if lines and key in ("data", "stringData") else lines


def _said(actual: object) -> str:
    return "not there" if actual is None else repr(actual)


def _judged(want: Callable[[T], object], state: T) -> list[str]:
    try:
        answer = want(state)
    except Exception as error:  # noqa: BLE001 - what a test's own function raises about a state is why it is not yet as wanted
        return [f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]]
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{describe(want)} is async and would never be awaited; use a plain function")
    if answer:
        return []
    if answer is None:
        return [f"{describe(want)} returned None; a function of asserts must end with: return True"]
    return [f"{describe(want)} returned {answer!r}"]


#: Real seconds for a change that arrives after the fake time is over, since fake time does not measure a slow machine.
_LAST_CHANCE = 1.0
#: Minimum seconds for a server's first response; and real seconds within which a retry is certain.
_FIRST, _TRIED = 30.0, 0.2


@overload
async def eventually(
    subject: ObjectProbe[T], want: Callable[[T], object] | Mapping[str, Any] | list[Any], *, within: float = 10.0
) -> T: ...
@overload
async def eventually(subject: ObjectProbe[T], want: None, *, within: float = 10.0) -> None: ...
async def eventually(subject: ObjectProbe[T], want: Want[T], *, within: float = 10.0) -> T | None:
    """Wait for the first state that meets the condition, and return it. A state that was replaced before it was read does not count.

    ``want``: a function that returns true for the state, a part of its tree, or None: gone (see ``Want``).

    Raises:
        AssertionError: the time is over; the message has the last state, why it does not meet the condition, and the changes meanwhile.
        ApiError: the server rejects the read.
    """
    seen = _Seen(subject, want)
    changed = asyncio.Event()
    async with subject.look(changed.set) as read:
        await _known(subject, read, changed, within)
        watcher = _Watcher(subject.clock, within, changed)
        while True:
            changed.clear()
            state = cast("T | None", read())
            if not seen.judge(state):
                return state
            if not await watcher.changed():
                raise AssertionError(seen.message(f"not as wanted within {within:g} s"))


async def consistently(subject: ObjectProbe[T], want: Want[T], *, seconds: float = 1.0) -> T | None:
    """Check every state for so many seconds, including the initial one; return the last.

    Raises:
        AssertionError: raised at once for a state that breaks the condition; the text has it, the reason, and the changes since the
        beginning.
    """
    seen = _Seen(subject, want)
    changed = asyncio.Event()
    async with subject.look(changed.set) as read:
        await _known(subject, read, changed, seconds)
        watcher = _Watcher(subject.clock, seconds, changed, patient=False)
        while True:
            changed.clear()
            state = cast("T | None", read())
            if seen.judge(state):
                raise AssertionError(seen.message(f"not as wanted {watcher.passed:g} s after the beginning"))
            if not await watcher.changed():
                return state


async def _known(subject: ObjectProbe[Any], read: Callable[[], object], changed: asyncio.Event, seconds: float) -> None:
    """Wait for the first state, which may take longer than the test's timeout for changes.

    Raises:
        AssertionError: there is none, because the server is unreachable.
    """
    clock = subject.clock
    patience = max(seconds, _FIRST)
    ends = clock.now() + patience
    while read() is UNKNOWN:
        changed.clear()
        if isinstance(clock, FakeClock):
            # Longer than a pause between two retries: fake time passes only for a client that waits by it.
            if await came(changed, _TRIED) or await went_on(changed.is_set) or await step(clock, ends - clock.now()):
                continue
            patience = _FIRST
        if not await came(changed, patience):
            raise AssertionError(f"{subject.what}: could not be looked at within {patience:g} s; {subject.trouble or 'no answer'}")


class _Watcher:
    """Waits for a change for some seconds. ``patient``: after the fake time, a slow machine gets a last chance."""

    def __init__(self, clock: Clock, seconds: float, happened: asyncio.Event, *, patient: bool = True) -> None:
        self._clock = clock
        self._started = clock.now()
        self._ends = self._started + seconds
        self._happened = happened
        self._patient = patient and seconds > 0

    @property
    def passed(self) -> float:
        return self._clock.now() - self._started

    async def changed(self) -> bool:
        """Wait for a change. Return False if the time is over."""
        if not isinstance(self._clock, FakeClock):
            return await self._within(self._ends - self._clock.now())
        while not await self._change_came():
            left = self._ends - self._clock.now()
            if left <= 0:
                return await self._within(_LAST_CHANCE) if self._patient else False
            if not await step(self._clock, left):
                await self._clock.advance(left)
        return True

    async def _change_came(self) -> bool:
        """Return whether a change came before the event loop became idle."""
        return await went_on(self._happened.is_set) or await self._within(UNSEEN)

    async def _within(self, seconds: float) -> bool:
        return await came(self._happened, seconds)


async def came(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event is set within so many seconds of real time."""
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True


class _Seen:
    """The states so far, for the message."""

    def __init__(self, subject: ObjectProbe[T], want: Want[T]) -> None:
        self._subject, self._want = subject, want
        self._count = 0
        self._first = self._last = ""
        self._amiss: list[str] = []

    def judge(self, state: Any) -> list[str]:
        """Record a state; return why it does not meet the condition."""
        self._amiss = amiss(self._want, state)
        shown = self._subject.shown(state)
        if not self._count:
            self._first = shown
        if shown != self._last:
            self._count += 1
        self._last = shown
        return self._amiss

    def message(self, outcome: str) -> str:
        parts = [f"{self._subject.what}: {outcome}", f"  wanted: {describe(self._want)}", *(f"  {line}" for line in self._amiss)]
        if self._first != self._last:
            changes = difference(self._first, self._last, "the first state", "the last state")
            parts += [f"  {self._count} states were seen; from the first to the last:", indented(changes)]
        parts += ["  the last state:", indented("\n".join(shortened(self._last.splitlines())))]
        return "\n".join(parts)
