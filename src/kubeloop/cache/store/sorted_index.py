"""Sorted index: objects in the order of a value, for ranges and top-N queries. It is divided into buckets, so that changes are cheap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.store.index import IndexFailureLog, index_key
from kubeloop.meta.time import format_time
from kubeloop.meta.type_checks import described

#: Types of sort values. Times are strings: RFC 3339 in UTC sorts by time.
SortValue = str | int | float | bool
#: Types of the bounds of a range.
Bound = SortValue | datetime

#: A bucket with more heads is split in the middle.
BUCKET = 512

#: Types of values in words, in the order of ``_rank``.
_SORTS = ("booleans", "numbers", "texts")

_Place = tuple[Any, str, str]
_name = attrgetter("namespace", "name")


class SortedIndex:
    """Index of heads in the order of (value, namespace, name).

    Guarantees
        A change costs the logarithm of the number of objects and moves at most a bucket (4 KiB); nothing is ever rebuilt. Each value of an
        object takes 16 bytes, 20 with the buckets' spare capacity. Equal values are ordered by namespace and name.

    Cost
        2 to 5 us for a change; with a million objects, 60 ms more for each full garbage collection, which scans the buckets.

    Values are JSON scalars. Booleans come before numbers, and numbers before strings. An object whose value is missing, a list or a map is
    not in this index. An object with several values (``[*]``) has several places.

    Args:
        name: Name of the index.
        source: See ``Index``.
        read: Returns the sort values of a head.
        remember: See ``Index``.
    """

    __slots__ = ("_known", "_runs", "name", "read", "source")

    def __init__(self, name: str, source: object, read: Callable[[Head], tuple[SortValue, ...]], *, remember: bool = False) -> None:
        self.name = name
        self.source = source
        self.read = read
        self._runs: tuple[_Run, ...] = (_Run(), _Run(), _Run())
        #: A single value is stored without a tuple.
        self._known: dict[Head, SortValue | tuple[SortValue, ...]] | None = {} if remember else None

    def values(self, head: Head) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(index_key, self.read(head))))

    def change(self, old: Head | None, new: Head | None) -> None:
        """Replace the state ``old`` of an object with ``new``. ``old`` is None for a new object, ``new`` for a deleted one."""
        if old is new:
            return
        after = self.read(new) if new is not None else ()
        before = self._before(old) if old is not None else ()
        if self._known is not None and new is not None and after:
            self._known[new] = after[0] if len(after) == 1 else after
        if old is not None and new is not None and before == after:
            for was, value in zip(before, after, strict=True):
                if not self._run(value).swap(value, old, new):  # 1 and true are equal in Python, but have different places
                    self._run(was).discard(was, old)
                    self._run(value).add(value, new)
            return
        if old is not None:
            for value in before:
                self._run(value).discard(value, old)
        if new is not None:
            for value in after:
                self._run(value).add(value, new)

    def _before(self, old: Head) -> tuple[SortValue, ...]:
        if self._known is None:
            return self.read(old)
        remembered = self._known.pop(old, ())
        return remembered if isinstance(remembered, tuple) else (remembered,)

    def range(self, low: Bound | None = None, high: Bound | None = None, *, reverse: bool = False, limit: int | None = None) -> list[Head]:
        """Return the heads whose value is at least ``low`` and below ``high``, in order. A head is returned once for each of its values.

        With a bound, only values of the bound's type are in the range (strings, numbers or booleans; times are strings). The cost is
        proportional to the result.

        Args:
            low: Lowest value. None: no bound.
            high: The values end before this one. None: no bound.
            reverse: From the highest value down.
            limit: Maximum number of heads. None: all.

        Raises:
            TypeError: the bounds have different types. ValueError: a negative limit, or a time without an offset.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit={limit}: at most how many objects can only be 0 or more")
        first, last = _scalar(low), _scalar(high)
        runs = list(self._runs)
        if first is not None or last is not None:
            ranks = {_rank(bound) for bound in (first, last) if bound is not None}
            if len(ranks) > 1:
                raise TypeError(f'index "{self.name}": no value lies between {described(low)} and {described(high)}: they do not compare')
            runs = [self._runs[ranks.pop()]]
        heads = (head for run in (reversed(runs) if reverse else runs) for head in run.between(first, last, reverse))
        return list(heads if limit is None else islice(heads, limit))

    def sorts(self) -> list[str]:
        """Return the types of the values in this index: ``booleans``, ``numbers``, ``texts``."""
        return [sort for sort, run in zip(_SORTS, self._runs, strict=True) if next(run.all_keys(), None) is not None]

    def places(self, head: Head, low: Bound | None = None, high: Bound | None = None, *, reverse: bool = False) -> list[_Place]:
        """Return the places of a head in the order of ``range``; places of several indexes can be compared.

        Args:
            head: The object.
            low: See ``range``.
            high: See ``range``.
            reverse: See ``range``.
        """
        remembered = self._known.get(head) if self._known is not None else None
        values = self.read(head) if remembered is None else remembered if isinstance(remembered, tuple) else (remembered,)
        first, last = _scalar(low), _scalar(high)
        sort = next((_rank(bound) for bound in (first, last) if bound is not None), None)
        inside = ((_rank(value), value) for value in values if sort is None or _rank(value) == sort)
        chosen = [place for place in inside if (first is None or place >= (sort, first)) and (last is None or place < (sort, last))]
        return [(place, head.namespace, head.name) for place in sorted(chosen, reverse=reverse)]

    def heads(self, value: str) -> list[Head]:
        """Return the objects that have this value, in the spelling of ``index_key``."""
        heads = (run.equal(key, value) for run, key in zip(self._runs, _spelt(value), strict=True) if key is not None)
        return list(dict.fromkeys(chain.from_iterable(heads)))

    def all_values(self) -> list[str]:
        return list(dict.fromkeys(index_key(key) for run in self._runs for key in run.all_keys()))

    def _run(self, value: SortValue) -> _Run:
        return self._runs[_rank(value)]


