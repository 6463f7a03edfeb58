"""Reads: one object, or a page of a list from one snapshot.

Source: Kubernetes API concepts, "Resource versions", "Retrieving large results sets in chunks".
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.apiserver import refusals
from kubeloop.apiserver.continue_token import ANY_REVISION, ContinueToken
from kubeloop.apiserver.objects import Objects, StoredObject
from kubeloop.apiserver.options import ListOptions, invalid_version, resource_version_number
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.selection import Selection
from kubeloop.apiserver.storage import Compacted, FutureRevision, KeyValue, Range, prefix_end
from kubeloop.apiserver.watch_cache import WatchCache
from kubeloop.timing import Clock, within

#: Seconds that a read waits for a version that is still to come, as upstream's watch cache does.
_PATIENCE = 3.0

_TOO_OLD = "The resourceVersion for the provided list is too old."
_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token "
    "results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and "
    "now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list at ``revision``. ``remaining`` None: unknown, since a selector decides."""

    items: list[KeyValue]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class Reader:
    """Reads objects of any resource at versions that clients ask for."""

    def __init__(self, objects: Objects, cache: WatchCache, clock: Clock) -> None:
        self._objects = objects
        self._cache = cache
        self._clock = clock

    async def get(self, resource: ServedResource, namespace: str, name: str, resource_version: str = "") -> StoredObject:
        """The object, at ``resource_version`` or newer.

        Raises:
            NotFound; Timeout when the version does not come; InternalError (upstream's mapping) when it is no number.
        """
        if resource_version:
            number = resource_version_number(resource_version)
            if number is None:
                raise refusals.internal(invalid_version(resource_version))
            await self.at_least(number)
        found = await self._objects.get(resource, namespace, name)
        if found is None:
            raise refusals.not_found(resource.gvr.group_resource, name)
        return found

    async def at_least(self, revision: int) -> None:
        """Return when ``revision`` exists.

        Raises:
            Timeout: it does not after three seconds.
        """
        current = await self._objects.storage.revision()
        if revision <= current:
            return
        try:
            await within(self._clock, _PATIENCE, self._cache.reached(revision))
        except TimeoutError:
            raise refusals.version_too_large(revision, await self._objects.storage.revision()) from None

    async def page(self, resource: ServedResource, namespace: str, options: ListOptions, selection: Selection) -> Page:
        """Raises BadRequest (token, version), Expired, Timeout."""
        prefix = self._objects.prefix(resource, namespace)
        start, revision, limit = prefix, 0, max(options.limit, 0)
        consistent = True
        token = ContinueToken.parse(options.continue_token) if options.continue_token else None
        if token is not None and options.resource_version not in ("", "0"):
            raise refusals.bad_request("specifying resource version is not allowed when using continue")
        version = self._version(options)
        if options.resource_version == "0":
            limit = 0  # served from the cache whole, or all of its rest, as upstream does
        if selection.name and (namespace or not resource.namespaced):
            limit = 0  # upstream reads the one object by its key
        if token is not None:
            start, consistent = prefix + token.start, token.revision != ANY_REVISION
            revision = token.revision if consistent else 0
        elif version:
            await self.at_least(version)
            if options.resource_version_match == "Exact" or (limit and not options.resource_version_match):
                revision = version
        return await self._collect(resource, prefix, start, revision, limit, selection, continued=bool(options.continue_token))

    async def _collect(
        self, resource: ServedResource, prefix: str, start: str, revision: int, limit: int, selection: Selection, *, continued: bool
    ) -> Page:
        end = prefix_end(prefix)
        items: list[KeyValue] = []
        step = limit
        while True:
            found = await self._range(prefix, start, end, revision, step, continued=continued)
            revision = found.revision
            items += self._selected(resource, await self._objects.presented(resource, found.items), selection)
            # With a selection a wider step may reach the end with more than was asked for.
            if not found.more and (not limit or len(items) <= limit):
                return Page(items, revision)
            start = found.items[-1].key + "\0"
            if len(items) >= limit:
                break
            step = min(max(step * 2, 500), 10_000)
        if len(items) > limit:
            items = items[:limit]
            start = items[-1].key + "\0"
        token = ContinueToken("/" + start[len(prefix) :], revision)
        remaining = found.total - len(found.items) if selection.everything else None
        return Page(items, revision, str(token), remaining)

    async def _range(self, prefix: str, start: str, end: str, revision: int, limit: int, *, continued: bool) -> Range:
        try:
            return await self._objects.storage.range(start, end, revision=revision, limit=limit)
        except Compacted:
            if not continued:
                raise refusals.gone(_TOO_OLD) from None
            expired = refusals.gone(_CONTINUE_TOO_OLD)
            expired.status.metadata = {"continue": str(ContinueToken(start[len(prefix) :], ANY_REVISION))}
            raise expired from None
        except FutureRevision as fault:
            raise refusals.version_too_large(revision, fault.current) from None

    def _selected(self, resource: ServedResource, items: list[KeyValue], selection: Selection) -> list[KeyValue]:
        if selection.everything:
            return items
        name = selection.name
        if name is not None:
            items = [kv for kv in items if kv.key.rpartition("/")[2] == name]
        return [kv for kv in items if selection.matches(self._objects.tree(resource, kv))]

    @staticmethod
    def _version(options: ListOptions) -> int:
        if not options.resource_version:
            return 0
        number = resource_version_number(options.resource_version)
        if number is None:
            raise refusals.bad_request(f"invalid resource version: {invalid_version(options.resource_version)}")
        return number
