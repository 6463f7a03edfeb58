"""Where ResourceQuota admission reads and notes usage: in the quotas' status, as the server itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from kubeloop.apiserver.bootstrap import SYSTEM
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.writing import Call, Writer
from kubeloop.meta.kinds import GroupVersionResource

JSONObject = dict[str, Any]

QUOTAS = GroupVersionResource("", "v1", "resourcequotas")


class QuotaStatus:
    """``writer`` is asked for when it is needed: it writes through the plug-ins that use this."""

    def __init__(self, registry: Registry, objects: Objects, writer: Callable[[], Writer]) -> None:
        self._registry = registry
        self._objects = objects
        self._writer = writer

    async def read(self, namespace: str, name: str) -> JSONObject | None:
        """The newest state, shared."""
        found = await self._objects.get(self._resource, namespace, name)
        return None if found is None else found.obj

    async def note(self, quota: JSONObject, used: dict[str, str]) -> None:
        """Raises Conflict when ``quota`` has changed since it was read, NotFound when it is gone."""
        metadata = quota["metadata"]
        context = RequestContext(SYSTEM.name, SYSTEM.groups, metadata["namespace"], subresource="status")
        call = Call(self._resource, metadata["namespace"], metadata["name"], SYSTEM, context, "status", manager=SERVER)

        async def change(_: JSONObject) -> JSONObject:
            changed = copy.deepcopy(quota)
            changed["status"]["used"] = used
            return changed

        await self._writer().update(call, change, status=True)

    @property
    def _resource(self) -> ServedResource:
        found = self._registry.get(QUOTAS)
        assert found is not None
        return found