def sort_by_path(get: Callable[[Head], Any]) -> Callable[[Head], tuple[SortValue, ...]]:
    """Return a function that reads the sort values of a head at a path; values that cannot be sorted are left out."""

    def read(head: Head) -> tuple[SortValue, ...]:
        value = get(head)
        if type(value) is str:
            return (value,)
        if isinstance(value, tuple | list):
            return _distinct(each for each in value if isinstance(each, str | int | float))
        return (value,) if isinstance(value, int | float) else ()

    return read


def sort_by_function(name: str, function: Callable[[Head], Any]) -> Callable[[Head], tuple[SortValue, ...]]:
    """Return a function that computes the sort values of a head with a user's function, which returns a value, a list of values, or None.

    Errors are handled as by ``by_function``.
    """

    failures = IndexFailureLog(name)

    def read(head: Head) -> tuple[SortValue, ...]:
        try:
            answer = function(head)
            answers = answer if isinstance(answer, tuple | list) else () if answer is None else (answer,)
            values = tuple(_scalar(each) for each in answers)
            if any(not isinstance(each, str | int | float) or each != each for each in values):
                raise TypeError(f"{described(answer)} cannot be sorted; wanted a text, number, boolean or time")
            return _distinct(each for each in values if each is not None)
        except Exception as error:  # noqa: BLE001 - a function of the caller's may raise anything
            failures.report(head, error)
            return ()

    return read


