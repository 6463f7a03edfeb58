"""Lists: the objects of one response (``ObjectList``), and a list that is requested page by page (``ListCall``).

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks and client-go tools/pager.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import msgspec

from kubeloop.client.options import ListOptions
from kubeloop.client.verbs.base import limit
from kubeloop.codec import decode_list
from kubeloop.meta import Gone, ListMeta, Resource
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Response

R = TypeVar("R", bound=Resource)


class ObjectList(list[R]):
    """The objects of a list response, with the list's metadata. Otherwise a plain list; slices and copies are plain lists.

    >>> pods = await client.list(Pod)
    >>> len(pods), pods.continue_token, pods.resource_version.isdigit()
    (0, '', True)
    """

    def __init__(self, items: Iterable[R] = (), metadata: ListMeta | None = None) -> None:
        super().__init__(items)
        self.metadata = metadata or ListMeta()

    @property
    def resource_version(self) -> str:
        """The version of the whole list: a watch from this version misses no change."""
        return self.metadata.resource_version

    @property
    def continue_token(self) -> str:
        """The token of the next page; empty on the last page."""
        return self.metadata.continue_

    def __repr__(self) -> str:
        from kubeloop.meta.repr import list_text

        return list_text(self)

    def _repr_html_(self) -> str:
        from kubeloop.meta.repr import list_html

        return list_html(self)


def objects_in(kind: type[R], response: Response) -> ObjectList[R]:
    """Return the objects of a list response."""
    items, metadata = decode_list(kind, response.body)
    return ObjectList(items, metadata)


_NOT_YET = (
    "client.list asks the server first: write `async for obj in client.list(KIND)`, page by page, "
    "or `for obj in await client.list(KIND)`, all at once"
)


class ListCall(Generic[R]):
    """A list that is not requested yet: ``await`` it, or use it with ``async for``.

    >>> for name in ("a", "b"):
    ...     _ = await client.create(Secret(metadata=ObjectMeta(name=name)))
    >>> [secret.metadata.name async for secret in client.list(Secret, limit=1)]
    ['a', 'b']
    >>> len(await client.list(Secret))
    2

    ``await``
        Returns all objects as one ``ObjectList``, from one snapshot. If the snapshot expires between two pages (410), the whole list is
        requested again as one response, as in client-go's pager.
    ``async for``
        Needs memory for one page at a time, and returns each object once. If the snapshot expires between two pages, the rest comes from
        the newest snapshot if the server offers that; objects that changed in between then show their new state.

    ``timeout`` limits an awaited list as a whole, and each page of a loop.

    Raises:
        ApiError, TransportError: the server refused, or no response arrived; ``Expired`` if the server offers neither way to go on.
    """

    def __init__(
        self,
        fetch: Callable[[ListOptions], Awaitable[ObjectList[R]]],
        options: ListOptions,
        *,
        timeout: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Create an instance. Programs call ``client.list`` instead.

        Args:
            fetch: Requests one page.
            options: The options of the first page.
            timeout: Seconds for an awaited list, or for each page of a loop. None: no limit.
            clock: The clock of the time limit. None: the system's clock.
        """
        self._ask = fetch
        self._options = options
        self._timeout = timeout
        self._clock: Clock = clock or SystemClock()

    def __await__(self) -> Generator[Any, None, ObjectList[R]]:
        return limit(self._whole(self._ask), self._timeout, self._clock, "list").__await__()

    async def _fetch(self, options: ListOptions) -> ObjectList[R]:
        """Request one page within the time limit."""
        return await limit(self._ask(options), self._timeout, self._clock, "list")

    def __aiter__(self) -> AsyncIterator[R]:
        return self._each()

    if not TYPE_CHECKING:  # type checkers report this mistake without it

        def __iter__(self) -> NoReturn:
            raise TypeError(_NOT_YET)

    async def pages(self, *, prefetch: int = 0) -> AsyncGenerator[ObjectList[R], None]:
        """Yield pages, each with its metadata. (``async for`` over the ``ListCall`` itself yields the objects.)

        ``prefetch`` is the number of pages that are requested in advance and stored (client-go's pager: 10). If you leave the loop early,
        close the generator (``contextlib.aclosing``), or the last request continues until the generator is collected.
        """
        if prefetch < 1:
            async with aclosing(self._fetched()) as pages:
                async for page in pages:
                    yield page
                    del page  # otherwise it would stay in memory until the next page arrives
            return
        async with aclosing(self._prefetched(prefetch)) as pages:
            async for page in pages:
                yield page
                del page

    async def _fetched(self) -> AsyncGenerator[ObjectList[R], None]:
        options = self._options
        while True:
            try:
                page = await self._fetch(options)
            except Gone as error:
                token = error.status.metadata.get("continue")
                if not options.continue_token or not isinstance(token, str) or not token:
                    raise
                # The error has a token for the remaining objects at the newest version (KEP-365, "inconsistent continue").
                page = await self._fetch(msgspec.structs.replace(options, continue_token=token))
            token = page.continue_token
            yield page
            del page
            if not token:
                return
            options = msgspec.structs.replace(options, continue_token=token)

    async def _prefetched(self, count: int) -> AsyncGenerator[ObjectList[R], None]:
        from kubeloop.tasks import end_tasks

        free = asyncio.Semaphore(count)
        ready: asyncio.Queue[ObjectList[R] | None] = asyncio.Queue()

        async def fill() -> None:
            try:
                async with aclosing(self._fetched()) as pages:
                    while True:
                        await free.acquire()
                        page = await anext(pages, None)
                        if page is None:
                            return
                        ready.put_nowait(page)
            finally:
                ready.put_nowait(None)

        filling = asyncio.create_task(fill())
        try:
            while (page := await ready.get()) is not None:
                free.release()
                yield page
            await filling
        finally:
            await end_tasks(filling, expected=(Exception,))  # raised above, or of a page that the caller does not read

    async def _each(self) -> AsyncIterator[R]:
        async with aclosing(self.pages()) as pages:
            async for page in pages:
                page.reverse()
                while page:
                    yield page.pop()  # so that each object can be freed while the rest of its page is still iterated
                del page

    async def _whole(self, fetch: Callable[[ListOptions], Awaitable[ObjectList[R]]]) -> ObjectList[R]:
        options = self._options
        items: list[R] = []
        while True:
            try:
                page = await fetch(options)
            except Gone:
                # A list that began with the caller's token is a rest: the whole list would repeat objects that the caller has.
                if not options.continue_token or self._options.continue_token:
                    raise
                return await fetch(msgspec.structs.replace(self._options, limit=0, continue_token=""))
            items += page
            if not page.continue_token:
                return ObjectList(items, page.metadata)
            options = msgspec.structs.replace(options, continue_token=page.continue_token)
