"""Reads: one object, lists and watches; typed, or metadata only.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from typing import TypeVar

from kubeloop.client.lists import ListCall, ObjectList, objects_in
from kubeloop.client.options import Expiry, ListOptions, Match, WatchOptions, completed
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.watches import Watch
from kubeloop.codec import decode
from kubeloop.meta import PartialObject, Resource

R = TypeVar("R", bound=Resource)

JSON = "application/json"
# As in client-go's metadata client: a server without PartialObjectMetadata sends the whole object, and only its metadata is read.
PARTIAL = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_PARTIAL_LIST = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


class Reading(Verbs):
    """get, list and watch."""

    @limited
    async def get(
        self, kind: type[R], name: str, *, namespace: str | None = None, resource_version: str | None = None, timeout: float | None = None
    ) -> R:
        """Read one object.

        Args:
            kind: The class of the object.
            name: The object's name.
            namespace: None: the client's.
            resource_version: None: the newest version; a version: a state at least as new; "0": any state that the server has in memory.
            timeout: Seconds for the whole call. None: only the request is limited.

        Raises:
            NotFound: The object does not exist.

        Returns:
            The object.
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
        """Read only the metadata of an object. The server sends nothing else.

        Args:
            kind: The class of the object.
            name: The object's name.
            namespace: None: the client's.
            resource_version: As for ``get``.
            timeout: Seconds for the whole call. None: only the request is limited.

        Raises:
            NotFound: The object does not exist.

        Returns:
            The metadata.
        """
        path = await self._path(kind, name, namespace)
        response = await self.transport.request("GET", path, query={"resourceVersion": resource_version}, accept=PARTIAL)
        return decode(PartialObject, response.body)

    def list(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        limit: int | None = None,
        resource_version: str | None = None,
        resource_version_match: Match | None = None,
        options: ListOptions | None = None,
        timeout: float | None = None,
    ) -> ListCall[R]:
        """List objects of a namespace, or of ``ALL_NAMESPACES``: ``await`` the result for an ``ObjectList``, or use ``async for``.

        Args:
            kind: The class of the objects.
            namespace: None: the client's.
            label_selector: ``"app=web"``, ``{"app": "web"}`` or a ``Selector``.
            field_selector: ``"spec.nodeName=node-7"``, or a dict.
            limit: The number of objects per page, not of the result. 0: all in one response. None: 500.
            resource_version: As in ``ListOptions``.
            resource_version_match: As in ``ListOptions``.
            options: Further options of the list; keywords take precedence over them.
            timeout: Seconds for an awaited list, or for each page of a loop. None: only each request is limited.

        Returns:
            A list that is not requested yet.
        """
        options = completed(
            ListOptions,
            options,
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
        limit: int | None = None,
        resource_version: str | None = None,
        resource_version_match: Match | None = None,
        options: ListOptions | None = None,
        timeout: float | None = None,
    ) -> ListCall[PartialObject]:
        """List only the metadata of objects. See ``list`` for everything else.

        Args:
            kind: The class of the objects.
            namespace: None: the client's.
            label_selector: As for ``list``.
            field_selector: As for ``list``.
            limit: As for ``list``.
            resource_version: As for ``list``.
            resource_version_match: As for ``list``.
            options: As for ``list``.
            timeout: As for ``list``.

        Returns:
            A list that is not requested yet.
        """
        options = completed(
            ListOptions,
            options,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
            resource_version_match=resource_version_match,
        )
        return self._list_call(kind, PartialObject, namespace, options, timeout)

    @limited
    async def list_page(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        limit: int | None = None,
        resource_version: str | None = None,
        resource_version_match: Match | None = None,
        options: ListOptions | None = None,
        timeout: float | None = None,
    ) -> ObjectList[R]:
        """Request one page. For the next page, give the page's ``continue_token`` with ``options=ListOptions(continue_token=...)``.

        Args:
            kind: The class of the objects.
            namespace: None: the client's.
            label_selector: As for ``list``.
            field_selector: As for ``list``.
            limit: As for ``list``.
            resource_version: As for ``list``.
            resource_version_match: As for ``list``.
            options: As for ``list``.
            timeout: Seconds for the whole call. None: only the request is limited.

        Raises:
            Expired: The token has expired; the error's status may contain a token for the rest of the list at the newest version.

        Returns:
            The objects of the page.
        """
        options = completed(
            ListOptions,
            options,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
            resource_version_match=resource_version_match,
        )
        return await self._page(kind, kind, namespace, options)

    def watch(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        resource_version: str | None = None,
        options: WatchOptions | None = None,
        timeout: float | None = None,
        on_expired: Expiry = "raise",
    ) -> Watch[R]:
        """Watch a namespace, or ``ALL_NAMESPACES`` (see ``Watch``).

        Args:
            kind: The class of the objects.
            namespace: None: the client's.
            label_selector: As for ``list``.
            field_selector: As for ``list``.
            resource_version: The version to start from. None: first yield all existing objects as ADDED.
            options: Further options of the watch; keywords take precedence over them.
            timeout: Seconds after which the iteration ends. None: never.
            on_expired: ``"raise"``: raise ``Expired`` if the server no longer has the version. ``"relist"``: list again and yield the
                differences; for this the watch stores the last state of each object.

        Raises:
            ValueError: ``resource_version`` is "" or "0", whose events have no defined order; or ``options`` request initial events.

        Returns:
            A watch to enter with ``async with``.
        """
        options = completed(
            WatchOptions, options, label_selector=label_selector, field_selector=field_selector, resource_version=resource_version
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
        options: WatchOptions | None = None,
        timeout: float | None = None,
        on_expired: Expiry = "raise",
    ) -> Watch[PartialObject]:
        """Watch only the metadata of objects. See ``watch`` for everything else.

        Args:
            kind: The class of the objects.
            namespace: None: the client's.
            label_selector: As for ``list``.
            field_selector: As for ``list``.
            resource_version: As for ``watch``.
            options: As for ``watch``.
            timeout: As for ``watch``.
            on_expired: As for ``watch``.

        Returns:
            A watch to enter with ``async with``.
        """
        options = completed(
            WatchOptions, options, label_selector=label_selector, field_selector=field_selector, resource_version=resource_version
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
