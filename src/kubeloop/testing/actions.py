"""The writes of the code under test, as a table that a test compares: verb, kind, object, and relevant fields."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import Any, overload

import msgspec

from kubeloop.codec.paths import parse_path, walk
from kubeloop.meta import Resource, kind_info
from kubeloop.testing.calls import RecordedCall
from kubeloop.testing.faults import Faults
from kubeloop.testing.format import difference
from kubeloop.testing.targets import ObjectProbe
from kubeloop.timing import Clock


class Actions(Sequence[RecordedCall]):
    """A live view of the writes that a server received. Refused writes are left out unless ``refused`` selects them.

    ``select`` and ``without`` narrow it; ``expect`` compares it with a table; ``eventually(actions.subject(), ...)`` waits for more.

    Args:
        faults: The record of the server's requests.
        clock: Clock of waits.
        keep: Returns whether a request is in the view. Default: all.

    Example:
        >>> from kubeloop.testing import HandlerServer
        >>> async with HandlerServer() as server:
        ...     actions = Actions(server.faults, server.clock)
        ...     async with server.client("default") as client:
        ...         settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
        ...     print([(call.verb, call.kind) for call in actions])
        [('create', 'ConfigMap')]
    """

    def __init__(self, faults: Faults, clock: Clock, keep: Callable[[RecordedCall], bool] = lambda _: True) -> None:
        self._faults = faults
        self._clock = clock
        self._keep = keep

    @property
    def _found(self) -> list[RecordedCall]:
        return [call for call in self._faults.calls if call.writes and self._keep(call)]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[RecordedCall]:
        return iter(self._found)

    @overload
    def __getitem__(self, index: int) -> RecordedCall: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordedCall]: ...
    def __getitem__(self, index: int | slice) -> RecordedCall | list[RecordedCall]:
        return self._found[index]

    def __repr__(self) -> str:
        return "<Actions\n" + "".join(f"  {line_of(call)}\n" for call in self) + ">"

    def select(
        self,
        verb: str = "*",
        kind: type[Resource] | str = "*",
        name: str = "*",
        *,
        namespace: str = "*",
        subresource: str | None = None,
        user: str = "*",
    ) -> Actions:
        """Return the matching writes; ``*``, ``?`` and ``[...]`` in the arguments match as in a shell.

        Args:
            verb: Such as ``create``.
            kind: A class, or a plural.
            name: The object's name; for a creation that of the body.
            namespace: The object's namespace.
            subresource: None: any; "": the object itself.
            user: The writer.

        Returns:
            A view of these writes.
        """
        wanted = kind if isinstance(kind, str) else kind_info(kind).gvk.kind

        def chosen(call: RecordedCall) -> bool:
            pairs = ((call.verb, verb), (call.kind, wanted), (name_of(call), name), (call.namespace, namespace), (call.user, user))
            return all(fnmatchcase(found, pattern) for found, pattern in pairs) and subresource in (None, call.subresource)

        return self._where(chosen)

    def without(self, *kinds: type[Resource] | str) -> Actions:
        """Return the writes without these kinds: ``actions.without("Event", "Lease")``."""
        left_out = {kind if isinstance(kind, str) else kind_info(kind).gvk.kind for kind in kinds}
        return self._where(lambda call: call.kind not in left_out)

    def accepted(self) -> Actions:
        """Return only the writes that succeeded."""
        return self._where(lambda call: 200 <= call.code < 300)

    def refused(self) -> Actions:
        """Return only the refused writes."""
        return self._where(lambda call: call.code >= 400)

    def clear(self) -> None:
        """Clear the server's record of calls, which other views show too."""
        self._faults.calls.clear()

    def table(self, *paths: str) -> str:
        """Return one line per write, with the sent values at ``paths``."""
        return "".join(f"{line_of(call, paths)}\n" for call in self)

    def expect(self, table: str, *, in_any_order: bool = False) -> None:
        """Compare with a table of expected writes, one per line::

            create  Secret       shop/token-*
            update  Foo/status   shop/a        status.phase=Ready  status.replicas=3
            patch   ConfigMap    shop/a        =>409

        Verb, kind (with its subresource), namespace and name; then sent values at paths, and the status if it was refused.
        Kind and name may hold ``*``. Values with blanks are quoted.

        Raises:
            AssertionError: the writes differ; the message is the difference.
            ValueError: a line is malformed; the message names it.
        """
        rows = [_Row(line) for line in table.splitlines() if line.strip()]
        calls = list(self)
        if in_any_order:
            calls = _paired(rows, calls)
        lines = [_shown(call, rows, at) for at, call in enumerate(calls)]
        expected = [row.line for row in rows]
        if lines != expected:
            raise AssertionError("other writes than expected:\n" + difference("\n".join(expected), "\n".join(lines), "expected", "written"))

    def subject(self) -> ObjectProbe[Actions]:
        """Return a target for ``eventually`` and ``consistently``: ``eventually(actions.subject(), lambda writes: len(writes) == 2)``."""
        return _OfRecord(self, self._faults, self._clock)

    def _where(self, chosen: Callable[[RecordedCall], bool]) -> Actions:
        keep = self._keep
        return Actions(self._faults, self._clock, lambda call: keep(call) and chosen(call))