class _Run:
    """Sorted places of values of one type.

    Each bucket is two lists side by side, values and heads, so that the search compares plain values; the complete first place of each
    bucket is stored separately, so that equal values in many buckets can be searched by name.
    """

    __slots__ = ("_firsts", "_heads", "_keys")

    def __init__(self) -> None:
        self._firsts: list[_Place] = []
        self._keys: list[list[Any]] = []
        self._heads: list[list[Head]] = []

    def add(self, key: Any, head: Head) -> None:
        if not self._firsts:
            self._insert_bucket(0, [key], [head])
            return
        number, position = self._find(key, head)
        keys, heads = self._keys[number], self._heads[number]
        keys.insert(position, key)
        heads.insert(position, head)
        if position == 0:
            self._firsts[number] = (key, head.namespace, head.name)
        if len(keys) > BUCKET:
            middle = len(keys) // 2
            self._insert_bucket(number + 1, keys[middle:], heads[middle:])
            # Copied, since slices in place would keep the memory of the whole list.
            self._keys[number], self._heads[number] = keys[:middle], heads[:middle]

    def discard(self, key: Any, head: Head) -> None:
        if not self._firsts:
            return
        number, position = self._find(key, head)
        keys, heads = self._keys[number], self._heads[number]
        if position == len(heads) or heads[position] is not head:
            return
        del keys[position]
        del heads[position]
        if not keys:
            del self._firsts[number], self._keys[number], self._heads[number]
            return
        if position == 0:
            self._firsts[number] = (keys[0], heads[0].namespace, heads[0].name)
        if len(keys) < BUCKET // 8:
            self._merge(number)

    def swap(self, key: Any, old: Head, new: Head) -> bool:
        """Replace ``old`` with ``new`` in the same place. Return False if ``old`` is not there."""
        if self._firsts:
            number, position = self._find(key, old)
            heads = self._heads[number]
            if position < len(heads) and heads[position] is old:
                heads[position] = new
                self._keys[number][position] = key
                return True
        return False

    def equal(self, key: Any, text: str) -> Iterator[Head]:
        """Yield the heads of this value with this spelling: 1 and 1.0 have one place in the order."""
        for number in range(max(0, bisect_left(self._firsts, (key,)) - 1), len(self._firsts)):
            keys, heads = self._keys[number], self._heads[number]
            end = bisect_right(keys, key)
            for position in range(bisect_left(keys, key), end):
                if index_key(keys[position]) == text:
                    yield heads[position]
            if end < len(keys):
                return

    def between(self, low: Any, high: Any, reverse: bool) -> Iterator[Head]:
        begin = 0 if low is None else max(0, bisect_left(self._firsts, (low,)) - 1)
        end = len(self._firsts) if high is None else bisect_left(self._firsts, (high,))
        for number in range(end - 1, begin - 1, -1) if reverse else range(begin, end):
            keys, heads = self._keys[number], self._heads[number]
            inside = heads
            if number == begin or number == end - 1:
                inside = heads[0 if low is None else bisect_left(keys, low) : len(keys) if high is None else bisect_left(keys, high)]
            yield from reversed(inside) if reverse else inside

    def all_keys(self) -> Iterator[Any]:
        return chain.from_iterable(self._keys)

    def _find(self, key: Any, head: Head) -> tuple[int, int]:
        """Return the bucket and position of a head, or where it belongs."""
        place = (key, head.namespace, head.name)
        number = max(0, bisect_right(self._firsts, place) - 1)
        keys, heads = self._keys[number], self._heads[number]
        low = bisect_left(keys, key)
        if low == len(keys) or heads[low] is head or keys[low] != key:
            return number, low
        high = bisect_right(keys, key, low)
        return number, bisect_left(heads, place[1:], low, high, key=_name)

    def _insert_bucket(self, number: int, keys: list[Any], heads: list[Head]) -> None:
        self._firsts.insert(number, (keys[0], heads[0].namespace, heads[0].name))
        self._keys.insert(number, keys)
        self._heads.insert(number, heads)

    def _merge(self, number: int) -> None:
        """Merge a bucket with the next one if both together are at most half full."""
        number = min(number, len(self._firsts) - 2)
        if number >= 0 and len(self._keys[number]) + len(self._keys[number + 1]) <= BUCKET // 2:
            self._keys[number] += self._keys.pop(number + 1)
            self._heads[number] += self._heads.pop(number + 1)
            del self._firsts[number + 1]


def sort_of(bound: Bound) -> str:
    """Return the type of values that a bound is compared with, as ``SortedIndex.sorts`` names it."""
    return _SORTS[2 if isinstance(bound, datetime) else _rank(bound)]


def _rank(value: SortValue) -> int:
    return 2 if isinstance(value, str) else 0 if isinstance(value, bool) else 1


def _scalar(bound: Bound | None) -> SortValue | None:
    return format_time(bound) if isinstance(bound, datetime) else bound


def _distinct(values: Iterator[SortValue]) -> tuple[SortValue, ...]:
    """Return the distinct values; 1 and true are different values, though Python calls them equal."""
    return tuple({(_rank(value), value): value for value in values}.values())


def _spelt(text: str) -> tuple[bool | None, float | None, str]:
    """Return the boolean, the number and the string for which ``index_key`` may return ``text``; None where there is none."""
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        if number == number:
            return None, number, text
    return {"true": True, "false": False}.get(text), None, text
