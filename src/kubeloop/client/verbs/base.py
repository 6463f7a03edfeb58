"""The base of the method groups: the transport, the mapping of kinds to paths, and the client's defaults."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, cast

from kubeloop.client.mapper import ALL_NAMESPACES, Mapper, ResourceMapping, require_text
from kubeloop.client.options import WriteOptions
from kubeloop.client.write_hooks import Verb, WriteListeners, is_dry_run
from kubeloop.meta import DeadlineError, Resource
from kubeloop.meta.type_checks import require_kind
from kubeloop.timing import Clock, within
from kubeloop.transport import Query, Transport

R = TypeVar("R", bound=Resource)
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Coroutine[Any, Any, Any]])


class Verbs:
    """The base of each method group. Only ``Client`` creates it."""

    transport: Transport
    namespace: str
    mapper: Mapper
    clock: Clock
    _writes: WriteListeners
    _defaults: WriteOptions
    _confined: bool

    async def mapping(self, kind: type[Resource]) -> ResourceMapping:
        """Return resource and scope of a kind: from its class, or from discovery if the class does not know them.

        Raises:
            UnknownKind: The server serves no such kind. TypeError: ``kind`` is not a class of objects.
        """
        require_kind(kind)
        return await self.mapper.mapping(kind)

    async def _path(self, kind: type[Resource], name: str, namespace: str | None, subresource: str | None = None) -> str:
        """Return the path of one object."""
        mapping = await self.mapping(kind)
        if name is not None:
            require_text(name, "name")
        if not name:
            raise ValueError(f"no name was given for the {kind.__name__}; an object has it in metadata.name")
        return mapping.path(self._namespace_of(mapping, namespace), name, subresource)

    async def _collection(self, kind: type[Resource], namespace: str | None) -> str:
        """Return the path of the objects in ``namespace`` (default: the client's namespace; ``ALL_NAMESPACES``: all namespaces)."""
        mapping = await self.mapping(kind)
        if namespace == ALL_NAMESPACES and not (self._confined and mapping.namespaced):
            return mapping.path()
        if namespace == "" and mapping.namespaced:
            raise ValueError(
                f'namespace="": leave it out for the client\'s namespace "{self.namespace}", or write namespace=ALL_NAMESPACES '
                "(from kubeloop import ALL_NAMESPACES)"
            )
        return mapping.path(self._namespace_of(mapping, namespace))

    def _namespace_of(self, mapping: ResourceMapping, namespace: str | None) -> str | None:
        """Return ``namespace``, or else the client's namespace; for a cluster-scoped kind, ``namespace`` or None."""
        if not mapping.namespaced:
            return namespace or None
        if namespace:
            require_text(namespace, "namespace")
        if namespace and self._confined and namespace != self.namespace:
            shown = "ALL_NAMESPACES" if namespace == ALL_NAMESPACES else f'"{namespace}"'
            raise ValueError(f'namespace {shown} is not that of this client, which is for "{self.namespace}" only (client.in_namespace)')
        return namespace or self.namespace

    def _options(self, options: WriteOptions | None) -> WriteOptions:
        """Return the options of a call, completed by the client's defaults."""
        return self._defaults if options is None else options.over(self._defaults)

    def _query(self, options: WriteOptions | None) -> Query:
        return self._options(options).query()

    async def _stored(self, verb: Verb, obj: R, options: WriteOptions | None, sent: float | None = None) -> R:
        """Notify the write listeners of an object that the server stored, unless the write is a dry run. Return the object."""
        if self._writes and not is_dry_run(self._options(options)):
            self._writes.stored(await self.mapping(type(obj)), verb, obj, sent)
        return obj


async def limit(work: Awaitable[T], timeout: float | None, clock: Clock, verb: str) -> T:
    """Await ``work`` and cancel it at a deadline.

    Args:
        work: A coroutine or another awaitable.
        timeout: Seconds. None: no deadline.
        clock: The clock of the deadline.
        verb: The name of the call, for the error's message.

    Returns:
        The result of ``work``.

    Raises:
        DeadlineError: ``timeout`` passed, or a deadline within ``work``. TypeError: ``timeout`` is not a number.
    """
    from kubeloop.client.waits.conditions import require_seconds

    if timeout is None:
        return await work
    try:
        require_seconds(timeout)
        return await within(clock, timeout, work)
    except DeadlineError:
        raise
    except TimeoutError as error:
        raise DeadlineError(f"{verb}: not done within {timeout:g} s; the server may still carry it out") from error
    finally:
        if isinstance(work, Coroutine):
            work.close()  # if the timeout was refused, nothing has awaited it


@asynccontextmanager
async def opened_within(context: AbstractAsyncContextManager[T], timeout: float | None, clock: Clock, verb: str) -> AsyncIterator[T]:
    """Enter a context manager before a deadline, which does not limit the block.

    Args:
        context: The context manager, such as a session that opens a stream.
        timeout: Seconds of ``clock``. None: no limit. 0: raise unless the context is entered without waiting.
        clock: The clock of the deadline.
        verb: The name of the calling method, for the message of the error.

    Returns:
        A context manager with the value of ``context``.

    Raises:
        DeadlineError: The context was not entered in time.
    """
    async with AsyncExitStack() as stack:
        yield await limit(stack.enter_async_context(context), timeout, clock, verb)


def described_target(target: object) -> str:
    """Return the name of a kind, the kind of an object, or the text itself, for the message of a ``DeadlineError``."""
    return target if isinstance(target, str) else getattr(target, "__name__", "") or type(target).__name__


def limited(method: M) -> M:
    """Decorate a method so that its argument ``timeout`` (seconds) limits the whole call. None: only each request has a limit."""

    @functools.wraps(method)
    async def call(self: Any, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        work = method(self, *args, **kwargs)
        if timeout is None:
            return await work
        owner: Any = self if hasattr(self, "clock") else getattr(self, "_verbs", None) or self._client  # a client, or a group's client
        named = described_target(args[0]) if args else ""
        return await limit(work, timeout, owner.clock, f"{method.__name__} {named}".rstrip())

    return cast("M", call)
