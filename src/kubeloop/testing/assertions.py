"""``eventually`` and ``consistently``: wait for a state, or check that it stays. They use watches; a failure shows the actual state.

Seconds are those of the target's clock; a ``FakeClock`` is advanced here, so that an hour takes no time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar, cast, overload

from kubeloop.testing.fake_time import UNSEEN, run_until_idle, step
from kubeloop.testing.format import difference, indented, shortened, tree
from kubeloop.testing.targets import UNKNOWN, ObjectProbe
from kubeloop.timing import Clock, FakeClock

T = TypeVar("T")

Condition: TypeAlias = Callable[[T], object] | Mapping[str, Any] | list[Any] | None
"""The expected state: a function such as ``lambda web: web.status.ready_replicas == 3``; or a part of the tree in wire names, such as
``{"status": {"readyReplicas": 3}}``, in which ``...`` matches any value and None a missing field; for several objects, a list of such parts
in the order of the objects' names; or None: the object does not exist."""


def mismatches(condition: Condition[T], state: T | None) -> list[str]:
    """Return the reasons why ``state`` does not meet ``condition``, one line each; empty if it does.

    A function meets the condition by returning a true value; its exceptions are reasons, also those of ``assert``. It is not called for a
    missing object.
    """
    if condition is None:
        return [] if state is None or state == [] else ["it is there"]
    if state is None:
        return ["it is not there"]
    if callable(condition):
        return _judged(condition, state)
    return differences(condition, tree(state))


def describe(condition: Condition[Any]) -> str:
    """Describe the condition in one line."""
    if condition is None:
        return "gone"
    if not callable(condition):
        return f"{condition!r}"
    try:
        lines = inspect.getsource(condition).strip().splitlines()
    except (OSError, TypeError):
        lines = []
    name = getattr(condition, "__name__", "")
    if name != "<lambda>":
        return name or repr(condition)
    return lines[0].strip() if len(lines) == 1 else "a lambda"


def differences(condition: object, actual: object, path: str = "") -> list[str]:
    """Return the differences of ``actual`` from ``condition``, path by path; fields that ``condition`` does not name are ignored."""
    if isinstance(condition, EllipsisType):
        return [] if actual is not None else [f"{path or 'it'}: wanted any value, is not there"]
    if isinstance(condition, Mapping):
        if not isinstance(actual, Mapping):
            return [f"{path or 'it'}: wanted {dict(condition)!r}, is {_said(actual)}"]
        if actual.get("kind") == "Secret":
            return [line for key, value in condition.items() for line in _of_a_secret(value, actual.get(key), str(key), path)]
        return [
            line for key, value in condition.items() for line in differences(value, actual.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(condition, list):
        if not isinstance(actual, list) or len(actual) != len(condition):
            count = f"{len(actual)} items" if isinstance(actual, list) else _said(actual)
            return [f"{path or 'it'}: wanted {len(condition)} items, is {count}"]
        items = enumerate(zip(condition, actual, strict=True))
        return [line for at, (expected, present) in items for line in differences(expected, present, f"{path}[{at}]")]
    # 1 == True in Python, and not in JSON.
    if condition == actual and isinstance(condition, bool) == isinstance(actual, bool):
        return []
    return [f"{path or 'it'}: wanted {condition!r}, is {_said(actual)}"]


def _of_a_secret(condition: object, actual: object, key: str, path: str) -> list[str]:
    """Return the differences of a field of a Secret, without its values."""
    at = f"{path}.{key}" if path else key
    lines = differences(condition, actual, at)
    return [f"{at}: not as wanted; the values of a Secret are not shown"] if lines and key in ("data", "stringData") else lines


def _said(actual: object) -> str:
    return "not there" if actual is None else repr(actual)


def _judged(condition: Callable[[T], object], state: T) -> list[str]:
    try:
        answer = condition(state)
    except Exception as error:  # noqa: BLE001 - what a test's own function raises about a state is why it is not yet as wanted
        return [f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]]
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{describe(condition)} is async and would never be awaited; use a plain function")
    if answer:
        return []
    if answer is None:
        return [f"{describe(condition)} returned None; a function of asserts must end with: return True"]
    return [f"{describe(condition)} returned {answer!r}"]


#: Real seconds for a change that arrives after the fake time is over, since fake time does not measure a slow machine.
_LAST_CHANCE = 1.0
#: Minimum seconds for a server's first response; and real seconds within which a retry is certain.
_FIRST, _TRIED = 30.0, 0.2


@overload
async def eventually(
    subject: ObjectProbe[T], condition: Callable[[T], object] | Mapping[str, Any] | list[Any], *, within: float = 10.0
) -> T: ...
@overload
async def eventually(subject: ObjectProbe[T], condition: None, *, within: float = 10.0) -> None: ...
async def eventually(subject: ObjectProbe[T], condition: Condition[T], *, within: float = 10.0) -> T | None:
    """Wait for the first state that meets the condition, and return it. A state that was replaced before it was read does not count.

    ``condition``: a function that returns true for the state, a part of its tree, or None: gone (see ``Condition``).

    Raises:
        AssertionError: the time is over; the message has the last state, why it does not meet the condition, and the changes meanwhile.
        ApiError: the server rejects the read.
    """
    seen = _Seen(subject, condition)
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


async def consistently(subject: ObjectProbe[T], condition: Condition[T], *, seconds: float = 1.0) -> T | None:
    """Check that every state meets the condition for some seconds, including the initial state; return the last state.

    Raises:
        AssertionError: A state does not meet the condition. It is raised at once; the text has the state, the reason, and the changes
            since the beginning.
    """
    seen = _Seen(subject, condition)
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
        AssertionError: No state was read in time, because the server is unreachable.
    """
    clock = subject.clock
    patience = max(seconds, _FIRST)
    ends = clock.now() + patience
    while read() is UNKNOWN:
        changed.clear()
        if isinstance(clock, FakeClock):
            # Longer than a pause between two retries: fake time passes only for a client that waits by it.
            if await came(changed, _TRIED) or await run_until_idle(changed.is_set) or await step(clock, ends - clock.now()):
                continue
            patience = _FIRST
        if not await came(changed, patience):
            raise AssertionError(f"{subject.what}: could not be read within {patience:g} s; {subject.trouble or 'no answer'}")


class _Watcher:
    """Waits for changes, for some seconds in total. ``patient``: when fake time is over, it waits one real second more."""

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
        return await run_until_idle(self._happened.is_set) or await self._within(UNSEEN)

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
    """Records the states of a target, for the message of a failure."""

    def __init__(self, subject: ObjectProbe[T], condition: Condition[T]) -> None:
        self._subject, self._want = subject, condition
        self._count = 0
        self._first = self._last = ""
        self._amiss: list[str] = []

    def judge(self, state: Any) -> list[str]:
        """Record a state; return why it does not meet the condition."""
        self._amiss = mismatches(self._want, state)
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
