"""Follows the stored objects of a resource, for parts of the server that index them: roles, flow control, the node authorizer.

A write of such an object is answered after the index has it: the writer waits until the watch cache has delivered it (``Objects.follow``).
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.request.encoding import decode
from kubeloop.apiserver.storage import Event, prefix_end
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.types import JSONObject

#: Takes namespace, name and object (None: it is gone).
Put = Callable[[str, str, JSONObject | None], None]


async def follow_objects(prefix: str, put: Put, objects: Objects, cache: WatchCache, *, wait: bool) -> None:
    """Call ``put`` for every object below a prefix, now and on each change. The cache has been started.

    Args:
        prefix: The storage prefix of a resource.
        put: Stores an object, or removes it (None).
        objects: Objects over storage.
        cache: The watch cache.
        wait: Writes of these objects are answered after ``put`` has them.
    """
    waiting: list[Event] = []
    revision = -1

    def changed(event: Event) -> None:
        if revision < 0:
            waiting.append(event)
        elif event.revision > revision:
            put(*place(prefix, event.key), None if event.value is None else decode(event.value))

    cache.observe(prefix, changed)
    start = await objects.storage.range(prefix, prefix_end(prefix))
    for kv in start.items:
        put(*place(prefix, kv.key), decode(kv.value))
    revision = start.revision
    for event in waiting:
        changed(event)
    if wait:
        objects.follow(prefix, cache.reached)


def place(prefix: str, key: str) -> tuple[str, str]:
    """Namespace (empty: none) and name of a key below ``prefix``."""
    namespace, _, name = key[len(prefix) :].rpartition("/")
    return namespace, name
