"""Reading: one object, lists, watches; typed, or metadata only.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from typing import TypeVar

from kubeloop.client.lists import ListCall, ObjectList, objects_in
from kubeloop.client.options import PAGE_SIZE, Expiry, ListOptions, Match, WatchOptions
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.watches import Watch
from kubeloop.codec import decode
from kubeloop.meta import PartialObject, Resource

R = TypeVar("R", bound=Resource)

JSON = "application/json"
# As client-go's metadata client: a server that knows no PartialObjectMetadata answers with the whole object, of which the rest is not read.
PARTIAL = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_PARTIAL_LIST = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


class Reading(Verbs):
    """get, list and watch."""

    @limited
    async def get(
        self, kind: type[R], name: str, *, namespace: str | None = None, resource_version: str | None = None, timeout: float | None = None
    ) -> R:
        """Read one object at its newest version.

        ``resource_version``: a state at least as new as that; "0": whatever the server has at hand, which costs it less.

        Raises:
            NotFound: it is not there.
        """
        path = await self._path(kind, name, namespace)
        return decode(kind, (await self.transport.request("GET", path, query={"resourceVersion": resource_version})).body)

    @limited
    async def get_metadata(
        self,
        kind: type[Resource],
        name: str,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> PartialObject:
        """Read an object's metadata only; the server sends nothing else.

        Raises:
            NotFound: it is not there.
        """
        path = await self._path(kind, name, namespace)
        answer = await self.transport.request("GET", path, query={"resourceVersion": resource_version}, accept=PARTIAL)
        return decode(PartialObject, answer.body)

    def list(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        limit: int = PAGE_SIZE,
        resource_version: str | None = None,
        resource_version_match: Match | None = None,
        timeout: float | None = None,
    ) -> ListCall[R]:
        """List objects of a namespace, or of ``ALL_NAMESPACES``: ``await`` it for an ``ObjectList``, or ``async for`` over it.

        ``limit`` is the size of the pages asked for, not of the result. ``resource_version`` and ``resource_version_match`` are those of
        ``ListOptions``.
        """
        options = ListOptions(
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
            resource_version_match=resource_version_match,
        )
        return self._list_call(kind, kind, namespace, options, timeout)

    def list_metadata(
        self,
        kind: type[Resource],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        limit: int = PAGE_SIZE,
        resource_version: str | None = None,
        resource_version_match: Match | None = None,
        timeout: float | None = None,
    ) -> ListCall[PartialObject]:
        """As ``list``, metadata only."""
        options = ListOptions(
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
            resource_version_match=resource_version_match,
        )
        return self._list_call(kind, PartialObject, namespace, options, timeout)

    @limited
    async def list_page(
        self, kind: type[R], options: ListOptions, *, namespace: str | None = None, timeout: float | None = None
    ) -> ObjectList[R]:
        """One page, exactly as ``options`` ask; ``continue_token`` of the answer goes into the options of the next.

        Raises:
            Expired: the token's snapshot is no longer kept; the error's status may hold a token for the rest at the newest version.
        """
        return await self._page(kind, kind, namespace, options)

    def watch(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        resource_version: str | None = None,
        timeout_seconds: int | None = None,
        timeout: float | None = None,
        on_expired: Expiry = "raise",
    ) -> Watch[R]:
        """Events of a namespace, or of ``ALL_NAMESPACES``: from ``resource_version`` on, or first all objects as ADDED (see ``Watch``).

        ``timeout_seconds`` is after how long the server ends one connection; the watch goes on with another. ``timeout``: the iteration
        ends after so many seconds; None: never. ``on_expired="relist"``: when the server has forgotten where the watch was, list again and
        tell the difference, for which the last state of each object is kept in memory.

        Raises:
            ValueError: ``resource_version`` is "" or "0", which name no state to go on from.
        """
        options = WatchOptions(
            label_selector=label_selector, field_selector=field_selector, resource_version=resource_version, timeout_seconds=timeout_seconds
        )
        return self._watch(kind, kind, namespace, options, timeout, on_expired)

    def watch_metadata(
        self,
        kind: type[Resource],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        resource_version: str | None = None,
        timeout_seconds: int | None = None,
        timeout: float | None = None,
        on_expired: Expiry = "raise",
    ) -> Watch[PartialObject]:
        """As ``watch``, metadata only."""
        options = WatchOptions(
            label_selector=label_selector, field_selector=field_selector, resource_version=resource_version, timeout_seconds=timeout_seconds
        )
        return self._watch(kind, PartialObject, namespace, options, timeout, on_expired)

    def _watch(
        self,
        kind: type[Resource],
        read_as: type[R],
        namespace: str | None,
        options: WatchOptions,
        timeout: float | None,
        on_expired: Expiry,
    ) -> Watch[R]:
        async def locate() -> str:
            return await self._collection(kind, namespace)

        def list_all(first: ListOptions) -> ListCall[R]:
            return self._list_call(kind, read_as, namespace, first)

        accept = PARTIAL if read_as is PartialObject else JSON
        return Watch(self.transport, locate, read_as, list_all, options, self.clock, accept=accept, timeout=timeout, on_expired=on_expired)

    def _list_call(
        self, kind: type[Resource], read_as: type[R], namespace: str | None, options: ListOptions, timeout: float | None = None
    ) -> ListCall[R]:
        async def fetch(page: ListOptions) -> ObjectList[R]:
            return await self._page(kind, read_as, namespace, page)

        return ListCall(fetch, options, timeout=timeout, clock=self.clock)

    async def _page(self, kind: type[Resource], read_as: type[R], namespace: str | None, options: ListOptions) -> ObjectList[R]:
        path = await self._collection(kind, namespace)
        accept = _PARTIAL_LIST if read_as is PartialObject else JSON
        return objects_in(read_as, await self.transport.request("GET", path, query=options.query(), accept=accept))
