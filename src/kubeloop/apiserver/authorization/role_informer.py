"""Keeps what authorization knows in line with what is stored: roles and bindings.

A write of one of them is answered when it is in force: whoever writes waits until the watch cache has handed it out (``Objects.follow``).
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.apiserver.authorization.rbac.index import GROUP, RoleIndex
from kubeloop.apiserver.encoding import decode
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.storage import Event, prefix_end
from kubeloop.apiserver.watch_cache import ROOT, WatchCache
from kubeloop.types import JSONObject

#: Takes namespace, name and object (None: it is gone).
Put = Callable[[str, str, JSONObject | None], None]


async def keep_roles(index: RoleIndex, objects: Objects, cache: WatchCache) -> None:
    """From now on ``index`` holds what is stored."""
    for resource in ("roles", "clusterroles"):
        await keep(f"{ROOT}{GROUP}/{resource}/", index.put_role, objects, cache, wait=True)
    for resource in ("rolebindings", "clusterrolebindings"):
        await keep(f"{ROOT}{GROUP}/{resource}/", index.put_binding, objects, cache, wait=True)


async def keep(prefix: str, put: Put, objects: Objects, cache: WatchCache, *, wait: bool) -> None:
    """Hand to ``put`` every object below ``prefix`` (a resource's), now and as they change.

    ``wait``: writes of them are answered when ``put`` has got them. The cache has been started.
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
