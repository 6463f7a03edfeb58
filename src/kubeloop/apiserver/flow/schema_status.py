"""Status of FlowSchemas: the condition Dangling says whether the priority level that a schema names exists.

Source: k8s.io/apiserver pkg/util/flowcontrol/apf_controller.go.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kubeloop.apiserver.object_meta import timestamp
from kubeloop.apiserver.objects import Objects, StaleWrite
from kubeloop.apiserver.ownership import Owners
from kubeloop.apiserver.provisioning.flow_control import GROUP, dangling
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.storage import Event, prefix_end
from kubeloop.apiserver.watch_cache import WatchCache
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Clock

JSONObject = dict[str, Any]

SCHEMAS = GroupVersionResource(GROUP, "v1", "flowschemas")
LEVELS = GroupVersionResource(GROUP, "v1", "prioritylevelconfigurations")
MANAGER = "api-priority-and-fairness-config-consumer-v1"


class SchemaStatus:
    """Writes the status of FlowSchemas, from ``start`` to ``stop``, whenever a schema or a priority level changes.

    Guarantees:
        A write that fails is logged, and all statuses are written again after a delay that grows (``Supervisor``).
    """

    def __init__(self, registry: Registry, objects: Objects, owners: Owners, cache: WatchCache, clock: Clock) -> None:
        self._registry = registry
        self._objects = objects
        self._owners = owners
        self._cache = cache
        self._clock = clock
        self._changed = asyncio.Event()
        self._task: SupervisedTask | None = None

    def start(self, tasks: Supervisor) -> None:
        """Follow schemas and priority levels until ``stop``. The watch cache must have been started."""
        for resource in (self._registry.get(SCHEMAS), self._registry.get(LEVELS)):
            if resource is None:
                return
            self._cache.observe(resource.storage_prefix, self._notice)
        self._task = tasks.start(self._run, name="flow-schema-status")

    async def stop(self) -> None:
        """Safe whether or not it was started."""
        if self._task is not None:
            await self._task.stop()

    def _notice(self, _: Event) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            await self._write_all()
            await self._changed.wait()

    async def _write_all(self) -> None:
        levels = {obj["metadata"]["name"] for obj in await self._all(LEVELS)}
        for schema in await self._all(SCHEMAS):
            await self._write(schema["metadata"]["name"], levels)

    async def _all(self, gvr: GroupVersionResource) -> list[JSONObject]:
        resource = self._resource(gvr)
        found = await self._objects.storage.range(resource.storage_prefix, prefix_end(resource.storage_prefix))
        return [self._objects.tree(resource, kv) for kv in found.items]

    async def _write(self, name: str, levels: set[str]) -> None:
        resource = self._resource(SCHEMAS)
        while (stored := await self._objects.get(resource, "", name)) is not None:
            schema = stored.obj
            level = (schema["spec"].get("priorityLevelConfiguration") or {}).get("name", "")
            condition = dangling(level, timestamp(self._clock.wall()), exists=level in levels)
            before = (schema.get("status") or {}).get("conditions") or ()
            known: JSONObject = next((one for one in before if one.get("type") == "Dangling"), {})
            if all(known.get(key) == condition[key] for key in ("status", "reason", "message")):
                return
            config = {
                "kind": schema["kind"],
                "apiVersion": schema["apiVersion"],
                "metadata": {"name": name},
                "status": {"conditions": [condition]},
            }
            scope = self._owners.scope(resource, "status")
            try:
                await self._objects.write(
                    resource, self._owners.applied(scope, schema, config, MANAGER, force=True), expected=stored.revision
                )
            except StaleWrite:
                continue
            return

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        found = self._registry.get(gvr)
        if found is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return found