class _OfRecord(ObjectProbe[Actions]):
    def __init__(self, actions: Actions, faults: Faults, clock: Clock) -> None:
        super().__init__("writes", clock)
        self._actions, self._faults = actions, faults

    @asynccontextmanager
    async def look(self, notify: Callable[[], None]) -> AsyncIterator[Callable[[], Actions]]:
        end = self._faults.on_answer(lambda _: notify())
        try:
            yield lambda: self._actions
        finally:
            end()

    def shown(self, state: object) -> str:
        return state.table() if isinstance(state, Actions) else ""


class _Row:
    """One expected line of a table."""

    def __init__(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if len(words) < 3:
            raise ValueError(
                f"{line.strip()!r}: an expected write is: VERB KIND[/SUBRESOURCE] [NAMESPACE/]NAME [PATH=VALUE ...] [=>STATUS]"
            )
        self.verb, self.kind, self.place, *rest = words
        self.code = next((int(word[2:]) for word in rest if word.startswith("=>")), 0)
        fields = [word.partition("=") for word in rest if not word.startswith("=>")]
        for path, equals, _ in fields:
            if not equals:
                raise ValueError(f"{line.strip()!r}: {path!r} is neither PATH=VALUE nor =>STATUS")
            parse_path(path)
        self.values = {path: value for path, _, value in fields}

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.values)

    @property
    def line(self) -> str:
        return _line(self.verb, self.kind, self.place, self.values, self.code)

    def matches(self, call: RecordedCall) -> bool:
        verb, kind, place = _words(call)
        if not (self.verb == verb and fnmatchcase(kind, self.kind) and fnmatchcase(place, self.place)):
            return False
        if self.code != (call.code if call.code >= 400 else 0):
            return False
        return all(_value(call, path) == value for path, value in self.values.items())


def name_of(call: RecordedCall) -> str:
    """Return the name of a call's object; for a creation, the name in the body, or its generateName with a star."""
    if call.name or not isinstance(call.body, dict):
        return call.name
    metadata = call.body.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    return str(metadata.get("name") or f"{metadata.get('generateName', '')}*")


def line_of(call: RecordedCall, paths: Sequence[str] = ()) -> str:
    return _line(*_words(call), {path: _value(call, path) for path in paths}, call.code if call.code >= 400 else 0)


def _shown(call: RecordedCall, rows: Sequence[_Row], at: int) -> str:
    """Format a write like its matching expected line, so that a difference shows only differing values; else like the line at its index."""
    beside = rows[at] if at < len(rows) else None
    if beside is not None and beside.matches(call):
        return beside.line
    fitting = next((row for row in rows if row.matches(call)), None)
    return fitting.line if fitting is not None else line_of(call, beside.paths if beside is not None else ())


def _words(call: RecordedCall) -> tuple[str, str, str]:
    kind = f"{call.kind or call.resource.resource}/{call.subresource}" if call.subresource else call.kind or call.resource.resource
    name = name_of(call) or "*"
    return call.verb, kind, f"{call.namespace}/{name}" if call.namespace else name


def _line(verb: str, kind: str, place: str, values: dict[str, str], code: int) -> str:
    fields = [f"{path}={shlex.quote(value) if not value or ' ' in value else value}" for path, value in values.items()]
    return "  ".join([verb.ljust(6), kind.ljust(16), place, *fields, *([f"=>{code}"] if code else [])]).rstrip()


def _value(call: RecordedCall, path: str) -> str:
    """Return the sent value at a path: a string unchanged, any other value as JSON, "" if no value was sent."""
    found: list[Any] = list(walk(call.body, parse_path(path)))
    if not found:
        return ""
    value = found[0] if len(found) == 1 else found
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _paired(rows: Sequence[_Row], calls: list[RecordedCall]) -> list[RecordedCall]:
    """Return the calls in the order of their matching rows, then the other calls; in the given order if a row matches no call."""
    left = list(calls)
    ordered: list[RecordedCall] = []
    for row in rows:
        fitting = next((call for call in left if row.matches(call)), None)
        if fitting is not None:
            left.remove(fitting)
            ordered.append(fitting)
    return [*ordered, *left] if len(ordered) == len(rows) else calls
