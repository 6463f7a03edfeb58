"""Proof that a cache has every change of its resource up to a version, for consistent reads.

ReflectorSource: Kubernetes API concepts, "Resource versions"; KEP-2340 (consistent reads from cache).
"""

# The newest revision of the API server comes from a list with limit=1, which costs it one key. A watch reaches that revision only by a
# change of the same resource or by a bookmark, and a kube-apiserver sends a bookmark about once a minute, without a way to request one. A
# second watch proves nothing about the first: the two are not ordered. So the cache compares its state with a list of metadata: if each
# object has the same version, or a newer one, no change up to the list's version is missing. The list is evidence only; the states come
# from the watch. Its cost is shared by all requests that wait, and only reads of the whole resource pay for it; the others are forwarded.

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from kubeloop.codec.list_pages import ListSplitter
from kubeloop.meta.errors import DecodeError, TransportError
from kubeloop.proxy.cached.objects import CachedObjects, Key
from kubeloop.proxy.cached.shared_call import SharedCall
from kubeloop.proxy.upstream import MAX_OBJECT, Upstream, bad_gateway, body_of, chunks_of, parsed, unreachable
from kubeloop.timing import Clock
from kubeloop.transport.round_tripper import OutgoingRequest

#: Seconds in which a change that the API server has stored normally arrives by the watch.
ARRIVAL: Final = 0.05
#: Seconds after which a kube-apiserver answers "Too large resource version" (k8s.io/apiserver pkg/storage/cacher, blockTimeout).
PATIENCE: Final = 3.0
#: Objects per page of the list of metadata.
_PAGE: Final = 2000
_ACCEPT: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


class _Metadata(msgspec.Struct):
    name: str
    resource_version: str = msgspec.field(name="resourceVersion")
    namespace: str = ""


class _Item(msgspec.Struct):
    metadata: _Metadata


_decode_item = msgspec.json.Decoder(_Item).decode


class CacheProgress:
    """Brings the version of a cache forward.

    Args:
        upstream: The API server, which is asked as the proxy's own user.
        path: The path of all objects of the resource.
        objects: The cache.
        clock: Measures the waits.
    """

    def __init__(self, upstream: Upstream, path: str, objects: CachedObjects, clock: Clock) -> None:
        self._upstream = upstream
        self._path = path
        self._objects = objects
        self._clock = clock
        #: Returns the newest resourceVersion of the API server.
        self.newest = SharedCall(self._newest)
        self._prove = SharedCall(self._compare)
        #: Number of consistent reads that the watch had reached, and number of comparisons.
        self.reached = 0
        self.compared = 0

    async def close(self) -> None:
        """End the requests."""
        await self.newest.close()
        await self._prove.close()

    async def confirm(self, *, compare: bool) -> bool:
        """Bring the cache to the newest version of the API server.

        Args:
            compare: Compare the state with a list of metadata if the watch does not reach that version.

        Returns:
            Whether the cache has reached it. False if it has not, and a comparison was not wanted or took too long.

        Raises:
            ApiError: The API server sent no response, or an error.
        """
        version = await self.newest()
        if await self._arrived(version, ARRIVAL):
            self.reached += 1
            return True
        if not compare:
            return False
        await self._prove()
        return self._objects.version >= version

    async def reach(self, version: int) -> bool:
        """Wait until the cache has reached a version, at most ``PATIENCE`` seconds. Return whether it has.

        Raises:
            ApiError: The API server sent no response, or an error.
        """
        if await self._arrived(version, ARRIVAL):
            return True
        if await self.newest() >= version:
            await self._prove()
            return self._objects.version >= version
        return await self._arrived(version, PATIENCE)

    async def _arrived(self, version: int, seconds: float) -> bool:
        objects = self._objects
        return objects.version >= version or await objects.wait(self._clock, seconds, lambda: objects.version >= version)

    async def _newest(self) -> int:
        tree = parsed(await self._upstream.read(f"{self._path}?limit=1", [("Accept", _ACCEPT)], limit=MAX_OBJECT))
        return _version_of((tree.get("metadata") or {}).get("resourceVersion"))

    async def _compare(self) -> None:
        """Compare the cache with the API server, and wait for the changes that the watch has not brought yet."""
        self.compared += 1
        listed, version = await self._listed()
        objects = self._objects
        missing = {key: number for key, number in listed.items() if not self._has(key, number)}
        leftover = {key for key, head in objects.items() if key not in listed and int(head.resource_version) <= version}

        def complete() -> bool:
            if objects.version >= version or not objects.synced:
                return True
            for key in [key for key, number in missing.items() if self._has(key, number)]:
                del missing[key]
            leftover.difference_update([key for key in leftover if _is_gone(objects, key, version)])
            return not missing and not leftover

        if await objects.wait(self._clock, PATIENCE, complete) and objects.synced:
            objects.advance(version)

    def _has(self, key: Key, version: int) -> bool:
        """Return whether the cache has the state of an object at a version, or a later one."""
        head = self._objects.get(key)
        if head is not None:
            return int(head.resource_version) >= version
        return self._objects.log.deleted_after(*key, version)

    async def _listed(self) -> tuple[dict[Key, int], int]:
        """Return the versions of all objects, and the version of the list."""
        listed: dict[Key, int] = {}
        query = f"limit={_PAGE}"
        version = 0
        while True:
            target = f"{self._path}?{query}"
            answer = await self._upstream.send(OutgoingRequest("GET", target, [("Accept", _ACCEPT)], None), as_proxy=True)
            if answer.status != 200:
                await body_of(answer, target, MAX_OBJECT)  # raises the API server's error
                raise bad_gateway("the API server sent no list")
            splitter = ListSplitter(_read)
            try:
                async for chunk in chunks_of(answer):
                    _add(listed, splitter.feed(chunk))
                items, metadata, _ = splitter.finish()
            except TransportError as error:
                raise unreachable(error) from error
            except (DecodeError, RecursionError) as error:
                raise bad_gateway(f"the API server sent something else than a list: {error}") from None
            _add(listed, items)
            # All pages show the state at the version of the first.
            version = version or _version_of(metadata.resource_version)
            if not metadata.continue_:
                return listed, version
            query = f"limit={_PAGE}&continue={quote(metadata.continue_, safe='')}"


def _is_gone(objects: CachedObjects, key: Key, version: int) -> bool:
    """Return whether an object that was deleted up to a version is deleted in the cache, too."""
    head = objects.get(key)
    return head is None or int(head.resource_version) > version


def _read(data: memoryview) -> _Metadata:
    try:
        return _decode_item(data).metadata
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from None


def _add(listed: dict[Key, int], items: list[tuple[_Metadata, memoryview]]) -> None:
    for metadata, _ in items:
        listed[metadata.namespace, metadata.name] = _version_of(metadata.resource_version)


def _version_of(version: Any) -> int:
    if not isinstance(version, str) or not version.isdecimal():
        raise bad_gateway("the API server sent a list without a usable resourceVersion")
    return int(version)
